"""Schedule: several sequences at once. Each asks for passes of its own, and the passes of all are made as one.

Knows no policy, no text and no llama.cpp; what is asked for may end in a value of any kind.
"""

from collections.abc import Collection, Generator, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from localspec.decoding.cancel import Cancelled
from localspec.decoding.model import LanguageModel, Logits, Pass
from localspec.decoding.serve import made
from localspec.errors import LocalspecError, PassFailed

T = TypeVar("T")


class Sequences(Protocol):
    """Sequences of one model, which one pass can evaluate together."""

    @property
    def views(self) -> Sequence[LanguageModel]:
        """Every sequence as a model of its own."""
        ...

    @property
    def most_rows(self) -> int:
        """Most rows of logits of a pass."""
        ...

    def ready(self, place: int, request: Pass) -> bool:
        """Say whether a sequence has cached all of a request but the tokens whose rows are asked for."""
        ...

    def together(self, asked: Sequence[tuple[int, Pass]]) -> Sequence[Logits]:
        """Return the logits of passes of several sequences, in this order, valid until the next call.

        Args:
            asked: place of a sequence in `views`, and its request, which is `ready`.

        Raises:
            Cancelled: the model's `CancelFlag` was set.
            PassFailed: the pass failed; every sequence knows what it has.
        """
        ...

    def close_ranks(self, running: Collection[int]) -> None:
        """Arrange those that run so that their passes make one; each keeps what it has cached."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Ended(Generic[T]):
    """What came of a sequence.

    Args:
        place: where it ran, which is free again.
        value: what it returned; None where `error` says why there is nothing.
        error: what was wrong with it alone.
    """

    place: int
    value: T | None
    error: LocalspecError | None = None


class Schedule(Generic[T]):
    """Runs what asks for passes, on as many places as there are sequences.

    A prompt is evaluated on its own, in the chunks that it would have alone: equal text needs equal
    chunks. Rows are merged: one pass evaluates what every sequence asks for next.

    Args:
        sequences: make the passes.
    """

    def __init__(self, sequences: Sequences) -> None:
        self._sequences = sequences
        self._asking: dict[int, Generator[Pass, Logits, T]] = {}
        self._asked: dict[int, Pass] = {}

    @property
    def running(self) -> bool:
        """Whether any sequence runs."""
        return bool(self._asking)

    @property
    def free(self) -> int | None:
        """A place that is free; None where all are taken."""
        places = range(len(self._sequences.views))
        return next((place for place in places if place not in self._asking), None)

    def start(self, place: int, asking: Generator[Pass, Logits, T]) -> list[Ended[T]]:
        """Let something run on a free place, and evaluate its prompt; return what came of it if that was all."""
        assert place not in self._asking, f"place {place} is taken"  # noqa: S101
        self._asking[place] = asking
        return self._resumed(place, None) or self._caught_up(place)

    def step(self) -> list[Ended[T]]:
        """Give every sequence the pass that it asks for, and return what has ended."""
        ended: list[Ended[T]] = []
        for place in sorted(self._asked):
            ended += self._caught_up(place)
        self._sequences.close_ranks(sorted(self._asked))
        for group in self._groups():
            ended += self._merged(group)
        return ended

    def close(self) -> None:
        """Drop everything that runs."""
        for asking in self._asking.values():
            asking.close()
        self._asking.clear()
        self._asked.clear()

    def _caught_up(self, place: int) -> list[Ended[T]]:
        """Evaluate what a sequence is behind with, on its own; return what came of it if that was all."""
        ready = self._sequences.ready(place, self._asked[place])
        return [] if ready else self._alone(place)

    def _groups(self) -> list[list[int]]:
        """Share the places out among as few passes as may hold their rows."""
        groups: list[list[int]] = []
        rows = 0
        for place in sorted(self._asked):
            rows += self._asked[place].rows
            if not groups or rows > self._sequences.most_rows:
                groups.append([])
                rows = self._asked[place].rows
            groups[-1].append(place)
        return groups

    def _merged(self, group: list[int]) -> list[Ended[T]]:
        """Make one pass for a group; where it fails, each of it alone, so that only the guilty fail."""
        if len(group) == 1:
            return self._alone(group[0])
        answers: Sequence[Logits | Exception]
        try:
            answers = self._sequences.together([(each, self._asked[each]) for each in group])
        except Cancelled as cancelled:
            answers = [cancelled] * len(group)
        except PassFailed:
            return [ended for place in group for ended in self._alone(place)]
        # Rows are valid until the next pass, and nobody makes one before all have seen theirs.
        pairs = zip(group, answers, strict=True)
        return [ended for place, answer in pairs for ended in self._resumed(place, answer)]

    def _alone(self, place: int) -> list[Ended[T]]:
        answer: Logits | Exception
        try:
            answer = made(self._asked[place], self._sequences.views[place])
        except (Cancelled, LocalspecError) as raised:
            answer = raised
        return self._resumed(place, answer)

    def _resumed(self, place: int, answer: Logits | Exception | None) -> list[Ended[T]]:
        """Let a sequence go on to its next request; return what came of it if there is none."""
        asking = self._asking[place]
        ended: Ended[T]
        try:
            if isinstance(answer, Exception):
                self._asked[place] = asking.throw(answer)
            else:
                self._asked[place] = next(asking) if answer is None else asking.send(answer)
        except StopIteration as finished:
            ended = Ended(place, finished.value)
        except LocalspecError as error:
            ended = Ended(place, None, error)
        else:
            return []
        del self._asking[place]
        self._asked.pop(place, None)
        return [ended]
