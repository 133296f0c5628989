"""LlamaHeads: heads of a target as a draft model. They go on from what the target computed of each token.

A head takes the token at a place, and a hidden row of the place before it. Where the target has computed that row, it is
the target's; where the head drafts on its own, it is the row that the head left itself. Multi-token prediction (MTP) is layers of the
target's own file; EAGLE-3 is a file of its own, whose rows are three of the target's layer inputs, brought together by an encoder.

What the heads hold of a text begins where the target's rows begin, which are kept of its latest tokens alone.

Source: `common_speculative_impl_draft_mtp` and `…_eagle3` of llama.cpp, whose pairs of token and row these are; Li et al.
2025, arXiv:2503.01840.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import cast

import numpy as np

from localspec.decoding.cancel import CancelFlag, Cancelled
from localspec.decoding.model import Logits, Pass
from localspec.decoding.scheduler import SequenceView
from localspec.errors import PassFailed
from localspec.llama.batch import Batch, Part
from localspec.llama.model import LlamaModel
from localspec.llama.native import native
from localspec.llama.native_context import NativeContext
from localspec.llama.sequence import LlamaSequence
from localspec.llama.staging import (
    Rows,
    hidden_rows,
    keep_hidden_rows,
    keep_layer_inputs,
    layer_inputs,
)
from localspec.options import LoadOptions

_MEMORY = 512
"""Tokens of which at least the target's rows are kept; at most twice as many."""
_N_BATCH = 64
"""Most tokens of a pass of the heads: some of their graphs compute logits of every token, wanted or not."""
_UNBOUNDED = 1 << 20
_ROWS = 11
"""Most rows of logits that a pass of heads gives."""


class TargetRows:
    """What a target computed of the latest tokens that it evaluated, by their places.

    Args:
        target: whose passes are looked at; it has its context for itself.
        read: returns the rows of the last pass, given its number of tokens.

    Attributes:
        begin: place of the first token of which there is a row.
    """

    def __init__(self, target: LlamaSequence, read: Callable[[int], Rows]) -> None:
        self._read = read
        self._tokens: list[int] = []
        self._rows: list[Rows] = []
        self.begin = 0
        target.native.on_pass = self._take

    def _take(self, parts: Sequence[Part]) -> None:
        (part,) = parts
        rows, place = self._read(len(part.tokens)), part.n_past - self.begin
        if not 0 <= place <= len(self._tokens):
            self.begin, place = part.n_past, 0
        del self._tokens[place:], self._rows[place:]
        self._tokens += part.tokens
        self._rows += list(rows)
        if len(self._tokens) > 2 * _MEMORY:
            gone = len(self._tokens) - _MEMORY
            self.begin += gone
            del self._tokens[:gone], self._rows[:gone]

    def end(self, tokens: Sequence[int]) -> int:
        """Return the place after the last row that is of `tokens`, from the first row on; `begin` if there is none."""
        return self.begin + common(self._tokens, list(tokens[self.begin :]))

    def rows(self, begin: int, end: int) -> list[Rows]:
        """Return the rows of some places, each of shape (width,)."""
        return self._rows[max(0, begin - self.begin) : max(0, end - self.begin)]


