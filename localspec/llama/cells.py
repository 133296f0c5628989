"""What llama.cpp's memory holds of a sequence, cut by tokens and put together again.

llama.cpp writes a sequence whole: of its attention, the cells of all streams of the context, and behind that whatever else
its layers keep. Here the cells become rows by token, so that any stretch of them can be kept and put back, in a context
of another number of sequences, too; the rest, which no token owns alone, is a tail. What is not understood to the last
byte is refused.

Source: `llama_kv_cache::state_write` of llama.cpp.
"""

import mmap
import struct
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

_HEAD = 8
"""Bytes of a magic number and of that of the sequence."""
_EXTRAS = (0, 12)
"""Bytes beside the position of a cell: none, or those of M-RoPE and of a token's id."""
_MOST_LAYERS, _MOST_TYPE = 4096, 256
Bytes = NDArray[np.uint8]


class UnknownFormError(Exception):
    """A state has another form than is known here."""


class Layout(msgspec.Struct, frozen=True):
    """How a token's cells lie.

    Args:
        magic: what a state begins with.
        meta: bytes of a cell's position and what else is said of it.
        transposed: whether values lie by rows of numbers, each of all cells.
        keys: of each layer ggml's type and the bytes of a cell.
        values: of each layer ggml's type, the bytes of a cell or a number, and how many numbers a cell has.
        has_tail: whether there is more than cells.
    """

    magic: int
    meta: int
    transposed: bool
    keys: tuple[tuple[int, int], ...]
    values: tuple[tuple[int, int, int], ...]
    has_tail: bool

    @property
    def token_bytes(self) -> int:
        """Bytes of a token."""
        values = sum(size * numbers for _, size, numbers in self.values)
        return self.meta + sum(size for _, size in self.keys) + values


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """What was read from a state.

    Args:
        layout: of the cells.
        rows: of cells, in the order of tokens: what is said of them, keys by layer, values by layer.
        tail: everything else, see `tail_of_state`.
    """

    layout: Layout
    rows: tuple[Bytes, ...]
    tail: bytes

    def stretch(self, start: int, end: int) -> list[memoryview]:
        """Return the cells of some tokens, as `joined` takes them."""
        cut = [each[..., start:end, :] for each in self.rows]
        return [np.ascontiguousarray(each).reshape(-1).data for each in cut]


class _Reader:
    """Reads numbers of a state in their order; beyond its end it raises `UnknownFormError`."""

    def __init__(self, state: Bytes, at: int) -> None:
        self.state, self.at = state, at

    def numbers(self, form: str) -> tuple[int, ...]:
        return struct.unpack(f"={form}", self.take(struct.calcsize(f"={form}")).data)

    def take(self, size: int) -> Bytes:
        if size < 0 or self.at + size > len(self.state):
            raise UnknownFormError("it ends too early")
        self.at += size
        return self.state[self.at - size : self.at]

    @property
    def at_end(self) -> bool:
        return self.at == len(self.state)


@dataclass(slots=True, eq=False)
class _Part:
    """The cells of a cache of attention, as they lie."""

    count: int
    meta: Bytes
    transposed: bool
    keys: list[tuple[int, Bytes]]
    values: list[tuple[int, int, Bytes]]
    start: int  # behind the counts of the streams before
    end: int  # before those of the streams behind


def cells_of(state: Bytes | mmap.mmap, tokens: int) -> Cells:
    """Return the cells of so many tokens that a state of one sequence holds, and its tail.

    Raises:
        UnknownFormError: it is no such state.
    """
    content = np.frombuffer(state, np.uint8)
    (magic,) = _Reader(content, 0).numbers("I")
    reader = _Reader(content, _HEAD)
    part = _part(reader, tokens)
    if part is None:
        return Cells(Layout(magic, 0, False, (), (), True), (), tail_of_state(state))
    positions = part.meta[:, :4].copy().view(np.int32)[:, 0]
    order: NDArray[np.intp] | slice = slice(None)
    if np.any(np.diff(positions) < 0):
        order = np.argsort(positions, kind="stable")
    tail = _tail(content, reader.at)
    layout = Layout(
        magic,
        part.meta.shape[1],
        part.transposed,
        tuple((kind, each.shape[1]) for kind, each in part.keys),
        tuple((kind, each.shape[-1], n) for kind, n, each in part.values),
        bool(tail),
    )
    rows = (part.meta, *(each for _, each in part.keys), *(each for *_, each in part.values))
    return Cells(layout, tuple(each[..., order, :] for each in rows), tail)


def tail_of_state(state: Bytes | mmap.mmap) -> bytes:
    """Return a state that has only what no token owns alone, without what depends on the context's number of streams."""
    return _tail(np.frombuffer(state, np.uint8), _HEAD)


def _tail(content: Bytes, at: int) -> bytes:
    """Return what lies from a place on: a cache of attention without its other streams, if it begins with one, and the rest."""
    if at == len(content):
        return b""
    reader = _Reader(content, at)
    try:
        part = _part(reader, None)
    except UnknownFormError:
        part = None
    if part is None:
        return struct.pack("=Q", 0) + content[at:].tobytes()
    cache = content[part.start : part.end].tobytes()
    return struct.pack("=Q", len(cache)) + cache + content[reader.at :].tobytes()


def _part(reader: _Reader, tokens: int | None) -> _Part | None:
    """Read a cache of attention, of one sequence; return None, and go nowhere, where there is none, or not of so many tokens."""
    begin = reader.at
    for extra in _EXTRAS:
        for values in (True, False):
            reader.at = begin
            try:
                part = _read_part(reader, extra, values=values)
            except UnknownFormError:
                continue
            if tokens is None or part.count == tokens:
                return part
    reader.at = begin
    return None


