"""The main screen, driven by keys."""

from pathlib import Path

import pytest
from rich.color import Color as RichColor
from textual import events
from textual.widgets import OptionList
from textual.worker import WorkerFailed

from localspec.cli.chat_front import _on_screens
from localspec.errors import UsageError
from localspec.messages import Message
from localspec.models.registry import load_registry
from localspec.options import LaunchOptions
from localspec.session.preferences import Preferences
from localspec.tui.app import ChatApp
from localspec.tui.message import MessageView
from localspec.tui.sheets import ListSheet, TextSheet
from tests.tui.driving import Chat, drive, driven
from tests.tui.lines import session_of
from tests.tui.test_clean import obeyed

LONG = "word " * 200
SLOW = {"otherwise": [LONG], "pass_s": 0.01}
DEFAULT = load_registry().default_pair


def test_the_screen_is_there_and_a_question_can_be_asked_before_a_model_is(tmp_path: Path) -> None:
    async def ask(chat: Chat) -> None:
        assert "Ask something." in chat.text()
        assert chat.session.models.ready is None
        await chat.until_text("loading toy")
        await chat.begin("hello?")
        await chat.until_text("waiting for the model")
        loaded.touch()
        await chat.until_rest()
        assert chat.contents == ["hello?", "Hello **world**."]

    loaded = tmp_path / "loaded"
    drive(ask, tmp_path, {"load_s": str(loaded)})


def test_esc_stops_keeps_what_is_there_and_the_answer_goes_on(tmp_path: Path) -> None:
    async def stop(chat: Chat) -> None:
        await chat.begin("hello?")
        await chat.until_answering()
        await chat.press("escape")
        await chat.until_rest()
        begun = chat.contents[1]
        assert 0 < len(begun) < len(LONG)
        assert LONG.startswith(begun)
        assert "stopped" in chat.text()
        goes_on.touch()
        await chat.run("/continue")
        await chat.until_rest()
        assert len(chat.contents) == 2
        assert chat.contents[1].startswith(begun)
        assert len(chat.contents[1]) > len(begun)

    goes_on = tmp_path / "goes on"
    drive(stop, tmp_path, {"otherwise": [LONG], "rests": {"at": 20, "until": str(goes_on)}})


@driven({"chunk_s": 3.0})
async def test_esc_in_prefill_leaves_the_question_alone(chat: Chat) -> None:
    await chat.begin("long " * 200)
    await chat.until_text("reading")
    await chat.press("escape")
    await chat.until_rest()
    assert len(chat.contents) == 1
    await chat.until_text("stopped before the first token; F5 asks again")
    await chat.press("up")
    assert chat.composer.text == ("long " * 200)


@driven({"otherwise": ["line\n\n" * 30, "line\n\n" * 500], "pass_s": 0.005})
async def test_the_user_may_scroll_away_while_text_streams_and_come_back(chat: Chat) -> None:
    transcript = chat.transcript
    await chat.ask("first?")
    await chat.begin("second?")
    await chat.until_answering()
    await chat.until(lambda: transcript.follows)
    await chat.press("pageup", "pageup")
    await chat.until(lambda: not transcript.follows)
    place, length = transcript.scroll_y, len(chat.exchange.answer)
    await chat.until(lambda: len(chat.exchange.answer) > length + 100)
    assert transcript.scroll_y == place
    assert "more below" in chat.text()
    await chat.press("ctrl+end")
    await chat.until(lambda: transcript.follows)
    await chat.until(lambda: "more below" not in chat.text())


@driven()
async def test_lines_are_written_and_pasted_without_being_sent(chat: Chat) -> None:
    composer = chat.composer
    await chat.press("a", "ctrl+j", "b")
    assert composer.text == "a\nb"
    composer.fill("")
    await chat.type("\n".join(f"line {each}\tx" for each in range(2000)) + "\x1b[31m\r\n")
    assert composer.text.count("\n") == 2000
    assert "\tx" in composer.text
    assert "\x1b" not in composer.text
    assert chat.contents == []
    assert composer.size.height <= 8


@driven({"death": {"on": "load", "how": "SIGSEGV"}})
async def test_an_engine_that_a_load_kills_is_left_to_the_user(chat: Chat) -> None:
    await chat.until_text("needs less memory", "/restart starts it again")
    assert chat.session.models.dead
    assert not chat.session.engine.alive


