"""ReorderBuffer: records leave in the order in which their lines came, as long as that takes no more than so many of them."""

from collections import deque
from collections.abc import Callable

from localspec.batch.record import Record

MOST_WAITING = 1024
"""Lines that may be under way or wait for one before them."""


class ReorderBuffer:
    """Holds records back until those before them are there.

    Args:
        write: takes the records.
        ordered: whether to hold any back at all.
        most: lines that may be in it before it is full.
    """

    def __init__(
        self, write: Callable[[Record], None], *, ordered: bool, most: int = MOST_WAITING
    ) -> None:
        self._write = write
        self._ordered = ordered
        self._most = most
        self._expected: deque[int] = deque()
        self._waiting: dict[int, Record] = {}

    @property
    def full(self) -> bool:
        """Whether no further line may come in before one has left."""
        return len(self._expected) >= self._most

    def expect(self, number: int) -> None:
        """Take in that a line will have a record."""
        if self._ordered:
            self._expected.append(number)

    def place(self, number: int, record: Record) -> None:
        """Take in the record of a line, and write what may be written now."""
        if not self._ordered:
            self._write(record)
            return
        self._waiting[number] = record
        while self._expected and self._expected[0] in self._waiting:
            self._write(self._waiting.pop(self._expected.popleft()))

    def release(self) -> None:
        """Write what still waits for lines that will not come any more."""
        for number in self._expected:
            if number in self._waiting:
                self._write(self._waiting.pop(number))
        self._expected.clear()
