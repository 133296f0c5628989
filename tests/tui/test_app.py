"""The main screen, driven by keys: what is written and recalled, messages and their keys, and how it looks."""

import asyncio
from itertools import chain
from pathlib import Path

import pytest
from textual import events
from textual.widgets import OptionList

from localspec.messages import Message
from localspec.session.preferences import Preferences, read_preferences
from localspec.tui.actions import edited
from localspec.tui.commands import COMMANDS
from localspec.tui.composer import Composer
from localspec.tui.message import MessageView
from localspec.tui.sheets import TextSheet
from tests.support.checks import refuses
from tests.tui.answers import exchange, finished, tokens
from tests.tui.driving import Chat, drive, driven
from tests.tui.lines import said
from tests.tui.test_typeset import obeyed

EVIL = "\x1b]0;title\x07\x1b[2J [a](https://x.example/\x1b) `\x9b31m` &#x202e; \x08 \r\nend"
CODE = "Two blocks:\n\n```python\nx = 1\n```\n\n日本語 👩‍👩‍👧\n\n```sh\nls\n```\n"
INDENTED = "def f():\n    return some_function(an_argument, another_one)\n"


@driven()
async def test_lines_are_written_pasted_and_taken_without_being_sent(chat: Chat) -> None:
    composer = chat.composer
    await chat.press("a", "ctrl+j", "b", typed="a\nb")
    composer.fill("")
    await chat.paste("\n".join(f"line {each}\tx" for each in range(2000)) + "\x1b[31m\r\n")
    assert composer.text.count("\n") == 2000
    assert "\tx" in composer.text
    assert "\x1b" not in composer.text
    assert chat.contents == []
    assert composer.size.height <= 8
    composer.fill("one\ntwo\nthree")
    for text in ("one\ntwo\n", "one\ntwo", "one\n"):
        await chat.press("ctrl+u", typed=text)
    composer.fill("one\ntwo")
    await chat.press("home", "ctrl+u", typed="one\ntwo")
    await chat.press("right", "ctrl+u", typed="one\nwo")


@driven()
async def test_a_pasted_mention_is_text_until_it_is_typed(chat: Chat) -> None:
    folder = chat.session.folder
    for name in ("notes.txt", "b.txt"):
        (folder / name).write_text("own")

    def attached() -> list[str]:
        question = chat.session.talk.question().message
        return [each.name for each in question.documents]

    await chat.paste(f"mail from @notes.txt, @nobody and @{folder}/b.txt ok")
    await chat.press("enter", rest=True)
    chat.see(shows="@notes.txt was pasted: sent as text")
    assert attached() == []
    await chat.press("up", "enter", rest=True)  # recalled, and edited, it is still the pasted one
    assert attached() == []
    await chat.press("f6")
    await chat.type(" then")
    await chat.press("enter", rest=True)
    assert attached() == []
    assert chat.questions[-1].endswith("ok then")
    for typed, pasted in (("see @notes.txt ", "and @notes.txt"), ("see @", "notes.txt"), ("@notes.txt", " x")):  # fmt: skip
        await chat.type(typed)
        await chat.paste(pasted)
        await chat.press("enter", rest=True)
        assert attached() == ["notes.txt"]
    await chat.paste("@notes.txt")
    await chat.press(*["backspace"] * 10)
    await chat.type("@notes.txt")  # what was pasted is gone
    await chat.press("enter", rest=True)
    assert attached() == ["notes.txt"]


@driven()
async def test_a_pasted_mention_that_waits_is_text_and_so_is_one_that_comes_back(
    chat: Chat,
) -> None:
    (chat.session.folder / "notes.txt").write_text("own")
    await chat.ask("one?")
    chat.session.waiting.append("mail @notes.txt ok")
    chat.session.questions.pasted["mail @notes.txt ok"] = frozenset({"notes.txt"})
    chat.app.take_back_waiting()
    await chat.settle()
    await chat.press("enter", rest=True)
    assert chat.questions[-1] == "mail @notes.txt ok"
    assert chat.session.talk.question().message.documents == ()