def _read_part(reader: _Reader, extra: int, *, values: bool) -> _Part:
    (streams,) = reader.numbers("I")
    if not 1 <= streams <= _MOST_TYPE:
        raise UnknownFormError("streams")
    part = None
    for _ in range(streams):
        start = reader.at
        (count,) = reader.numbers("I")
        if count and part is not None:
            raise UnknownFormError("two streams hold something")
        if count:
            part = _read_cells(reader, count, extra, values=values)
            part.start, part.end = start, reader.at
    if part is None:
        raise UnknownFormError("no stream holds anything")
    return part


def _read_cells(reader: _Reader, count: int, extra: int, *, values: bool) -> _Part:
    meta = reader.take(count * (_HEAD + extra + 4)).reshape(count, -1)
    if np.any(meta[:, 4:8].copy().view(np.uint32) != 1):  # sequences of a cell
        raise UnknownFormError("sequences")
    transposed, layers = reader.numbers("II")
    if transposed > 1 or not 1 <= layers <= _MOST_LAYERS:
        raise UnknownFormError("layers")
    part = _Part(count, meta[:, : _HEAD + extra], bool(transposed), [], [], 0, 0)
    for _ in range(layers):
        kind, size = reader.numbers("iQ")
        _check(kind, size)
        part.keys.append((kind, reader.take(count * size).reshape(count, size)))
    for _ in range(layers if values else 0):
        rows: Bytes
        if transposed:
            kind, size, numbers = reader.numbers("iII")
            _check(kind, size * numbers)
            rows = reader.take(count * size * numbers).reshape(numbers, count, size)
        else:
            kind, size = reader.numbers("iQ")
            numbers = 1
            _check(kind, size)
            rows = reader.take(count * size).reshape(count, size)
        part.values.append((kind, numbers, rows))
    return part


def _check(kind: int, size: int) -> None:
    if not (0 <= kind < _MOST_TYPE and 0 < size < 1 << 24):
        raise UnknownFormError("a type or a size")


def joined(
    layout: Layout,
    stretches: Sequence[tuple[memoryview, int]],
    tokens: int,
    streams: int,
    tail: bytes,
) -> mmap.mmap:
    """Return the state of a sequence, as llama.cpp takes it.

    Args:
        layout: of all cells.
        stretches: of tokens, in their order: cells as `Cells.stretch` returns them, one behind the other, and of how many tokens.
        tokens: how many of them all; those behind are left out.
        streams: of the context.
        tail: what else there is.

    Raises:
        UnknownFormError: a stretch is not of this layout.
    """
    cache, rest = _tail_parts(tail)
    own = bool(layout.keys)
    size = _HEAD + len(rest) + (4 * streams + len(cache) if cache else 0)
    if own:
        heads = sum(12 for _ in layout.keys) + (12 * len(layout.values))
        size += 4 * streams + 4 + 8 + heads + tokens * (layout.token_bytes + 4)
    state = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    state.write(struct.pack("=Ii", layout.magic, 0))
    if own:
        state.write(struct.pack("=II", streams, tokens))
        _write_cells(state, layout, stretches, tokens)
        state.write(bytes(4 * (streams - 1)))
    if cache:
        state.write(struct.pack("=I", streams))
        state.write(cache)
        state.write(bytes(4 * (streams - 1)))
    state.write(rest)
    if state.tell() != size:
        raise UnknownFormError("sizes")
    return state


def _tail_parts(tail: bytes) -> tuple[bytes, bytes]:
    if not tail:
        return b"", b""
    if len(tail) < 8:
        raise UnknownFormError("the tail")
    (size,) = struct.unpack_from("=Q", tail)
    return tail[8 : 8 + size], tail[8 + size :]


def _write_cells(
    state: mmap.mmap, layout: Layout, stretches: Sequence[tuple[memoryview, int]], tokens: int
) -> None:
    keys = [(1, size) for _, size in layout.keys]
    values = [(n, size) for _, size, n in layout.values]
    shapes = [(1, layout.meta), *keys, *values]
    pieces = list[list[Bytes]]([] for _ in shapes)
    left = tokens
    for content, count in stretches:
        if len(content) != count * layout.token_bytes:
            raise UnknownFormError("a stretch")
        flat, at = np.frombuffer(content, np.uint8), 0
        for piece, (numbers, size) in zip(pieces, shapes, strict=True):
            length = numbers * count * size
            piece.append(flat[at : at + length].reshape(numbers, count, size)[:, :left])
            at += length
        left -= min(left, count)
    if left:
        raise UnknownFormError("too few tokens")
    heads = [b"", *(struct.pack("=iQ", *each) for each in layout.keys)]
    for kind, size, numbers in layout.values:
        form = ("=iII", kind, size, numbers) if layout.transposed else ("=iQ", kind, size)
        heads.append(struct.pack(*form))
    whole = np.frombuffer(state, np.uint8)
    for index, (head, piece, (numbers, size)) in enumerate(zip(heads, pieces, shapes, strict=True)):
        state.write(head)
        start, length = state.tell(), numbers * tokens * (size + 4 * (index == 0))
        room = whole[start : start + length].reshape(numbers, tokens, -1)
        at = 0
        # Of a cell, llama.cpp reads a number of its sequence behind the rest, and heeds it not.
        for each in piece:
            room[:, at : at + each.shape[1], :size] = each
            at += each.shape[1]
        state.seek(start + length)
        if index == 0:
            state.write(struct.pack("=II", layout.transposed, len(layout.keys)))
