"""GrowingDraft: what a draft model proposes, token by token, while its passes are made."""

from collections.abc import Callable, Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from localspec.decoding.choose import Chooser, choose_with_gap
from localspec.decoding.drafters.branches import Branches
from localspec.decoding.drafters.spelling import Spelling
from localspec.decoding.drafters.worth import Worth
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
        worth: says whether the next token is worth its pass; None goes on.
        chance: of a token to be accepted, by the gap that it was chosen with.

    Attributes:
        gaps: of the proposed tokens, see `Draft`.
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
        worth: Worth | None,
        chance: Callable[[float], float],
    ) -> None:
        self._prefix = list(text)
        self._begin, self._end = len(text), len(text) + most
        self._most_passes = most_passes
        self._spelling = spelling
        self._eog = eog
        self._chooser = chooser
        self._worth = worth
        self._chance = chance
        self._confidences: list[float] = []
        self._alternatives: list[tuple[int, ...]] = []
        self.gaps: list[float] = []
        self.passes = 0

    def __call__(self, rows: Logits) -> int | None:
        """Propose a token, and return the draft model's own if another is to follow."""
        prefix = self._prefix
        self.passes += 1
        try:
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
        goes_on = self._worth is None or self._worth.add(self._chance(gap))
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

    def for_target(self, drafter: str, branches: Branches, most_branches: int) -> Draft:
        """Return what is worth verifying of it, under the name of its drafter."""
        worth, kept, places = self._worth, len(self.gaps), tuple[int, ...]()
        if worth is not None:
            kept = worth.kept
            if most_branches:
                places = branches.choose(worth, self._alternatives, self._eog, most_branches)
        return Draft(
            tuple(self._prefix[self._begin : self._begin + kept]),
            tuple(self._confidences[:kept]),
            drafter,
            tuple(self.gaps[:kept]),
            tuple(self._alternatives[:kept]),
            places,
            self.passes,
        )

    def _chosen(
        self, row: NDArray[np.float32], prefix: Sequence[int]
    ) -> tuple[int, float, float, tuple[int, ...]]:
        """Return what is proposed to follow `prefix`, how surely, by which gap, and the next choices."""
        row, chooser = self._spelling.row(row), self._chooser
        kept = chooser.candidates(row, prefix)
        rivals = chooser.rivals(kept, row, prefix)
        token, gap, others = choose_with_gap(kept, rivals, chooser.noise, len(prefix))
        return token, kept.probability(token), gap, others
