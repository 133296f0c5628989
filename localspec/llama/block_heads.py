"""BlockHeads: stateless draft heads, without a cache of what they draft.

A block (DFlash, DSpark) is one pass over the latest token and masks behind it. Its cache holds of every token before what the
target's layers took in, as keys and values; no token of the text is evaluated for that. An assistant of Gemma 4 has no cache:
it looks into the target's, from the place of the latest token, whichever token it drafts.

Source: `common_speculative_impl_draft_dflash` and `…_mtp` of llama.cpp.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from localspec.decoding.cancel import CancelFlag, Cancelled
from localspec.decoding.draft_block import DraftBlock
from localspec.decoding.model import Logits, Pass
from localspec.errors import PassFailed
from localspec.llama.batch import Batch, Part
from localspec.llama.draft_heads import DraftHeads, HeadsContext
from localspec.llama.model import LlamaModel
from localspec.llama.native import native
from localspec.llama.sequence import LlamaSequence
from localspec.llama.target_rows import TargetRows, common_prefix, follow, row_width
from localspec.llama.unstable_api import Rows, hidden_rows, keep_hidden_rows
from localspec.options import LoadOptions

_KNOWN = 12
"""Tokens before a place of which the target's rows are to be known, or of all there are."""
_UNKNOWN = "the heads need what the target has not computed of this text: use --draft off"


class BlockHeads(DraftHeads):
    """Heads of a target, as the sequences of a draft model: one for each of the target's.

    Args:
        model: where their weights are.
        targets: the target's sequences, all of one context, whose passes they follow from here on.
        cancel: stops passes when set.
        options: how to make their context.
        layers: of the target, whose inputs a block takes.
        block: what a pass drafts; None where they share the target's cache.

    Attributes:
        model: where their weights are.
        native: makes their passes.
        views: every sequence as a model of its own.

    Raises:
        ModelLoadError: llama.cpp cannot make their context, or has no such interface.
    """

    most_rows = 1

    def __init__(
        self,
        model: LlamaModel,
        targets: Sequence[LlamaSequence],
        cancel: CancelFlag,
        options: LoadOptions,
        layers: Sequence[int] = (),
        block: DraftBlock | None = None,
    ) -> None:
        context = _PlaceContext(
            model, targets, cancel, options, row_width(targets[0], layers), block
        )
        super().__init__(model, targets, layers, context)
        pairs = zip(targets, follow(targets, layers), strict=True)
        if block is None:
            keep_hidden_rows(context.handle)
            self.views: list[_Place] = [_AssistantPlace(context, *each) for each in pairs]
        else:
            self.views = [
                _BlockPlace(context, *each, number, block) for number, each in enumerate(pairs)
            ]

    def together(self, requests: Sequence[tuple[int, Pass]]) -> list[Logits]:
        """Return the logits of requests, one after the other; see `Sequences`."""
        return [self.views[slot].logits(each.tokens, each.rows) for slot, each in requests]

    def blank_pass(self, width: int) -> None:
        """Do what drafting after so many new tokens takes, of tokens that mean nothing."""
        self.views[0].blank_pass(width)


class _PlaceContext(HeadsContext):
    """The context of such heads, which takes in rows of the target without tokens.

    Attributes:
        is_shared: whether several sequences draft with it.
    """

    def __init__(
        self,
        model: LlamaModel,
        targets: Sequence[LlamaSequence],
        cancel: CancelFlag,
        options: LoadOptions,
        width: int,
        block: DraftBlock | None,
    ) -> None:
        self.is_shared, rows = len(targets) > 1, 1 if block is None else block.size
        own, beside = options.for_heads(), width if block is None else 0
        super().__init__(model, targets, cancel, own, rows, beside, of_target=block is None)
        if block is not None:
            native.llama_set_causal_attn(self.handle, block.causal)
            if block.top_k:
                keep_hidden_rows(self.handle)
        mrope = native.llama_model_rope_type(model.handle) == native.LLAMA_ROPE_TYPE_MROPE
        self._features = Batch(
            self.n_batch, len(targets), width=width, with_tokens=False, sections=4 if mrope else 1
        )

    def take_in(self, number: int, n_past: int, rows: Rows) -> None:
        """Take in what the target computed of a sequence's tokens from `n_past` on; raises as `decode` does."""
        tokens, self._batch = self._batch, self._features
        try:
            self.decode([Part(number, [0] * len(rows), n_past, 0, rows)])
        finally:
            self._batch = tokens

    def blank_rows(self, count: int) -> Rows:
        """Return rows that mean nothing."""
        return np.zeros((count, self._features.width), np.float32)


