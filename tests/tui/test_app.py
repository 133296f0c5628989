"""The main screen, driven by keys."""

from pathlib import Path

import pytest
from rich.color import Color as RichColor
from textual import events
from textual.widgets import OptionList
from textual.worker import WorkerFailed

from localspec.cli.chat import _on_screens
from localspec.errors import UsageError
from localspec.messages import Message
from localspec.models.registry import load_registry
from localspec.options import LaunchOptions
from localspec.session.preferences import Preferences
from localspec.tui.app import ChatApp
from localspec.tui.message import MessageView
from localspec.tui.models import Phase
from localspec.tui.sheets import ListSheet, TextSheet
from tests.tui.driving import Chat, drive, driven
from tests.tui.lines import session_of
from tests.tui.test_clean import obeyed

LONG = "word " * 200
CODE = "Look:\n\n```python\nx = 1\n```\n\n日本語 👩‍👩‍👧"
SLOW = {"otherwise": [LONG], "pass_s": 0.01}
DEFAULT = load_registry().default_pair


@driven({"load_s": 30.0})
async def test_the_screen_is_painted_before_any_model_is_loaded(chat: Chat) -> None:
    assert "Ask something." in chat.text()
    assert chat.session.models.ready is None
    await chat.until(lambda: "loading toy" in chat.text())


def test_a_question_can_be_asked_before_the_models_are_loaded(tmp_path: Path) -> None:
    async def ask(chat: Chat) -> None:
        await chat.begin("hello?")
        await chat.until(lambda: "waiting for the model" in chat.text())
        loaded.touch()
        await chat.until(lambda: not chat.session.busy)
        assert chat.contents == ["hello?", "Hello **world**."]

    loaded = tmp_path / "loaded"
    drive(ask, tmp_path, {"load_s": str(loaded)})


@driven({"otherwise": [CODE]})
async def test_an_answer_is_shown_as_markdown_and_kept_as_text(chat: Chat) -> None:
    await chat.ask("hello?")
    assert chat.contents == ["hello?", CODE]
    assert "│ x = 1 " in chat.text()
    assert "```" not in chat.text()
    assert "日本語" in chat.text()
    assert chat.app.view.entry.composer.text == ""


@driven(SLOW)
async def test_esc_stops_and_keeps_what_is_there(chat: Chat) -> None:
    await chat.begin("hello?")
    await chat.until(lambda: chat.session.exchange and chat.session.exchange.answer)
    await chat.press("escape")
    await chat.until(lambda: not chat.session.busy)
    answer = chat.contents[1]
    assert 0 < len(answer) < len(LONG)
    assert LONG.startswith(answer)
    assert "stopped" in chat.text()


@driven({"chunk_s": 3.0})
async def test_esc_in_prefill_leaves_the_question_alone(chat: Chat) -> None:
    await chat.begin("long " * 200)
    await chat.until(lambda: "reading" in chat.text())
    await chat.press("escape")
    await chat.until(lambda: not chat.session.busy)
    assert len(chat.contents) == 1
    await chat.until(lambda: "stopped before the first token; F5 asks again" in chat.text())
    await chat.press("up")
    assert chat.app.view.entry.composer.text == ("long " * 200)


def test_a_stopped_answer_goes_on(tmp_path: Path) -> None:
    async def go_on(chat: Chat) -> None:
        await chat.begin("hello?")
        await chat.until(lambda: chat.session.exchange and chat.session.exchange.answer)
        await chat.press("escape")
        await chat.until(lambda: not chat.session.busy)
        begun = chat.contents[1]
        goes_on.touch()
        await chat.run("/continue")
        await chat.until(lambda: not chat.session.busy)
        assert len(chat.contents) == 2
        assert chat.contents[1].startswith(begun)
        assert len(chat.contents[1]) > len(begun)

    goes_on = tmp_path / "goes on"
    rests = {"at": 20, "until": str(goes_on)}
    drive(go_on, tmp_path, {"otherwise": ["word " * 30], "rests": rests})