@driven()
async def test_a_question_is_edited_in_a_branch_and_versions_are_switched(chat: Chat) -> None:
    await chat.ask("one?")
    await chat.press(*"draft", "f6", typed="one?")
    await chat.press("escape", "up", typed="draft")  # what was being written is not lost
    await chat.press("f6")
    await chat.ask("uno?", shows="version 2 of 2")
    assert chat.contents[0] == "uno?"
    await chat.press("shift+tab", "up", "left")
    await chat.until(lambda: chat.contents[0] == "one?")
    chat.see(shows="version 1 of 2")
    for _ in range(2):
        await chat.press("escape", "f5", rest=True)
    await chat.press("shift+tab", "left", shows="version 2 of 3")
    await chat.press("left", "left", shows="version 3 of 3")
    assert isinstance(chat.app.focused, MessageView)
    await chat.ask("two?")
    await chat.ask("/edit and three?")  # the last one, by its new words
    assert chat.questions == ["one?", "and three?"]


@driven(size=(110, 30))
async def test_an_answer_is_marked_by_command_and_by_key(chat: Chat) -> None:
    await chat.run("/good", shows="no answer yet")
    for question in ("one?", "two?"):
        await chat.ask(question)
    await chat.run("/good", shows="· marked good")
    await chat.press("f6")  # an edit that was begun stays one
    await chat.press("shift+tab", shows="+- mark")
    await chat.press("minus", shows="· marked bad", lacks="· marked good")
    assert isinstance(chat.app.focused, MessageView)
    await chat.press("up", lacks="+- mark")
    await chat.press("up", "plus", shows="· marked good")
    assert [each.mark for each in chat.session.talk.messages] == ["", "good", "", "bad"]
    await chat.press("plus", lacks="· marked good")
    assert chat.app.editing == 2
    await chat.press("escape")
    await chat.run("/undo", lacks="· marked")
    await chat.run("/regenerate", shows="version 2 of 2", lacks="· marked")


@driven({"answers": {"evil": EVIL}})
async def test_nothing_that_a_terminal_obeys_reaches_it(chat: Chat) -> None:
    await chat.ask("evil?", shows="␛]0;title␇␛[2J")
    assert obeyed(chat.text()) == []
    await chat.until_sheet(TextSheet, "f3")
    assert obeyed(chat.text()) == []


async def hold(chat: Chat, count: int) -> None:
    """Show a conversation of so many questions, each with its answer."""
    talk = chat.session.talk
    talk.conversation = talk.history.create()
    parent = None
    for each in range(count):
        question = Message.user(f"question {each}.")
        parent = talk.history.add_user(talk.conversation, parent, question)
        reply = talk.history.begin_reply(talk.conversation, parent)
        reply.finish(Message.assistant(f"answer {each}."))
        parent = reply.message
    talk.show_branch(parent)
    await chat.app.view.show_messages()
    await chat.until_text(f"answer {count - 1}.")


@pytest.mark.slow
@driven()
async def test_a_long_conversation_mounts_few_messages_and_fetches_the_others(chat: Chat) -> None:
    await hold(chat, 80)
    assert len(chat.transcript.views) <= 45
    seen = {79}
    for _ in range(400):
        numbers = [each for each in range(80) if f"answer {each}." in chat.text()]
        # A page up leaves no message out: what is new joins what was seen.
        assert not numbers or max(numbers) >= min(seen) - 1, chat.text()
        seen.update(numbers)
        if 0 in seen:
            break
        await chat.press("pageup")
    assert seen == set(range(80))
    await chat.press("ctrl+end")
    await chat.until_text("answer 79.")
    await chat.until(lambda: len(chat.transcript.views) <= 45)


@driven({"thinks": True, "otherwise": ["<think>deep thought</think>Done."]})
async def test_thoughts_are_folded_and_a_key_or_a_click_unfolds_them(chat: Chat) -> None:
    await chat.run("/think", shows="no thoughts in this conversation")
    await chat.ask("hello?", shows="▸ thoughts, 2 words", lacks="deep thought")
    await chat.press("ctrl+t", shows="deep thought")
    await chat.press("ctrl+t", lacks="deep thought")
    await chat.click(chat.transcript.views[-1], (4, 1))
    chat.see(shows="deep thought")


