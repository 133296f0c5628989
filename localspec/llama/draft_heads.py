"""DraftHeads: what heads of a target have in common, whichever way they draft, as the sequences of a draft model."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Protocol, cast

from localspec.decoding.cancel import CancelFlag
from localspec.decoding.model import Logits, Pass
from localspec.decoding.scheduler import SequenceView
from localspec.errors import PassFailed
from localspec.llama.model import LlamaModel
from localspec.llama.native import native
from localspec.llama.native_context import NativeContext
from localspec.llama.sequence import LlamaSequence
from localspec.llama.target_rows import unfollow
from localspec.options import LoadOptions


class HeadsView(SequenceView, Protocol):
    """One sequence of heads."""

    def prefill(self, tokens: Sequence[int], start: int | None = None) -> int:
        """Evaluate `tokens` ahead, from a place on if one is given; see `LanguageModel`."""


class DraftHeads(ABC):
    """Heads of a target: a sequence for each of the target's, whose passes they follow.

    Args:
        model: where their weights are.
        targets: the target's sequences, all of one context.
        layers: of the target, whose inputs they take; none takes its last hidden rows.
        context: makes their passes.

    Attributes:
        model: where their weights are.
        native: makes their passes.
        views: every sequence as a model of its own.
        most_rows: most rows of logits of a pass.
    """

    views: Sequence[HeadsView]
    most_rows: int

    def __init__(
        self,
        model: LlamaModel,
        targets: Sequence[LlamaSequence],
        layers: Sequence[int],
        context: "HeadsContext",
    ) -> None:
        self.model, self.native = model, context
        self._targets, self._layers = targets, layers
        self.n_batch = context.n_batch

    def chunk(self, _slot: int) -> int:
        """Return how many tokens of a text the next pass takes."""
        return self.n_batch

    def missing(self, slot: int, request: Pass) -> int:
        """Return how many tokens of a request are to be evaluated; see `Sequences`."""
        end = len(request.tokens) - request.rows
        return len(request.tokens) - self.views[slot].common_prefix(request.tokens[:end])

    def evaluate(self, slot: int, request: Pass, count: int) -> int:
        """Evaluate the next `count` tokens of a request, without rows; return how many; see `Sequences`.

        Of a part of a text, the whole says where to start: it alone tells how late they may begin.
        """
        view, tokens = self.views[slot], request.tokens[: len(request.tokens) - request.rows]
        start = view.common_prefix(tokens)
        return view.prefill(tokens[: start + count], start)

    @abstractmethod
    def together(self, requests: Sequence[tuple[int, Pass]]) -> list[Logits]:
        """Return the logits of requests of several sequences, in this order; see `Sequences`.

        Raises:
            Cancelled: the flag was set.
            PassFailed: llama.cpp reports a failure, or the target has not computed what they go on from.
        """

    @abstractmethod
    def blank_pass(self, width: int) -> None:
        """Do what drafting after so many new tokens takes, of tokens that mean nothing."""

    def compact(self, running: Collection[int]) -> None:  # noqa: B027 - not abstract
        """Do nothing: heads have no cache to move."""

    def close(self) -> None:
        """Free the context, and follow the target no more; closing twice is harmless."""
        with suppress(PassFailed):  # the target may be closed
            unfollow(self._targets, self._layers)
        self.native.close()


class HeadsContext(NativeContext):
    """The context of heads: its memory is a cache, whatever the target's is, or the target's own.

    Args:
        model: where their weights are.
        targets: the target's sequences.
        cancel: stops passes when set.
        options: how to make it; its context is as long as the target's.
        rows: most rows of logits of a pass.
        row_width: floats that go in beside a token; 0 where none do.
        of_target: whether llama.cpp's graph of them reads the target's file or cache (its type is MTP).
    """

    def __init__(
        self,
        model: LlamaModel,
        targets: Sequence[LlamaSequence],
        cancel: CancelFlag,
        options: LoadOptions,
        rows: int,
        row_width: int,
        *,
        of_target: bool,
    ) -> None:
        self._embedding_width, self._of_target = row_width, of_target
        self._target = targets[0].native.handle
        own = replace(options, n_ctx=targets[0].n_ctx)
        super().__init__(model, cancel, own, rows, len(targets))

    def _params(self, options: LoadOptions, rows: int) -> native.llama_context_params:
        params = super()._params(options, rows)
        params.n_rs_seq = 0
        params.ctx_type = native.LLAMA_CONTEXT_TYPE_MTP if self._of_target else 0
        params.ctx_other = cast(native.llama_context_p, self._target)
        return params

    def _truncates(self) -> bool:
        return True