@driven({"otherwise": ["line\n\n" * 30, "line\n\n" * 500], "pass_s": 0.005})
async def test_the_user_may_scroll_away_while_text_streams_and_come_back(chat: Chat) -> None:
    transcript = chat.app.view.transcript
    await chat.ask("first?")
    await chat.begin("second?")
    await chat.until(lambda: chat.session.exchange and chat.session.exchange.answer)
    await chat.until(lambda: transcript.follows)
    await chat.press("pageup", "pageup")
    await chat.until(lambda: not transcript.follows)
    place = transcript.scroll_y
    said = len(chat.session.exchange.answer) if chat.session.exchange else 0
    await chat.until(lambda: len(chat.session.exchange.answer) > said + 100)  # type: ignore[union-attr]
    assert transcript.scroll_y == place
    assert "more below" in chat.text()
    await chat.press("ctrl+end")
    await chat.until(lambda: transcript.follows)
    await chat.until(lambda: "more below" not in chat.text())


@driven()
async def test_lines_are_written_and_pasted_without_being_sent(chat: Chat) -> None:
    composer = chat.app.view.entry.composer
    await chat.press("a", "ctrl+j", "b")
    assert composer.text == "a\nb"
    composer.fill("")
    await chat.type("\n".join(f"line {each}\tx" for each in range(2000)) + "\x1b[31m\r\n")
    assert composer.text.count("\n") == 2000
    assert "\tx" in composer.text
    assert "\x1b" not in composer.text
    assert chat.contents == []
    assert composer.size.height <= 8


@driven()
async def test_earlier_questions_are_recalled(chat: Chat) -> None:
    composer = chat.app.view.entry.composer
    for question in ("one?", "two?"):
        await chat.ask(question)
    await chat.press(*"draft")
    await chat.press("up")
    assert composer.text == "two?"
    await chat.press("up")
    assert composer.text == "one?"
    await chat.press("up")
    assert composer.text == "one?"
    await chat.press("down", "down")
    assert composer.text == "draft"


@driven({"death": {"on": "load", "how": "SIGSEGV"}})
async def test_an_engine_that_dies_again_is_left_to_the_user(chat: Chat) -> None:
    await chat.until(lambda: "/restart starts it again" in chat.text())
    assert chat.session.models.phase is Phase.DEAD
    assert not chat.session.engine.alive


@driven({"refuses": {"toy": ["ModelUnavailable", "no such pair, take another"]}})
async def test_what_cannot_be_loaded_is_told_in_the_chat(chat: Chat) -> None:
    await chat.until(lambda: "no such pair, take another" in chat.text())
    assert "no model loaded" in chat.text()


@driven()
async def test_a_question_is_edited_in_a_branch_and_versions_are_switched(chat: Chat) -> None:
    await chat.ask("one?")
    await chat.press("f6")
    assert chat.app.view.entry.composer.text == "one?"
    await chat.ask("uno?")
    assert chat.contents[0] == "uno?"
    assert "version 2 of 2" in chat.text()
    await chat.press("shift+tab", "up", "left")
    await chat.until(lambda: chat.contents[0] == "one?")
    assert "version 1 of 2" in chat.text()


def test_nothing_that_a_terminal_obeys_reaches_it(tmp_path: Path) -> None:
    evil = "\x1b]0;title\x07\x1b[2J [a](https://x.example/\x1b) `\x9b31m` &#x202e; \x08 \r\nend"

    async def look(chat: Chat) -> None:
        await chat.ask("evil?")
        assert "␛]0;title␇␛[2J" in chat.text()
        assert obeyed(chat.text()) == []
        await chat.run("/lens")
        await chat.until(lambda: isinstance(chat.app.screen, TextSheet))
        assert obeyed(chat.text()) == []

    drive(look, tmp_path, {"answers": {"evil": evil}})