@driven()
async def test_what_cannot_be_done_stays_to_be_mended(chat: Chat) -> None:
    (chat.session.folder / "a.bin").write_bytes(b"\xff\xfe")
    for sent, why in (
        ("look at @a.bin", "a.bin is not UTF-8 text"),
        ("/model qwen3-4x", "did you mean qwen3-4b"),
        ("/set temprature 1", "temprature"),
    ):
        await chat.run(sent, shows=why, typed=sent)
        assert not chat.session.models.loading
        await chat.run("/stats", typed="")
        await chat.press("escape")
    await chat.run("/docs", shows="no index", typed="/docs")
    await chat.press(*"/un", typed="/un")  # in place of what could not be done


@driven(size=(80, 24))
async def test_commands_and_paths_are_completed_by_keys(chat: Chat) -> None:
    (chat.session.folder / "notes.md").write_text("x" * 1200)
    await chat.ask("hello?")
    await chat.press("/", "enter", typed="/")
    assert chat.app.view.entry.list_open
    assert chat.questions == ["hello?"]
    await chat.press("down", "down", "down")
    assert chat.app.query_one("#completions", OptionList).highlighted == 2
    await chat.press("escape", typed="")
    assert not chat.app.view.entry.list_open
    await chat.press(*"/exp", shows="/export [md|json] [FILE]")
    await chat.press("tab", typed="/export ")
    chat.composer.fill("")
    await chat.press(*"@no", shows="notes.md  1.2 KB")
    await chat.press("tab", typed="@notes.md ")
    chat.composer.fill("")
    # Where there is nothing to complete, the composer keeps the focus.
    await chat.press(*"tell me a", "tab", *"bout it", typed="tell me about it")
    chat.composer.fill("")
    await chat.press(*"/hel", "enter")
    await chat.until_sheet(TextSheet)


def test_marks_are_seen_without_colours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")

    async def look(chat: Chat) -> None:
        await chat.press("/", "down", "down")
        marked = chat.app.query_one("#completions", OptionList)
        styles = [marked.render_line(y)._segments[0].style for y in range(3)]
        assert [bool(style and style.underline) for style in styles] == [False, True, False]
        for segment in chain.from_iterable(chat.app.screen._compositor.render_strips()):
            colour = segment.style and segment.style.color
            assert colour is None or colour.is_default  # type: ignore[union-attr]

    drive(look, tmp_path)


@driven()
async def test_what_is_typed_on_a_message_and_is_no_command_is_written(chat: Chat) -> None:
    await chat.ask("one?")
    composer = chat.composer

    async def until_written(text: str) -> None:
        await chat.until(lambda: composer.text == text and composer.has_focus)
        composer.fill("")

    await chat.press("shift+tab")
    assert isinstance(chat.app.focused, MessageView)
    for each in "no, be brief":  # faster than anything is drawn
        chat.app.post_message(events.Key(each, each))
    await until_written("no, be brief")
    await chat.press("shift+tab")
    chat.app.focused.post_message(events.Paste("two\nlines"))
    await until_written("two\nlines")
    await chat.press(*"tell me a")
    await chat.click(chat.transcript.views[-1])  # which makes no commands of what is written
    await chat.press(*"bout it")
    await until_written("tell me about it")
    await chat.click(chat.transcript.views[-1])
    assert isinstance(chat.app.focused, MessageView)


@pytest.mark.first(1)
@pytest.mark.parametrize("clear", ["ctrl+u", "ctrl+c"])
@driven()
async def test_questions_are_recalled_and_what_is_typed_is_kept(chat: Chat, clear: str) -> None:
    await chat.ask("one?")
    await chat.press(*"first")
    await chat.press("up", typed="one?")
    await chat.press(clear, typed="")
    await chat.press(*"second")
    for key, text in (("down", "second"), ("up", "first"), ("up", "one?"), ("down", "first")):
        await chat.press(key, typed=text)
    await chat.press("down", typed="second")


@driven()
async def test_keys_that_come_faster_than_the_app_takes_them_ask_each_question_once(
    chat: Chat,
) -> None:
    """As from a terminal without bracketed paste, or on a busy machine."""
    for text in ("one?", "", "two?"):
        chat.composer.type(text)
        chat.composer.action_send()
    chat.composer.type("three")
    await chat.settle()
    assert chat.contents[::2] == ["one?", "two?"]
    assert chat.composer.text == "three"


