"""LlamaHeads: heads of a target as a draft model. They go on from what the target computed of each token.

A head takes the token at a place, and a hidden row of the place before it. Where the target has computed that row, it is
the target's; where the head drafts on its own, it is the row that the head left itself. Multi-token prediction (MTP) is layers of the
target's own file; EAGLE-3 is a file of its own, whose rows are three of the target's layer inputs, brought together by an encoder.

Of several MTP layers, each drafts one token: the first the next one, the second the one after that. Each has keys and values of its own for
what the target computed, and reads the drafted tokens again, so that no draft is longer than there are layers.

What the heads hold of a text begins where the target's rows begin, which are kept of its latest tokens alone.

Source: `common_speculative_impl_draft_mtp` and `…_eagle3` of llama.cpp, whose pairs of token and row these are; Li et al.
2025, arXiv:2503.01840.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from localspec.decoding.cancel import CancelFlag, Cancelled
from localspec.decoding.model import Logits, Pass
from localspec.decoding.scheduler import NO_ROWS
from localspec.errors import PassFailed
from localspec.llama.batch import Batch, Part
from localspec.llama.draft_heads import DraftHeads, HeadsContext
from localspec.llama.model import LlamaModel
from localspec.llama.native import native
from localspec.llama.sequence import LlamaSequence
from localspec.llama.target_rows import TargetRows, common_prefix, follow, row_width
from localspec.llama.unstable_api import Rows, hidden_rows, keep_hidden_rows, use_mtp_layer
from localspec.options import HEADS_MEMORY, LoadOptions

_MARGIN = 11
"""Tokens of which the target's rows are to be known before heads draft."""