class _Place(ABC):
    """What heads draft from, and the function from tokens to logits. Until the target goes on, what follows is their own.

    Attributes:
        fresh: tokens of a text that they begin with, where they would have to take in more.
        longest: most tokens of a draft.
        in_one_pass: whether one pass gives all of them.
    """

    truncate_s = 0.0
    in_chunks = 0
    copies = True
    owner = ""
    fresh = 1024
    in_one_pass = False

    def __init__(self, native: _PlaceContext, target: LlamaSequence, rows: TargetRows) -> None:
        self._native, self._target, self._rows = native, target, rows
        self._text: list[int] = []
        self.n_ctx, self.n_vocab = native.n_ctx, native.n_vocab
        self.longest = native.n_ctx

    @property
    def n_cached(self) -> int:
        """Number of tokens of the text that need not be evaluated."""
        return self._target.n_cached

    def knows(self, tokens: Sequence[int]) -> bool:
        """Whether the target's cache holds all but the last of `tokens`, and its rows reach so far."""
        end = len(tokens) - 1
        held = LlamaSequence.common_prefix(self._target, tokens)
        if self._target.native.copies_wait:
            return False  # a part of it would be read from where it is to be
        return 0 < end <= min(held, self._rows.end(tokens)) and self._rows.begin < end

    def common_prefix(self, tokens: Sequence[int]) -> int:
        """Return how many of `tokens`, from the first on, need not be taken in: here all of them."""
        return len(tokens)

    def prefill(self, tokens: Sequence[int], start: int | None = None) -> int:  # noqa: ARG002 - the protocol's
        """Take in `tokens` ahead, from a place on if one is given; see `LanguageModel`."""
        return 0

    def truncate(self, n_past: int) -> None:
        """Forget everything beyond the first `n_past` tokens."""
        del self._text[n_past:]

    def logits(self, tokens: Sequence[int], rows: int) -> Logits:
        """Return the logits after the last token; see `LanguageModel`.

        Raises:
            Cancelled: the flag was set.
            PassFailed: llama.cpp reports a failure, or the target has not computed what they go on from.
        """
        assert rows == 1, "they draft token by token"  # noqa: S101
        tokens, text, drafted = list(tokens), self._text, len(tokens) - len(self._text)
        is_own = 0 < drafted < len(tokens) and tokens[: len(text)] == text
        if not is_own or self._target.n_cached != len(text) - 1:
            if not self.knows(tokens):
                raise PassFailed(_UNKNOWN)
            self._text, drafted = [], 0
            # The target's next pass would remove rejected tokens anyway; an assistant must not see them.
            self._target.truncate(len(tokens) - 1)
            self._start(tokens)
            self._text = tokens
        return self._row(tokens[-1], drafted)

    @abstractmethod
    def _start(self, tokens: list[int]) -> None:
        """Get ready to draft what follows `tokens`, the last of which the target has not computed."""

    @abstractmethod
    def _row(self, token: int, drafted: int) -> Logits:
        """Return the row after a token, before which so many were drafted, itself among them."""

    @abstractmethod
    def blank_pass(self, width: int) -> None:
        """Do what drafting after so many new tokens takes; see `BlockHeads`."""


class _AssistantPlace(_Place):
    """An assistant's: each token is drafted from the hidden row of the one before."""

    def _start(self, tokens: list[int]) -> None:
        end = len(tokens) - 1
        self._hidden = self._rows.rows(end - 1, end)

    def _row(self, token: int, drafted: int) -> Logits:
        row = self._hidden[drafted]
        target = self._target
        part = Part(target.number, [token], target.n_cached - target.skipped, 1, row[np.newaxis])
        self._native.decode([part])
        self._hidden[drafted + 1 :] = hidden_rows(self._native.handle, 1, row.size)
        return self._native.rows(1)

    def blank_pass(self, width: int) -> None:  # noqa: ARG002 - nothing is to be taken in
        """Make a pass, over the target's cache as it is."""
        target, row = self._target, self._native.blank_rows(1)
        self._native.decode([Part(target.number, [0], target.n_cached - target.skipped, 1, row)])


