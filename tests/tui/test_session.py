"""What a session sends, keeps and refuses, on an engine without a process."""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import msgspec
import pytest

from localspec.chat.request import Request
from localspec.decoding.round import StopReason
from localspec.engine.protocol import Count, Counted, EngineDied, Failed, Load
from localspec.history.archive import History
from localspec.messages import Message
from localspec.options import abilities
from localspec.session.preferences import Preferences
from localspec.tui.actions import branch_behind
from localspec.tui.plain import Lines
from tests.support.checks import refuses
from tests.tui.answers import finished, started, streamed
from tests.tui.scripted import READY, Window, window

DIED_S = 0.07
"""An answer that breaks off waits a moment for what may load instead."""


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Window]:
    with window(tmp_path) as opened:
        yield opened


def test_a_question_is_sent_with_all_before_it_and_with_its_conversation(here: Window) -> None:
    here.ask("one?", "One.")
    assert here.request.conversation == here.conversation == 1
    here.session.talk.history.trouble = "the disk is full"
    here.ask("two?")
    assert here.turns == ["one?", "One.", "two?"]
    assert here.request.messages[0] == Message.system("Be brief.")
    assert here.request.conversation is None, "nothing is saved"
    (here.session.folder / "a.txt").write_text("inside")
    here.answer("Two.")
    here.ask("What is in @a.txt?")
    assert "inside" in here.turns[-1]


def test_a_model_that_is_chosen_while_another_one_loads_is_loaded_behind_it(here: Window) -> None:
    here.session.load("smollm2-135m")
    here.session.load("qwen3-4b")
    here.hear(READY)
    assert here.session.models.next_name == "qwen3-4b"
    assert here.session.models.loading
    here.hear(msgspec.structs.replace(READY, target="qwen3-4b"))
    assert here.session.models.line == "qwen3-4b"


def test_a_reply_is_kept_as_the_engine_finished_it_and_made_again_with_a_seed(here: Window) -> None:
    here.ask("one?")
    here.answer("One.", message=Message.assistant("One!", "hm"))
    (_, reply) = here.session.talk.messages
    assert (reply.message.text, reply.message.thinking, reply.state) == ("One!", "hm", "complete")
    here.session.regenerate(seed=3)
    assert (here.request.options.seed, here.session.settings.current.options.seed) == (3, None)
    here.answer("Eins.")
    assert here.contents == ["one?", "Eins."]
    assert len(here.session.talk.messages[1].siblings) == 2


def test_the_figures_are_those_of_the_last_answer_until_the_next_has_its_own(here: Window) -> None:
    assert here.session.measured is None
    here.ask("one?", "One.")
    first = here.session.measured
    assert first is here.session.exchange is not None
    here.ask("two?")
    assert here.session.measured is first
    here.answer("Two.")
    assert here.session.measured is here.session.exchange is not first


def test_an_edit_that_is_taken_back_leaves_what_was_before_it(here: Window) -> None:
    here.ask("one?", "One.")
    here.ask("two?", "Two.")
    here.session.ask_instead(1, "uno?")
    here.answer("Uno.")
    assert here.contents == ["uno?", "Uno."]
    assert here.session.undo() == "uno?"
    assert here.contents == ["one?", "One.", "two?", "Two."]
    assert here.session.undo() == "two?"
    assert here.contents == ["one?", "One."]


def test_a_stopped_answer_is_kept_as_cut_and_goes_on_in_the_same_message(here: Window) -> None:
    here.ask("one?")
    assert here.session.stop()
    assert here.engine.cancelled == [here.number]
    here.answer("On", stop_reason=StopReason.CANCELLED)
    assert here.session.talk.messages[-1].state == "cut"
    assert here.session.stopped
    assert not here.session.stop()
    here.session.go_on()
    assert here.request.messages[-1] == Message.assistant("On")
    here.hear(streamed(here.number, "e."), finished(here.number, "One."))
    states = [(each.message.text, each.state) for each in here.session.talk.messages]
    assert states == [("one?", "complete"), ("One.", "complete")]


def test_an_answer_stopped_or_refused_before_it_began_leaves_no_empty_one(here: Window) -> None:
    here.ask("one?")
    here.hear(started(here.number, 10, 0))
    here.hear(finished(here.number, "", stop_reason=StopReason.CANCELLED))
    assert here.contents == ["one?"]
    here.ask("another?")
    assert here.contents == ["another?"]
    here.hear(Failed(here.number, "ContextOverflow", "too long"), seconds=DIED_S)
    assert here.contents == ["another?"]
    assert not here.session.busy
    here.session.talk.drop_oldest = True
    assert here.session.ask_again()
    assert here.request.drop_oldest


