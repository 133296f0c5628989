"""ToyNative: llama.cpp's context over a table of logits, with its rules about what memory holds.

Rows are computed from what the cells of a sequence hold. As in llama.cpp, a copy is known at once and made before the
next pass, and rows lie in a buffer that the next pass spoils.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from localspec.decoding.cancel import CancelFlag, Cancelled
from localspec.decoding.model import Logits
from localspec.errors import PassFailed
from localspec.llama.batch import Part
from localspec.llama.media_ids import positions
from localspec.llama.sequences import LlamaSequences
from localspec.options import LoadOptions
from tests.toy import Table


class ToyNative:
    """Stands in for `NativeContext`.

    `on_pass` is called before and after every pass, as another thread might act meanwhile; `splits` has of every pass how many
    passes of their own llama.cpp would make of it, `asked` the tokens of each part. `n_snapshots` of the last tokens can be removed
    where parts cannot: as in llama.cpp, nobody checks that they are of the last pass, and what it then holds is not what it was.
    `passes` has of every cell the place where its pass began, and how many tokens that evaluated.
    """

    def __init__(self, table: Table, n_ctx: int, n_batch: int, max_rows: int, count: int) -> None:
        self.table, self.n_ctx, self.n_batch, self.max_rows = table, n_ctx, n_batch, max_rows
        self.chunk, self.n_vocab = n_batch, table.n_vocab
        self.model: Any = None
        self.encoder: Any = None
        self.can_truncate, self.n_snapshots, self.most_branches = True, 0, 0
        self.pass_width, self.streams = 0, 1
        self._last_width, self._removed = [0] * count, [False] * count
        self.flag = CancelFlag()
        self.on_pass: Callable[[], None] = lambda: None
        self.fails: Callable[[Part], bool] = lambda _: False
        self.most_behind, self.can_copy = 0, True
        self.splits, self.asked = list[int](), list[list[int]]()
        self._cells: list[list[int]] = [[-1] * n_ctx for _ in range(count)]
        self._positions: list[list[int]] = [[0] * n_ctx for _ in range(count)]
        self.passes: list[list[tuple[int, int]]] = [[(0, 0)] * n_ctx for _ in range(count)]
        self._kept, self._copies = [0] * count, list[tuple[int, int]]()
        self._rows: Logits | None = None

    def decode(self, parts: Sequence[Part]) -> None:
        if self._rows is not None:
            self._rows.fill(np.nan)
        numbers = [part.sequence for part in parts]
        assert numbers == sorted(set(numbers)), "sequences ascend"
        assert sum(len(part.tokens) for part in parts) <= self.n_batch
        assert sum(part.rows for part in parts) <= self.max_rows
        if len(parts) > 1:
            behind = max(len(part.tokens) - part.rows for part in parts)
            assert behind <= self.most_behind, "prompts go alone"
        self.splits.append(1 + sum(b - a > 1 for a, b in pairwise(numbers)))
        self.asked.append([len(part.tokens) for part in parts])
        for source, number in self._copies:
            self._cells[number] = list(self._cells[source])
        self._copies.clear()
        self.on_pass()
        if self.flag.is_set:
            for part in parts[: len(parts) // 2]:
                self._write(part)
            raise Cancelled
        if any(map(self.fails, parts)):
            raise PassFailed("poisoned")
        rows = [row for part in parts for row in self._write(part)]
        self._rows = np.stack(rows) if rows else None
        self.on_pass()

    def rows(self, count: int) -> Logits:
        assert self._rows is not None
        assert len(self._rows) == count
        return self._rows

    def decode_chunk(self, part: Part, chunk: object) -> None:
        """Evaluate a picture in passes that the flag or a failure may come between; in M-RoPE all of it is at one position."""
        assert chunk == tuple(part.tokens), "a chunk is evaluated whole"
        moves = positions(part.tokens) == len(part.tokens)
        for at in range(0, len(part.tokens), self.n_batch):
            n_past, skipped = part.n_past + at * moves, part.skipped + at * (not moves)
            tokens = part.tokens[at : at + self.n_batch]
            piece = replace(part, tokens=tokens, n_past=n_past, skipped=skipped)
            self.decode([piece])

    def held(self, sequence: int) -> int:
        kept = self._kept[sequence]
        return self._positions[sequence][kept - 1] + 1 if kept else 0

    def content(self, sequence: int) -> list[int]:
        return self._cells[sequence][: self._kept[sequence]]

    def remove(self, sequence: int, n_past: int) -> bool:
        n_past = bisect_left(self._positions[sequence], n_past, hi=self._kept[sequence])
        removed = self._kept[sequence] - n_past
        if removed > 0 and not self.can_truncate:
            if removed > self.n_snapshots or self._removed[sequence]:
                return False
            if removed >= self._last_width[sequence]:
                self._cells[sequence][:n_past] = [-1] * n_past
            self._removed[sequence] = True
        self._kept[sequence] = min(self._kept[sequence], n_past)
        return True

    def clear(self, sequence: int) -> None:
        self._kept[sequence] = 0
        self._removed[sequence] = False

    def copy(self, source: int, sequence: int) -> None:
        assert source != sequence
        self._copies.append((source, sequence))
        self._kept[sequence] = self._kept[source]
        self._positions[sequence] = list(self._positions[source])
        self.passes[sequence] = list(self.passes[source])

    @property
    def copies_wait(self) -> bool:
        return bool(self._copies)

    def copied(self, sequence: int) -> list[int]:
        if self._copies or not self.can_copy:
            raise PassFailed("not now")
        return self._cells[sequence][: self._kept[sequence]]

    def put_back(self, sequence: int, copy: list[int]) -> bool:
        assert not self._copies, "it would be copied over, or from"
        self._cells[sequence][: len(copy)] = copy
        self._positions[sequence][: len(copy)] = range(len(copy))
        self._kept[sequence] = len(copy)
        self._removed[sequence] = False
        return True

    def close(self) -> None:
        pass

    def _write(self, part: Part) -> list[Logits]:
        """Evaluate a part; return the rows that it asks for."""
        cells, place = self._cells[part.sequence], part.place
        end, count = place + len(part.chain), len(part.chain)
        assert place == self._kept[part.sequence], "places go on where the memory ends"
        # Of a picture that takes fewer positions than tokens, all are at one.
        flat = min(part.tokens, default=0) < 0 and part.n_past != positions(cells[:place])
        flat = flat or positions(part.chain) < count
        assert flat or part.n_past == positions(cells[:place]), "positions go on, too"
        assert place + len(part.tokens) <= self.n_ctx
        cells[place:end] = part.chain
        self._positions[part.sequence][place:end] = [
            part.n_past + at * (not flat) for at in range(count)
        ]
        self.passes[part.sequence][place:end] = [(place, count)] * count
        self._kept[part.sequence] = end
        self._last_width[part.sequence], self._removed[part.sequence] = len(part.chain), False
        ends = range(end - part.rows + len(part.branches) + 1, end + 1)
        rows = [np.array(self.table.row(cells[:each])) for each in ends]
        for branch, token in zip(part.branches, part.tokens[len(part.chain) :], strict=True):
            position = branch + part.skipped
            assert place < position < end, "a branch competes with a token of its pass"
            rows.append(np.array(self.table.row([*cells[:position], token])))
        return rows


def toy_sequences(
    native: ToyNative, count: int, patch: Callable[[str, object], None], *, sharing: bool = True
) -> LlamaSequences:
    """Return the real sequences over a toy; `patch` replaces a name by a value."""
    patch("localspec.llama.sequences.NativeContext", lambda *_: native)
    nothing: Any = None
    options = LoadOptions(max_rows=1)
    return LlamaSequences(nothing, nothing, options, count, native.max_rows, sharing=sharing)