@driven()
async def test_a_question_is_edited_in_a_branch_and_versions_are_switched(chat: Chat) -> None:
    await chat.ask("one?")
    await chat.press(*"draft", "f6")
    assert chat.composer.text == "one?"
    await chat.press("escape", "up")
    assert chat.composer.text == "draft", "what was being written is not lost"
    await chat.press("f6")
    await chat.ask("uno?")
    assert chat.contents[0] == "uno?"
    assert "version 2 of 2" in chat.text()
    await chat.press("shift+tab", "up", "left")
    await chat.until(lambda: chat.contents[0] == "one?")
    assert "version 1 of 2" in chat.text()
    for _ in range(2):
        await chat.press("escape", "f5")
        await chat.until_rest()
    await chat.press("shift+tab", "left")
    assert "version 2 of 3" in chat.text()
    await chat.press("left", "left")
    assert "version 3 of 3" in chat.text()
    assert isinstance(chat.app.focused, MessageView)


def test_nothing_that_a_terminal_obeys_reaches_it(tmp_path: Path) -> None:
    evil = "\x1b]0;title\x07\x1b[2J [a](https://x.example/\x1b) `\x9b31m` &#x202e; \x08 \r\nend"

    async def look(chat: Chat) -> None:
        await chat.ask("evil?")
        assert "␛]0;title␇␛[2J" in chat.text()
        assert obeyed(chat.text()) == []
        await chat.until_sheet(TextSheet, "f3")
        assert obeyed(chat.text()) == []

    drive(look, tmp_path, {"answers": {"evil": evil}})


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
    await chat.run("/think")
    await chat.until_text("no thoughts in this conversation")
    await chat.ask("hello?")
    assert "▸ thoughts, 2 words" in chat.text()
    assert "deep thought" not in chat.text()
    await chat.press("ctrl+t")
    assert "deep thought" in chat.text()
    await chat.press("ctrl+t")
    assert "deep thought" not in chat.text()
    await chat.pilot.click(chat.transcript.views[-1], offset=(4, 1))
    await chat.settle()
    assert "deep thought" in chat.text()


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        ("look at @a.bin", "a.bin is not UTF-8 text"),
        ("/frob", "there is no command /frob"),
        ("/model qwen3-4x", "did you mean qwen3-4b"),
        ("/set temprature 1", "temprature"),
        ("/rename x", "/rename is /save now"),
        ("/stop", "/stop is Esc, and Ctrl-C in lines now"),
    ],
)
@driven()
async def test_what_cannot_be_done_stays_to_be_mended(chat: Chat, sent: str, why: str) -> None:
    await chat.ready()
    (chat.session.folder / "a.bin").write_bytes(b"\xff\xfe")
    await chat.run(sent)
    assert why in chat.line
    assert chat.composer.text == sent
    assert not chat.session.models.loading
    await chat.run("/stats")
    assert chat.composer.text == ""


@driven(size=(80, 24))
async def test_commands_and_paths_are_completed_by_keys(chat: Chat) -> None:
    (chat.session.folder / "notes.md").write_text("x" * 1200)
    composer, entry = chat.composer, chat.app.view.entry
    await chat.press("/", "down", "down")
    assert chat.app.query_one("#completions", OptionList).highlighted == 2
    await chat.press("escape")
    assert (entry.list_open, composer.text) == (False, "/")
    await chat.press(*"exp")
    assert "/export [md|json] [FILE]" in chat.text()
    await chat.press("tab")
    assert composer.text == "/export "
    composer.fill("")
    await chat.press(*"@no")
    assert "notes.md  1.2 KB" in chat.text()
    await chat.press("tab")
    assert composer.text == "@notes.md "
    composer.fill("")
    await chat.press(*"tell me a", "tab", *"bout it")
    assert composer.text == "tell me about it", "nothing to complete: the composer keeps the focus"
    composer.fill("")
    await chat.press(*"/hel", "enter")
    await chat.until_sheet(TextSheet)


@driven(SLOW)
async def test_ctrl_c_copies_stops_or_clears_before_it_only_advises(chat: Chat) -> None:
    composer = chat.composer
    await chat.begin("hello?")
    await chat.press("ctrl+c")
    await chat.until_rest()
    composer.fill("text")
    await chat.press("ctrl+c")
    assert composer.text == ""
    await chat.press("ctrl+c")
    assert "Ctrl+C again quits" in chat.text()
    composer.fill("copy me")
    composer.select_all()
    await chat.press("ctrl+c")
    assert chat.app.clipboard == "copy me"


