"""Parallel: several requests answered at once, their passes merged. Receives models as protocols, never llama.cpp."""

from collections.abc import Callable, Iterator, Sequence

from localspec.chat.assistant import Assistant
from localspec.chat.events import Reply
from localspec.chat.requests import Answered, Request, at_once
from localspec.decoding.generate import StopReason
from localspec.decoding.schedule import Ended, Schedule, Sequences
from localspec.errors import LocalspecError


class Parallel:
    """Answers requests as there are places, in whatever order they are done.

    Each runs on a sequence of its own, with the limits that it would have alone, so one can neither fill
    another's context nor stop it, and a request is taken only when a sequence is free.

    Args:
        assistants: one for every sequence, with that sequence as its target.
        sequences: make the passes of all.
        afresh: start every request with nothing cached, so that it is evaluated in the same chunks
            whatever was answered before.
        on_end: called with the place of a request that has ended.
        notes: what the user should know of how it was set up, a sentence each.
    """

    def __init__(
        self,
        assistants: Sequence[Assistant],
        sequences: Sequences,
        *,
        afresh: bool = False,
        on_end: Callable[[int], None] = lambda _place: None,
        notes: tuple[str, ...] = (),
    ) -> None:
        self.assistants = assistants
        self.notes = notes
        self.sequences = sequences
        self._afresh = afresh
        self._on_end = on_end
        self._keys: dict[int, int] = {}

    @property
    def count(self) -> int:
        """How many it answers at once."""
        return len(self.assistants)

    @property
    def running(self) -> int:
        """How many it is answering just now."""
        return len(self._keys)

    def answer(
        self, requests: Iterator[Request], ready: Callable[[], bool] = at_once
    ) -> Iterator[Answered]:
        """Take a request for every free sequence, and yield each once it is answered; see `Answerer`."""
        schedule = Schedule[Reply](self.sequences)
        keys = self._keys = {}
        taking = True
        try:
            while taking or schedule.running:
                place = schedule.free
                if not taking or place is None or (schedule.running and not ready()):
                    done = schedule.step()
                elif (request := next(requests, None)) is None:
                    taking = False
                    continue
                else:
                    keys[place] = request.key
                    done = self._start(request, place, schedule)
                for ended in done:
                    answered = self._answered(ended, keys.pop(ended.place))
                    taking = taking and not _was_cancelled(answered)
                    yield answered
        finally:
            schedule.close()

    def close(self) -> None:
        """Free the models."""
        self.assistants[0].close()

    def _start(self, request: Request, place: int, schedule: Schedule[Reply]) -> list[Ended[Reply]]:
        """Start a request; return what came of it if it cannot be started, or its prompt was all."""
        assistant = self.assistants[place]
        if self._afresh:
            assistant.models.target.truncate(0)
        try:
            replying = assistant.begin(request.prompt, request.options, raw=request.raw)
        except LocalspecError as error:
            return [Ended(place, None, error)]
        return schedule.start(place, replying.whole())

    def _answered(self, ended: Ended[Reply], key: int) -> Answered:
        self._on_end(ended.place)
        return Answered(key, ended.value, ended.error)


def _was_cancelled(answered: Answered) -> bool:
    return answered.reply is not None and answered.reply.stop_reason is StopReason.CANCELLED
