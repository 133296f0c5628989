"""RequestRunner, in this process: cancels at awkward moments, what is sent, and what is remembered or left out."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from localspec.chat.assistant import Assistant
from localspec.chat.events import Event, Finished, RoundDone, Started, StreamEvent
from localspec.chat.request import Observer, Request
from localspec.decoding.cancel import CancelFlag
from localspec.decoding.policy import FixedPolicy, Policy
from localspec.decoding.round import StopReason
from localspec.engine.protocol import Count, Counted, Notice, ReplyEvents
from localspec.engine.request_runner import RequestRunner, dropped_to_fit
from localspec.messages import Message
from tests.chat.test_assistant import TEMPLATE
from tests.engine.double import loaded
from tests.engine.scripted import KnowingDrafter, script_of
from tests.engine.talking import GREEDY


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


def observed(script: dict[str, Any], observer: Observer, notices: list[Notice]) -> RequestRunner:
    made = loaded("toy", script, CancelFlag())
    assistant = Assistant(made.assistant.models, made.assistant.policies, observers=[observer])
    return RequestRunner(replace(made, assistant=assistant), notices.append)


def finish(answering: RequestRunner, *requests: Request) -> None:
    for each in requests:
        answering.submit(each)
    while answering.busy:
        answering.step()


def reasons(meddler: Meddler, asked: int, parallel: int) -> dict[int, StopReason]:
    notices: list[Notice] = []
    answering = observed({"parallel": parallel}, meddler, notices)
    meddler.cancel = answering.cancel
    questions = [(Message.user(f"question {number}"),) for number in range(1, asked + 1)]
    finish(answering, *(Request(at, each, GREEDY) for at, each in enumerate(questions, 1)))
    return {each.id: each.reply.stop_reason for each in notices if isinstance(each, Finished)}


@pytest.mark.parametrize("parallel", [1, 2])
@pytest.mark.parametrize("moment", ["begin", "Started", "RoundDone", "Finished"])
def test_a_cancel_ends_its_own_reply_from_the_first_moment_to_the_last(
    moment: str, parallel: int
) -> None:
    ends = dict.fromkeys(range(1, 5), StopReason.EOG)
    if moment != "Finished":  # with the end it comes too late
        ends[2] = StopReason.CANCELLED
    assert reasons(Meddler(moment, 2), asked=4, parallel=parallel) == ends


def test_a_reply_begins_before_its_first_pass() -> None:
    made, cached = loaded("toy", {}, CancelFlag()), list[int]()

    def take(notice: Notice) -> None:
        if isinstance(notice, ReplyEvents) and isinstance(notice.events[0], Started):
            cached.append(made.assistant.models.target.n_cached)

    finish(RequestRunner(made, take), Request(1, (Message.user("x" * 300),), GREEDY))
    assert cached == [0]


def test_tokens_are_counted_as_the_reply_is_to_think() -> None:
    made, notices, counts = loaded("toy", {"thinks": True}, CancelFlag()), list[Notice](), []
    source = f"{TEMPLATE}{{% if not enable_thinking %}}<think>\n</think>{{% endif %}}"
    made.assistant.models = replace(made.assistant.models, template_source=source)
    answering, question = RequestRunner(made, notices.append), (Message.user("hello"),)
    for think in (None, "off"):
        counted = answering.answer(Count(1, question, options=replace(GREEDY, think=think)))
        assert isinstance(counted, Counted)
        finish(answering, Request(2, question, replace(GREEDY, think=think)))
        assert isinstance(notices[-1], Finished)
        assert notices[-1].reply.prompt_tokens == counted.tokens
        counts.append(counted.tokens)
    assert counts[0] < counts[1]


def test_without_rounds_all_else_of_them_is_sent() -> None:
    def answered(rounds: bool) -> tuple[list[StreamEvent], Finished]:
        notices: list[Notice] = []
        answering = RequestRunner(loaded("toy", {"drafts": 3}, CancelFlag()), notices.append)
        finish(answering, Request(1, (Message.user("hello"),), GREEDY, rounds=rounds))
        *streamed, last = notices
        assert isinstance(last, Finished)
        return [e for each in streamed if isinstance(each, ReplyEvents) for e in each.events], last

    (every, one), (without, other) = answered(True), answered(False)
    rounds_done = [each for each in every if isinstance(each, RoundDone)]
    assert without == [each for each in every if not isinstance(each, RoundDone)]
    assert (other.reply.text, other.reason) == (one.reply.text, one.reason)
    assert other.reply.acceptance == one.reply.acceptance
    assert one.reply.acceptance.rounds == len(rounds_done) - 1 > 0, "the prompt's own token is none"


def test_the_reason_names_how_many_replies_shared_the_passes() -> None:
    script = {"parallel": 3, "costs": {"target": [[1, 64], [1.0, 64.0]]}}
    made, notices = loaded("toy", script, CancelFlag()), list[Notice]()
    policies = [FixedPolicy(KnowingDrafter(script_of(script)), 0) for _ in range(3)]
    assistant = Assistant(made.assistant.models, policies)
    answering = RequestRunner(replace(made, assistant=assistant), notices.append)
    finish(answering, *(Request(n, (Message.user("hello"),), GREEDY) for n in (1, 2, 3)))
    reasons = {each.reason for each in notices if isinstance(each, Finished)}
    assert reasons == {
        "off: would be slower here: beside 2 others a draft costs more than it could confirm"
    }


def test_of_several_conversations_each_finds_its_own_ids_again() -> None:
    notices: list[Notice] = []
    answering = RequestRunner(loaded("toy", {"parallel": 2}, CancelFlag()), notices.append)
    known = answering._assistant.known

    def ask(*said: Message) -> Message:
        finish(answering, Request(1, said, GREEDY))
        done = notices[-1]
        assert isinstance(done, Finished)
        return done.message

    def remembered(*said: Message) -> str:
        return "".join(each.text for each in known.conversation(Request(1, said)).remembered)

    one, two = Message.user("first question"), Message.user("second question")
    first, second = ask(one), ask(two)
    more = Message.user("more of it")
    assert "first question" in remembered(one, first, more)
    assert first.text in remembered(one, first, more)
    assert "second question" in remembered(two, second, more)
    for number in range(20):
        ask(Message.user(f"question {number}"))
    assert len(known._known) == 4, "no more than may be of use"


def length(turns: Sequence[Message]) -> int:
    return sum(len(turn.text) + 1 for turn in turns)


@given(
    sizes=st.lists(st.integers(0, 30), min_size=1, max_size=20),
    system=st.none() | st.integers(0, 30),
    n_ctx=st.integers(4, 400),
    max_tokens=st.none() | st.integers(1, 100),
    least=st.integers(1, 3),
)
@example(sizes=[50], system=None, n_ctx=10, max_tokens=None, least=1)
def test_as_few_turns_as_will_do_are_left_out(
    sizes: list[int], system: int | None, n_ctx: int, max_tokens: int | None, least: int
) -> None:
    said = [(Message.user, Message.assistant)[i % 2]("x" * size) for i, size in enumerate(sizes)]
    first = [] if system is None else [Message.system("s" * system)]
    dropped = dropped_to_fit([*first, *said], n_ctx, max_tokens, length, least)
    room = n_ctx - min(n_ctx // 4, max_tokens or n_ctx)
    rest = said[dropped:]
    assert rest[0].role == "user"
    fits = length([*first, *rest]) <= room
    questions = [i for i, turn in enumerate(said) if turn.role == "user"]
    assert fits or dropped == questions[-least:][0]
    assert sum(turn.role == "user" for turn in rest) >= min(least, len(questions))
    if dropped:
        assert length([*first, *said[dropped - 2 :]]) > room
    assert dropped_to_fit([Message.assistant("x" * 50)], n_ctx, max_tokens, length) == 0
