"""LlamaSequences: several sequences of one llama.cpp context, evaluated together.

Each is a `LanguageModel` of its own and holds as many tokens as it would alone. What one has evaluated of
a prompt, another copies instead of evaluating it again. Those that run move together, so that their passes make one.
An idle one in between changes its number and loses its cache.
"""

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from localspec.decoding.cancel import CancelFlag, Cancelled
from localspec.decoding.model import Logits, Pass, Role
from localspec.errors import PassFailed
from localspec.llama.batch import Part
from localspec.llama.encoder import Encoder
from localspec.llama.model import LlamaModel
from localspec.llama.native_context import NativeContext
from localspec.llama.sequence import LlamaSequence
from localspec.options import LoadOptions

if TYPE_CHECKING:
    from localspec.llama.prompt_reader import PromptReader

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
        reader: reads prompts for them, and gives the row behind a prompt; None without one.
        behind: returns the context of the repacked weights, once they are loaded, or None if they cannot be: while there is
            this function, `native` is a small one of the plain copy, in which nothing is evaluated.

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
        family: list[_Slot] = []
        family += [_Slot(self.native, number, family) for number in range(count)]
        self._family = family
        for each in family:
            each.sharing = sharing and self.native.can_truncate
            each.wait_home = self.go_on
        self.views: Sequence[LlamaSequence] = family
        self.most_rows = min(most_rows, self.native.max_rows)
        self.reader: PromptReader | None = None
        self.behind: Callable[[], NativeContext | None] | None = None

    @property
    def n_batch(self) -> int:
        """Most tokens of a pass."""
        return self.native.n_batch

    def chunk(self, slot: int) -> int:
        """Return how many tokens of a prompt a sequence's next pass takes, here or by the reader."""
        return self._family[slot].native.chunk

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
        self._settle(slot, request)
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
        if (known := self._known_rows(requests)) is not None:
            return known
        if self.native.pass_width and len(requests) > 1:
            return self._one_by_one(requests)
        if self.reader is not None and (rows_there := self._read(requests)) is not None:
            return rows_there
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
            if part.rows == 1 and len(part.tokens) > 1 and requests[i][1].role is Role.TARGET:
                self._family[requests[i][0]].keep_row(answers[i])
        return [answers[i] for i in range(len(requests))]

    def _one_by_one(self, requests: Sequence[tuple[int, Pass]]) -> list[Logits]:
        """Return the same from a pass for each: llama.cpp evaluates by itself what one sequence has more than others, however narrow."""
        return [self.together([each])[0].copy() for each in requests]

    def _known_rows(self, requests: Sequence[tuple[int, Pass]]) -> list[Logits] | None:
        """Return the rows of requests one of which asks for what is known behind a prompt; None where none does."""
        for at, (slot, request) in enumerate(requests):
            if request.rows != 1 or request.branches:
                continue
            row = self._family[slot].known_row(request.tokens)
            if row is not None:
                others = [*requests[:at], *requests[at + 1 :]]
                # Rows are valid until the next pass: those of the others' come last.
                beside = self.together(others) if others else []
                return [*beside[:at], row, *beside[at:]]
        return None

    def _read(self, requests: Sequence[tuple[int, Pass]]) -> list[Logits] | None:
        """Return the rows of requests one of which the reader answers; None where it answers none."""
        if len(requests) == 1:
            self._settle(*requests[0])
        for at, (slot, request) in enumerate(requests):
            sequence = self._family[slot]
            if sequence.is_read and sequence.has_row:
                sequence.go_home()
            elif sequence.is_read:
                others = [*requests[:at], *requests[at + 1 :]]
                beside = self.together(others) if others else []
                return [*beside[:at], sequence.row(request), *beside[at:]]
        return None

    def _settle(self, slot: int, request: Pass) -> None:
        """Have a request evaluated where it is to be: by the reader, up to the row behind a prompt, or here."""
        reader, sequence = self.reader, self._family[slot]
        if reader is None:
            return
        tokens = list(request.tokens)
        sequence.reuse(tokens, request.rows)
        its = sequence.is_read and not sequence.has_row and sequence.native.n_ctx >= len(tokens)
        depth = sequence.n_cached
        its = its or (not sequence.is_read and reader.takes(depth, len(tokens) - depth))
        its = its and request.rows <= 1
        if not its:
            self.go_on()
            if sequence.is_read:
                sequence.go_home()
        elif not sequence.is_read and not sequence.enter(reader, tokens):
            self.go_on()

    def go_on(self) -> None:
        """Have the context of the repacked weights, and wait for it, where that of a plain copy is in its place."""
        behind, reader, before = self.behind, self.reader, self.native
        if behind is None or reader is None:
            return
        native = behind()
        self.behind = None
        if native is None:  # there is no memory for it
            native = reader.instead()
        self.native = native
        for each in self._family:
            each.move_to(native)
        before.close()

    def _part(self, slot: int, request: Pass) -> Part:
        sequence, tokens = self._family[slot], list(request.tokens)
        sequence.reuse(tokens, request.rows)
        sequence.evaluate_media(tokens, request.rows)
        while sequence.is_behind and len(tokens) - sequence.n_cached > self.native.n_batch:
            sequence.evaluate(tokens, request.rows, self.native.chunk)
        sequence.is_behind = False
        return sequence.part(tokens[sequence.n_cached :], request.rows, request.branches)

    def compact(self, running: Collection[int]) -> None:
        """Move sequences so that the numbers of the running ones ascend without a gap; the fewer, and of idle ones the emptier."""
        if not self.native.can_truncate:
            return
        for each in self._family:
            if each.has_row and self.behind is None:
                each.is_handed_over()
        numbers = {self._family[place].place for place in running}
        width = len(numbers)
        idle = {each.place: each.n_cached for each in self._family if each.place not in numbers}

        def cost(window: range) -> tuple[int, int]:
            ways = [idle[number] for number in window if number in idle]
            return len(ways), sum(ways)

        starts = range(len(self._family) - width + 1)
        window = min((range(start, start + width) for start in starts), key=cost)
        ways = [each for each in self._family if each.place in window and each.place in idle]
        coming = [
            each for each in map(self._family.__getitem__, running) if each.place not in window
        ]
        for sequence, other in zip(coming, ways, strict=True):
            self._move(sequence, other)

    def _move(self, sequence: "_Slot", idle: "_Slot") -> None:
        """Exchange the numbers of a sequence and an idle one, which forgets what it holds."""
        if not sequence.is_read:
            self.native.copy(sequence.place, idle.place)
        former = sequence.place
        sequence.settle_at(idle.place)
        idle.settle_at(former)
        idle.forget()

    def close(self) -> None:
        """Free the context; closing twice is harmless."""
        if self.reader is not None:
            self.reader.close()
        self.native.close()


