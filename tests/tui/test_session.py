"""The session with a real history, and an engine whose messages the test writes."""

import asyncio
import io
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from localspec.chat.events import Finished
from localspec.chat.request import Request
from localspec.decoding.round import StopReason
from localspec.engine.protocol import EngineDied, Failed, Notice, Ready
from localspec.errors import UsageError
from localspec.history.archive import History
from localspec.messages import Message
from localspec.options import LaunchOptions, ReplyOptions
from localspec.session.conversation import SavedConversation
from localspec.session.preferences import Preferences
from localspec.tui.models import Phase
from localspec.tui.plain import Lines
from localspec.tui.session import Session
from tests.tui.answers import finished, started, streamed

READY = Ready("toy", None, "lookup", 2048, (), 0.1, True)


class Engine:
    """Keeps what it is told; says what the test gives it."""

    def __init__(self) -> None:
        self.asked: list[Request] = []
        self.told: list[str] = []
        self.inbox: list[Notice] = []

    def ask(self, messages: Sequence[Message], options: ReplyOptions, **flags: Any) -> int:
        self.asked.append(Request(len(self.asked) + 1, tuple(messages), options, **flags))
        return len(self.asked)

    def collect(self) -> list[Notice]:
        messages, self.inbox = self.inbox, []
        return messages

    async def arrival(self, _timeout_s: float) -> None:
        """What comes is there already."""

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments, **_: self.told.append(" ".join([name, *map(str, arguments)]))


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.fixture
def session(engine: Engine, tmp_path: Path) -> Session:
    talk = SavedConversation(History(tmp_path / "history"), "Be brief.")
    made = Session(engine, talk, LaunchOptions(pair="p"), ReplyOptions(), tmp_path)  # type: ignore[arg-type]
    made.start()
    hear(made, READY)
    return made


def hear(session: Session, *messages: Notice) -> None:
    engine: Engine = session.engine  # type: ignore[assignment]
    engine.inbox += messages
    for each in session.engine.collect():
        session.take(each)
    session.tick()


def answer(session: Session, text: str, **changes: Any) -> Finished:
    assert session.exchange is not None
    number = session.exchange.id
    whole = finished(number, text, **changes)
    hear(session, started(number, 10, 4), streamed(number, text), whole)
    return whole


def test_a_model_that_is_chosen_while_another_one_loads_is_the_one_that_is_waited_for(
    session: Session, engine: Engine
) -> None:
    session.models.load("smollm2-135m")
    session.models.load("qwen3-4b")
    out = io.StringIO()
    front = Lines(session, Preferences(), out, out, terminal=False, quiet=True)
    engine.inbox = [READY, msgspec.structs.replace(READY, target="qwen3-4b")]
    asyncio.run(front.wait_ready())
    assert session.models.line == "qwen3-4b"


def contents(session: Session) -> list[str]:
    return [each.message.text for each in session.talk.messages]


def test_a_question_is_sent_with_all_that_was_said(session: Session, engine: Engine) -> None:
    session.ask("one?")
    answer(session, "One.")
    session.ask("two?")
    assert [(turn.role, turn.text) for turn in engine.asked[-1].messages] == [
        ("system", "Be brief."),
        ("user", "one?"),
        ("assistant", "One."),
        ("user", "two?"),
    ]


def test_the_engine_is_told_which_conversation_it_is_unless_nothing_is_saved(
    session: Session, engine: Engine
) -> None:
    session.ask("one?")
    answer(session, "One.")
    assert engine.asked[-1].conversation == session.talk.conversation == 1
    session.talk.history.trouble = "the disk is full"
    session.ask("two?")
    assert engine.asked[-1].conversation is None


def test_a_reply_is_kept_as_the_engine_finished_it(session: Session) -> None:
    session.ask("one?")
    answer(session, "One.", message=Message.assistant("One!", "hm"))
    (_, reply) = session.talk.messages
    assert (reply.message.text, reply.message.thinking, reply.state) == ("One!", "hm", "complete")


def test_a_stopped_answer_is_kept_as_cut(session: Session, engine: Engine) -> None:
    session.ask("one?")
    assert session.stop()
    assert engine.told[-1] == "cancel 1"
    answer(session, "On", stop_reason=StopReason.CANCELLED)
    assert session.talk.messages[-1].state == "cut"
    assert not session.stop()


def test_an_answer_stopped_before_it_began_leaves_the_question_alone(session: Session) -> None:
    session.ask("one?")
    hear(session, started(1, 10, 0), finished(1, "", stop_reason=StopReason.CANCELLED))
    assert contents(session) == ["one?"]
    session.ask("another?")
    assert contents(session) == ["another?"]


