"""LlamaSequence: a `LanguageModel` over one sequence of a llama.cpp context."""

import time
from collections.abc import Sequence

from localspec.decoding.cancel import CancelFlag, Cancelled
from localspec.decoding.model import Logits
from localspec.errors import ContextOverflow, PassFailed
from localspec.llama.batch import Part
from localspec.llama.model import LlamaModel
from localspec.llama.native_context import NativeContext
from localspec.options import LoadOptions

_COMPARED = 256


class LlamaSequence:
    """The tokens that a model has evaluated, and the function from tokens to logits.

    Keeps the longest common prefix of one request and the next, and evaluates the rest.

    Args:
        native: makes the passes.
        number: llama.cpp's number of the sequence.

    Attributes:
        model: the model whose context it is.
        n_ctx: most tokens that it holds.
        n_vocab: width of a row of logits.
        max_rows: most rows that a pass may ask for.
        truncate_s: seconds that removing parts of the memory took in all.
        in_chunks: so many of the tokens that it holds were evaluated in whole chunks from the first token on, as a
            prompt alone is.
        copies: whether it may copy what another sequence holds.
    """

    # Of what no part can be removed but by snapshots: how many of the last tokens there are snapshots before.
    _snapshots = 0

    def __init__(self, native: NativeContext, number: int = 0) -> None:
        self.native = native
        self.model, self.number = native.model, number
        self._cached: list[int] = []
        self.truncate_s = 0.0
        self.in_chunks = 0
        self.copies = True
        self.n_ctx = native.n_ctx
        self.n_vocab = native.n_vocab
        self.max_rows = native.max_rows

    @property
    def cached(self) -> tuple[int, ...]:
        """The tokens that are evaluated and kept."""
        return tuple(self._cached)

    @property
    def n_cached(self) -> int:
        """Number of tokens that are evaluated and kept."""
        return len(self._cached)

    def cached_from(self, place: int) -> list[int]:
        """Return the tokens that are kept, from a place on."""
        return self._cached[place:]

    def assume(self, tokens: Sequence[int], in_chunks: int = 0) -> bool:
        """Take it that llama.cpp's memory holds these tokens, as after it was put back; forget all if it does not.

        Args:
            tokens: what it should hold.
            in_chunks: as the attribute.

        Returns:
            Whether it holds as many.
        """
        holds = self.native.held(self.number) == len(tokens)
        if holds:
            self._cached, self.in_chunks, self._snapshots = list(tokens), in_chunks, 0
        else:
            self.forget()
        return holds

    def common_prefix(self, tokens: Sequence[int]) -> int:
        """Return how many of `tokens`, from the first on, a request for them would find cached.

        Of a recurrent state no part can be removed, but to its snapshots: all that is cached goes with any of it.
        """
        tokens = tokens if isinstance(tokens, list) else list(tokens)
        cached = self._cached
        shorter = min(len(cached), len(tokens))
        for start in range(0, shorter, _COMPARED):
            end = min(start + _COMPARED, shorter)
            if cached[start:end] != tokens[start:end]:
                same = next(i for i in range(start, end) if cached[i] != tokens[i])
                return self._reusable(same)
        return self._reusable(shorter)

    def _reusable(self, n_past: int) -> int:
        """Return `n_past` if all that is cached beyond it can be removed, else 0."""
        removed = len(self._cached) - n_past
        return n_past if self.native.can_truncate or removed <= self._snapshots else 0

    def prefill(self, tokens: Sequence[int]) -> int:
        """Evaluate `tokens` in chunks of `n_batch`; see `LanguageModel`."""
        tokens = list(tokens)
        if self.common_prefix(tokens) == len(tokens):
            return 0
        self.reuse(tokens, rows=0)
        return self._evaluate(tokens, rows=0)

    def logits(self, tokens: Sequence[int], rows: int) -> Logits:
        """Return the logits after the last `rows` tokens; see `LanguageModel`.

        Raises:
            Cancelled: the flag was set.
            ContextOverflow: `tokens` are more than `n_ctx`.
            PassFailed: llama.cpp reports a failure.
        """
        if not 1 <= rows <= self.native.max_rows:
            raise PassFailed(
                f"a pass asks for {rows} rows: this context gives 1 to {self.native.max_rows}"
            )
        tokens = list(tokens)
        self.reuse(tokens, rows)
        self._evaluate(tokens, rows)
        return self.native.rows(rows)

    def reuse(self, tokens: Sequence[int], rows: int) -> None:
        """Keep what is evaluated of `tokens`, less the last `rows`, and forget everything else."""
        self.truncate(LlamaSequence.common_prefix(self, tokens[: len(tokens) - rows]))

    def truncate(self, n_past: int) -> None:
        """Forget all but the first `n_past` tokens; all of them where no part can be removed."""
        if n_past >= len(self._cached):
            return
        native = self.native
        start = time.perf_counter()
        if self._reusable(n_past) > 0 and native.remove(self.number, n_past):
            del self._cached[n_past:]
            self._snapshots = 0  # one removal a pass
            self.in_chunks = min(self.in_chunks, n_past - n_past % native.n_batch)
        else:
            self.forget()
        self.truncate_s += time.perf_counter() - start

    def part(self, tokens: Sequence[int], rows: int, branches: tuple[int, ...] = ()) -> Part:
        """Return what is to be evaluated after what is cached.

        Args:
            tokens: not cached.
            rows: of how many at their end.
            branches: positions of those at the end that are alternatives to others; see `Pass`.

        Raises:
            ContextOverflow: the sequence would hold more than `n_ctx` tokens.
        """
        n_past = len(self._cached)
        if n_past + len(tokens) > self.n_ctx:
            raise ContextOverflow(
                f"{n_past + len(tokens)} tokens do not fit into a context of {self.n_ctx}: "
                "shorten the prompt or raise --ctx"
            )
        return Part(self.number, tokens, n_past, rows, branches=branches)

    def evaluated(self, tokens: Sequence[int]) -> None:
        """Count tokens as cached after a pass."""
        if self.in_chunks == len(self._cached) and len(tokens) == self.native.n_batch:
            self.in_chunks += len(tokens)
        self._cached += tokens
        self._snapshots = min(len(tokens) - 1, self.native.n_snapshots)

    def resync(self, tokens: Sequence[int]) -> None:
        """After a pass of these tokens that failed, count as cached what llama.cpp has in fact kept."""
        if self.native.can_truncate:
            self._cached = [*self._cached, *tokens][: self.native.held(self.number)]
        else:
            self.forget()  # a recurrent state may have taken in any of them

    def forget(self) -> None:
        """Forget everything, and whatever else the memory holds of the sequence."""
        self.native.clear(self.number)
        self._cached.clear()
        self.in_chunks = self._snapshots = 0

    def evaluate(self, tokens: Sequence[int], rows: int, count: int) -> None:
        """Evaluate the next `count` of `tokens` that are not cached, in one chunk, without rows.

        Args:
            tokens: of the request.
            rows: that it will ask for in the end: so many of its last tokens are not kept.
            count: at most `n_batch`, and not among the last `rows`.
        """
        tokens = list(tokens)
        self.reuse(tokens, rows)
        start = len(self._cached)
        self._decode(tokens[start : start + count], rows=0)

    def _evaluate(self, tokens: list[int], rows: int) -> int:
        """Evaluate what of `tokens` is not cached, in chunks; return how many that were.

        All rows come from the last chunk.
        """
        missing = len(tokens) - len(self._cached)
        while (left := len(tokens) - len(self._cached)) > max(self.native.chunk, rows):
            start = len(self._cached)
            self._decode(tokens[start : start + min(self.native.chunk, left - rows)], rows=0)
        self._decode(tokens[len(self._cached) :], rows)
        return missing

    def _decode(self, tokens: list[int], rows: int) -> None:
        """Evaluate `tokens` after what is cached, in one native call."""
        part = self.part(tokens, rows)
        try:
            self.native.decode([part])
        except (Cancelled, PassFailed):
            self.resync(tokens)
            raise
        self.evaluated(tokens)


class LlamaContext(LlamaSequence):
    """A context of one sequence; see `LlamaSequence`.

    Args:
        model: where the weights are.
        cancel: stops prefill and passes when set.
        options: how to make the context; the model's own by default.

    Raises:
        ModelLoadError: llama.cpp cannot make such a context, mostly for want of memory.
    """

    def __init__(
        self,
        model: LlamaModel,
        cancel: CancelFlag | None = None,
        options: LoadOptions | None = None,
    ) -> None:
        options = model.options if options is None else options
        cancel = CancelFlag() if cancel is None else cancel
        super().__init__(NativeContext(model, cancel, options, options.max_rows))

    def close(self) -> None:
        """Free the context; closing twice is harmless."""
        self.native.close()
