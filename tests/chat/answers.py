"""Requests that are answered as many at once as there are sequences."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from localspec.chat.assistant import Assistant
from localspec.chat.events import Finished, Reply, RequestFailed
from localspec.chat.request import Request, RequestOutcome, at_once
from localspec.decoding.round import StopReason
from localspec.errors import LocalspecError


def answers(
    assistant: Assistant, requests: Iterator[Request], ready: Callable[[], bool] = at_once
) -> Iterator[RequestOutcome]:
    """Take a request for every free sequence, and yield each once it is answered; see `RequestDriver`."""
    taking, mine = True, set[int]()
    try:
        while taking or mine:
            if taking and len(mine) < assistant.count and (not mine or ready()):
                request = next(requests, None)
                if request is None:
                    taking = False
                    continue
                mine.add(request.id)
                assistant.submit(request)
            assistant.step()
            for key, event in assistant.take():
                if isinstance(event, Finished):
                    mine.remove(key)
                    taking = taking and event.reply.stop_reason is not StopReason.CANCELLED
                    yield RequestOutcome(key, event.reply)
                elif isinstance(event, RequestFailed):
                    assert isinstance(event.error, LocalspecError), event.error
                    mine.remove(key)
                    yield RequestOutcome(key, None, event.error)
    finally:
        for key in mine:
            assistant.drop(key)


def replies(assistant: Assistant, requests: Iterable[Request]) -> dict[int, Reply]:
    """Answer requests, of which none fails; return the replies by the numbers of their requests."""
    made = dict[int, Reply]()
    for each in answers(assistant, iter(requests)):
        assert each.reply is not None, each.error
        made[each.key] = each.reply
    return made


@dataclass
class Answering:
    """An assistant as an `RequestDriver`."""

    assistant: Assistant

    def outcomes(
        self, requests: Iterator[Request], ready: Callable[[], bool] = at_once
    ) -> Iterator[RequestOutcome]:
        return answers(self.assistant, requests, ready)
