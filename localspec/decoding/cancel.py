"""CancelFlag: one byte that asks a running pass to stop.

The byte lives in memory of its own, so that native code can watch it without entering Python;
what watches it, and how, is not known here.
"""

import numpy as np


class CancelFlag:
    """A flag that any thread may set, and that native code may read at `address`.

    Two bytes long, the second always zero, so that the flag also reads as a C string:
    empty while clear, of length one once set.
    """

    __slots__ = ("_cell",)

    def __init__(self) -> None:
        self._cell = np.zeros(2, dtype=np.uint8)

    def set(self) -> None:
        """Ask whatever runs under this flag to stop soon."""
        self._cell[0] = 1

    def clear(self) -> None:
        """Make the flag ready for the next reply."""
        self._cell[0] = 0

    @property
    def is_set(self) -> bool:
        """Whether a stop was asked for."""
        return bool(self._cell[0])

    @property
    def address(self) -> int:
        """Address of the byte, valid as long as this object lives."""
        return int(self._cell.ctypes.data)


class Cancelled(Exception):
    """A pass stopped because its flag was set. The driver turns it into a `StopReason`."""
