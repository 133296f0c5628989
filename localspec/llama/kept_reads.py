"""KeptReads: what the sequences of a model have read, kept in the store for later questions, programs and days."""

import json
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np

from localspec.decoding.model import Logits
from localspec.errors import ModelChanged, PassFailed
from localspec.llama.backend import build
from localspec.llama.cells import Cells, Layout, UnknownFormError, cells_of, joined, tail_of_state
from localspec.llama.devices import placed_on
from localspec.llama.sequence import LlamaSequence
from localspec.resources import free_ram_bytes
from localspec.storage.read_store import (
    Shelf,
    TextBlock,
    UnusableError,
    common_beginning,
    make_room,
    may_be_written,
    remove_old,
    row_of,
    tail_of,
)

LEAST_S = 0.2
"""Seconds of reading again that what is kept is to save, at least."""
DISK_BYTES_S = 250e6
"""What a modest disk writes and reads in a second, its checksum included: beside reading again, keeping has to be cheap."""
TIMES = 4
"""Reading again takes so many times as long as writing, or nothing is written."""
CLOSING_S, CLOSING_SHARE = 2.0, 0.02
"""Seconds that a program which ends still writes, or this share of the time that it read; what is left then is left out."""
_MOST_POINTS = 6
_SHARE_OF_FREE = 4
"""Of the free memory, what is put back may take this part on its way."""


class PromptUse(Protocol):
    """What a prompt is read for; a `Request` is one."""

    @property
    def most_cached(self) -> int | None:
        """How many cached tokens may be used; None uses what fits."""

    @property
    def ephemeral(self) -> bool:
        """Whether nothing of it comes again."""

    @property
    def conversation(self) -> int | None:
        """The history's number of its conversation; None where that is not kept."""


@dataclass(slots=True, eq=False)
class _Slot:
    """What a sequence is used for.

    Args:
        request: that it was made ready for last; None before the first.
        prompt: tokens of its prompt.
        withheld: whether what was generated is not to be kept.
        points: of the prompt, behind which other questions may begin.
        ends: where a tail was taken.
    """

    request: PromptUse | None = None
    prompt: int = 0
    withheld: bool = False
    points: tuple[int, ...] = ()
    ends: set[int] = field(default_factory=set)

    @property
    def keeps_prompt_alone(self) -> bool:
        """Whether nothing of the answer is to be kept."""
        return self.withheld or (self.request is not None and self.request.ephemeral)


@dataclass(frozen=True, slots=True, eq=False)
class _Pending:
    """A text that is being written."""

    owner: str
    tokens: tuple[int, ...]
    written: Future[None]


