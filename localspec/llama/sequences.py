"""LlamaSequences: several sequences of one llama.cpp context, evaluated together.

Each is a `LanguageModel` of its own and holds as many tokens as it would alone. What one has evaluated of
a prompt, another copies instead of evaluating it again. Those that run move together, so that their passes make one;
an idle one that stands between them moves away with what it holds.
"""

from collections.abc import Collection, Sequence

from localspec.decoding.cancel import CancelFlag, Cancelled
from localspec.decoding.model import Logits, Pass
from localspec.errors import PassFailed
from localspec.llama.batch import Part
from localspec.llama.encoder import Encoder
from localspec.llama.model import LlamaModel
from localspec.llama.native_context import NativeContext
from localspec.llama.sequence import LlamaSequence
from localspec.options import LoadOptions

_WORTH_COPYING = 32
"""Tokens that take longer to evaluate than llama.cpp needs to copy the buffer of a sequence."""


class LlamaSequences:
    """Sequences that share passes.

    Args:
        model: where the weights are.
        cancel: stops whatever pass is running.
        options: how to make the context; `n_ctx` is that of each sequence.
        count: how many sequences.
        most_rows: most rows of logits of a pass; more where one sequence alone may ask for more.
        sharing: whether a prompt's prefix is copied from a sequence that has evaluated it. Copied
            keys and values carry the width that computed them, which may be another than here.
        branches: most branches of a pass that a lone sequence is to be ready for.
        pass_s: seconds that a pass of a prompt may take; see `NativeContext`.
        encoder: of pictures and sounds.

    Attributes:
        native: makes the passes.
        views: every sequence as a model of its own.
        most_rows: most rows of logits of a pass.

    Raises:
        ModelLoadError: there is no memory for them.
    """

    def __init__(
        self,
        model: LlamaModel,
        cancel: CancelFlag,
        options: LoadOptions,
        count: int,
        most_rows: int,
        *,
        sharing: bool = True,
        branches: int = 0,
        pass_s: float | None = None,
        encoder: Encoder | None = None,
    ) -> None:
        rows = max(most_rows, options.max_rows)
        self.native = NativeContext(model, cancel, options, rows, count, branches, pass_s, encoder)
        family: list[_Sibling] = []
        family += [_Sibling(self.native, number, family) for number in range(count)]
        self._family = family
        for each in family:
            each.sharing = sharing and self.native.can_truncate
        self.views: Sequence[LlamaSequence] = family
        self.most_rows = min(most_rows, self.native.max_rows)

    @property
    def n_batch(self) -> int:
        """Most tokens of a pass."""
        return self.native.n_batch

    @property
    def chunk(self) -> int:
        """Tokens of a prompt that the next pass takes."""
        return self.native.chunk

    def fix_width(self, width: int, most: int | None = None) -> None:
        """Let every pass for rows have so many tokens at least, and be of one sequence; see `NativeContext.fix_width`.

        Args:
            width: the least.
            most: rows of a pass; as many as the least by default.
        """
        self.native.fix_width(width)
        for each in self._family:
            each.n_ctx = self.native.n_ctx
        self.most_rows = min(self.most_rows, width if most is None else most)

    def missing(self, slot: int, request: Pass) -> int:
        """Return how many tokens of a request a sequence has not cached itself, its rows at least.

        What it could only copy from another one does not count: that one may forget it first.
        """
        requests = request.tokens[: len(request.tokens) - request.rows]
        return len(request.tokens) - LlamaSequence.common_prefix(self._family[slot], requests)

    def evaluate(self, slot: int, request: Pass, count: int) -> int:
        """Evaluate the next tokens of a request, without rows, and return how many; see `LlamaSequence.evaluate`."""
        return self._family[slot].evaluate(request.tokens, request.rows, count)

    def together(self, requests: Sequence[tuple[int, Pass]]) -> list[Logits]:
        """Return the logits of passes of several sequences, in this order, made in one native call.

        Args:
            requests: slot of the sequence, its place in `views`, and its request: `most_rows` rows and
                `n_batch` tokens at most, all in all.

        Raises:
            Cancelled: the flag was set.
            ContextOverflow: a sequence would hold more than `n_ctx` tokens.
            PassFailed: llama.cpp reports a failure, or the rows are too many.
        """
        rows = sum(request.rows for _, request in requests)
        if not 1 <= rows <= self.most_rows:
            raise PassFailed(f"a pass asks for {rows} rows: it gives 1 to {self.most_rows}")
        if self.native.pass_width and len(requests) > 1:
            return self._one_by_one(requests)
        # Neighbours make one wide pass only where their numbers ascend without a gap.
        order = sorted(range(len(requests)), key=lambda i: self._family[requests[i][0]].number)
        parts = [self._part(*requests[i]) for i in order]
        try:
            self.native.decode(parts)
        except (Cancelled, PassFailed):
            for i, part in zip(order, parts, strict=True):
                self._family[requests[i][0]].resync(part.chain)
            raise
        answers, start, all_rows = dict[int, Logits](), 0, self.native.rows(rows)
        for i, part in zip(order, parts, strict=True):
            self._family[requests[i][0]].evaluated(part.chain)
            answers[i] = all_rows[start : start + part.rows]
            start += part.rows
        return [answers[i] for i in range(len(requests))]

    def _one_by_one(self, requests: Sequence[tuple[int, Pass]]) -> list[Logits]:
        """Return the same from a pass for each: llama.cpp evaluates by itself what one sequence has more than others, however narrow."""
        return [self.together([each])[0].copy() for each in requests]

    def _part(self, slot: int, request: Pass) -> Part:
        sequence, tokens = self._family[slot], list(request.tokens)
        sequence.reuse(tokens, request.rows)
        sequence.evaluate_media(tokens, request.rows)
        return sequence.part(tokens[sequence.n_cached :], request.rows, request.branches)

    def close_ranks(self, running: Collection[int]) -> None:
        """Move sequences so that the numbers of the running ones ascend without a gap; the fewer, and of idle ones the emptier."""
        if not self.native.can_truncate:
            return
        numbers = {self._family[place].number for place in running}
        width = len(numbers)
        idle = {each.number: each.n_cached for each in self._family if each.number not in numbers}

        def cost(window: range) -> tuple[int, int]:
            ways = [idle[number] for number in window if number in idle]
            return len(ways), sum(ways)

        starts = range(len(self._family) - width + 1)
        window = min((range(start, start + width) for start in starts), key=cost)
        ways = [each for each in self._family if each.number in window and each.number in idle]
        coming = [
            each for each in map(self._family.__getitem__, running) if each.number not in window
        ]
        for sequence, other in zip(coming, ways, strict=True):
            self._move(sequence, other)

    def _move(self, sequence: "_Sibling", idle: "_Sibling") -> None:
        """Exchange the numbers of a sequence and an idle one, which forgets what it holds."""
        self.native.copy(sequence.number, idle.number)
        idle.number, sequence.number = sequence.number, idle.number
        idle.forget()

    def close(self) -> None:
        """Free the context; closing twice is harmless."""
        self.native.close()


