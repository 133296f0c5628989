"""GatedEngine: an engine whose answers come as they may be seen. Screens, lines, races and the history know nothing else of them."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import msgspec

from localspec.chat.events import Event, Finished
from localspec.chat.gated import GatedReply
from localspec.chat.request import Request
from localspec.engine.client import COMMAND, EngineClient
from localspec.engine.protocol import Failed, Notice, Question, ReplyDone, ReplyEvents
from localspec.gates.gate import Gate
from localspec.gates.text_gate import Finding
from localspec.launch.recording import note
from localspec.options import LaunchOptions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from localspec.engine.shared import SharedEngine


class GatedEngine(EngineClient):
    """An engine behind a gate.

    Args:
        gate: what must not be seen.
        find: as for `EngineClient`.
        command: likewise.

    Attributes:
        asked: what the last answer has that is masked until the user wants to see it; in memory alone.
    """

    def __init__(
        self,
        gate: Gate,
        find: "Callable[[LaunchOptions], SharedEngine | None] | None" = None,
        command: "Sequence[str]" = COMMAND,
    ) -> None:
        super().__init__(command, find)
        self._gate = gate
        self._replies: dict[int, GatedReply] = {}
        self._stopped: set[int] = set()
        self.asked: list[Finding] = []
        self._masked = False

    def question(self, asked: Question) -> int:
        """Ask something; see `EngineClient`."""
        number = super().question(asked)
        if isinstance(asked, Request):
            self._replies[number] = GatedReply(self._gate)
            self._masked = self._masked and asked.ephemeral
        return number

    def save_state(self, directory: str) -> None:
        """Have what was evaluated written, unless something of it is masked: the model has it as it was."""
        if not self._masked:
            super().save_state(directory)

    def drain(self) -> list[Notice]:
        """Return what came in since the last call, as it may be seen."""
        return [seen for notice in super().drain() for seen in self._seen(notice)]

    def close(self, wait_s: float = 3.0) -> None:
        """End the process; what was held back of an answer is not seen any more."""
        self._replies.clear()
        super().close(wait_s)

    def _seen(self, notice: Notice) -> Iterator[Notice]:
        reply = self._replies.get(notice.id or 0) if isinstance(notice, _OF_REPLIES) else None
        match notice:
            case ReplyEvents(id=number, events=events) if reply is not None:
                yield from _told(number, [e for each in events for e in reply.take(each)])
                if reply.stopped and number not in self._stopped:
                    self._stopped.add(number)
                    self.cancel(number)
            case ReplyDone(id=number, reply=made) if reply is not None:
                *rest, last = reply.take(Finished(made))
                assert isinstance(last, Finished)  # noqa: S101 - it was taken last
                yield from _told(number, rest)
                self._end(number, reply)
                message = reply.message(notice.message, made)
                yield msgspec.structs.replace(notice, reply=last.reply, message=message)
            case Failed(id=int(number)):
                self._replies.pop(number, None)
                self._stopped.discard(number)
                yield notice
            case _:
                yield notice

    def _end(self, number: int, reply: GatedReply) -> None:
        self._stopped.discard(number)
        del self._replies[number]
        self.asked, self._masked = reply.asked, self._masked or reply.hidden
        note(reply.counts)


_OF_REPLIES = (ReplyEvents, ReplyDone, Failed)


def _told(number: int, events: list[Event]) -> Iterator[ReplyEvents]:
    if events:
        yield ReplyEvents(number, tuple(each for each in events if not isinstance(each, Finished)))