async def talked(chat: Chat, count: int) -> None:
    """Show a conversation of so many questions, each with its answer."""
    talk = chat.session.talk
    talk.conversation = talk.history.create()
    parent = None
    for each in range(count):
        said = Message.user(f"question {each}.")
        parent = talk.history.add_user(talk.conversation, parent, said)
        reply = talk.history.begin_reply(talk.conversation, parent)
        reply.finish(Message.assistant(f"answer {each}."))
        parent = reply.message
    talk.show_branch(parent)
    await chat.app.view.show_messages()
    await chat.until(lambda: f"answer {count - 1}." in chat.text())


@pytest.mark.slow
@driven()
async def test_a_long_conversation_mounts_few_messages_and_fetches_the_others(chat: Chat) -> None:
    await talked(chat, 80)
    transcript = chat.app.view.transcript
    assert len(transcript.views) <= 45
    for _ in range(200):
        if "question 0." in chat.text():
            break
        await chat.press("pageup")
    assert "question 0." in chat.text()
    await chat.press("ctrl+end")
    await chat.until(lambda: "answer 79." in chat.text())
    await chat.until(lambda: len(transcript.views) <= 45)


@pytest.mark.slow
@driven()
async def test_the_transcript_stays_where_it_is_when_earlier_messages_are_fetched(
    chat: Chat,
) -> None:
    await talked(chat, 50)
    seen = {49}
    for _ in range(300):
        numbers = [each for each in range(50) if f"answer {each}." in chat.text()]
        # A page up leaves no message out: what is new joins what was seen.
        assert not numbers or max(numbers) >= min(seen) - 1, chat.text()
        seen.update(numbers)
        if 0 in seen:
            break
        await chat.press("pageup")
    assert seen == set(range(50))


@driven(preferences=Preferences(keys={"stats": "ctrl+s"}))
async def test_keys_of_the_user_replace_ours(chat: Chat) -> None:
    await chat.press("f2")
    assert "Nothing was measured yet" not in chat.text()
    await chat.press("ctrl+s")
    assert "Nothing measured yet" in chat.text()


@driven({"thinks": True, "otherwise": ["<think>deep thought</think>Done."]})
async def test_thoughts_are_folded_and_a_key_unfolds_them(chat: Chat) -> None:
    await chat.ask("hello?")
    assert "▸ thoughts, 2 words" in chat.text()
    assert "deep thought" not in chat.text()
    await chat.press("ctrl+t")
    assert "deep thought" in chat.text()
    await chat.press("ctrl+t")
    assert "deep thought" not in chat.text()
    await chat.pilot.click(chat.app.view.transcript.views[-1], offset=(4, 1))
    await chat.settle()
    assert "deep thought" in chat.text()


@driven({"n_ctx": 450, "otherwise": ["ok"]})
async def test_a_full_context_is_the_users_choice(chat: Chat) -> None:
    await chat.ask("one " * 40)
    await chat.ask("two " * 40)
    await chat.run("three " * 20)
    await chat.until(lambda: isinstance(chat.app.screen, ListSheet))
    assert "drop the oldest turns" in chat.text()
    await chat.press("enter")
    await chat.until(lambda: len(chat.contents) == 6 and not chat.session.busy)
    assert chat.contents[-1] == "ok"
    assert "dropping the oldest turns" in chat.text()


@driven()
async def test_a_text_that_cannot_be_sent_stays_in_the_composer(chat: Chat) -> None:
    (chat.session.folder / "a.bin").write_bytes(b"\xff\xfe")
    await chat.run("look at @a.bin")
    assert "a.bin is not UTF-8 text" in chat.text()
    assert chat.app.view.entry.composer.text == "look at @a.bin"
    await chat.run("/frob")
    assert "there is no command /frob" in chat.text()
    assert chat.app.view.entry.composer.text == "/frob"
    await chat.run("/model qwen3-4x")
    assert "did you mean qwen3-4b" in chat.text()
    assert chat.app.view.entry.composer.text == "/model qwen3-4x"
    assert not chat.session.models.under_way