def test_what_is_said_is_there_again_the_next_day(tmp_path: Path) -> None:
    async def talk(chat: Chat) -> None:
        (chat.session.folder / "a.txt").write_text("content")
        # Before the engine is started.
        chat.composer.post_message(chat.composer.Sent("hello @a.txt?"))
        await chat.until(lambda: len(chat.contents) == 2)
        await chat.until_rest()

    async def resume(chat: Chat) -> None:
        await chat.until_text("Hello world.")
        assert chat.contents[1] == "Hello **world**."
        await chat.press("up")
        assert chat.composer.text == "hello @a.txt?"
        await chat.ask("and?")
        assert len(chat.contents) == 4
        assert chat.exchange.started is not None
        # What was evaluated the day before is not evaluated again.
        assert chat.exchange.started.cached_tokens > 20

    drive(talk, tmp_path, pair="mine")
    drive(resume, tmp_path, pair=None, resume=1)


def test_what_ends_the_chat_is_raised_as_it_is_without_a_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = UsageError("no room")

    async def work() -> None:
        raise error

    async def fault(chat: Chat) -> None:
        chat.app.call_later(lambda: 1 // 0)
        await chat.until(lambda: chat.app.failure is not None)
        assert isinstance(chat.app.failure, ZeroDivisionError)
        assert chat.app._exit_renderables == []

    async def fail(chat: Chat) -> None:
        chat.app.run_worker(work())
        await chat.until(lambda: chat.app.failure is not None)
        assert chat.app.failure is error

    with pytest.raises(ZeroDivisionError):
        drive(fault, tmp_path)
    with pytest.raises(WorkerFailed):
        drive(fail, tmp_path)
    monkeypatch.setattr(ChatApp, "run", lambda app: setattr(app, "failure", error))
    session = session_of(tmp_path)
    with pytest.raises(UsageError, match="no room"):
        _on_screens(session, Preferences(), lambda: None)
    session.close()


def test_what_is_marked_is_seen_without_colours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")

    async def look(chat: Chat) -> None:
        await chat.press("/", "down")
        marked = chat.app.query_one("#completions", OptionList)
        styles = [marked.render_line(y)._segments[0].style for y in range(3)]
        assert [bool(style and style.underline) for style in styles] == [False, True, False]
        for strip in chat.app.screen._compositor.render_strips():
            for segment in strip:
                colour = segment.style and segment.style.color
                assert isinstance(colour, RichColor | None)
                assert colour is None or colour.is_default

    drive(look, tmp_path)


def test_an_answer_that_the_context_cut_goes_on_without_the_oldest_turns(tmp_path: Path) -> None:
    async def go_on(chat: Chat) -> None:
        await chat.ask("one " * 30)
        await chat.ask("two " * 30)
        assert "the context is full" in chat.text()
        before = chat.contents[-1]
        await chat.run("/continue")
        await chat.until_sheet(ListSheet)
        assert "drop the oldest turns" in chat.text()
        await chat.press("enter")
        await chat.until(lambda: not chat.session.busy and len(chat.contents[-1]) > len(before))
        assert "dropping the oldest turns" in chat.text()
        assert chat.contents[-1].startswith(before)
        assert "oldest turns left out" in chat.text()

    script = {"n_ctx": 420, "answers": {"one": "ok", "two": "and on " * 30}}
    drive(go_on, tmp_path, script, size=(80, 40))


REFUSED = ["ModelUnavailable", "gone is not here, download it first"]
TOO_LARGE = ["ModelLoadError", "no memory for it"]


def pair_of(chat: Chat) -> str:
    """Return what the history says that the conversation was held with."""
    return chat.session.talk.history.conversations()[0].pair


@pytest.mark.parametrize(
    ("how", "error"), [("refuses", REFUSED), ("too_large", TOO_LARGE)], ids=["stays", "again"]
)
def test_a_switch_that_fails_leaves_or_loads_again_what_answered(
    how: str, error: list[str], tmp_path: Path
) -> None:
    async def switch(chat: Chat) -> None:
        await chat.ask("one?")
        await chat.run("/model qwen3-4b")
        await chat.until_text(f"{error[1]}; toy answers instead")
        await chat.ask("two?")
        assert chat.session.talk.messages[-1].model == "toy"
        assert pair_of(chat) == "toy"
        await chat.run("/restart")
        await chat.until(lambda: chat.session.models.line == "toy")

    drive(switch, tmp_path, {how: {"qwen3-4b": error}})


@pytest.mark.parametrize(
    "script",
    [
        {"too_large": {"other": TOO_LARGE}, "load_s": 0.5, "deaf": 0.5},
        {"refuses": {"other": REFUSED}},
        {"deadly": "other"},
    ],
    ids=["too large", "gone", "deadly"],
)
def test_a_question_waits_for_what_is_loaded_instead_of_a_conversations_model(
    script: dict[str, object], tmp_path: Path
) -> None:
    async def talk(chat: Chat) -> None:
        await chat.ask("one?")
        assert pair_of(chat) == "other"

    async def resume(chat: Chat) -> None:
        await chat.begin("two?")
        await chat.until(lambda: f"{DEFAULT} answers instead" in chat.session.models.replaced)
        await chat.until_rest()
        assert chat.session.talk.messages[-1].model == DEFAULT
        assert pair_of(chat) == DEFAULT

    drive(talk, tmp_path, pair="other")
    drive(resume, tmp_path, script, pair=None, resume=1)


@driven({"refuses": {"gone": REFUSED}}, load=LaunchOptions(pair="gone"))
async def test_what_cannot_be_loaded_is_told_and_is_not_what_a_conversation_was_held_with(
    chat: Chat,
) -> None:
    await chat.until_text("gone is not here, download it first", "no model loaded")
    await chat.ask("one?")
    assert pair_of(chat) == ""


@driven()
async def test_what_is_typed_on_a_message_and_is_no_command_goes_into_the_composer(
    chat: Chat,
) -> None:
    await chat.ask("one?")
    composer = chat.composer
    await chat.press("shift+tab")
    assert isinstance(chat.app.focused, MessageView)
    for each in "no, be brief":  # faster than anything is drawn
        chat.app.post_message(events.Key(each, each))
    await chat.until(lambda: composer.text == "no, be brief")
    assert composer.has_focus
    composer.fill("")
    await chat.press("shift+tab")
    chat.app.focused.post_message(events.Paste("two\nlines"))
    await chat.until(lambda: composer.text == "two\nlines")
    assert composer.has_focus
    composer.fill("")
    await chat.press(*"tell me a")
    await chat.pilot.click(chat.transcript.views[-1])
    await chat.settle()
    await chat.press(*"bout it")
    assert composer.text == "tell me about it", "a click makes no commands of what is written"
    composer.fill("")
    await chat.pilot.click(chat.transcript.views[-1])
    await chat.settle()
    assert isinstance(chat.app.focused, MessageView)


@driven(preferences=Preferences(keys={"message_copy": "y"}))
async def test_the_keys_of_a_message_are_shown_while_it_has_the_focus(chat: Chat) -> None:
    await chat.ask("one?")
    await chat.press("shift+tab")
    assert "b branch k code t fold Esc back y copy" in chat.line
    assert "e edit" not in chat.line
    await chat.press("up")
    assert "e edit b branch k code" in chat.line
    assert "version" not in chat.line
    await chat.press("y")
    assert chat.app.clipboard == "one?"
    await chat.press("escape")
    assert "Esc back" not in chat.line
    await chat.press("f5")
    # Whole, with its figures: until then the message may be drawn again, and lose the focus.
    await chat.until_text("version 2 of 2", "13 tokens")
    await chat.press("shift+tab")
    assert "←→ version b branch k code" in chat.line


@pytest.mark.parametrize("clear", ["ctrl+u", "ctrl+c"])
@driven()
async def test_earlier_questions_are_recalled_and_what_is_typed_is_not_lost(
    chat: Chat, clear: str
) -> None:
    async def see(key: str, text: str) -> None:
        await chat.press(key)
        assert chat.composer.text == text

    await chat.ask("one?")
    await chat.press(*"first")
    await see("up", "one?")
    await see(clear, "")
    await chat.press(*"second")
    for key, text in (("down", "second"), ("up", "first"), ("up", "one?"), ("down", "first")):
        await see(key, text)
    await see("down", "second")


@pytest.mark.slow
@driven()
async def test_a_message_far_up_stays_in_sight_when_its_version_is_switched(chat: Chat) -> None:
    talk = chat.session.talk
    await chat.ask("first one?")
    await chat.run("/edit 1")
    await chat.ask("first two?")
    parent = talk.messages[-1].id
    assert talk.conversation is not None
    for each in range(60):
        parent = talk.history.add_user(talk.conversation, parent, Message.user(f"question {each}."))
    talk.show_branch(parent)
    await chat.app.view.show_messages()
    for _ in range(300):
        if "first two?" in chat.text():
            break
        await chat.press("pageup")
    first = chat.transcript.views[0]
    first.focus()
    await chat.press("left")
    await chat.until_text("first one?")
    await chat.press("right")
    await chat.until_text("first two?")
    assert chat.app.focused is chat.transcript.views[0]