class _Sibling(LlamaSequence):
    """One of several, which copies what another one has evaluated."""

    def __init__(self, native: NativeContext, number: int, family: Sequence["_Sibling"]) -> None:
        super().__init__(native, number)
        self._family = family
        self.sharing = False

    def common_prefix(self, tokens: Sequence[int]) -> int:
        """Return how many of `tokens` are cached, here or where they can be copied from."""
        return self._known(tokens)[0]

    def reuse(self, tokens: Sequence[int], rows: int) -> None:
        """Keep, or copy, what is evaluated of `tokens`, and forget everything else."""
        donor = self._known(tokens)[1]
        if donor is not None:
            self.native.copy(donor.number, self.number)
            self._cached, self.skipped = list(donor.cached), donor.skipped
            self.in_chunks, self.run_end = donor.in_chunks, donor.run_end
        LlamaSequence.reuse(self, tokens, rows)

    def _known(self, tokens: Sequence[int]) -> tuple[int, "_Sibling | None"]:
        """Return how many of `tokens` are cached, and by whom, if it is worth copying."""
        own = LlamaSequence.common_prefix(self, tokens)
        if not (self.sharing and self.copies) or len(tokens) - own < _WORTH_COPYING:
            return own, None
        family = self._family
        others = [each for each in family if each is not self and each.owner == self.owner]
        shared = [LlamaSequence.common_prefix(each, tokens) for each in others]
        most = max(shared, default=0)
        if most - own < _WORTH_COPYING:
            return own, None
        return most, others[shared.index(most)]
