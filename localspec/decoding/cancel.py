"""CancelFlag: one byte that asks a running pass to stop.

The byte lives in memory of its own, so that native code can watch it without entering Python;
what watches it, and how, is not known here.
"""

import numpy as np

_ALL, _SOME = 1, 2


class CancelFlag:
    """A flag that any thread may set, and that native code may read at `address`.

    Set, it stops everything that runs under it. Interrupted, it stops the pass that runs, so that
    some of what the pass was for can end, and the rest can go on.

    Two bytes long, the second always zero, so that the flag also reads as a C string:
    empty while clear, of length one else.
    """

    def __init__(self) -> None:
        self._cell = np.zeros(2, dtype=np.uint8)
        self._byte = self._cell[:1]

    def set(self) -> None:
        """Ask whatever runs under this flag to stop soon."""
        # One call of numpy, which no other thread comes between: neither loses what the other set.
        np.bitwise_or(self._byte, _ALL, out=self._byte)

    def interrupt(self) -> None:
        """Ask the pass that runs to stop soon."""
        np.bitwise_or(self._byte, _SOME, out=self._byte)

    def resume(self) -> None:
        """Let passes run again, unless everything was asked to stop."""
        np.bitwise_and(self._byte, _ALL, out=self._byte)

    def clear(self) -> None:
        """Make the flag ready for the next reply."""
        self._cell[0] = 0

    @property
    def is_set(self) -> bool:
        """Whether a stop was asked for, of everything or of the pass that runs."""
        return bool(self._cell[0])

    @property
    def stops_all(self) -> bool:
        """Whether everything was asked to stop."""
        return bool(self._cell[0] & _ALL)

    @property
    def address(self) -> int:
        """Address of the byte, valid as long as this object lives."""
        return int(self._cell.ctypes.data)


class Cancelled(Exception):
    """A pass stopped because its flag was set. The driver turns it into a `StopReason`."""