@driven()
async def test_a_text_and_its_enter_in_one_burst_are_sent_as_typed(
    chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All keys are there before the menu of the first ones is: it may not take the Enter."""
    sent: list[str] = []

    async def note(_: object, event: Composer.Sent) -> None:
        chat.composer.arrived(event.text)
        chat.composer.accept(event.text)
        sent.append(event.text)

    monkeypatch.setattr("localspec.tui.app.ChatApp.on_composer_sent", note)
    typed = [f"/{each.name} two words" for each in COMMANDS] + [
        *("/set temperature 0.5", "/export md x.md", "/copy 2", "Hello", "/help", "mail a@b.c"),
    ]
    for text in typed:
        for letter in text:
            chat.composer.post_message(events.Key(letter, letter))
        for _ in range(2):  # a second one finds nothing
            chat.composer.post_message(events.Key("enter", "\r"))
        await chat.settle()
        assert chat.composer.text == ""
    assert sent == typed


@driven()
async def test_an_earlier_question_is_found_by_what_it_has(chat: Chat) -> None:
    for each in ("Who wrote Faust?", "And what else?", "Who wrote Emma?"):
        chat.composer.accept(each)
    await chat.type("WROTE")
    for text in ("Who wrote Emma?", "Who wrote Faust?", "Who wrote Faust?"):
        news = "the last question with 'wrote' · Ctrl+R: the one before"
        await chat.press("ctrl+r", typed=text, shows=news)
    assert [each.message for each in chat.app._notifications] == ["no earlier one has that"]
    await chat.press("down", "down", "down", typed="WROTE")


@driven({"otherwise": [CODE]})
async def test_code_is_copied_by_a_click_and_by_a_key_without_its_frame(chat: Chat) -> None:
    await chat.ask("code?", shows="日本語", lacks="```")
    assert chat.contents == ["code?", CODE]
    reply = chat.transcript.views[-1]
    lines = chat.text().splitlines()
    row = next(at for at, line in enumerate(lines) if "copy" in line)
    await chat.click(at=(lines[row].index("copy"), row))
    assert chat.app.clipboard == "x = 1"
    reply.focus()
    for key, copied in (("k", "ls"), ("k", "x = 1"), ("c", CODE)):
        await chat.press(key)
        assert chat.app.clipboard == copied
    await chat.press("escape")
    assert chat.app.focused is chat.composer
    await chat.pilot.mouse_down(reply, offset=(2, 4))
    await chat.pilot.hover(reply, offset=(40, 4))
    await chat.pilot.mouse_up(reply, offset=(40, 4))
    await chat.settle()
    assert chat.app.screen.get_selected_text() == "  x = 1"
    # Text does not touch the scroll bar.
    assert all(line[-2:].strip() == "" for line in lines[: row + 3] if len(line) >= 79)


@pytest.mark.first(1)
@pytest.mark.parametrize("no_color", [False, True])
def test_the_lens_and_the_race_keep_the_indentation_of_code(
    no_color: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if no_color:
        monkeypatch.setenv("NO_COLOR", "1")

    async def look(chat: Chat) -> None:
        cursor = chat.composer.get_component_rich_style("text-area--cursor")
        assert cursor.reverse or not no_color, "it would not be seen"
        drafted = tokens(INDENTED, by="model", drafted=1, accepted=1)
        made = exchange(INDENTED, tokens=[drafted, tokens("\n" * 40)], done=finished())
        chat.session.exchange = made
        await chat.until_sheet(TextSheet, "f3")
        chat.see(shows=f"│     {'[' * no_color}return some_function")
        # Marks only where there are no colours; what they mean stays in sight.
        assert ("[def f():" in chat.text()) == no_color
        await chat.press("end", shows="proposed by the draft model")
        await chat.press("escape")

    drive(look, tmp_path, size=(60, 20), ready=True)


def test_the_usual_colours_follow_the_terminal_and_chosen_ones_are_kept(tmp_path: Path) -> None:
    file = tmp_path / "chat.toml"

    async def begin(chat: Chat) -> None:
        assert (chat.app.theme, file.exists()) == ("dark", False)

    async def look(chat: Chat) -> None:
        assert chat.app.theme == "light"
        await chat.run("/theme dark")
        await chat.until(lambda: read_preferences(file).theme == "dark")
        await chat.run("/theme plaid", shows="there is no theme 'plaid'")

    drive(begin, tmp_path, preferences=read_preferences(file), ready=True)
    file.write_text('theme = "light"\n')
    drive(look, tmp_path, preferences=read_preferences(file))


@pytest.mark.parametrize("keys", [["ctrl+d"], ["ctrl+c", "ctrl+c"]])
@driven()
async def test_keys_that_leave(chat: Chat, keys: list[str]) -> None:
    chat.composer.fill("ab")
    await chat.press("home", "ctrl+d", typed="b")
    chat.composer.fill("")
    await chat.press(*keys)
    assert chat.app._exit


@driven()
async def test_a_bare_word_leaves(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    suspended: list[bool] = []
    monkeypatch.setattr(chat.app, "action_suspend_process", lambda: suspended.append(True))
    await chat.press("ctrl+z")
    assert suspended == [True]
    await chat.type('"""/exit')
    await chat.press("enter", typed='"""/exit\n')  # it is closed before it is sent
    await chat.type('two"""')
    await chat.press("enter")
    await chat.until(lambda: len(chat.contents) == 2 and not chat.session.busy)
    assert chat.contents[0] == "/exit\ntwo"
    await chat.run("quit")
    assert chat.app._exit
    assert len(chat.contents) == 2


def test_an_editor_writes_a_question(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nprintf "%s, and\\nmore\\n" "$(cat "$1")" > "$1"\n')
    editor.chmod(0o700)
    monkeypatch.setenv("VISUAL", str(editor))
    assert edited("one") == "one, and\nmore"
    _, out, _ = said(tmp_path, "/editor", "/copy all", script={"otherwise": ["Both."]})
    assert "user: , and\nmore" in out
    editor.write_text('#!/bin/sh\nkill -INT $PPID\nsleep 0.2\necho more >> "$1"\n')

    async def written() -> str:
        return edited("one")

    try:
        assert asyncio.run(written()).split() == ["one", "more"]
    except KeyboardInterrupt:
        pytest.fail("Ctrl-C in the editor ends the chat")
    for program in ("no-such-editor", "false", "sh -c 'kill -INT $$'"):
        monkeypatch.setenv("VISUAL", program)
        refuses(rf"the editor failed \(.*{program[:5]}", edited, "one")


@driven({"otherwise": ["Well."]})
async def test_recalled_commands_leave_the_arrows_to_what_was_before(chat: Chat) -> None:
    await chat.ask("one?")
    await chat.run("/compact", rest=True)
    await chat.press("up", typed="/compact")
    await chat.press("up", typed="one?")
    await chat.press("down", "down", typed="")


_KEYS = {"stats": "Ctrl+S", "lens": "ctrl+banana", "stat": "f4", "model": "f99", "help": "f12"}
_NEWS = [
    "lens is 'ctrl+banana', which is no key: F3 stays",
    "nothing is called 'stat': did you mean stats?",
]


@driven(preferences=Preferences(keys=_KEYS), size=(200, 30))
async def test_keys_that_are_wrong_are_said_and_the_welcome_has_those_that_work(chat: Chat) -> None:
    shown = ["Ctrl+S  shows what drafting", "F8      chooses", "F12     lists", "F12 for keys"]
    chat.see(shows=[*_NEWS, "model is 'f99', which is no key: F8 stays", *shown], lacks="F2 ")
    await chat.press("ctrl+s", shows="Nothing measured yet")


@driven(preferences=Preferences(keys={"lens": "f2"}), size=(200, 30))
async def test_the_welcome_leaves_out_a_key_that_something_else_has(chat: Chat) -> None:
    chat.see(shows="F8   chooses", lacks="shows what drafting")
    await chat.press("f2", lacks="Nothing measured yet")


@driven({"otherwise": ["word " * 200], "rests": {"at": 20, "until": Path("go on")}})
async def test_ctrl_c_copies_stops_and_clears_the_input_line_before_it_only_advises(
    chat: Chat,
) -> None:
    await chat.begin("one?")
    await chat.until_answering()
    await chat.type("two?")
    await chat.press("ctrl+c", rest=True, typed="two?")
    await chat.press("ctrl+c", typed="")
    await chat.press("ctrl+c", shows="Ctrl+C again quits")
    chat.composer.fill("copy me")
    chat.composer.select_all()
    await chat.press("ctrl+c")
    assert chat.app.clipboard == "copy me"