class KeptReads:
    """Keeps what sequences have read, and puts it back; see `storage.read_store`.

    A sequence waits for nothing but a copy in memory of what it is about to lose: a thread writes it.
    Nothing here ever fails: what is damaged, of something else, or too large is left out.

    Args:
        directory: of the store.
        sequences: of the model.
        identity: what the model is.
        check: raises ModelChanged where its file was written over, of which nothing is kept.
        eog: ids that end a turn.
        exact: keep and put back only what a text that is read from its beginning has evaluated in the same passes.
        reads_plain: whether a plain copy of the model reads prompts.
    """

    def __init__(
        self,
        directory: Path,
        sequences: Sequence[LlamaSequence],
        identity: str,
        check: Callable[[], None] = lambda: None,
        eog: Collection[int] = (),
        *,
        exact: bool = False,
        reads_plain: bool = False,
    ) -> None:
        first = sequences[0]
        self._size = first.model.options.chunk(on_gpu=first.model.on_gpu)
        about = {**_belongs_to(first, identity, reads_plain=reads_plain), "exact": exact}
        self._shelf = Shelf(directory, json.dumps(about, sort_keys=True), self._size)
        self._directory, self._sequences = directory, sequences
        self._check, self._eog, self._exact = check, frozenset(eog), exact
        self._slots = [_Slot() for _ in sequences]
        self._closed, self._until_s = False, float("inf")
        self.needs_points = not first.native.can_truncate or first.model.has_windows
        # One thread: files are written and removed in the order in which that was decided.
        self._disk = ThreadPoolExecutor(1, thread_name_prefix="localspec-reads")
        self._pending: list[_Pending] = []
        self._disk.submit(remove_old, directory.parent)

    @property
    def _token_s(self) -> float:
        """Seconds that a token of a prompt took here; 0 before any was read."""
        reads = self._sequences[0].native.reads
        return reads.seconds / reads.tokens if reads.tokens else 0.0

    def keep(self, slot: int, tokens: Sequence[int] = ()) -> None:
        """Keep what a sequence is about to lose, if a prompt that comes leaves little of it."""
        sequence, its = self._sequences[slot], self._slots[slot]
        own = LlamaSequence.common_prefix(sequence, tokens)
        # Of single questions, as a batch has them, none comes again: what they share is still there.
        single = its.request is not None and its.request.ephemeral
        if 2 * own < sequence.n_cached and not single and not sequence.native.copies_wait:
            self._keep(slot)

    def ready(
        self, slot: int, tokens: Sequence[int], request: PromptUse, points: Sequence[int] = ()
    ) -> None:
        """Prepare a sequence for a prompt: what is known of that is put back.

        Args:
            slot: of the sequence.
            tokens: ids of the prompt.
            request: what it is for.
            points: counts of its tokens behind which other questions may begin, beside ends of turns.
        """
        sequence, tokens, before = self._sequences[slot], tuple(tokens), self._slots[slot]
        own = LlamaSequence.common_prefix(sequence, tokens)
        if request.most_cached is None and not sequence.native.copies_wait:
            self._put_back(sequence, tokens)
        if before.keeps_prompt_alone:  # else, stopped before its first pass, this one would keep it
            sequence.truncate(LlamaSequence.common_prefix(sequence, tokens))
        after = _Slot(request, len(tokens))
        if self.needs_points:
            turns = [at for at, token in enumerate(tokens, 1) if token in self._eog]
            after.points = (*turns[:1], *turns[1:][1 - _MOST_POINTS :], *points)
            after.ends = {each for each in before.ends if each <= own}
        self._slots[slot] = after

    def passed(self, slot: int) -> None:
        """Look at a sequence behind a pass of its prompt: here a question may branch, of which no part can be cut off later."""
        if not self.needs_points:
            return
        sequence, its = self._sequences[slot], self._slots[slot]
        count = sequence.n_cached
        if not any(count <= each < count + self._size for each in its.points):
            return
        if self._exact and sequence.in_chunks != count:
            return
        if count * self._token_s < LEAST_S or sequence.native.copies_wait:
            return
        try:
            tail = tail_of_state(sequence.native.copied(sequence.number, tail=True))
        except (PassFailed, OSError):
            return
        if not self._pays(count, len(tail)) or not may_be_written(self._directory, len(tail)):
            return
        tokens = sequence.cached
        its.ends.add(count)
        name = tail_of(self._named(tokens[:count], sequence.owner))
        self._submit(sequence.owner, tokens, lambda: self._write(name, (), b"", [tail]))

    def withhold(self, slot: int) -> None:
        """Keep nothing of what was generated: something of it is masked."""
        self._slots[slot].withheld = True

    def close(self) -> None:
        """Keep what the sequences hold, in bounded time; closing twice is harmless."""
        if self._closed:
            return
        self._closed = True
        read_s = self._sequences[0].native.reads.seconds
        self._until_s = time.monotonic() + max(CLOSING_S, CLOSING_SHARE * read_s)
        for slot in sorted(
            range(len(self._sequences)), key=lambda each: self._sequences[each].n_cached
        ):
            self._keep(slot)
            wait([each.written for each in self._pending])  # one copy at a time
        self._disk.shutdown()

    # Put back.

    def _put_back(self, sequence: LlamaSequence, tokens: tuple[int, ...]) -> None:
        """Have a sequence hold what is known of a prompt, where that is worth it."""
        known = sequence.common_prefix(tokens)
        if len(tokens) - known <= self._least_tokens:
            return
        for each in self._pending:
            common = common_beginning(each.tokens, tokens) if each.owner == sequence.owner else 0
            if common - known >= self._least_tokens:
                wait([each.written])  # this one waits: it is what it wants
        row = self._row(tokens, sequence)
        # Else the last token gives the first row.
        chain = self._chain(tokens if row is not None else tokens[:-1], sequence.owner)
        found = self._read(chain)
        count = 0 if found is None else found.count
        if found is None or count - known < self._least_tokens or count >= sequence.n_ctx:
            return
        size, free = count * found.layout.token_bytes + len(found.tail), free_ram_bytes()
        saved_s = (count - known) * self._token_s
        if 0 < saved_s < size / DISK_BYTES_S or (
            free is not None and size > free // _SHARE_OF_FREE
        ):
            return
        if self._filled(sequence, tokens[:count], found):
            self._shelf.touch(found.files)
            if row is not None and count == len(tokens):
                sequence.prompt_row = (count, row)
        else:
            sequence.forget()
            self._shelf.remove(*found.files)

    def _row(self, tokens: Sequence[int], sequence: LlamaSequence) -> Logits | None:
        """Return the row behind a prompt, see `LlamaSequence.prompt_row`; None where that is not known."""
        if self.needs_points:
            return None
        with suppress(UnusableError, ValueError):
            row = np.frombuffer(
                self._shelf.read(self._row_file(tokens, sequence)).content, np.float32
            )
            return row.reshape(1, sequence.n_vocab)
        return None

    def _row_file(self, tokens: Sequence[int], sequence: LlamaSequence) -> str:
        return row_of(self._named(tokens, sequence.owner))

    def _named(self, tokens: Sequence[int], owner: str) -> str:
        """Return the name of the block that a text ends with."""
        own = self._shelf.beginning(owner)
        for start in range(0, len(tokens), self._size):
            own = self._shelf.child(own, tokens[start : start + self._size])
        return own

    @property
    def _least_tokens(self) -> int:
        """Tokens that take longer to read than what was kept takes to be found."""
        return max(16, int(LEAST_S / self._token_s)) if self._token_s else 32

    def _chain(self, tokens: Sequence[int], owner: str) -> list[TextBlock]:
        """Return the blocks that a text begins with, as far as they can be put back."""
        chain = self._shelf.chain(tokens, owner)
        if self._exact:
            chain = [each for each in chain if each.common == self._size]
        while self.needs_points and chain and not self._has_tail(chain[-1]):
            del chain[-1]
        return chain

    def _has_tail(self, block: TextBlock) -> bool:
        return block.common == len(block.tokens) and self._shelf.has(tail_of(block.own))

    def _read(self, chain: Sequence[TextBlock]) -> "_Found | None":
        """Return what a chain holds, as far as it is whole; None where that is nothing, or a tail is wanted and missing."""
        layout, stretches = None, list[tuple[memoryview, int]]()
        with suppress(UnusableError, msgspec.MsgspecError):
            for each in chain:
                stored = self._shelf.read(each.file)
                its = msgspec.json.decode(stored.about, type=Layout)
                if stored.tokens != each.tokens or its != (layout or its):
                    break
                layout = its
                stretches.append((stored.content, len(stored.tokens)))
        whole, tail = chain[: len(stretches)], b""
        if layout is None:
            return None
        files = [each.file for each in whole]
        if layout.has_tail:
            if not self.needs_points or len(whole) < len(chain):
                return None
            files.append(tail_of(whole[-1].own))
            try:
                tail = bytes(self._shelf.read(files[-1]).content)
            except UnusableError:
                return None
        return _Found(layout, stretches, sum(each.common for each in whole), tail, files)

    def _filled(self, sequence: LlamaSequence, tokens: Sequence[int], found: "_Found") -> bool:
        """Have a sequence hold what was found of these tokens; return whether llama.cpp took it."""
        native = sequence.room()
        try:
            state = joined(found.layout, found.stretches, len(tokens), native.streams, found.tail)
        except (UnknownFormError, OSError):
            return False
        if not native.put_back(sequence.number, state):
            return False
        in_chunks = len(tokens) if self._exact else 0
        return sequence.assume(tokens, in_chunks, len(tokens) if found.tail else 0)

    # Keep.

    def _pays(self, tokens: int, size: int) -> bool:
        """Return whether so many tokens take long enough to read for so many bytes to be kept."""
        saved_s = tokens * self._token_s
        return saved_s >= LEAST_S and saved_s >= TIMES * size / DISK_BYTES_S

    def _keep(self, slot: int) -> None:
        """Have written what a sequence holds, as far as it is not there and takes long to read again."""
        sequence, its = self._sequences[slot], self._slots[slot]
        held = sequence.cached
        tokens = held[: self._end(sequence, its)]
        chain = self._shelf.chain(tokens, sequence.owner)
        known, full = sum(each.common for each in chain), len(chain)
        if chain and chain[-1].common < self._size:
            full -= 1
        start = full * self._size
        native = sequence.native
        new = len(tokens) - known
        state = native.state_size(sequence.number) if new > 0 else 0
        size = state * (len(tokens) - start) // max(1, len(held))
        if new <= 0 or not self._pays(new, size):
            self._note(its, [each.file for each in chain])
            return
        try:
            self._check()
            if not may_be_written(self._directory, size):
                return
            cells = cells_of(native.copied(sequence.number), len(held))
        except (UnknownFormError, ModelChanged, PassFailed, OSError):
            return
        if cells.layout.has_tail and not self.needs_points:
            return
        parent = chain[full - 1].own if full else self._shelf.beginning(sequence.owner)
        row, ends = sequence.prompt_row, {len(tokens)}
        rows, old = list[tuple[str, bytes]](), list[str]()
        if self.needs_points:
            ends |= its.ends
        else:
            old = [each.file for each in chain[full:] if each.common == len(each.tokens)]
            if row is not None and row[0] <= len(tokens):
                rows = [(self._row_file(held[: row[0]], sequence), row[1].tobytes())]
        job = _Text(tokens, start, parent, sorted(ends), cells, len(tokens) == len(held), rows)
        known_names = [each.file for each in chain[:full]]
        self._submit(sequence.owner, tokens, lambda: self._write_text(job, its, known_names, old))

    def _end(self, sequence: LlamaSequence, its: _Slot) -> int:
        """Return how many tokens of a sequence are to be kept."""
        end = sequence.n_cached
        if its.keeps_prompt_alone:
            end = min(end, its.prompt)
        if self._exact:
            held = sequence.cached
            text = next((at for at, token in enumerate(held) if token < 0), len(held))
            end = min(end, sequence.in_chunks, text)
            end -= end % self._size
        return end

    def _submit(self, owner: str, tokens: tuple[int, ...], work: Callable[[], None]) -> None:
        self._pending = [each for each in self._pending if not each.written.done()]
        self._pending.append(_Pending(owner, tokens, self._disk.submit(work)))
        self._disk.submit(make_room, self._directory)  # at once: a server may run for weeks

    def _write_text(
        self, job: "_Text", its: _Slot, known: Sequence[str], old: Sequence[str]
    ) -> None:
        """Write the blocks of a text, in their order, so that at every moment what is there is of use."""
        about, names, parent = msgspec.json.encode(job.cells.layout), [*known], job.parent
        with suppress(OSError):
            for start in range(job.start, len(job.tokens), self._size):
                if time.monotonic() > self._until_s:
                    break
                end = min(start + self._size, len(job.tokens))
                for each in (*(each for each in job.ends if start < each < end), end):
                    tokens = job.tokens[start:each]
                    own = self._shelf.child(parent, tokens)
                    names.append(f"{parent}.{own}")
                    stretch = job.cells.stretch(start, each)
                    self._write(names[-1], tokens, about, stretch)
                parent = own
            else:
                if job.cells.layout.has_tail and job.is_whole:
                    self._write(tail_of(parent), (), b"", [job.cells.tail])
                for name, row in job.rows:
                    names.append(name)
                    self._write(name, (), b"", [row])
                self._shelf.remove(*old)
        self._shelf.touch(names)
        self._note(its, names)

    def _write(
        self, name: str, tokens: Sequence[int], about: bytes, parts: Sequence[bytes | memoryview]
    ) -> None:
        with suppress(OSError):
            self._shelf.write(name, tokens, about, parts)

    def _note(self, its: _Slot, names: Sequence[str]) -> None:
        if its.request is not None and its.request.conversation is not None and names:
            self._shelf.note(its.request.conversation, names)