class LlamaHeads(DraftHeads):
    """Heads of a target, as the sequences of a draft model: one for each of the target's.

    Args:
        model: where the heads' weights are: the target's own model for MTP, loaded with these layers.
        targets: the target's sequences, all of one context, whose passes they follow from here on.
        cancel: stops passes when set.
        options: how to make their context.
        layers: of the target, whose inputs they take; none takes its last hidden rows.
        count: how many MTP layers there are.
        of_outputs: whether their graph leaves hidden rows of those tokens alone whose logits are wanted.

    Attributes:
        model: where their weights are.
        native: makes their passes.
        count: how many MTP layers there are; 1 for others.
        is_mtp: whether they are MTP layers.
        width: floats that go in beside a token.
        views: every sequence as a model of its own.

    Raises:
        ModelLoadError: llama.cpp cannot make their context, or has no such interface.
    """

    def __init__(
        self,
        model: LlamaModel,
        targets: Sequence[LlamaSequence],
        cancel: CancelFlag,
        options: LoadOptions,
        layers: Sequence[int] = (),
        count: int = 1,
        *,
        of_outputs: bool = False,
    ) -> None:
        self.count, self.is_mtp = count, not layers
        self._of_outputs, self._cancel = of_outputs, cancel
        features = row_width(targets[0], layers)
        # A row that goes in is as wide as one that comes out.
        self.width = features if self.is_mtp else int(native.llama_model_n_embd(model.handle))
        own = options.for_heads(len(targets))
        context = HeadsContext(
            model, targets, cancel, own, own.max_rows, self.width, of_target=self.is_mtp
        )
        super().__init__(model, targets, layers, context)
        keep_hidden_rows(context.handle, of_all=not of_outputs)
        self._features: Batch | None = None
        if layers:
            room, numbers = self.n_batch, len(targets)
            self._features = Batch(room, numbers, width=features, with_tokens=False)
        latest = follow(targets, layers)
        self.views: list[HeadSequence] = [HeadSequence(self, *each) for each in enumerate(latest)]
        self.most_rows = context.max_rows

    def together(self, requests: Sequence[tuple[int, Pass]]) -> list[Logits]:
        """Return the logits of requests, as few passes as they need; see `DraftHeads`."""
        steps = [
            self.views[slot].last_step(list(request.tokens), request.rows)
            for slot, request in requests
        ]
        groups = list(self._groups(steps))
        answers = dict[int, Logits]()
        for group in groups:
            self.run(group)
            start, rows = 0, self.native.rows(sum(step.part.rows for step in group))
            if len(groups) > 1:
                rows = rows.copy()  # the next pass overwrites them
            for step in group:
                start += step.part.rows
                answers[step.view.number] = rows[start - step.rows : start]
        return [answers[slot] for slot, _ in requests]

    def _groups(self, steps: "Sequence[HeadStep]") -> "Iterator[list[HeadStep]]":
        """Yield what one pass evaluates: steps of one layer, as many as it has room for, neighbours side by side."""
        group: list[HeadStep] = []
        rows = tokens = 0
        for step in sorted(steps, key=lambda each: (each.layer, each.view.number)):
            rows, tokens = rows + step.part.rows, tokens + len(step.part.tokens)
            same = not group or group[0].layer == step.layer
            if not same or rows > self.most_rows or tokens > self.n_batch:
                yield group
                group, rows, tokens = [], step.part.rows, len(step.part.tokens)
            group.append(step)
        yield group

    def run(self, group: "Sequence[HeadStep]") -> None:
        """Make a pass of steps of one layer."""
        if self.count > 1:
            use_mtp_layer(self.native.handle, group[0].layer)
        try:
            self.native.decode([step.part for step in group])
        except (Cancelled, PassFailed):
            for step in group:
                step.view.undo()
            raise
        parts = [step.part for step in group]
        counts = [part.rows if self._of_outputs else len(part.tokens) for part in parts]
        wanted = any(step.rows for step in group)
        hidden = hidden_rows(self.native.handle, sum(counts), self.width) if wanted else NO_ROWS
        end = 0
        for step, count in zip(group, counts, strict=True):
            end += count
            step.view.evaluated(step, hidden[end - 1] if step.rows else None)

    def encoded(self, number: int, features: Rows) -> Rows:
        """Return what the encoder makes of rows of the target, if there is one."""
        if self._features is None or not len(features):
            return features
        # Of no meaning to an encoder, but compared with its memory.
        n_past = self.native.held(number)
        part = Part(number, [0] * len(features), n_past, len(features), features)
        if native.llama_encode(self.native.handle, self._features.fill([part])) != 0:
            if self._cancel.is_set:
                raise Cancelled
            raise PassFailed("llama.cpp could not encode what the target computed: use --draft off")
        return hidden_rows(self.native.handle, len(features), self.width)

    def blank_pass(self, width: int) -> None:
        """Make a pass over so many tokens that mean nothing, and forget them: what takes as long as any other."""
        context = self.native
        self.views[0].forget([])
        rows = np.zeros((width, self.width), np.float32)
        if self._features is not None:
            rows = self.encoded(0, np.zeros((width, self._features.width), np.float32))
        given = min(width if self._features is not None else 1, self.most_rows)
        for layer in range(self.count if width > 1 else 1):
            if self.count > 1:
                use_mtp_layer(context.handle, layer)
            context.remove(0, 0)
            context.decode([Part(0, [0] * width, 0, given, rows)])
        hidden_rows(context.handle, given if self._of_outputs else width, self.width)
        context.clear(0)


@dataclass(frozen=True, slots=True, eq=False)
class HeadStep:
    """What one pass evaluates of a sequence.

    Args:
        view: the sequence.
        part: its tokens, with as many rows of logits as the graph has to give.
        rows: how many at the end are wanted.
        layer: of several, the one that is run.
        settled: place up to which the rows that went in are the target's.
    """

    view: "HeadSequence"
    part: Part
    rows: int
    layer: int
    settled: int


