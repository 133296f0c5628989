"""TargetRows: what a target computed of the latest tokens of a sequence, which heads draft from.

Which row is whose is decided by comparing tokens: whatever was rejected, copied or put back, a row is of the text that it was
computed of.
"""

from collections.abc import Callable, Sequence

import numpy as np

from localspec.llama.batch import Part
from localspec.llama.native import native
from localspec.llama.sequence import LlamaSequence
from localspec.llama.unstable_api import (
    Rows,
    hidden_rows,
    keep_hidden_rows,
    keep_layer_inputs,
    layer_inputs,
)
from localspec.options import HEADS_MEMORY


class TargetRows:
    """The rows of one sequence, by the places of their tokens; see `follow`.

    Attributes:
        begin: place of the first token of which there is a row.
    """

    def __init__(self) -> None:
        self._tokens: list[int] = []
        self._rows: list[Rows] = []
        self.begin = 0

    def add(self, part: Part, rows: Rows, before: Callable[[int], Sequence[int]]) -> None:
        """Take in the rows of a pass.

        Args:
            part: of the pass.
            rows: of its tokens.
            before: returns the text before the part, from a place on.
        """
        place = part.place - self.begin
        if not 0 <= place <= len(self._tokens) or self._tokens[:place] != before(self.begin):
            self.begin, place = part.place, 0
        del self._tokens[place:], self._rows[place:]
        self._tokens += part.tokens
        self._rows += [row.copy() for row in rows]  # a view would keep all rows of the pass
        if len(self._tokens) > 2 * HEADS_MEMORY:
            gone = len(self._tokens) - HEADS_MEMORY
            self.begin += gone
            del self._tokens[:gone], self._rows[:gone]

    def end(self, tokens: Sequence[int]) -> int:
        """Return the place after the last row that is of `tokens`, from the first row on; `begin` if there is none."""
        return self.begin + common_prefix(self._tokens, list(tokens[self.begin :]))

    def rows(self, begin: int, end: int) -> list[Rows]:
        """Return the rows of some places, each of shape (width,)."""
        return self._rows[max(0, begin - self.begin) : max(0, end - self.begin)]


def follow(targets: Sequence[LlamaSequence], layers: Sequence[int] = ()) -> list[TargetRows]:
    """Return the rows of every sequence of a target, which grow with each of its passes from here on.

    Args:
        targets: all sequences of one context.
        layers: whose inputs are the rows, side by side; none takes the last hidden rows.

    Raises:
        ModelLoadError: this build of llama.cpp has no such interface.
    """
    context = targets[0].native
    handle, width = context.handle, row_width(targets[0], layers) // max(1, len(layers))
    for layer in layers:
        keep_layer_inputs(handle, layer)
    if not layers:
        keep_hidden_rows(handle)
    latest = [TargetRows() for _ in targets]

    def take(parts: Sequence[Part]) -> None:
        count = sum(len(part.tokens) for part in parts)
        if layers:
            rows = np.hstack([layer_inputs(handle, layer, count, width) for layer in layers])
        else:
            rows = hidden_rows(handle, count, width)
        slots = {target.number: slot for slot, target in enumerate(targets)}
        start = 0
        for part in parts:
            slot, end = slots[part.sequence], start + len(part.tokens)
            latest[slot].add(part, rows[start:end], targets[slot].cached_from)
            start = end

    context.on_pass = take
    return latest


def unfollow(targets: Sequence[LlamaSequence], layers: Sequence[int] = ()) -> None:
    """Let a target's passes leave no rows behind any more."""
    context = targets[0].native
    context.on_pass = None
    for layer in layers:
        keep_layer_inputs(context.handle, layer, keep=False)
    if not layers:
        keep_hidden_rows(context.handle, keep=False)


def row_width(target: LlamaSequence, layers: Sequence[int] = ()) -> int:
    """Return the floats of a row."""
    handle = target.model.handle
    if layers:
        return len(layers) * int(native.llama_model_n_embd(handle))
    return int(native.llama_model_n_embd_out(handle))


def common_prefix(some: list[int], others: list[int]) -> int:
    """Return how many tokens two texts begin with that are the same."""
    shorter = min(len(some), len(others))
    if some[:shorter] == others[:shorter]:
        return shorter
    return next(at for at in range(shorter) if some[at] != others[at])