class LlamaHeads:
    """Heads of a target, as the sequences of a draft model: there is one.

    Args:
        model: where the heads' weights are: the target's own model for MTP, loaded with these layers.
        target: the target's sequence, whose passes they follow from here on.
        cancel: stops passes when set.
        options: how to make their context.
        layers: of the target, whose inputs they take; none takes its last hidden rows.

    Attributes:
        model: where their weights are.
        fresh: tokens of a text that they begin with, where they would have to evaluate more; see `Window`.

    Raises:
        ModelLoadError: llama.cpp cannot make their context, or has no such interface.
    """

    truncate_s = 0.0
    in_chunks = 0
    fresh = 2 * _MEMORY
    longest = _UNBOUNDED
    in_one_pass = False

    def __init__(
        self,
        model: LlamaModel,
        target: LlamaSequence,
        cancel: CancelFlag,
        options: LoadOptions,
        layers: Sequence[int] = (),
    ) -> None:
        handle, width = target.native.handle, int(native.llama_model_n_embd(target.model.handle))
        self.model = model
        self._is_eagle3 = bool(layers)
        if layers:
            for layer in layers:
                keep_layer_inputs(handle, layer)

            def read(tokens: int) -> Rows:
                taken = [layer_inputs(handle, layer, tokens, width) for layer in layers]
                return np.hstack(taken)

        else:
            width = int(native.llama_model_n_embd_out(target.model.handle))
            keep_hidden_rows(handle)

            def read(tokens: int) -> Rows:
                return hidden_rows(handle, tokens, width)

        # A row that goes in is as wide as one that comes out.
        self._width = int(native.llama_model_n_embd(model.handle)) if layers else width
        self._native = _HeadsContext(model, target, cancel, options, self._width, mtp=not layers)
        keep_hidden_rows(self._native.handle)
        self._features = (
            Batch(_N_BATCH, width=width * len(layers), with_tokens=False) if layers else None
        )
        self._rows = TargetRows(target, read)
        self._tokens: list[int] = []
        self._begin = self._by_target = 0
        self._last: Rows | None = None
        self.n_ctx, self.n_vocab = self._native.n_ctx, self._native.n_vocab
        self.most_rows = self._native.max_rows
        self.n_batch = self._native.n_batch
        self.views: Sequence[SequenceView] = (self,)

    @property
    def n_cached(self) -> int:
        """Number of tokens of the text that need not be evaluated."""
        return len(self._tokens)

    def knows(self, tokens: Sequence[int]) -> bool:
        """Whether the target's rows reach so far that a token can be drafted to follow `tokens`."""
        begin = self._rows.begin
        most = len(tokens) - 2 - _ROWS
        reaches = begin <= most or (begin == 0 and not self._is_eagle3)
        return reaches and self._rows.end(tokens) >= len(tokens) - 1

    def common_prefix(self, tokens: Sequence[int]) -> int:
        """Return how many of `tokens`, from the first on, need not be evaluated."""
        tokens = list(tokens)
        by_target = self._rows.end(tokens)
        same = common(self._tokens, tokens)
        if self._by_target <= by_target:
            same = min(same, self._by_target)  # what they drafted, the target has computed since
        last = self._last is not None and same == len(self._tokens)
        fresh = len(tokens) - self.fresh
        if same > self._begin and same >= fresh and (last or self._rows.begin < same):
            return same
        first = self._rows.begin + bool(self._is_eagle3 or self._rows.begin)
        return min(max(first, fresh), len(tokens))

    def prefill(self, tokens: Sequence[int]) -> int:
        """Evaluate `tokens` ahead; see `LanguageModel`."""
        missing = len(tokens) - self.common_prefix(tokens)
        if missing:
            self._evaluate(list(tokens), rows=0)
        return missing

    def logits(self, tokens: Sequence[int], rows: int) -> Logits:
        """Return the logits after the last `rows` tokens; see `LanguageModel`.

        Raises:
            Cancelled: the flag was set.
            PassFailed: llama.cpp reports a failure, or the target has not computed what they go on from.
        """
        return self._evaluate(list(tokens), rows)

    def truncate(self, n_past: int) -> None:
        """Forget everything beyond the first `n_past` tokens."""
        if n_past >= len(self._tokens):
            return
        if n_past <= self._begin:
            self._forget(self._tokens[:n_past])
            return
        self._native.remove(0, n_past - self._is_eagle3)
        del self._tokens[n_past:]
        self._by_target, self._last = min(self._by_target, n_past), None

    def _forget(self, skipped: list[int]) -> None:
        """Forget everything; the text begins with these tokens, which are not evaluated."""
        self._native.clear(0)
        self._tokens, self._last = list(skipped), None
        self._begin = self._by_target = len(skipped)

    @property
    def chunk(self) -> int:
        """Tokens of a text that the next pass takes."""
        return self.n_batch

    def missing(self, slot: int, request: Pass) -> int:  # noqa: ARG002 - there is one
        """Return how many tokens of a request are to be evaluated; see `Sequences`."""
        end = len(request.tokens) - request.rows
        return len(request.tokens) - self.common_prefix(request.tokens[:end])

    def evaluate(self, slot: int, request: Pass, count: int) -> None:  # noqa: ARG002 - likewise
        """Evaluate the next `count` tokens of a request, without rows; see `Sequences`."""
        start = self.common_prefix(request.tokens[: len(request.tokens) - request.rows])
        self._evaluate(list(request.tokens[: start + count]), 0, start)

    def together(self, requests: Sequence[tuple[int, Pass]]) -> list[Logits]:
        """Return the logits of requests, of which there is one; see `Sequences`."""
        return [self.logits(request.tokens, request.rows) for _, request in requests]

    def close_ranks(self, running: Collection[int]) -> None:
        """Do nothing: there is one."""

    def _evaluate(self, tokens: list[int], rows: int, start: int | None = None) -> Logits:
        """Evaluate what is missing of `tokens`, and return the last rows.

        Of a part of a text, the whole says where to start: it alone tells how late they may begin.
        """
        if start is None:
            start = self.common_prefix(tokens[: len(tokens) - rows])
        if (
            start > len(self._tokens)
            or self._tokens[:start] != tokens[:start]
            or start <= self._begin
        ):
            self._forget(tokens[:start])
        self.truncate(start)
        while (left := len(tokens) - len(self._tokens)) > self.n_batch or (
            # Of a graph that computes all rows, all are asked for: else the first are handed over for the last.
            rows and left > max(rows, self.most_rows) and self._is_eagle3
        ):
            self._decode(tokens, min(self.n_batch, left - rows), 0)
        given = self._decode(tokens, len(tokens) - len(self._tokens), rows)
        return self._native.rows(given)[given - rows :] if rows else np.empty((0, 0), np.float32)

    def _decode(self, tokens: list[int], count: int, rows: int) -> int:
        """Evaluate the next `count` of `tokens`; return how many rows of logits there are, the wanted ones at the end."""
        start = len(self._tokens)
        by_target = min(self._rows.end(tokens) + 1, start + count)
        given = count if rows and self._is_eagle3 else rows
        embeddings = self._embeddings(start, count, by_target)
        n_past = start - self._is_eagle3
        try:
            self._native.decode([Part(0, tokens[start : start + count], n_past, given, embeddings)])
        except (Cancelled, PassFailed):
            self._forget([])
            raise
        self._tokens += tokens[start : start + count]
        if self._by_target == start:
            self._by_target = max(start, by_target)
        self._last = hidden_rows(self._native.handle, count, self._width)[-1]
        return given

    def _embeddings(self, start: int, count: int, by_target: int) -> Rows:
        """Return what goes in beside tokens: the rows of the places before them."""
        zeros = int(start == 0)  # nothing is before the first
        rows_before = self._rows.rows(start + zeros - 1, by_target - 1)
        if self._features is not None and rows_before:
            rows_before = list(self._encoded(np.stack(rows_before)))
        if by_target < start + count and count == 1 and self._last is not None:
            rows_before = [self._last]
        if zeros + len(rows_before) != count:
            raise PassFailed(
                f"the heads need what the target computed of {count} tokens, and {len(rows_before)} are known"
            )
        return np.stack([*[np.zeros(self._width, np.float32)] * zeros, *rows_before])

    def _encoded(self, features: Rows) -> Rows:
        """Return what an encoder makes of the target's layer inputs."""
        assert self._features is not None, "it encodes"  # noqa: S101
        n_past = self._native.held(0)  # of no meaning to an encoder, but compared with its memory
        part = Part(0, [0] * len(features), n_past, len(features), features)
        if native.llama_encode(self._native.handle, self._features.fill([part])) != 0:
            raise PassFailed("llama.cpp could not encode what the target computed: use --draft off")
        return hidden_rows(self._native.handle, len(features), self._width)

    def blank_pass(self, width: int) -> None:
        """Make a pass over so many tokens that mean nothing, and forget them: what takes as long as any other."""
        self._forget([])
        rows = np.zeros((width, self._width), np.float32)
        if self._features is not None:
            rows = self._encoded(np.zeros((width, self._features.width), np.float32))
        given = width if self._is_eagle3 else 1
        self._native.decode([Part(0, [0] * width, 0, min(given, self.most_rows), rows)])
        hidden_rows(self._native.handle, width, self._width)
        self._native.clear(0)

    def close(self) -> None:
        """Free the context; closing twice is harmless."""
        self._native.close()


class _HeadsContext(NativeContext):
    """The context of heads: beside each token a row goes in, and its memory is a cache, whatever the target's is."""

    def __init__(
        self,
        model: LlamaModel,
        target: LlamaSequence,
        cancel: CancelFlag,
        options: LoadOptions,
        width: int,
        *,
        mtp: bool,
    ) -> None:
        self._embedding_width = width
        self._target, self._mtp = target.native.handle, mtp
        n_ctx = target.n_ctx
        super().__init__(model, cancel, replace(options, n_ctx=n_ctx, n_batch=_N_BATCH), _ROWS)

    def _params(self, options: LoadOptions, rows: int) -> native.llama_context_params:
        params = super()._params(options, rows)
        params.n_rs_seq = 0
        params.ctx_type = native.LLAMA_CONTEXT_TYPE_MTP if self._mtp else 0
        params.ctx_other = cast(native.llama_context_p, self._target)
        return params

    def _truncates(self) -> bool:
        return True


def common(some: list[int], others: list[int]) -> int:
    """Return how many tokens two texts begin with that are the same."""
    shorter = min(len(some), len(others))
    if some[:shorter] == others[:shorter]:
        return shorter
    return next(at for at in range(shorter) if some[at] != others[at])
