"""Calls on the screens and in lines: shown, asked about, carried out, stopped, kept."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from localspec.history.archive import History
from localspec.messages import Message
from localspec.session.conversation import SavedConversation
from localspec.toolbox.rules import Rule, Rules
from localspec.tui import sheets
from localspec.tui.session import Session
from localspec.tui.sheets import ApprovalSheet
from tests.tui.driving import Chat, drive, driven
from tests.tui.lines import said
from tests.tui.tools import BUG, MENDED, SCRIPT, work

ROLES = ["user", "assistant", "tool", "assistant", "tool", "assistant", "tool", "assistant"]


@pytest.fixture(autouse=True)
def calm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is typing something else."""
    monkeypatch.setattr(sheets, "CALM_S", 0.0)


def sheet(chat: Chat) -> ApprovalSheet | None:
    return next((e for e in chat.app.screen_stack if isinstance(e, ApprovalSheet)), None)


async def question(chat: Chat, word: str) -> None:
    """Wait for a question about something."""
    await chat.until(lambda: (it := sheet(chat)) and word in it.question.proposal.summary)


def roles(chat: Chat) -> list[str]:
    return [each.message.role for each in chat.session.talk.messages]


@driven(SCRIPT, size=(120, 40), tools=work)
async def test_a_bug_is_mended_after_three_questions(chat: Chat, tmp_path: Path) -> None:
    other = SavedConversation(History(tmp_path / "history"))
    file = chat.session.folder / "add.py"
    await chat.ready()
    await chat.begin("mend it")
    await question(chat, "read add.py")
    other.open(1)
    await chat.press("y")
    await question(chat, "change add.py")
    # What another window adds meanwhile is no matter of this one.
    other.say_instead(1, Message.user("FOX?"))
    other.history.close()
    chat.see(["-    return a - b", "+    return a + b", "y once"])
    await chat.until(lambda: "waits for your answer" in chat.text().splitlines()[-1])
    assert file.read_text() == BUG
    await chat.press("y")
    await question(chat, "run grep")
    chat.see("onfined")
    assert file.read_text() == MENDED
    await chat.press("y")
    await chat.until_rest()
    assert roles(chat) == ROLES
    chat.see(["It is mended.", "→ run_command", "passed"], lacks="FOX")
    assert re.search(r"run_command · \d+\.\d s", chat.text())


@driven(SCRIPT, tools=work)
async def test_a_refusal_with_a_reason_reaches_the_model(chat: Chat) -> None:
    await chat.ready()
    await chat.begin("mend it")
    await question(chat, "read")
    await chat.press("a")
    await question(chat, "change")
    await chat.press("n", *"not now", "enter")
    await chat.until_rest()
    assert chat.contents[-1] == "Then not."
    (result,) = chat.session.talk.messages[-2].message.parts
    assert result.text == "the user refused this call: not now"  # type: ignore[union-attr]
    assert (chat.session.folder / "add.py").read_text() == BUG
    # Reading is not asked about again, until the conversation ends.
    for asked, word in (("mend it again", "change"), ("mend it", "read")):
        await chat.begin(asked)
        await question(chat, word)
        await chat.press("escape")
        await chat.until_rest()
        assert (roles(chat)[-1], sheet(chat)) == ("tool", None)
        await chat.run("/new")


@driven(SCRIPT, tools=work)
async def test_escape_stops_a_command_and_the_conversation_goes_on(
    chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    await chat.ready()
    await chat.begin("wait")
    await question(chat, "run echo begun")
    monkeypatch.setattr(sheets, "CALM_S", 3600.0)
    await chat.press("y", "a", "n", "y")  # a key that was meant for the composer answers nothing
    assert sheet(chat) is not None
    monkeypatch.setattr(sheets, "CALM_S", 0.0)
    await chat.press("y")
    await chat.until((chat.session.folder / "begun").exists)
    await chat.until_text("Esc stops")
    await chat.press("escape")
    await chat.until_rest()
    assert roles(chat) == ["user", "assistant", "tool"]
    chat.see("it was stopped by the user")
    await chat.ask("stopped?")
    assert chat.contents[-1] == "It was stopped."


def test_a_conversation_with_calls_is_taken_up_again_without_tools(tmp_path: Path) -> None:
    async def again(chat: Chat) -> None:
        await chat.ready()
        assert "It is mended." in chat.text()
        await chat.ask("passed?")
        assert chat.contents[-1] == "It is mended."
        await chat.run("/export")
        (file,) = chat.session.folder.glob("*.md")
        assert "run_command" in file.read_text()

    _, _, found = lines(tmp_path, "mend it", rules=Rules(allow=(Rule("*"),)))
    assert found == ROLES
    drive(again, tmp_path, SCRIPT, resume=1)


def lines(
    folder: Path, *typed: str, answers: Iterator[str] | None = None, rules: Rules | None = None
) -> tuple[str, str, list[str]]:
    """Chat in lines; return the answers, the news, and the roles of the messages."""
    roles: list[str] = []

    def look(session: Session) -> None:
        roles.extend(each.message.role for each in session.talk.messages)

    calling = work(folder, rules)
    _, out, err = said(folder, *typed, script=SCRIPT, answers=answers, work=calling, look=look)
    return out, err, roles


def test_lines_ask_refuse_where_nobody_can_be_asked_and_do_what_rules_allow(tmp_path: Path) -> None:
    out, err, found = lines(tmp_path, "mend it", answers=iter(["y", "what?", "y", "y"]))
    assert (out, found) == ("I look.\nIt is mended.\n", ROLES)
    assert "+    return a + b" in err
    assert '→ read_file {"path": "add.py"}' in err
    assert "localspec: passed" in err
    assert (tmp_path / "add.py").read_text() == MENDED
    out, err, _ = lines(tmp_path, "mend it", rules=Rules(allow=(Rule("read_file"),)))
    assert out == "I look.\nThen not.\n"
    assert "refused: change add.py" in err
    assert "tools.toml" in err
    assert (tmp_path / "add.py").read_text() == BUG
    allow = (Rule("read_file"), Rule("edit_file", "add.py"), Rule("run_command"))
    rules = Rules(allow=allow, deny=(Rule("run_command", "rm"),))
    out, _, found = lines(tmp_path, "mend it", rules=rules)
    assert out.endswith("It is mended.\n")
    assert found == ROLES
