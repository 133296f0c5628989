"""How an engine answers several requests at a time for a batch."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count

import pytest

from localspec.chat.events import Finished, Reply
from localspec.chat.request import Request
from localspec.decoding.round import Spent, StopReason
from localspec.engine.engine import Engine
from localspec.engine.protocol import EngineDied, Question
from localspec.engine.sync import ParallelRequests
from localspec.errors import EngineGone
from localspec.messages import Message

REPLY = Reply("", "", (), StopReason.EOG, 7, 1, 0, 1, 0.1, 0.1, 0.1, Spent(), "off")


class Slow(Engine):
    """Answers two at a time; a reply ends when it was waited for so often, and all are stopped once so many are under way."""

    def __init__(self, waits: int, stopped_at: int = 0) -> None:
        super().__init__(parallel=2)
        self._waits, self._stopped_at = waits, stopped_at
        self._left, self._looks = dict[int, int](), 0

    def cancel(self, number: int) -> None:
        self._end(number, StopReason.CANCELLED)

    def close(self) -> None:
        """Nothing is open."""

    def _submit(self, question: Question) -> None:
        assert question.id is not None
        self._left[question.id] = self._waits

    def _receive(self) -> None:
        self._looks += 1
        assert self._looks < 100, "nothing ends"
        if len(self._left) == self._stopped_at:
            self.stop()
        for number in [*self._left]:
            self._left[number] -= 1
            if not self._left[number]:
                self._end(number, StopReason.EOG)

    def _end(self, number: int, reason: StopReason) -> None:
        del self._left[number]
        reply = replace(REPLY, stop_reason=reason)
        self._deliver(Finished(reply, Message.assistant(""), id=number))


def seldom(is_ready: Callable[[], bool]) -> Callable[[], bool]:
    """Fail where the next request is asked for again and again while answers wait."""
    looks = count()

    def ready() -> bool:
        assert next(looks) < 100, "it only looks for the next request"
        return is_ready()

    return ready


def test_while_the_next_request_is_not_there_those_before_it_are_answered() -> None:
    answered = list[int]()
    ready = seldom(lambda: bool(answered))
    for each in ParallelRequests(Slow(3)).outcomes(iter([Request(1, ()), Request(2, ())]), ready):
        answered.append(each.key)
    assert answered == [1, 2]


@pytest.mark.parametrize("under_way", [1, 2])
def test_stopped_it_ends_all_that_are_under_way_and_takes_no_more(under_way: int) -> None:
    taken = list[int]()

    def requests() -> Iterator[Request]:
        for number in (5, 6, 7):
            taken.append(number)
            yield Request(number, ())

    ends = list(
        ParallelRequests(Slow(1000, under_way)).outcomes(
            requests(), seldom(lambda: len(taken) < under_way)
        )
    )
    assert [each.key for each in ends] == taken == [5, 6][:under_way]
    assert {each.reply and each.reply.stop_reason for each in ends} == {StopReason.CANCELLED}


def test_where_the_engine_dies_that_alone_is_reported() -> None:
    class Dies(Slow):
        def _receive(self) -> None:
            self._deliver(EngineDied("the server stops"))

    engine = Dies(9)
    with pytest.raises(EngineGone, match="the server stops"):
        list(ParallelRequests(engine).outcomes(iter([Request(1, ()), Request(2, ())])))
    assert engine.idle