class HeadSequence:
    """What heads hold of one text, and the function from tokens to logits.

    Args:
        heads: make the passes.
        number: of the sequence.
        target: rows of the target's sequence.

    Attributes:
        fresh: tokens of a text that they begin with, where they would have to evaluate more; see `Window`.
        longest: most tokens of a draft.
        in_one_pass: whether one pass gives all of them.
    """

    truncate_s = 0.0
    in_chunks = 0
    copies = True
    owner = ""
    in_one_pass = False

    def __init__(self, heads: LlamaHeads, number: int, target: TargetRows) -> None:
        self._heads, self.number, self._target = heads, number, target
        self._native, self._count = heads.native, heads.count
        # The first token that they can evaluate: EAGLE-3 has no row for what is before a text.
        self._first = int(not heads.is_mtp)
        self.longest = self._count if self._count > 1 else self._native.n_ctx
        self.fresh = 2 * HEADS_MEMORY
        self._tokens: list[int] = []
        self._begin = self._settled = 0
        self._own: dict[int, Rows] = {}  # by their places, rows that heads left
        self._seen: list[int] = []  # the text that those are of
        self.n_ctx, self.n_vocab = self._native.n_ctx, self._native.n_vocab

    @property
    def n_cached(self) -> int:
        """Number of tokens of the text that need not be evaluated."""
        return len(self._tokens)

    def knows(self, tokens: Sequence[int]) -> bool:
        """Whether the target's rows reach so far that a token can be drafted to follow `tokens`."""
        begin = self._target.begin
        most = len(tokens) - 2 - _MARGIN
        reaches = begin <= most or (begin == 0 and not self._first)
        return reaches and self._target.end(tokens) >= len(tokens) - 1

    def common_prefix(self, tokens: Sequence[int]) -> int:
        """Return how many of `tokens`, from the first on, need not be evaluated."""
        tokens = list(tokens)
        by_target = self._target.end(tokens)
        same = common_prefix(self._tokens, tokens)
        if self._settled <= by_target:
            same = min(same, self._settled)  # what they drafted, the target has computed since
        elif self._count > 1:
            same = min(same, by_target)
        fresh = len(tokens) - self.fresh
        known = self._target.begin < same or same - 1 in self._own
        if same > self._begin and same >= fresh and known:
            return same
        first = self._target.begin + bool(self._first or self._target.begin)
        return min(max(first, fresh), len(tokens))

    def prefill(self, tokens: Sequence[int], start: int | None = None) -> int:
        """Evaluate `tokens` ahead, from a place on if one is given; see `LanguageModel`."""
        tokens = list(tokens)
        start = self.common_prefix(tokens) if start is None else start
        missing = len(tokens) - start
        if missing:
            self._rewind(tokens, start)
            self._catch_up(tokens, len(tokens))
        return missing

    def logits(self, tokens: Sequence[int], rows: int) -> Logits:
        """Return the logits after the last `rows` tokens; see `LanguageModel`.

        Raises:
            Cancelled: the flag was set.
            PassFailed: llama.cpp reports a failure, or the target has not computed what they go on from.
        """
        step = self.last_step(list(tokens), rows)
        self._heads.run([step])
        return self._native.rows(step.part.rows)[step.part.rows - rows :]

    def truncate(self, n_past: int) -> None:
        """Forget everything beyond the first `n_past` tokens."""
        if n_past >= len(self._tokens):
            return
        if n_past <= self._begin:
            self.forget(self._tokens[:n_past])
            return
        self._native.remove(self.number, n_past - self._first)
        del self._tokens[n_past:], self._seen[n_past:]
        self._settled = min(self._settled, n_past)
        self._own = {place: row for place, row in self._own.items() if place < n_past}

    def forget(self, skipped: list[int]) -> None:
        """Forget everything; the text begins with these tokens, which are not evaluated."""
        self._native.clear(self.number)
        self._tokens, self._seen, self._own = list(skipped), list(skipped), {}
        self._begin = self._settled = len(skipped)

    def undo(self) -> None:
        """Remove what a pass that failed left behind; the same pass can be made again."""
        self._native.remove(self.number, max(0, len(self._tokens) - self._first))

    def last_step(self, tokens: list[int], rows: int) -> HeadStep:
        """Evaluate what the last pass has no room for; return what is left to it."""
        self._rewind(tokens, self.common_prefix(tokens[: len(tokens) - rows]))
        settled = min(self._target.end(tokens) + 1, len(tokens))
        if self._count > 1:
            # All layers read what the target has computed, and one of them what it has not.
            layer = len(tokens) - settled
            if layer >= self._count:
                raise PassFailed(f"{self._count} MTP layers draft no more tokens than they are")
            self._catch_up(tokens, settled - 1)
            return self._step(tokens, len(tokens), rows, layer)
        most = self._heads.n_batch
        if self._first and rows:
            # Of a graph that computes all rows, all are asked for: else the first are handed over for the last.
            most = max(rows, min(most, self._heads.most_rows))
        if len(tokens) - len(self._tokens) > most:
            self._catch_up(tokens, len(tokens) - rows)
        return self._step(tokens, len(tokens), rows)

    def _rewind(self, tokens: list[int], start: int) -> None:
        """Forget what is not of `tokens`, and whatever is to be evaluated again; rows that heads left of the text stay."""
        same = common_prefix(self._seen, tokens)
        own = {place: row for place, row in self._own.items() if place < same}
        if (
            start > len(self._tokens)
            or self._tokens[:start] != tokens[:start]
            or start <= self._begin
        ):
            self.forget(tokens[:start])
        self.truncate(start)
        self._own, self._seen = own, tokens[:same]

    def _catch_up(self, tokens: list[int], end: int) -> None:
        """Evaluate tokens up to a place, without rows."""
        while (start := len(self._tokens)) < end:
            until = min(end, start + self._heads.n_batch)
            for layer in reversed(range(self._count)):
                self.truncate(start)
                self._heads.run([self._step(tokens, until, 0, layer)])

    def _step(self, tokens: list[int], end: int, rows: int, layer: int = 0) -> HeadStep:
        """Return the step that evaluates what is missing up to a place."""
        start = len(self._tokens)
        count = end - start
        settled = min(self._target.end(tokens) + 1, end)
        given = count if rows and self._first else rows
        n_past = start - self._first
        part = Part(
            self.number, tokens[start:end], n_past, given, self._before(start, end, settled)
        )
        return HeadStep(self, part, rows, layer, settled)

    def _before(self, start: int, end: int, settled: int) -> Rows:
        """Return what goes in beside tokens: the rows of the places before them."""
        zeros = int(start == 0)  # nothing is before the first
        by_target = self._target.rows(start + zeros - 1, settled - 1)
        rows = [np.zeros(self._heads.width, np.float32)] * zeros
        if by_target:
            rows += list(self._heads.encoded(self.number, np.stack(by_target)))
        own = range(max(start, settled) - 1, end - 1)
        rows += [self._own[place] for place in own if place in self._own]
        if len(rows) != end - start:
            raise PassFailed(
                f"the heads need what the target computed of {end - start} tokens, and only {len(rows)} of these tokens are known"
            )
        return np.stack(rows)

    def evaluated(self, step: HeadStep, hidden: Rows | None) -> None:
        """Take in what a pass has evaluated, and the hidden row of its last token."""
        start = len(self._tokens)
        self._tokens += step.part.tokens
        end = len(self._tokens)
        if end > len(self._seen):
            self._seen = list(self._tokens)
        if self._settled == start:
            # Of several layers, the last token was read by one alone.
            self._settled = max(start, step.settled - (self._count > 1 and step.rows > 0))
        if step.layer == 0:
            # What is still to be gone on from stays: where another sequence's part fails, the same pass is made again.
            first = start - 1 if self._count == 1 else end if step.rows else end - 1
            self._own = {place: row for place, row in self._own.items() if place >= first}
        if hidden is not None:
            self._own[end - 1] = hidden