@driven()
async def test_commands_and_paths_are_completed_by_keys(chat: Chat) -> None:
    (chat.session.folder / "notes.md").write_text("x" * 1200)
    composer = chat.app.view.entry.composer
    await chat.press(*"/exp")
    assert "/export [md|json] [FILE]" in chat.text()
    await chat.press("tab")
    assert composer.text == "/export "
    composer.fill("")
    await chat.press(*"@no")
    assert "notes.md  1.2 KB" in chat.text()
    await chat.press("tab")
    assert composer.text == "@notes.md "
    composer.fill("")
    await chat.press(*"/hel", "enter")
    await chat.until(lambda: isinstance(chat.app.screen, TextSheet))


@driven()
async def test_the_list_of_completions_is_walked_and_closed(chat: Chat) -> None:
    await chat.press("/", "down", "down")
    marked = chat.app.query_one("#completions", OptionList).highlighted
    assert marked == 2
    await chat.press("escape")
    assert not chat.app.view.entry.list_open
    assert chat.app.view.entry.composer.text == "/"


@driven(SLOW)
async def test_ctrl_c_copies_stops_or_clears_before_it_only_advises(chat: Chat) -> None:
    composer = chat.app.view.entry.composer
    await chat.begin("hello?")
    await chat.press("ctrl+c")
    await chat.until(lambda: not chat.session.busy)
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
    kept: list[int] = []

    async def talk(chat: Chat) -> None:
        await chat.ask("hello?")
        assert chat.session.talk.conversation is not None
        kept.append(chat.session.talk.conversation)

    async def resume(chat: Chat) -> None:
        await chat.until(lambda: "Hello world." in chat.text())
        assert chat.contents == ["hello?", "Hello **world**."]
        await chat.ask("and?")
        assert len(chat.contents) == 4
        assert chat.session.exchange is not None
        assert chat.session.exchange.started is not None
        # What was evaluated the day before is not evaluated again.
        assert chat.session.exchange.started.cached_tokens > 20

    drive(talk, tmp_path)
    drive(resume, tmp_path, resume=kept[0])


@driven()
async def test_a_question_sent_before_the_engine_is_started_is_asked(chat: Chat) -> None:
    chat.app.view.entry.composer.post_message(chat.app.view.entry.composer.Sent("early?"))
    await chat.until(lambda: len(chat.contents) == 2)
    assert chat.contents[0] == "early?"