def test_undo_takes_questions_back_with_their_answers_and_loses_nothing(here: Window) -> None:
    for each in ("one?", "two?"):
        here.ask(each, "Yes.")
    measured = here.session.measured
    assert here.session.undo() == "two?"
    assert here.contents == ["one?", "Yes."]
    assert here.session.measured is measured is not None, "it was measured"
    here.ask("three?", "Yes.")
    assert here.contents == ["one?", "Yes.", "three?", "Yes."]
    assert len(here.session.talk.messages[2].siblings) == 2
    assert [here.session.undo() for _ in range(2)] == ["three?", "one?"]
    refuses("nothing was asked yet", here.session.undo)
    here.ask("four?")
    assert here.contents == ["four?"]


def test_what_was_taken_back_is_no_title(here: Window) -> None:
    def titles() -> list[str]:
        listed = [each.title for each in here.session.talk.history.conversations()]
        return [*listed, here.session.talk.title]

    here.ask("a long log", "Yes.")
    here.session.undo()
    for each in ("one", "two"):
        here.ask(each, "Yes.")
    assert titles() == ["one", "one"]
    here.session.talk.branch_off(2)
    assert titles() == ["one (branch)", "one", "one (branch)"]
    here.session.undo()  # a name stays
    here.ask("three")
    assert here.session.talk.title == "one (branch)"


def test_what_was_deleted_elsewhere_is_neither_asked_nor_marked_nor_named(
    here: Window, tmp_path: Path
) -> None:
    here.ask("one?")
    here.answer("One.")
    talk = here.session.talk
    with closing(History(tmp_path / "history")) as other:
        assert talk.conversation is not None
        other.delete(talk.conversation)
    all_refuse(
        "deleted elsewhere: /new begins another",
        lambda: here.session.ask("two?"),
        lambda: talk.mark("good"),
        lambda: talk.rename("rivers"),
    )
    here.session.new()
    here.ask("three?")
    assert here.contents == ["three?"]


def all_refuse(word: str, *doings: Callable[[], object]) -> None:
    for doing in doings:
        refuses(word, doing)


def test_what_was_counted_of_another_conversation_is_not_shown(here: Window) -> None:
    here.ask("one?", "One.")
    here.session.count()
    here.hear()
    here.session.new()
    count = here.engine.sent[-1]
    assert isinstance(count, Count)
    here.hear(Counted(count.id, 2000, 2048))
    assert (here.session.context_tokens, here.session.advice()) == (0, "")


def test_only_one_answer_at_a_time(here: Window) -> None:
    session = here.session
    here.ask("one?")
    doings = (
        lambda: session.ask("two?"),
        lambda: session.load("p"),
        lambda: session.settings.set("ctx", "9"),
        lambda: here.loop.run_until_complete(session.delete(here.conversation)),
    )
    all_refuse("still answering", *doings, session.regenerate, session.new)


def test_what_streamed_in_survives_the_engine_which_is_started_again_once(here: Window) -> None:
    session = here.session
    news: list[tuple[str, Any]] = []
    session.notify = lambda text, holds: news.append((text, holds))
    here.ask("one?")
    here.hear(started(here.number, 9, 0), streamed(here.number, "On"))
    here.hear(EngineDied("the engine was killed"), seconds=DIED_S)
    assert here.contents == ["one?", "On"]
    assert (session.talk.messages[-1].state, session.busy) == ("cut", False)
    ((told, holds),) = news
    assert told == "the engine was killed; restarting it"
    assert [each.pair for each in here.engine.loads] == ["p", "p"]
    assert holds()
    here.hear(READY)
    assert not holds()
    here.ask("two?", "Two.")
    here.hear(EngineDied("it was killed again"))
    assert news[-1][0].startswith("it was killed again; /restart")
    assert session.models.dead
    doings = lambda: session.ask("3?"), lambda: session.ask_instead(1, "3?")
    all_refuse("/restart", *doings, session.regenerate, session.go_on)
    assert here.contents == ["one?", "On", "two?", "Two."]


def test_a_context_that_gets_full_is_told_once_and_summarised_in_an_eighth(here: Window) -> None:
    here.ask("one?", "One.")
    assert here.session.advice() == ""
    here.ask("two?")
    here.hear(started(here.number, 1700, 0), finished(here.number, "Two."))
    assert "83% full" in here.session.advice()
    assert here.session.advice() == ""
    here.session.compact()
    assert here.request.options.max_tokens == READY.n_ctx // 8