@dataclass(frozen=True, slots=True, eq=False)
class _Found:
    """What the store has of a text.

    Args:
        layout: of its cells.
        stretches: of cells, each of how many tokens.
        count: tokens of the text.
        tail: what else there is.
        files: where it is.
    """

    layout: Layout
    stretches: Sequence[tuple[memoryview, int]]
    count: int
    tail: bytes
    files: list[str]


@dataclass(frozen=True, slots=True, eq=False)
class _Text:
    """A text whose blocks are to be written from a place on.

    Args:
        tokens: all of it.
        start: of the first block that is not there.
        parent: name of the block before that.
        ends: where tails belong.
        cells: of all tokens of the sequence.
        is_whole: whether the sequence holds no more, so that its tail is that of the last block.
        rows: the row behind its prompt, if that is known, and the name of its file.
    """

    tokens: tuple[int, ...]
    start: int
    parent: str
    ends: Sequence[int]
    cells: Cells
    is_whole: bool
    rows: Sequence[tuple[str, bytes]]


def _belongs_to(
    context: LlamaSequence, identity: str, *, reads_plain: bool = False
) -> dict[str, Any]:
    """Return by names what has to be the same for what a context has evaluated to mean, and to round, the same elsewhere.

    Args:
        context: of the model as it is loaded.
        identity: what the model is, such as the sha256 of its file.
        reads_plain: whether a plain copy of it reads prompts.
    """
    options, on_gpu, made_by = context.model.options, context.model.on_gpu, build()
    placed = [options.split, options.tensor_split, options.cpu_moe, options.kv_offload]
    kernels = [options.repack, options.gpu_layers, list(options.devices), *["plain"] * reads_plain]
    return {
        "model": identity,
        "llama.cpp": [made_by.version, *made_by.backends, *made_by.features],
        "cache type": options.kv_type,
        "attention": options.attention(on_gpu=on_gpu),
        "kernels": kernels,
        "chunk size": options.chunk(on_gpu=on_gpu),
        "placed": [device.identity for device in placed_on(options)] + placed if on_gpu else [],
    }