def test_an_edited_question_is_a_branch_and_the_old_one_stays(
    session: Session, engine: Engine
) -> None:
    session.ask("one?")
    answer(session, "One.")
    session.ask_instead(1, "uno?")
    answer(session, "Uno.")
    assert contents(session) == ["uno?", "Uno."]
    assert engine.asked[-1].messages[-1].text == "uno?"
    session.talk.turn_aside(session.talk.messages[0], -1)
    assert contents(session) == ["one?", "One."]


def test_an_answer_can_be_made_again_with_a_seed(session: Session, engine: Engine) -> None:
    session.ask("one?")
    answer(session, "One.")
    session.regenerate(seed=3)
    assert engine.asked[-1].options.seed == 3
    assert session.settings.options.seed is None
    answer(session, "Eins.")
    assert contents(session) == ["one?", "Eins."]
    assert len(session.talk.messages[1].siblings) == 2


def test_an_answer_goes_on_in_the_same_message(session: Session, engine: Engine) -> None:
    session.ask("one?")
    answer(session, "On", stop_reason=StopReason.CANCELLED)
    session.go_on()
    assert engine.asked[-1].messages[-1] == Message.assistant("On")
    number = engine.asked[-1].id
    whole = finished(number, "One.")
    hear(session, streamed(number, "e."), whole)
    assert contents(session) == ["one?", "One."]
    assert session.talk.messages[-1].state == "complete"


def test_only_one_answer_at_a_time(session: Session) -> None:
    session.ask("one?")
    doings: list[Callable[[], object]] = [
        lambda: session.ask("two?"),
        session.regenerate,
        session.new,
        lambda: session.load("p"),
    ]
    for doing in doings:
        with pytest.raises(UsageError, match="still answering"):
            doing()


def test_what_streamed_in_survives_the_engine(session: Session) -> None:
    session.ask("one?")
    hear(session, streamed(1, "On"), EngineDied("the engine was killed"))
    assert contents(session) == ["one?", "On"]
    assert session.talk.messages[-1].state == "cut"
    assert session.models.phase is Phase.DEAD
    assert not session.busy


def test_nothing_is_asked_of_an_engine_that_is_gone(session: Session) -> None:
    session.ask("one?")
    hear(session, streamed(1, "On"), EngineDied("the engine was killed"))
    asking: list[Callable[[], object]] = [
        lambda: session.ask("two?"),
        lambda: session.ask_instead(1, "two?"),
        session.regenerate,
        session.go_on,
    ]
    for ask in asking:
        with pytest.raises(UsageError, match="/restart"):
            ask()
    assert contents(session) == ["one?", "On"]


def test_a_refused_question_leaves_no_empty_answer(session: Session) -> None:
    session.ask("one?")
    hear(session, Failed(1, "ContextOverflow", "too long"))
    assert contents(session) == ["one?"]
    assert not session.busy


def test_the_oldest_turns_are_left_out_once_that_was_chosen(
    session: Session, engine: Engine
) -> None:
    session.drop_oldest = True
    session.ask("one?")
    assert engine.asked[-1].drop_oldest


def test_the_models_state_is_kept_when_a_conversation_is_left(
    session: Session, engine: Engine
) -> None:
    session.ask("one?")
    answer(session, "One.")
    session.new()
    assert engine.told[-1].startswith("save_state ")
    assert contents(session) == []


def test_a_conversation_is_taken_up_with_its_settings(session: Session) -> None:
    session.ask("one?")
    answer(session, "One.")
    session.set("temperature", "0.1")
    conversation = session.talk.conversation
    assert conversation is not None
    session.new()
    session.set("temperature", "1.5")
    session.open(conversation)
    assert session.settings.options.sampling.temperature == 0.1
    assert contents(session) == ["one?", "One."]


def test_settings_chosen_before_the_first_question_are_kept_with_it(session: Session) -> None:
    session.set("temperature", "0.1")
    session.set("draft", "off")
    session.ask("one?")
    answer(session, "One.")
    conversation = session.talk.conversation
    assert conversation is not None
    session.new()
    session.set("temperature", "1.5")
    session.set("draft", "on")
    session.open(conversation)
    assert session.settings.options.sampling.temperature == 0.1
    assert session.settings.draft == "off"


def test_a_branch_of_its_own_leaves_the_other_conversation_as_it_was(session: Session) -> None:
    for question, reply in (("one?", "One."), ("two?", "Two.")):
        session.ask(question)
        answer(session, reply)
    first = session.talk.conversation
    session.talk.branch_off(2)
    assert contents(session) == ["one?", "One."]
    assert session.talk.conversation != first
    assert first is not None
    session.open(first)
    assert contents(session) == ["one?", "One.", "two?", "Two."]


