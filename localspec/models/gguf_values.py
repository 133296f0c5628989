"""Reads the values of a GGUF header from a buffer, with every length checked before it is used.

Knows the encoding of integers, strings and arrays, not which keys there are. Little-endian only,
as llama.cpp on every platform that localspec supports.

Source: the GGUF specification, versions 2 and 3, and `gguf.cpp` of llama.cpp, which refuses arrays
of arrays as well.
"""

import struct
from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import overload

import numpy as np
from numpy.typing import NDArray

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_STRING, _ARRAY = 8, 9
_BOOL = 7
_NUMBERS: dict[int, np.dtype[np.generic]] = {
    0: np.dtype("<u1"),
    1: np.dtype("<i1"),
    2: np.dtype("<u2"),
    3: np.dtype("<i2"),
    4: np.dtype("<u4"),
    5: np.dtype("<i4"),
    6: np.dtype("<f4"),
    _BOOL: np.dtype("?"),
    10: np.dtype("<u8"),
    11: np.dtype("<i8"),
    12: np.dtype("<f8"),
}


class MalformedError(ValueError):
    """Bytes that no GGUF header has; the text says what is wrong and where."""


class CutOffError(MalformedError):
    """The bytes end before the value that is being read."""


class StringArray(Sequence[bytes]):
    """Strings of a header, kept in their encoding and unpacked when one is first asked for.

    Args:
        raw: every string as its length (8 bytes, little-endian) and its bytes; already checked.
        count: how many strings there are.
    """

    __slots__ = ("_count", "_items", "raw")

    def __init__(self, raw: bytes, count: int) -> None:
        self.raw = raw
        self._count = count
        self._items: list[bytes] | None = None

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> list[bytes]: ...
    def __getitem__(self, index: int | slice) -> bytes | list[bytes]:
        return self._unpacked()[index]

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._unpacked())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StringArray) and self.raw == other.raw

    def __hash__(self) -> int:
        return hash(self.raw)

    def _unpacked(self) -> list[bytes]:
        if self._items is None:
            raw, read, position = self.raw, _U64.unpack_from, 0
            items = []
            for _ in repeat(None, self._count):
                start = position + 8
                position = start + read(raw, position)[0]
                items.append(raw[start:position])
            self._items = items
        return self._items


Value = int | float | bool | str | StringArray | NDArray[np.generic]


class Reader:
    """A position in a buffer that only moves forward and never leaves it.

    Args:
        view: the bytes of the header, possibly followed by others.
    """

    __slots__ = ("position", "view")

    def __init__(self, view: memoryview) -> None:
        self.view = view
        self.position = 0

    @property
    def remaining(self) -> int:
        """Bytes from here to the end of the buffer."""
        return len(self.view) - self.position

    def take(self, size: int) -> bytes:
        """Return the next `size` bytes."""
        if size > self.remaining:
            raise CutOffError(f"{size} bytes are promised at byte {self.position}")
        start = self.position
        self.position += size
        return bytes(self.view[start : self.position])

    def u32(self) -> int:
        """Return the next unsigned 32-bit integer."""
        return int(_U32.unpack(self.take(4))[0])

    def u64(self) -> int:
        """Return the next unsigned 64-bit integer."""
        return int(_U64.unpack(self.take(8))[0])

    def count(self, what: str, least_bytes: int) -> int:
        """Return the next count, refused when so many things of `least_bytes` each cannot follow."""
        count = self.u64()
        if count * least_bytes > self.remaining:
            raise CutOffError(f"{count} {what} are promised at byte {self.position - 8}")
        return count

    def string(self) -> bytes:
        """Return the next string: a length and so many bytes."""
        return self.take(self.u64())

    def value(self) -> Value:
        """Return the next typed value; text is decoded, and bytes that are no UTF-8 are replaced."""
        kind = self.u32()
        if kind == _STRING:
            return self.string().decode("utf-8", errors="replace")
        if kind == _ARRAY:
            return self._array()
        dtype = self._number_type(kind)
        number: int | float | bool = np.frombuffer(self.take(dtype.itemsize), dtype)[0].item()
        return number

    def _array(self) -> StringArray | NDArray[np.generic]:
        kind = self.u32()
        if kind == _STRING:
            count = self.count("strings", 8)
            return StringArray(self._strings(count), count)
        dtype = self._number_type(kind)
        count = self.count("numbers", dtype.itemsize)
        array: NDArray[np.generic] = np.frombuffer(self.take(count * dtype.itemsize), dtype)
        return array

    def _strings(self, count: int) -> bytes:
        # A loop over 150,000 tokens: local names, and one comparison at its end instead of one
        # per string, since unpack_from refuses to read past the buffer anyway.
        view, read, start = self.view, _U64.unpack_from, self.position
        position = start
        try:
            for _ in repeat(None, count):
                position += 8 + read(view, position)[0]
        except (struct.error, OverflowError) as error:
            raise CutOffError(f"{count} strings are promised at byte {start}") from error
        return self.take(position - start)

    def _number_type(self, kind: int) -> np.dtype[np.generic]:
        dtype = _NUMBERS.get(kind)
        if dtype is None:
            raise MalformedError(f"there is no value type {kind} (at byte {self.position - 4})")
        return dtype
