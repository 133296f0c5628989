"""Answering, in this process: what a cancel meets that comes at an awkward moment."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec
import pytest

from localspec.chat.assistant import Assistant
from localspec.chat.conversation import Conversation, KnownConversations
from localspec.chat.events import Event, Finished, RoundDone, Started, StreamEvent
from localspec.chat.request import Request
from localspec.decoding.cancel import CancelFlag
from localspec.decoding.policy import Policy
from localspec.decoding.round import StopReason
from localspec.engine.answering import Answering
from localspec.engine.protocol import Notice, ReplyEvents
from localspec.messages import Message
from localspec.options import ReplyOptions, SamplingParams
from tests.engine.double import loaded

GREEDY = ReplyOptions(SamplingParams(temperature=0))


class Meddler:
    """Cancels a request at a certain moment, as another thread may: while it begins, or at its end."""

    def __init__(self, moment: str, request: int) -> None:
        self.moment, self.request = moment, request
        self.cancel: Callable[[int], None] = lambda _number: None

    def begin(
        self, request: Request, tokens: Sequence[int], policy: Policy
    ) -> Callable[[Event], None]:
        self._meet("begin", request.id)
        return lambda event: self._meet(type(event).__name__, request.id)

    def close(self) -> None:
        pass

    def _meet(self, moment: str, key: int) -> None:
        if (moment, key) == (self.moment, self.request):
            self.cancel(key)


def reasons(meddler: Meddler, asked: int, parallel: int) -> dict[int, StopReason]:
    """Have requests answered while somebody meddles; return why each ended."""
    made = loaded("toy", {"parallel": parallel}, CancelFlag())
    assistant = Assistant(made.assistant.models, made.assistant.policies, observers=[meddler])
    told: list[Notice] = []
    answering = Answering(replace(made, assistant=assistant), told.append)
    meddler.cancel = answering.cancel
    for number in range(1, asked + 1):
        answering.submit(Request(number, (Message.user(f"question {number}"),), GREEDY))
    while answering.busy:
        answering.step()
    return {each.id: each.reply.stop_reason for each in told if isinstance(each, Finished)}


@pytest.mark.parametrize("parallel", [1, 2])
@pytest.mark.parametrize("moment", ["begin", "Started", "RoundDone"])
def test_a_cancel_is_heard_from_the_first_moment_on(moment: str, parallel: int) -> None:
    told = reasons(Meddler(moment, 2), asked=3, parallel=parallel)
    assert told == {1: StopReason.EOG, 2: StopReason.CANCELLED, 3: StopReason.EOG}


@pytest.mark.parametrize("parallel", [1, 2])
def test_a_cancel_that_comes_with_the_end_stops_nobody_else(parallel: int) -> None:
    told = reasons(Meddler(Finished.__name__, 2), asked=4, parallel=parallel)
    assert told == dict.fromkeys(range(1, 5), StopReason.EOG)


def test_that_a_reply_begins_is_told_before_its_first_pass() -> None:
    made = loaded("toy", {}, CancelFlag())
    evaluated: list[int] = []

    def tell(notice: Notice) -> None:
        if isinstance(notice, ReplyEvents) and isinstance(notice.events[0], Started):
            evaluated.append(made.assistant.models.target.common_prefix(prompt))

    answering = Answering(made, tell)
    question = (Message.user("x" * 300),)
    prompt = made.assistant.prompt_tokens(Conversation(messages=question))
    answering.submit(Request(1, question, GREEDY))
    while answering.busy:
        answering.step()
    assert evaluated == [0]


def told_of(ask: Request) -> list[Notice]:
    """Return all that is told of a request."""
    told: list[Notice] = []
    answering = Answering(loaded("toy", {"drafts": 3}, CancelFlag()), told.append)
    answering.submit(ask)
    while answering.busy:
        answering.step()
    return told


def test_who_wants_no_rounds_is_told_all_else_of_them() -> None:
    ask = Request(1, (Message.user("hello"),), GREEDY)
    with_rounds, without = told_of(ask), told_of(msgspec.structs.replace(ask, rounds=False))
    rounds = [each for each in events_of(with_rounds) if isinstance(each, RoundDone)]
    assert len(rounds) > 1
    others = [each for each in events_of(with_rounds) if not isinstance(each, RoundDone)]
    assert events_of(without) == others
    one, other = with_rounds[-1], without[-1]
    assert isinstance(one, Finished)
    assert isinstance(other, Finished)
    assert (other.reply.text, other.reason, other.widths) == (
        one.reply.text,
        one.reason,
        one.widths,
    )
    assert other.reply.acceptance == one.reply.acceptance
    assert one.reply.acceptance.rounds == len(rounds) - 1, "the prompt's own token is none"


def events_of(told: Sequence[Notice]) -> list[StreamEvent]:
    return [event for each in told if isinstance(each, ReplyEvents) for event in each.events]


class Listener:
    """Notes what conversations remember when they begin."""

    def __init__(self) -> None:
        self.remembered: dict[int, str] = {}
        self.known = KnownConversations(0)

    def begin(
        self, request: Request, tokens: Sequence[int], policy: Policy
    ) -> Callable[[Event], None]:
        remembered = self.known.conversation(request).remembered
        self.remembered[request.id] = "".join(each.text for each in remembered)
        return lambda _event: None

    def close(self) -> None:
        pass


def test_of_several_conversations_each_finds_its_own_ids_again() -> None:
    made, listener = loaded("toy", {"parallel": 2}, CancelFlag()), Listener()
    assistant = Assistant(made.assistant.models, made.assistant.policies, observers=[listener])
    listener.known = assistant.known
    told: list[Notice] = []
    answering = Answering(replace(made, assistant=assistant), told.append)

    def ask(number: int, *said: Message) -> Message:
        answering.submit(Request(number, said, GREEDY))
        while answering.busy:
            answering.step()
        done = told[-1]
        assert isinstance(done, Finished)
        return done.message

    one, two = Message.user("first question"), Message.user("second question")
    first, second = ask(1, one), ask(2, two)
    ask(3, one, first, Message.user("more of it"))
    ask(4, two, second, Message.user("more of it"))
    ask(5, Message.user("another"))
    assert "first question" in listener.remembered[3]
    assert "second question" in listener.remembered[4]
    assert first.text in listener.remembered[3]
    for number in range(6, 20):
        ask(number, Message.user(f"question {number}"))
    assert len(assistant.known._known) == 4, "no more than may be of use"