class _Slot(LlamaSequence):
    """One of several, which copies what another one has evaluated, and whose prompts a reader may read.

    Attributes:
        home: where it decodes.
        place: its number there.
        has_row: whether the reader gave the row behind its prompt: what follows is for its home.
        is_behind: whether it came home from the reader, and may lack more than a pass takes here.
        wait_home: returns when its home can hold something.
    """

    def __init__(self, native: NativeContext, number: int, family: Sequence["_Slot"]) -> None:
        super().__init__(native, number)
        self.home, self.place = native, number
        self._family = family
        self.sharing = self.has_row = self.is_behind = False
        self.wait_home: Callable[[], None] = lambda: None
        self._reader: PromptReader | None = None

    @property
    def is_read(self) -> bool:
        """Whether the reader has what it holds."""
        return self._reader is not None

    def enter(self, reader: "PromptReader", tokens: Sequence[int]) -> bool:
        """Have a prompt read by the reader: what of it is evaluated goes there; return whether that was possible."""
        depth, other = self.n_cached, reader.reads_for
        if self.home.copies_wait or min(tokens) < 0:
            return False
        if isinstance(other, _Slot) and not (other.has_row and other.is_handed_over()):
            return False
        if (native := reader.room(len(tokens))) is None:
            return False
        if depth and not reader.hand_over(self.home, self.place, native, 0, depth):
            reader.leave()
            return False
        self.home.clear(self.place)
        self._reader, reader.reads_for = reader, self
        self.native, self.number = native, 0
        return True

    def row(self, request: Pass) -> Logits:
        """Return the row behind a prompt that the reader has."""
        rows = self.logits(request.tokens, request.rows)
        self.has_row = True
        self.keep_row(rows)
        return rows

    def go_home(self) -> None:
        """Have its home hold what the reader has evaluated; where there is no memory to hand it over, that is evaluated again.

        Raises:
            Cancelled, PassFailed: as `prefill` does.
        """
        tokens, self.is_behind = list(self._cached), True
        if not self.is_handed_over():
            self.forget()
            self.prefill(tokens)

    def is_handed_over(self) -> bool:
        """Hand over what the reader has evaluated; return whether it is at home now."""
        reader, tokens = self._reader, len(self._cached)
        if not tokens or reader is None:
            self.forget()
        elif reader.hand_over(self.native, self.number, self.home, self.place, tokens):
            self._leave()
        return not self.is_read

    def forget(self) -> None:
        """Forget everything, at home and where it is read."""
        self._leave()
        super().forget()

    def move_to(self, home: NativeContext) -> None:
        """Have another home, while nothing is evaluated in this one."""
        self.home = home
        if not self.is_read:
            self.native = home

    def room(self) -> NativeContext:
        """Forget everything, and return where a state may be put."""
        self.forget()
        self.wait_home()
        return self.native

    def settle_at(self, place: int) -> None:
        """Have another number at home."""
        self.place = place
        if not self.is_read:
            self.number = place

    def _leave(self) -> None:
        """Be at home, whatever that holds."""
        if self._reader is not None:
            self._reader.leave()
        self._reader, self.has_row = None, False
        self.native, self.number = self.home, self.place

    def common_prefix(self, tokens: Sequence[int]) -> int:
        """Return how many of `tokens` are cached, here or where they can be copied from."""
        return self._known(tokens)[0]

    def reuse(self, tokens: Sequence[int], rows: int) -> None:
        """Keep, or copy, what is evaluated of `tokens`, and forget everything else."""
        donor = self._known(tokens)[1]
        if donor is not None:
            self._copy(donor)
        LlamaSequence.reuse(self, tokens, rows)

    def known_row(self, tokens: Sequence[int]) -> Logits | None:
        """Return the row behind a prompt, where this sequence knows it, or one that it may copy from."""
        row = super().known_row(tokens)
        if row is not None:
            return row
        knows = {
            each for each in self._family if each.prompt_row and each.prompt_row[0] == len(tokens)
        }
        donor = self._known(tokens)[1] if knows else None
        if donor not in knows:
            return None
        self._copy(donor)
        return super().known_row(tokens)

    def _copy(self, donor: "_Slot") -> None:
        """Hold what another one has evaluated."""
        if donor.is_read:
            donor.go_home()
        self._leave()
        self.native.copy(donor.number, self.number)
        self._cached, self.skipped = list(donor.cached), donor.skipped
        self.least, self.prompt_row = donor.least, donor.prompt_row
        self.in_chunks, self.run_end = donor.in_chunks, donor.run_end

    def _known(self, tokens: Sequence[int]) -> tuple[int, "_Slot | None"]:
        """Return how many of `tokens` are cached, and by whom, if it is worth copying."""
        own = LlamaSequence.common_prefix(self, tokens)
        if not (self.sharing and self.copies) or len(tokens) - own < _WORTH_COPYING:
            return own, None
        family = self._family
        others = [each for each in family if each is not self and each.owner == self.owner]
        others = [each for each in others if each.has_row or not each.is_read]
        shared = [LlamaSequence.common_prefix(each, tokens) for each in others]
        most = max(shared, default=0)
        if most - own < _WORTH_COPYING:
            return own, None
        return most, others[shared.index(most)]
