"""GrowingDraft: what a draft model proposes, token by token, while its passes are made."""

from collections.abc import Callable, Collection, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from localspec.decoding.choose import RANKED, Chooser, choose_with_gap
from localspec.decoding.drafters.backoff import Hindsight
from localspec.decoding.drafters.early_stopping import EarlyStopping
from localspec.decoding.drafters.spelling import Spelling
from localspec.decoding.model import Logits
from localspec.decoding.round import Draft
from localspec.errors import PassFailed


class GrowingDraft:
    """Takes the rows of one pass after the other, and says with which token the next goes on; see `Pass.more`.

    Args:
        text: confirmed so far.
        most: tokens to propose.
        most_passes: passes that the draft model has room for.
        spelling: what the draft model's ids mean.
        eog: ids that nothing is proposed after.
        chooser: the reply's.
        stopping: says whether the next token is worth its pass; None goes on.
        chance: of a token to be accepted, by the gap that it was chosen with.
        look_back: of tokens of the text that are compared, see `EarlyStopping`: the place, and as how many ids the
            draft model reads the text from there on.
        read: the end of the text as the draft model reads it.

    Attributes:
        gaps: of the proposed tokens, see `Draft`.
        hindsight: what would have been proposed for tokens of the text.
        passes: how many were made.
    """

    def __init__(
        self,
        text: Sequence[int],
        most: int,
        most_passes: int,
        spelling: Spelling,
        eog: Collection[int],
        chooser: Chooser,
        stopping: EarlyStopping | None,
        chance: Callable[[float], float],
        look_back: Sequence[tuple[int, int]] = (),
        read: Sequence[int] = (),
    ) -> None:
        self._prefix = list(text)
        self._begin, self._end = len(text), len(text) + most
        self._most_passes = most_passes
        self._spelling = spelling
        self._eog = eog
        self._chooser = chooser
        self._stopping = stopping
        self._grown = None if stopping is None else stopping.grow()
        self._chance = chance
        self._look_back = look_back
        self._read = read
        self._confidences: list[float] = []
        self._alternatives: list[tuple[int, ...]] = []
        self.gaps: list[float] = []
        self.hindsight: list[Hindsight] = []
        self.passes = 0

    @property
    def tokens(self) -> tuple[int, ...]:
        """All that was proposed, whether or not the target is to verify it."""
        return tuple(self._prefix[self._begin :])

    @property
    def compared(self) -> tuple[bool, ...]:
        """Of the tokens of the text that are compared, whether each is the target's own, see `EarlyStopping`."""
        return () if self._stopping is None else self._stopping.compared

    def __call__(self, rows: Logits) -> int | None:
        """Propose a token, and return the draft model's own if another is to follow."""
        prefix, stopping = self._prefix, self._stopping
        self.passes += 1
        try:
            if len(rows) > 1 and stopping is not None:
                self.hindsight += self._looked_back(rows)
                if not stopping.begins(self.hindsight):
                    return None
            token, confidence, gap, others = self._chosen(rows[-1], prefix)
        except PassFailed:
            return None  # no shared id may follow, or the row is unusable: the target goes on alone
        said = self._spelling.next(rows[-1], token)
        before = prefix[-1] if self.gaps else None
        spelled = self._spelling.spell(before, said)
        if spelled == ((token,) if before is None else (before, token)):
            goes_on = self._append(token, confidence, gap, others)
        else:
            goes_on = self._respell(spelled, confidence, gap)
        return said if goes_on and self.passes < self._most_passes else None

    def _append(
        self, token: int, confidence: float, gap: float, others: tuple[int, ...] = ()
    ) -> bool:
        """Propose a token; say whether to propose another."""
        self._prefix.append(token)
        self._confidences.append(confidence)
        self._alternatives.append(others)
        self.gaps.append(gap)
        goes_on = self._grown is None or self._grown.goes_on(self._chance(gap))
        return goes_on and len(self._prefix) < self._end and token not in self._eog

    def _respell(self, spelled: tuple[int, ...], confidence: float, gap: float) -> bool:
        """Let the target's spelling take the place of the last proposed token; say whether to propose another.

        What a chooser did not choose itself may be what a constraint forbids.
        """
        prefix = self._prefix
        if self.gaps:
            first, *others = spelled
            if first != prefix[-1]:
                if not self._chooser.admitted(prefix[:-1], (first,)):
                    return False
                prefix[-1] = first
                self._confidences[-1] *= confidence
                self._alternatives[-1] = ()
                self.gaps[-1] = min(self.gaps[-1], gap)
            spelled = tuple(others)
        return all(
            self._chooser.admitted(prefix, (token,)) and self._append(token, confidence, gap)
            for token in spelled
        )

    def for_target(self, drafter: str) -> Draft:
        """Return what is worth verifying of it, under the name of its drafter."""
        kept, branches = len(self.gaps), tuple[int, ...]()
        if self._grown is not None:
            kept = self._grown.kept
            if self._stopping is not None and self._stopping.branches:
                branches = self._grown.branches(self._open(), self._end - self._begin)
        return Draft(
            self.tokens[:kept],
            tuple(self._confidences[:kept]),
            drafter,
            tuple(self.gaps[:kept]),
            tuple(self._alternatives[:kept]),
            branches,
        )

    def _open(self) -> list[int]:
        """Return where the second choice is one that something may follow."""
        others = enumerate(self._alternatives)
        return [at for at, each in others if each and each[0] not in self._eog]

    def _looked_back(self, rows: Logits) -> Iterator[Hindsight]:
        """Yield what would have been proposed for tokens of the text."""
        text, read = self._prefix, self._read
        for place, ids in self._look_back:
            row = rows[-1 - ids]
            token, _, gap, _ = self._chosen(row, text[:place])
            yield Hindsight(gap, self._spelling.next(row, token) == read[-ids])

    def _chosen(
        self, row: NDArray[np.float32], prefix: Sequence[int]
    ) -> tuple[int, float, float, tuple[int, ...]]:
        """Return what is proposed to follow `prefix`, how surely, by which gap, and the next choices."""
        row, chooser = self._spelling.row(row), self._chooser
        kept = chooser.candidates(row, prefix, RANKED)
        rivals = chooser.rivals(kept, row, prefix)
        token, gap, others = choose_with_gap(kept, rivals, chooser.noise, len(prefix))
        return token, kept.probability(token), gap, others
