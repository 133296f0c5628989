"""How GGUF encodes values and tensors: reads values from a buffer, every length checked before it is used.

Knows integers, strings, arrays and tensor types, not which keys there are. Little-endian only, as
llama.cpp on every platform that localspec supports.

Source: the GGUF specification, versions 2 and 3, and `gguf.cpp` of llama.cpp, which refuses arrays
of arrays as well; `GGML_QUANT_SIZES` and `GGMLQuantizationType` of gguf-py, as vendored by
llama-cpp-python 0.3.36.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from typing import overload

import numpy as np
from numpy.typing import NDArray

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_STRING, _ARRAY = 8, 9
_NUMBERS: dict[int, np.dtype[np.generic]] = {
    kind: np.dtype(code)
    for kind, code in enumerate(
        ["<u1", "<i1", "<u2", "<i2", "<u4", "<i4", "<f4", "?", "-", "-", "<u8", "<i8", "<f8"]
    )
    if code != "-"
}


@dataclass(frozen=True, slots=True)
class GgmlType:
    """A tensor type: `block_size` elements of a row are packed into `block_bytes` bytes."""

    name: str
    block_size: int
    block_bytes: int

    def row_bytes(self, elements: int) -> int | None:
        """Return the size of a row, or None when blocks do not divide it."""
        blocks, rest = divmod(elements, self.block_size)
        return None if rest else blocks * self.block_bytes


# Number, name, block_size, block_bytes. Numbers that are missing were removed from the format.
_TYPES = """
    0 F32 1 4, 1 F16 1 2, 2 Q4_0 32 18, 3 Q4_1 32 20, 6 Q5_0 32 22, 7 Q5_1 32 24, 8 Q8_0 32 34,
    9 Q8_1 32 36, 10 Q2_K 256 84, 11 Q3_K 256 110, 12 Q4_K 256 144, 13 Q5_K 256 176, 14 Q6_K 256 210,
    15 Q8_K 256 292, 16 IQ2_XXS 256 66, 17 IQ2_XS 256 74, 18 IQ3_XXS 256 98, 19 IQ1_S 256 50,
    20 IQ4_NL 32 18, 21 IQ3_S 256 110, 22 IQ2_S 256 82, 23 IQ4_XS 256 136, 24 I8 1 1, 25 I16 1 2,
    26 I32 1 4, 27 I64 1 8, 28 F64 1 8, 29 IQ1_M 256 56, 30 BF16 1 2, 34 TQ1_0 256 54,
    35 TQ2_0 256 66, 39 MXFP4 32 17, 40 NVFP4 64 36, 41 Q1_0 128 18, 42 Q2_0 64 18
"""
GGML_TYPES = {
    int(number): GgmlType(name, int(block_size), int(block_bytes))
    for number, name, block_size, block_bytes in map(str.split, _TYPES.split(","))
}


class MalformedError(ValueError):
    """Bytes that no GGUF header has; the text says what is wrong and where."""


class CutOffError(MalformedError):
    """The bytes end before the value that is being read."""


@dataclass(frozen=True, eq=False)
class StringArray(Sequence[bytes]):
    """Strings of a header in their encoding, unpacked when one is first needed.

    Args:
        raw: every string as its length (8 bytes, little-endian) and its bytes; already checked.
        size: how many strings there are.
    """

    raw: bytes
    size: int

    def __len__(self) -> int:
        return self.size

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> list[bytes]: ...
    def __getitem__(self, index: int | slice) -> bytes | list[bytes]:
        return self._items[index]

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._items)

    @cached_property
    def _items(self) -> list[bytes]:
        raw, read, position, items = self.raw, _U64.unpack_from, 0, list[bytes]()
        for _ in repeat(None, self.size):
            start = position + 8
            position = start + read(raw, position)[0]
            items.append(raw[start:position])
        return items


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