def test_a_fault_of_what_runs_beside_answers_is_raised(here: Window) -> None:
    here.session.models.load = None  # type: ignore[assignment, method-assign]
    here.session.load("p")
    here.hear()
    with pytest.raises(TypeError):
        list(here.session.news())


def test_a_conversation_is_left_with_advice_and_taken_up_with_its_settings(here: Window) -> None:
    session, settings = here.session, here.session.settings
    here.ask("zero?", "Zero.")
    session.new()
    assert (here.contents, session.farewell) == ([], "")
    settings.set("temperature", "0.1")  # before the first question
    settings.set("draft", "off")
    session.talk.system = "Speak like a pirate."
    here.ask("one?", "One.")
    assert here.request.draft == "off"
    advice = "continue with: localspec chat --continue 2"
    assert (session.farewell, here.conversation) == (advice, 2)
    session.open(1)
    assert (settings.current, settings.current.given) == (settings.usual, ())
    session.new()
    assert session.talk.system == "Be brief."
    settings.set("temperature", "1.5")
    settings.set("draft", "on")
    session.open(2)
    settings.set("top_p", "0.5")  # behind it
    session.new()
    session.open(2)
    sampling = settings.current.options.sampling
    assert (sampling.temperature, sampling.top_p, settings.current.draft) == (0.1, 0.5, "off")
    assert here.contents == ["one?", "One."]
    assert (session.farewell, session.talk.system) == (advice, "Speak like a pirate.")
    session.talk.history.trouble = "the disk is full"
    assert session.farewell == "not saved: the disk is full"


def test_a_branch_of_its_own_keeps_settings_and_states_and_leaves_the_other(here: Window) -> None:
    here.session.settings.set("temperature", "0.1")
    here.ask("one?")
    here.answer("On", stop_reason=StopReason.CANCELLED)
    here.ask("two?", "Two.")
    first = here.conversation
    front = Lines(here.session, Preferences(), StringIO(), StringIO(), terminal=False)
    here.loop.run_until_complete(branch_behind(front, 2))
    branch = here.conversation
    states = [(each.message.text, each.state) for each in here.session.talk.messages]
    assert states == [("one?", "complete"), ("On", "cut")]
    here.session.open(first)
    assert here.contents == ["one?", "On", "two?", "Two."]
    here.session.new()
    here.session.open(branch)
    assert (branch != first, here.session.settings.text_of("temperature")) == (True, "0.1")


@pytest.mark.parametrize(
    ("mode", "asked"), [("auto", None), ("lookup", "lookup:15"), ("model:3", "model:3")]
)
def test_what_drafts_is_kept_with_a_conversation(
    here: Window, mode: str, asked: str | None
) -> None:
    here.session.load("p")
    here.hear(msgspec.structs.replace(READY, draft_model="small"))
    here.session.settings.set("draft", mode)
    here.ask("one?", "One.")
    assert here.request.draft == asked
    conversation = here.conversation
    here.session.new()
    here.session.open(conversation)
    assert here.session.settings.text_of("draft") == (asked or "auto")


def test_a_way_to_draft_that_is_not_there_is_refused(here: Window) -> None:
    session = here.session
    refuses("no draft model is loaded", session.settings.set, "draft", "model:3")
    refuses("choose off, auto", session.settings.set, "draft", "maybe")
    session.settings.set("draft", "off")
    session.models.usual = replace(session.models.usual, draft="off")
    refuses("loaded with --draft off", session.settings.set, "draft", "auto")


def test_taking_up_a_conversation_downloads_nothing(here: Window) -> None:
    here.ask("one?", "One.")
    first = here.conversation
    here.session.new()
    here.session.load("q")
    here.hear(READY)
    here.session.open(first)
    here.hear(READY)
    here.session.load("q")
    here.hear()
    loads = [(each.target or each.pair, each.offline) for each in here.engine.loads]
    assert loads == [("p", False), ("q", False), ("p", True), ("q", False)]


