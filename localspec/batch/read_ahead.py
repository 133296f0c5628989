"""ReadAhead: rows of a slow source, read by a thread, so that whoever has other work need not wait for the next one."""

from collections import deque
from collections.abc import Iterator
from threading import Condition, Thread

from localspec.batch.rows import Row

MOST_HELD = 4
"""Rows that are held: one would do, and each may have megabytes."""


class ReadAhead:
    """An iterator over rows that knows whether one is there.

    What goes wrong with reading is raised where the row would have come.

    Args:
        rows: only the thread goes through them, from the first question on.
    """

    def __init__(self, rows: Iterator[Row]) -> None:
        self._rows = rows
        self._held: deque[Row] = deque()
        self._changed = Condition()
        self._error: BaseException | None = None
        self._ended = False
        self._closed = False
        self._thread: Thread | None = None

    def __iter__(self) -> Iterator[Row]:
        return self

    def __next__(self) -> Row:
        self._begin()
        with self._changed:
            while not self._held and not self._ended:
                self._changed.wait()
            if self._held:
                self._changed.notify_all()
                return self._held.popleft()
        if self._error is not None:
            raise self._error
        raise StopIteration

    def ready(self) -> bool:
        """Say whether a row is there, or it is known that none will come: `next` then does not wait."""
        self._begin()
        with self._changed:
            return bool(self._held) or self._ended

    def close(self) -> None:
        """End reading; what it reads from must give up waiting, or have ended, first."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _begin(self) -> None:
        if self._thread is None:
            self._thread = Thread(target=self._read, name="read-ahead", daemon=True)
            self._thread.start()

    def _read(self) -> None:
        try:
            for row in self._rows:
                with self._changed:
                    self._held.append(row)
                    self._changed.notify_all()
                    while len(self._held) >= MOST_HELD and not self._closed:
                        self._changed.wait()
                    if self._closed:
                        break
        except BaseException as error:
            self._error = error
        with self._changed:
            self._ended = True
            self._changed.notify_all()
