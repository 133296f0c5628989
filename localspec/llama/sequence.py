"""LlamaSequence: a `LanguageModel` over one sequence of a llama.cpp context."""

import time
from collections.abc import Sequence

from localspec.decoding.cancel import CancelFlag, Cancelled
from localspec.decoding.model import Logits
from localspec.errors import ContextOverflow, PassFailed
from localspec.llama.batch import Part
from localspec.llama.encoder import Encoder
from localspec.llama.media_ids import chunk_end, chunk_start, last_chunk_end, positions, text_end
from localspec.llama.model import LlamaModel
from localspec.llama.native_context import NativeContext
from localspec.options import LoadOptions

_COMPARED = 256


class LlamaSequence:
    """The tokens that a model has evaluated, and the function from tokens to logits.

    Keeps the longest common prefix of one request and the next, and evaluates the rest. Of a picture or a sound, it holds whole
    chunks: what would cut one goes back to its beginning. Counts are of tokens; positions are llama.cpp's own affair.

    Args:
        native: makes the passes.
        number: llama.cpp's number of the sequence.

    Attributes:
        model: the model whose context it is.
        encoder: of the pictures and sounds that it evaluates; None without one.
        n_ctx: most tokens that it holds.
        n_vocab: width of a row of logits.
        max_rows: most rows that a pass may ask for.
        truncate_s: seconds that removing parts of the memory took in all.
        in_chunks: so many of the tokens that it holds were evaluated in whole chunks from the first token on, as a
            prompt alone is.
        run_end: the place behind the pass that followed those whole chunks, if nothing came after it.
        skipped: how many of the tokens that it holds take no position, as most of a picture's in M-RoPE.
        least: no fewer tokens than these can be kept, but none: what windows lost of those before was not put back.
        copies: whether it may copy what another sequence holds.
        prompt_row: the row behind a prompt that it holds, and how many tokens that has; None where none is kept. Asked for
            again, that prompt is answered by the same numbers: a pass for its last token alone would round otherwise.
        owner: for whom the tokens were evaluated that it holds; it copies from no other's.
    """

    # Of what no part can be removed but by snapshots: how many of the last tokens there are snapshots before.
    _snapshots = 0

    def __init__(self, native: NativeContext, number: int = 0) -> None:
        self.native = native
        self.model, self.encoder, self.number = native.model, native.encoder, number
        self._cached: list[int] = []
        self.truncate_s = 0.0
        self.in_chunks = self.run_end = self.skipped = self.least = 0
        self.copies = True
        self.prompt_row: tuple[int, Logits] | None = None
        self.owner = ""
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

    def assume(self, tokens: Sequence[int], in_chunks: int = 0, least: int = 0) -> bool:
        """Take it that llama.cpp's memory holds these tokens, as after it was put back; forget all if it does not.

        Args:
            tokens: what it should hold.
            in_chunks: as the attribute.
            least: so many of them or more can be kept, or none.

        Returns:
            Whether it holds as many.
        """
        skipped = len(tokens) - positions(tokens) if self.encoder is not None else 0
        holds = self.native.held(self.number) == len(tokens) - skipped
        if holds:
            self._cached, self.in_chunks, self._snapshots = list(tokens), in_chunks, 0
            self.prompt_row = None
            self.least = least
            self.skipped = skipped
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
        """Return `n_past`, less the part of a chunk before it, if all that is cached beyond can be removed, else 0."""
        if self.encoder is not None:
            n_past = chunk_start(self._cached, n_past)
        if n_past < self.least:
            return 0
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
        n_past = self._reusable(n_past)
        skipped = self.skipped
        if skipped and min(self._cached[n_past:]) < 0:
            skipped = n_past - positions(self._cached[:n_past])
        if n_past > 0 and native.remove(self.number, n_past - skipped):
            del self._cached[n_past:]
            self.skipped = skipped
            self._snapshots = self.run_end = 0  # one removal a pass
            if n_past < self.in_chunks:
                begin = 0 if self.encoder is None else last_chunk_end(self._cached)
                self.in_chunks = n_past - (n_past - begin) % native.n_batch
            self._drop_row()
        else:
            self.forget()
        self.truncate_s += time.perf_counter() - start

    def keep_row(self, row: Logits) -> None:
        """Keep the row behind a prompt, which is all that is cached now."""
        self.prompt_row = (self.n_cached, row.copy())

    def known_row(self, tokens: Sequence[int]) -> Logits | None:
        """Return the row behind a prompt, and forget what comes after it; None where that row is not known."""
        if self.prompt_row is None or self.prompt_row[0] != len(tokens):
            return None
        if self._cached[: len(tokens)] != list(tokens) or self._reusable(len(tokens)) < len(tokens):
            return None
        self.truncate(len(tokens))
        # Whoever chooses may change it.
        return None if self.prompt_row is None else self.prompt_row[1].copy()

    def _drop_row(self) -> None:
        """Forget a row that is behind more than is cached."""
        if self.prompt_row is not None and self.prompt_row[0] > self.n_cached:
            self.prompt_row = None

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
                "shorten the prompt",
                (n_past + len(tokens), self.n_ctx, self.model.n_ctx_train),
            )
        skipped = self.skipped
        if skipped and branches:
            branches = tuple(each - skipped for each in branches)
        return Part(self.number, tokens, n_past - skipped, rows, branches=branches, skipped=skipped)

    def evaluated(self, tokens: Sequence[int]) -> None:
        """Count tokens as cached after a pass."""
        if self.in_chunks == len(self._cached):
            self.run_end = self.in_chunks + len(tokens)
            if len(tokens) == self.native.n_batch:
                self.in_chunks = self.run_end
        self._cached += tokens
        self._snapshots = min(len(tokens) - 1, self.native.n_snapshots)

    def resync(self, tokens: Sequence[int]) -> None:
        """After a pass of these tokens that failed, count as cached what llama.cpp has in fact kept."""
        if not self.native.can_truncate:
            self.forget()  # a recurrent state may have taken in any of them
            return
        held = self.native.held(self.number) + self.skipped
        if self.encoder is not None and held < len(self._cached):
            # In M-RoPE, all tokens of a picture are where its first one is.
            begin = chunk_start(self._cached, len(self._cached) - 1)
            if self._cached[-1] >= 0 or held != positions(self._cached[:begin]) + 1 + self.skipped:
                self.forget()
            return
        self._cached = [*self._cached, *tokens][:held]
        self._drop_row()

    def forget(self) -> None:
        """Forget everything, and whatever else the memory holds of the sequence."""
        self.native.clear(self.number)
        self._cached.clear()
        self.prompt_row = None
        self.in_chunks = self.run_end = self._snapshots = self.skipped = self.least = 0

    def room(self) -> NativeContext:
        """Forget everything, and return where a state may be put."""
        self.forget()
        return self.native

    def evaluate(self, tokens: Sequence[int], rows: int, count: int) -> int:
        """Evaluate the next tokens of a request that are not cached, without rows; return how many.

        Those are `count` at most, as far as they are text, or one chunk of a picture or a sound.

        Args:
            tokens: of the request.
            rows: that it will ask for in the end: so many of its last tokens are not kept.
            count: of a chunk, and not among the last `rows`; fewer are evaluated where a pass takes no more.
        """
        tokens = list(tokens)
        self.reuse(tokens, rows)
        return self._evaluate_next(tokens, len(self._cached) + min(count, self.native.n_batch))

    def evaluate_media(self, tokens: list[int], rows: int) -> None:
        """Evaluate what of `tokens` is not cached up to the end of the last picture or sound in it.

        Raises:
            PassFailed: rows are asked for behind tokens of a picture, or llama.cpp reports a failure.
        """
        if self.encoder is None or min(tokens[len(self._cached) :], default=0) >= 0:
            return
        end = last_chunk_end(tokens)
        if end > len(tokens) - rows:
            raise PassFailed("a picture or a sound ends this prompt: let text follow it")
        while len(self._cached) < end:
            self._evaluate_next(tokens, min(end, len(self._cached) + self.native.chunk))

    def _evaluate_next(self, tokens: list[int], end: int) -> int:
        """Evaluate text up to `end` or the next chunk of a picture or a sound, or that chunk; return how many tokens."""
        start = len(self._cached)
        if self.encoder is None:
            self._decode(tokens[start:end], rows=0)
        elif tokens[start] < 0:
            self._take_in(tokens, start)
        else:
            self._decode(tokens[start : text_end(tokens, start, end)], rows=0)
        return len(self._cached) - start

    def _take_in(self, tokens: list[int], start: int) -> None:
        """Evaluate a picture, a tile or a piece of sound, all of it or nothing."""
        assert self.encoder is not None, "only an encoder's ids are negative"  # noqa: S101
        native, ids = self.native, tokens[start : chunk_end(tokens, start)]
        part, chunk = self.part(ids, rows=0), self.encoder.chunk(ids)
        try:
            native.decode_chunk(part, chunk)
        except (Cancelled, PassFailed):
            if not (start and native.can_truncate and native.remove(self.number, part.n_past)):
                self.forget()
            raise
        self._cached += ids
        self.skipped += len(ids) - positions(ids)
        self._snapshots = 0
        # The text before it, and the text behind it, are prompts of their own.
        if start in {self.in_chunks, self.run_end}:
            self.in_chunks = len(self._cached)

    def _evaluate(self, tokens: list[int], rows: int) -> int:
        """Evaluate what of `tokens` is not cached, in chunks; return how many that were.

        All rows come from the last chunk.
        """
        missing = len(tokens) - len(self._cached)
        self.evaluate_media(tokens, rows)
        while (left := len(tokens) - len(self._cached)) > max(self.native.chunk, rows):
            start = len(self._cached)
            self._decode(tokens[start : start + min(self.native.chunk, left - rows)], rows=0)
        if len(self._cached) < len(tokens):
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
        encoder: of pictures and sounds.

    Raises:
        ModelLoadError: llama.cpp cannot make such a context, mostly for want of memory.
    """

    def __init__(
        self,
        model: LlamaModel,
        cancel: CancelFlag | None = None,
        options: LoadOptions | None = None,
        encoder: Encoder | None = None,
    ) -> None:
        options = model.options if options is None else options
        cancel = CancelFlag() if cancel is None else cancel
        super().__init__(NativeContext(model, cancel, options, options.max_rows, encoder=encoder))

    def close(self) -> None:
        """Free the context; closing twice is harmless."""
        self.native.close()