class _BlockPlace(_Place):
    """A block's: a row for each place that the pass drafted; the text before is taken in first."""

    in_one_pass = True

    def __init__(
        self,
        native: _PlaceContext,
        target: LlamaSequence,
        rows: TargetRows,
        number: int,
        block: DraftBlock,
    ) -> None:
        super().__init__(native, target, rows)
        self._number = number
        self._block, self.longest = block, block.drafted
        self._tokens: list[int] = []
        self._begin = 0

    @property
    def n_cached(self) -> int:
        """Number of tokens of the text that need not be evaluated."""
        return len(self._tokens)

    def knows(self, tokens: Sequence[int]) -> bool:
        """Whether the target's rows reach so far, and far enough back."""
        return super().knows(tokens) and self._rows.begin <= max(0, len(tokens) - 1 - _KNOWN)

    def common_prefix(self, tokens: Sequence[int]) -> int:
        """Return how many of `tokens`, from the first on, need not be taken in."""
        same = common_prefix(self._tokens, list(tokens))
        least = max(self._rows.begin, len(tokens) - self.fresh)
        return same if same > self._begin and same >= least else min(least, len(tokens))

    def prefill(self, tokens: Sequence[int], start: int | None = None) -> int:
        """Take in what the target computed of `tokens`, from a place on if one is given; see `LanguageModel`."""
        tokens = list(tokens)
        start = self.common_prefix(tokens) if start is None else start
        if start <= self._begin or self._tokens[:start] != tokens[:start]:
            self._forget(tokens[:start])
        self.truncate(start)
        while (at := len(self._tokens)) < len(tokens):
            end = min(at + self._native.n_batch, len(tokens))
            rows = self._rows.rows(at, end)
            if len(rows) != end - at:
                raise PassFailed(_UNKNOWN)
            try:
                self._native.take_in(self._number, at, np.stack(rows))
            except (Cancelled, PassFailed):
                self._forget([])
                raise
            self._tokens += tokens[at:end]
        return len(tokens) - start

    def truncate(self, n_past: int) -> None:
        """Forget everything beyond the first `n_past` tokens."""
        super().truncate(n_past)
        if n_past < len(self._tokens):
            self._native.remove(self._number, n_past)
            del self._tokens[n_past:]

    def _forget(self, skipped: list[int]) -> None:
        """Forget everything; the text begins with these tokens, of which nothing is taken in."""
        self._native.clear(self._number)
        self._tokens, self._begin = list(skipped), len(skipped)

    def _start(self, tokens: list[int]) -> None:
        self.prefill(tokens[:-1])
        self._rows_of_block = self._draft(tokens[-1])

    def _draft(self, token: int) -> Logits:
        """Return what a pass over a token and masks drafts, a row a place; its tokens are not kept."""
        block, place, context = self._block, len(self._tokens), self._native
        count = min(block.size, self.n_ctx - place)
        tokens = [token, *[block.mask] * (count - 1)]
        try:
            wanted = 0 if block.top_k else count
            context.decode([Part(self._number, tokens, place, wanted)])
        finally:
            context.remove(self._number, place)
        if not block.top_k:
            rows = context.rows(count)[block.skipped :]
            return rows.copy() if context.is_shared else rows  # the next pass overwrites them
        width = int(native.llama_model_n_embd(context.model.handle))
        return hidden_rows(context.handle, count, width)[block.skipped :]

    def _row(self, token: int, drafted: int) -> Logits:
        rows, top_k = self._rows_of_block, self._block.top_k
        if not top_k:
            return rows[drafted : drafted + 1]
        # A row has the candidates of its place, and scores of each for each candidate of the place before.
        row, before = rows[drafted], rows[drafted - 1, :top_k] if drafted else np.empty(0)
        predecessor = int((before == token).argmax()) if drafted else 0
        logits = np.full((1, self.n_vocab), -np.inf, np.float32)
        logits[0, row[:top_k].astype(np.int64)] = row[top_k * (1 + predecessor) :][:top_k]
        return logits

    def blank_pass(self, width: int) -> None:
        """Take so many tokens in, draft a block, and forget them."""
        self._forget([])
        self._native.take_in(self._number, 0, self._native.blank_rows(width))
        self._tokens = [0] * width
        self._draft(0)
        self._forget([])
