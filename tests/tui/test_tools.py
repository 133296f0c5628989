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
from tests.support.checks import fits
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
    await chat.begin("mend it")
    await question(chat, "read add.py")
    other.open(1)
    await chat.press("y")
    await question(chat, "change add.py")
    # What another window adds meanwhile is no matter of this one.
    other.say_instead(1, Message.user("FOX?"))
    other.history.close()
    shown = ["-    return a - b", "+    return a + b", "y once", "waits for your answer"]
    await chat.until_text(*shown)
    assert file.read_text() == BUG
    await chat.press("y")
    await question(chat, "run grep")
    chat.see(shows="onfined")
    assert file.read_text() == MENDED
    await chat.press("y", rest=True, shows=["It is mended.", "→ run_command", "passed"])
    assert roles(chat) == ROLES
    chat.see(lacks="FOX")
    assert re.search(r"run_command · \d+\.\d s", chat.text())


@driven(SCRIPT, tools=work)
async def test_a_refusal_with_a_reason_reaches_the_model(chat: Chat) -> None:
    await chat.begin("mend it")
    await question(chat, "read")
    await chat.press("a")
    await question(chat, "change")
    await chat.press("n", *"not now", "enter", rest=True)
    assert chat.contents[-1] == "Then not."
    (result,) = chat.session.talk.messages[-2].message.parts
    assert result.text == "the user refused this call: not now"  # type: ignore[union-attr]
    assert (chat.session.folder / "add.py").read_text() == BUG
    # Reading is not asked about again, until the conversation ends.
    for asked, word in (("mend it again", "change"), ("mend it", "read")):
        await chat.begin(asked)
        await question(chat, word)
        await chat.press("escape", rest=True)
        assert (roles(chat)[-1], sheet(chat)) == ("tool", None)
        await chat.run("/new")


@driven(SCRIPT, tools=work)
async def test_escape_stops_a_command(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    await chat.begin("wait")
    await question(chat, "run echo begun")
    monkeypatch.setattr(sheets, "CALM_S", 3600.0)
    await chat.press("y", "a", "n", "y")  # a key that was meant for the composer answers nothing
    assert sheet(chat) is not None
    monkeypatch.setattr(sheets, "CALM_S", 0.0)
    await chat.press("y")
    await chat.until((chat.session.folder / "begun").exists)
    await chat.until_text("Esc stops")
    await chat.press("escape", rest=True, shows="it was stopped by the user")
    assert roles(chat) == ["user", "assistant", "tool"]
    await chat.ask("stopped?")
    assert chat.contents[-1] == "It was stopped."


def lines(
    folder: Path, answers: Iterator[str] | None = None, rules: Rules | None = None
) -> tuple[str, str, list[str]]:
    """Have a bug mended in lines; return the answers, the news, and the roles of the messages."""
    roles: list[str] = []

    def look(session: Session) -> None:
        roles.extend(each.message.role for each in session.talk.messages)

    calling = work(folder, rules)
    _, out, err = said(folder, "mend it", script=SCRIPT, answers=answers, work=calling, look=look)
    return out, err, roles


def test_lines_ask_refuse_where_nobody_can_be_asked_and_do_what_rules_allow(tmp_path: Path) -> None:
    out, err, found = lines(tmp_path, iter(["y", "what?", "y", "y"]))
    assert (out, found) == ("I look.\nIt is mended.\n", ROLES)
    told = ("+    return a + b", '→ read_file {"path": "add.py"}', "localspec: passed")
    fits(err, dict.fromkeys(told, 1))
    assert (tmp_path / "add.py").read_text() == MENDED
    out, err, _ = lines(tmp_path, rules=Rules(allow=(Rule("read_file"),)))
    assert out == "I look.\nThen not.\n"
    assert "refused: change add.py" in err
    assert "tools.toml" in err
    assert (tmp_path / "add.py").read_text() == BUG
    allow = (Rule("read_file"), Rule("edit_file", "add.py"), Rule("run_command"))
    rules = Rules(allow=allow, deny=(Rule("run_command", "rm"),))
    out, _, found = lines(tmp_path, rules=rules)
    assert (out[-14:], found) == ("It is mended.\n", ROLES)


def test_a_conversation_with_calls_is_taken_up_again_without_tools(tmp_path: Path) -> None:
    async def again(chat: Chat) -> None:
        assert "It is mended." in chat.text()
        await chat.ask("passed?")
        assert chat.contents[-1] == "It is mended."
        await chat.run("/export")
        (file,) = chat.session.folder.glob("*.md")
        assert "run_command" in file.read_text()

    _, _, found = lines(tmp_path, rules=Rules(allow=(Rule("*"),)))
    assert found == ROLES
    drive(again, tmp_path, SCRIPT, resume=1, ready=True)