def test_a_fault_of_ours_ends_the_chat_without_a_traceback(tmp_path: Path) -> None:
    async def fail(chat: Chat) -> None:
        chat.app.call_later(lambda: 1 // 0)
        await chat.until(lambda: chat.app.failure is not None)
        assert isinstance(chat.app.failure, ZeroDivisionError)
        assert chat.app._exit_renderables == []

    with pytest.raises(ZeroDivisionError):
        drive(fail, tmp_path)


def test_an_error_of_a_worker_ends_the_chat_as_itself(tmp_path: Path) -> None:
    error = UsageError("no room")

    async def work() -> None:
        raise error

    async def fail(chat: Chat) -> None:
        chat.app.run_worker(work())
        await chat.until(lambda: chat.app.failure is not None)
        assert chat.app.failure is error

    with pytest.raises(WorkerFailed):
        drive(fail, tmp_path)


def test_what_ends_the_screens_is_raised_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(app: ChatApp) -> None:
        app.failure = UsageError("no room")

    monkeypatch.setattr(ChatApp, "run", fail)
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
        await chat.until(lambda: isinstance(chat.app.screen, ListSheet))
        await chat.press("enter")
        await chat.until(lambda: not chat.session.busy and len(chat.contents[-1]) > len(before))
        assert chat.contents[-1].startswith(before)
        assert "oldest turns left out" in chat.text()

    script = {"n_ctx": 420, "answers": {"one": "ok", "two": "and on " * 30}}
    drive(go_on, tmp_path, script, size=(80, 40))


def test_a_conversation_is_taken_up_with_the_pair_that_it_was_held_with(tmp_path: Path) -> None:
    kept: list[int] = []

    async def talk(chat: Chat) -> None:
        await chat.ask("hello?")
        assert chat.session.talk.conversation is not None
        kept.append(chat.session.talk.conversation)

    async def resume(chat: Chat) -> None:
        await chat.ready()
        assert chat.session.models.line == "mine"

    drive(talk, tmp_path, pair="mine")
    drive(resume, tmp_path, pair=None, resume=kept[0])


REFUSING = {"refuses": {"gone": ["ModelUnavailable", "gone is not here, fetch it first"]}}


def held_with(chat: Chat) -> str:
    """Return what the history says the conversation was held with."""
    return chat.session.talk.history.conversations()[0].pair


@driven({"refuses": {"qwen3-4b": REFUSING["refuses"]["gone"]}})
async def test_a_switch_that_fails_leaves_the_model_that_answers(chat: Chat) -> None:
    await chat.ask("one?")
    await chat.run("/model qwen3-4b")
    await chat.until(lambda: "fetch it first; toy answers instead" in chat.text())
    await chat.ask("two?")
    assert chat.session.talk.messages[-1].model == "toy"
    assert held_with(chat) == "toy"
    await chat.run("/restart")
    await chat.until(lambda: chat.session.models.line == "toy")


@driven({"too_large": {"qwen3-32b": ["ModelLoadError", "no memory for it"]}})
async def test_a_switch_that_cost_the_model_before_it_loads_that_again(chat: Chat) -> None:
    await chat.ask("one?")
    await chat.run("/model qwen3-32b")
    await chat.until(lambda: "no memory for it; toy answers instead" in chat.text())
    await chat.until(lambda: chat.session.models.phase is Phase.READY)
    await chat.ask("two?")
    assert chat.session.talk.messages[-1].model == "toy"
    assert held_with(chat) == "toy"


def test_a_question_waits_for_what_is_loaded_instead_of_a_conversations_model(
    tmp_path: Path,
) -> None:
    async def talk(chat: Chat) -> None:
        await chat.ask("one?")

    async def resume(chat: Chat) -> None:
        await chat.begin("two?")
        await chat.until(lambda: not chat.session.busy)
        assert chat.session.talk.messages[-1].model == DEFAULT

    drive(talk, tmp_path, pair="large")
    script = {"too_large": {"large": ["ModelLoadError", "no memory for it"]}, "load_s": 0.5}
    drive(resume, tmp_path, {**script, "deaf": 0.5}, pair=None, resume=1)


@driven(load=LaunchOptions(pair=DEFAULT))
async def test_the_default_pair_is_kept_by_its_name(chat: Chat) -> None:
    await chat.ready()
    await chat.ask("one?")
    assert held_with(chat) == DEFAULT


@driven(REFUSING, pair="gone")
async def test_what_never_answered_is_not_what_a_conversation_was_held_with(chat: Chat) -> None:
    await chat.ask("one?")
    assert held_with(chat) == ""


def test_a_model_that_the_engine_dies_of_is_not_taken_up_again(tmp_path: Path) -> None:
    async def talk(chat: Chat) -> None:
        await chat.ask("one?")

    async def resume(chat: Chat) -> None:
        await chat.until(lambda: f"{DEFAULT} answers instead" in chat.text())
        await chat.ask("two?")
        assert held_with(chat) == DEFAULT

    drive(talk, tmp_path, pair="deadly")
    drive(resume, tmp_path, {"deadly": "deadly"}, pair=None, resume=1)


@driven()
async def test_tab_stays_in_the_composer_where_nothing_can_be_completed(chat: Chat) -> None:
    await chat.ask("one?")
    conversation = chat.session.talk.conversation
    composer = chat.app.view.entry.composer
    await chat.press(*"tell me a", "tab", *"bout it")
    assert composer.text == "tell me about it"
    composer.fill("")
    await chat.press(*"@he", "tab", *"bekt")
    assert composer.text == "@hebekt"
    assert composer.has_focus
    assert chat.session.talk.conversation == conversation
    assert len(chat.contents) == 2


@driven()
async def test_what_is_typed_on_a_message_and_is_no_command_goes_into_the_composer(
    chat: Chat,
) -> None:
    await chat.ask("one?")
    conversation = chat.session.talk.conversation
    composer = chat.app.view.entry.composer
    await chat.press("shift+tab")
    assert isinstance(chat.app.focused, MessageView)
    for each in "no, be brief":  # faster than anything is drawn
        chat.app.post_message(events.Key(each, each))
    await chat.until(lambda: composer.text == "no, be brief")
    assert composer.has_focus
    assert chat.session.talk.conversation == conversation
    composer.fill("")
    await chat.press("shift+tab")
    chat.app.focused.post_message(events.Paste("two\nlines"))
    await chat.until(lambda: composer.text == "two\nlines")
    assert composer.has_focus


@driven(preferences=Preferences(keys={"message_copy": "y"}))
async def test_the_keys_of_a_message_are_shown_while_it_has_the_focus(chat: Chat) -> None:
    def line() -> str:
        return " ".join(chat.text().split())

    await chat.ask("one?")
    await chat.press("shift+tab")
    assert "b branch k code t fold Esc back y copy" in line()
    assert "e edit" not in line()
    await chat.press("up")
    assert "e edit b branch k code" in line()
    assert "version" not in line()
    await chat.press("escape")
    assert "Esc back" not in line()
    await chat.press("f5")
    # Whole, with its figures: until then the message may be drawn anew, and lose the focus.
    await chat.until(lambda: "version 2 of 2" in (seen := chat.text()) and "13 tokens" in seen)
    await chat.press("shift+tab")
    assert "←→ version b branch k code" in line()


@driven()
async def test_a_click_on_a_message_does_not_turn_what_is_being_written_into_commands(
    chat: Chat,
) -> None:
    await chat.ask("one?")
    composer = chat.app.view.entry.composer
    await chat.press(*"tell me a")
    await chat.pilot.click(chat.app.view.transcript.views[-1])
    await chat.settle()
    await chat.press(*"bout it")
    assert composer.text == "tell me about it"
    composer.fill("")
    await chat.pilot.click(chat.app.view.transcript.views[-1])
    await chat.settle()
    assert isinstance(chat.app.focused, MessageView)


@driven()
async def test_an_edited_question_does_not_cost_what_was_being_written(chat: Chat) -> None:
    await chat.ask("one?")
    composer = chat.app.view.entry.composer
    await chat.press(*"draft", "f6")
    assert composer.text == "one?"
    await chat.press("escape", "up")
    assert composer.text == "draft"
    composer.fill("")
    await chat.ask("two?")
    assert chat.contents[::2] == ["one?", "two?"], "the edited one stays as it was"


@pytest.mark.first(1)
@pytest.mark.parametrize("clear", ["ctrl+u", "ctrl+c"])
@driven()
async def test_what_is_typed_after_a_recall_is_not_lost(chat: Chat, clear: str) -> None:
    composer = chat.app.view.entry.composer
    await chat.ask("one?")
    await chat.press(*"first", "up")
    assert composer.text == "one?"
    await chat.press(clear)
    assert composer.text == ""
    await chat.press(*"second", "down")
    assert composer.text == "second"
    await chat.press("up")
    assert composer.text == "first"
    await chat.press("up")
    assert composer.text == "one?"
    await chat.press("down", "down")
    assert composer.text == "second"


@driven()
async def test_versions_are_walked_through_without_losing_the_message(chat: Chat) -> None:
    await chat.ask("one?")
    for _ in range(2):
        await chat.press("f5")
        await chat.until(lambda: not chat.session.busy)
    await chat.press("shift+tab", "left")
    assert "version 2 of 3" in chat.text()
    await chat.press("left")
    assert "version 1 of 3" in chat.text()
    assert isinstance(chat.app.focused, MessageView)
    await chat.press("right", "right")
    assert "version 3 of 3" in chat.text()


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
    transcript = chat.app.view.transcript
    for _ in range(300):
        if "first two?" in chat.text():
            break
        await chat.press("pageup")
    transcript.views[0].focus()
    await chat.press("left")
    await chat.until(lambda: "first one?" in chat.text())
    await chat.press("right")
    await chat.until(lambda: "first two?" in chat.text())
    assert chat.app.focused is transcript.views[0]