def test_drafting_can_be_switched_off(session: Session, engine: Engine) -> None:
    session.set("draft", "off")
    session.ask("one?")
    assert engine.asked[-1].draft == "off"
    with pytest.raises(UsageError, match="choose off, auto"):
        session.set("draft", "maybe")


@pytest.mark.parametrize(
    ("mode", "asked"), [("auto", None), ("lookup", "lookup:15"), ("model:3", "model:3")]
)
def test_what_drafts_is_chosen_in_a_conversation_and_kept_with_it(
    session: Session, engine: Engine, mode: str, asked: str | None
) -> None:
    hear(session, msgspec.structs.replace(READY, draft_model="small"))
    session.set("draft", mode)
    session.ask("one?")
    assert engine.asked[-1].draft == asked
    answer(session, "One.")
    conversation = session.talk.conversation
    assert conversation is not None
    session.new()
    session.open(conversation)
    assert session.setting("draft") == (asked or "auto")


def test_a_draft_model_that_is_not_loaded_is_refused_at_once(session: Session) -> None:
    with pytest.raises(UsageError, match="no draft model is loaded"):
        session.set("draft", "model:3")
    session.set("draft", "lookup")
    hear(session, msgspec.structs.replace(READY, draft_model="small"))
    session.set("draft", "model:3")


def test_a_race_is_not_part_of_the_conversation(session: Session, engine: Engine) -> None:
    session.ask("one?")
    answer(session, "One.")
    race = session.start_race()
    assert [turn.text for turn in engine.asked[-1].messages] == ["Be brief.", "one?"]
    hear(session, finished(engine.asked[-1].id, "a"))
    hear(session, finished(engine.asked[-1].id, "a"))
    assert race.done
    assert contents(session) == ["one?", "One."]
    assert engine.asked[-1].options.seed is not None


def test_a_mentioned_file_is_sent_and_kept(
    session: Session, engine: Engine, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("inside")
    session.ask("What is in @a.txt?")
    assert "inside" in engine.asked[-1].messages[-1].text


def test_taking_up_a_conversation_fetches_nothing(session: Session, engine: Engine) -> None:
    session.ask("one?")
    answer(session, "One.")
    first = session.talk.conversation
    assert first is not None
    session.new()
    session.load("q")
    hear(session, READY)
    session.open(first)
    loads = [each for each in engine.told if each.startswith("load ")]
    assert "pair='p'" in loads[0]
    assert "target='p'" in loads[-1]
    assert "offline=True" in loads[-1]
    hear(session, READY)
    session.load("q")
    loads = [each for each in engine.told if each.startswith("load ")]
    assert "offline=False" in loads[-1], "that was for one conversation"


def loads(session: Session) -> int | None:
    """Return the tokens of context that were asked for last."""
    return session.models.usual.load.n_ctx


def test_a_context_that_was_asked_for_is_kept_with_the_conversation(
    session: Session, engine: Engine, tmp_path: Path
) -> None:
    session.set("ctx", "6000")
    hear(session, msgspec.structs.replace(READY, n_ctx=6000))
    session.ask("one?")
    answer(session, "One.")
    session.set("ctx", "8000")
    hear(session, msgspec.structs.replace(READY, n_ctx=8000))
    conversation = session.talk.conversation
    assert conversation is not None
    for flag, n_ctx in ((True, 8000), (False, None)):
        later = Session(engine, session.talk, LaunchOptions(), ReplyOptions(), tmp_path)  # type: ignore[arg-type]
        later.resume(conversation, own_ctx=flag)
        later.start()
        assert loads(later) == n_ctx
    session.new()
    session.set("ctx", "off")
    hear(session, READY)
    assert loads(session) is None
    session.open(conversation)
    assert loads(session) == 8000


def test_a_context_that_could_not_be_had_is_not_kept(session: Session) -> None:
    session.ask("one?")
    answer(session, "One.")
    session.set("ctx", "9000000")
    hear(session, Failed(None, "ContextOverflow", "too large"))
    assert loads(session) is None
    assert session.models.replaced == "too large; p answers instead"
    conversation = session.talk.conversation
    assert conversation is not None
    assert session.talk.history.conversation(conversation).settings == ""
    hear(session, READY)
    assert session.talk.history.conversation(conversation).settings == ""


def test_how_is_drafted_is_told_as_the_models_were_loaded(session: Session) -> None:
    assert session.setting("draft") == "auto"
    session.set("draft", "off")
    assert session.setting("draft") == "off"
    session.set("draft", "auto")
    session.models.usual = replace(session.models.usual, draft="off")
    assert session.setting("draft") == "off"
    with pytest.raises(UsageError, match="loaded with --draft off"):
        session.set("draft", "auto")
