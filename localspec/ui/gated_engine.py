"""GatedEngine: an engine whose answers come as they may be seen. Screens, lines, races and the history know nothing else of them."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import msgspec

from localspec.chat.events import Event, Finished, RoundDone
from localspec.chat.gated import GatedReply
from localspec.engine.ask import Ask
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
        self._done: list[ReplyDone] = []  # but for what the guard has not judged
        self._stopped: set[int] = set()
        self.asked: list[Finding] = []
        self._masked = False
        self._rounds: dict[int, list[RoundDone]] = {}

    def rounds_of(self, number: int) -> list[RoundDone]:
        """Return the rounds of an answer with the texts of their tokens, once a guard let through all of it; else none."""
        return self._rounds.get(number, [])

    def question(self, asked: Question) -> int:
        """Ask something; see `EngineClient`."""
        number = super().question(asked)
        if isinstance(asked, Ask):
            self._replies[number] = GatedReply(self._gate, question=asked.asked)
            self._masked = self._masked and asked.aside
            if not asked.aside:
                self._rounds.clear()  # of the answers before
        return number

    def save_state(self, directory: str) -> None:
        """Have what was evaluated written, unless something of it is masked: the model has it as it was."""
        if not self._masked:
            super().save_state(directory)

    def cancel(self, id: int | None = None) -> None:  # noqa: A002 - the protocol's word
        """Stop a request; of an answer that is made, what waits for the guard is left out."""
        super().cancel(id)
        for done in self._done:
            if done.id == id:
                self._replies[done.id].drop()

    def drain(self) -> list[Notice]:
        """Return what came in since the last call, as it may be seen."""
        notices = [seen for notice in super().drain() for seen in self._seen(notice)]
        for number, reply in [*self._replies.items()]:
            notices += self._events(number, reply, reply.released())
        return [*notices, *self._judged()]

    def close(self, wait_s: float = 3.0) -> None:
        """End the process; what was held back of an answer is not seen any more."""
        self._replies.clear()
        self._done.clear()
        super().close(wait_s)

    def _seen(self, notice: Notice) -> Iterator[Notice]:
        reply = self._replies.get(notice.id or 0) if isinstance(notice, _OF_REPLIES) else None
        match notice:
            case ReplyEvents(id=number, events=events) if reply is not None:
                told = [e for each in events for e in reply.take(each)]
                yield from self._events(number, reply, told)
            case ReplyDone(id=number, reply=made) if reply is not None:
                yield from _told(number, reply.end(made))
                self._done.append(notice)
                yield from self._judged()
            case Failed(id=int(number)):
                self._replies.pop(number, None)
                self._stopped.discard(number)
                yield notice
            case _:
                yield notice

    def _events(self, number: int, reply: GatedReply, told: list[Event]) -> Iterator[Notice]:
        """Yield what may be seen now; end an answer that a rule or the guard has stopped."""
        yield from _told(number, told)
        if reply.stopped and number not in self._stopped:
            self._stopped.add(number)
            super().cancel(number)  # what stands before is judged as ever

    def _judged(self) -> Iterator[Notice]:
        """Yield the ends of those answers of which nothing waits for the guard any more."""
        for done in [*self._done]:
            reply = self._replies[done.id]
            if not reply.pending:
                self._done.remove(done)
                self._end(done.id, reply)
                seen = reply.message(done.message, done.reply)
                yield msgspec.structs.replace(done, reply=reply.of(done.reply), message=seen)

    def _end(self, number: int, reply: GatedReply) -> None:
        self._stopped.discard(number)
        del self._replies[number]
        self._rounds[number] = reply.rounds
        self.asked, self._masked = reply.asked, self._masked or reply.hidden
        note(reply.counts)


_OF_REPLIES = (ReplyEvents, ReplyDone, Failed)


def _told(number: int, events: list[Event]) -> Iterator[ReplyEvents]:
    if events:
        yield ReplyEvents(number, tuple(each for each in events if not isinstance(each, Finished)))