def test_a_context_that_was_asked_for_is_kept(here: Window, tmp_path: Path) -> None:
    session = here.session
    here.ask("one?", "One.")
    session.settings.set("ctx", "9000000")
    here.hear(Failed(None, "ContextOverflow", "too large"))
    assert session.models.usual.load.n_ctx is None
    assert session.models.replaced == "too large; p answers instead"
    assert session.talk.history.conversation(here.conversation).settings == ""
    refuses("it takes a number", session.settings.set, "ctx", "many")
    for size in (6000, 8000):
        session.settings.set("ctx", str(size))
        here.hear(msgspec.structs.replace(READY, n_ctx=size))
        here.ask("two?", "Two.")
    conversation = here.conversation
    for own, n_ctx in ((True, 8000), (False, None)):
        with window(tmp_path, conversation, own_ctx=own) as later:
            load = later.engine.loads[-1]
            assert (load.load.n_ctx, load.offline) == (n_ctx, False)
    session.new()
    session.settings.set("ctx", "off")
    here.hear(READY)
    assert session.models.usual.load.n_ctx is None
    session.open(conversation)
    here.hear(READY)
    assert session.models.usual.load.n_ctx == 8000


def test_what_a_server_lacks_is_refused_in_one_sentence_and_none_of_it_is_sent(
    here: Window,
) -> None:
    url, session = "http://127.0.0.1:9", here.session
    session.engine.can = abilities(url)
    sentence = rf"^/set draft is not available with a remote server \({url}\)$"
    refuses(sentence, lambda: session.settings.set("draft", "off"))
    here.ask("one?", "One.")
    assert here.request.draft is None
    assert session.talk.pair == "", "no model of this machine answered"
    session.new()


@pytest.mark.parametrize(
    ("end", "told"),
    [
        ({"completion_tokens": 1}, ["the model adds nothing: the answer was complete"]),
        ({"completion_tokens": 0, "tokens": (), "stop_reason": StopReason.CANCELLED}, []),
    ],
)
def test_an_answer_that_goes_on_with_nothing_keeps_its_figures(
    here: Window, end: dict[str, Any], told: list[str]
) -> None:
    here.ask("one?", "One.")
    before, notes = here.session.talk.messages[-1].known_figures, list[str]()
    here.session.note = notes.append
    here.session.go_on()
    here.hear(started(here.number, 10, 4))  # or it is stopped while it is read
    here.hear(finished(here.number, "", message=Message.assistant("One."), **end))
    last = here.session.talk.messages[-1]
    assert (last.message.text, last.known_figures, last.state) == ("One.", before, "complete")
    assert (notes, here.session.busy) == (told, False)


def test_figures_of_an_answer_in_two_parts_are_of_the_whole(here: Window) -> None:
    here.ask("one?")
    here.answer("On", stop_reason=StopReason.CANCELLED, tokens_per_s=20.0)
    here.session.go_on()
    here.hear(streamed(here.number, "e."))
    here.hear(finished(here.number, "One.", tokens_per_s=10.0, seed=9))
    figures = here.session.talk.messages[-1].known_figures
    assert (figures["tokens"], figures["seed"]) == (21 + 11, 7)
    assert figures["tokens_per_s"] == pytest.approx(32 / (21 / 20 + 11 / 10))


def test_a_question_that_was_refused_does_not_count_as_context(here: Window) -> None:
    here.ask("one?", "One.")
    here.ask("a long one?")
    here.hear(Failed(here.number, "ContextOverflow", "too long"), seconds=DIED_S)
    here.session.count()
    here.hear()
    (*_, asked) = (each for each in here.engine.sent if isinstance(each, Count))
    assert [each.text for each in asked.messages] == ["Be brief.", "one?", "One."]


def test_a_conversation_that_is_deleted_takes_its_settings_along(here: Window) -> None:
    here.ask("one?", "One.")
    here.session.settings.set("max_tokens", "5")
    here.loop.run_until_complete(here.session.delete(here.conversation))
    assert here.session.settings.current == here.session.settings.usual


def test_a_question_behind_another_context_is_for_that(here: Window) -> None:
    here.session.load("smollm2-135m")
    here.session.settings.set("ctx", "200")
    here.session.ask("one?")
    here.hear(READY)
    load, request = here.engine.sent[-2:]
    assert isinstance(load, Load)
    assert (load.options.load.n_ctx, isinstance(request, Request)) == (200, True)
    here.hear(READY)
    here.answer("One.")
    assert here.contents == ["one?", "One."]


def test_an_answer_that_finds_no_room_to_go_on_is_no_long_question(here: Window) -> None:
    here.ask("one?", "One.")
    here.session.go_on()
    here.hear(
        Failed(here.number, "ContextOverflow", "too long", sizes=(250, 250, 500)), seconds=DIED_S
    )
    assert here.session.exchange is not None
    here.session.exchange.alone_tokens = 250
    assert not here.session.exchange.is_too_long
