"""GrowingDraft: what a draft model proposes, token by token, while its passes are made."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from localspec.decoding.choose import Chooser, choose_with_gap
from localspec.decoding.drafters.branches import Branches
from localspec.decoding.drafters.spelling import Spelling
from localspec.decoding.drafters.worth import Worth
from localspec.decoding.model import Logits
from localspec.decoding.round import Draft
from localspec.errors import PassFailed


@dataclass(slots=True, eq=False)
class GrowingDraft:
    """Takes the rows of one pass after the other, and returns the token with which the next goes on; see `Pass.more`.

    Args:
        prefix: confirmed so far, a list of its own: it grows by what is proposed.
        end: place up to which it may grow.
        most_passes: passes that the draft model has room for.
        spelling: what the draft model's ids mean.
        eog: ids that nothing is proposed after.
        chooser: the reply's.
        worth: decides whether the next token is worth its pass; None goes on.
        chance: of a token to be accepted, by the gap that it was chosen with.

    Attributes:
        gaps: of the proposed tokens, see `Draft`; as are the confidences and alternatives.
        passes: how many were made.
    """

    prefix: list[int]
    end: int
    most_passes: int
    spelling: Spelling
    eog: Collection[int]
    chooser: Chooser
    worth: Worth | None
    chance: Callable[[float], float]
    confidences: list[float] = field(default_factory=list)
    alternatives: list[tuple[int, ...]] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    passes: int = 0

    def __call__(self, rows: Logits) -> int | None:
        """Propose a token, and return the draft model's own if another is to follow."""
        prefix = self.prefix
        self.passes += 1
        try:
            token, confidence, gap, others = self._chosen(rows[-1], prefix)
        except PassFailed:
            return None  # no shared id may follow, or the row is unusable: the target goes on alone
        own = self.spelling.next(rows[-1], token)
        before = prefix[-1] if self.gaps else None
        spelled = self.spelling.spell(before, own)
        if spelled == ((token,) if before is None else (before, token)):
            goes_on = self._append(token, confidence, gap, others)
        else:
            goes_on = self._respell(spelled, confidence, gap)
        return own if goes_on and self.passes < self.most_passes else None

    def _append(
        self, token: int, confidence: float, gap: float, others: tuple[int, ...] = ()
    ) -> bool:
        """Propose a token; return whether to propose another."""
        self.prefix.append(token)
        self.confidences.append(confidence)
        self.alternatives.append(others)
        self.gaps.append(gap)
        goes_on = self.worth is None or self.worth.add(self.chance(gap))
        return goes_on and len(self.prefix) < self.end and token not in self.eog

    def _respell(self, spelled: tuple[int, ...], confidence: float, gap: float) -> bool:
        """Let the target's spelling take the place of the last proposed token; return whether to propose another.

        What a chooser did not choose itself may be what a constraint forbids.
        """
        prefix = self.prefix
        if self.gaps:
            first, *others = spelled
            if first != prefix[-1]:
                if not self.chooser.admitted(prefix[:-1], (first,)):
                    return False
                prefix[-1] = first
                self.confidences[-1] *= confidence
                self.alternatives[-1] = ()
                self.gaps[-1] = min(self.gaps[-1], gap)
            spelled = tuple(others)
        return all(
            self.chooser.admitted(prefix, (token,)) and self._append(token, confidence, gap)
            for token in spelled
        )

    def for_target(self, drafter: str, branches: Branches, most_branches: int) -> Draft:
        """Return what is worth verifying of it, under the name of its drafter."""
        count, places = len(self.gaps), tuple[int, ...]()
        if self.worth is not None:
            count = self.worth.n_verified
            if most_branches:
                places = branches.choose(self.worth, self.alternatives, self.eog, most_branches)
        return Draft(
            tuple(self.prefix[len(self.prefix) - len(self.gaps) :][:count]),
            tuple(self.confidences[:count]),
            drafter,
            tuple(self.gaps[:count]),
            tuple(self.alternatives[:count]),
            places,
            self.passes,
        )

    def _chosen(
        self, row: NDArray[np.float32], prefix: Sequence[int]
    ) -> tuple[int, float, float, tuple[int, ...]]:
        """Return what is proposed to follow `prefix`, how surely, by which gap, and the next choices."""
        row, chooser = self.spelling.row(row), self.chooser
        candidates = chooser.candidates(row, prefix)
        rivals = chooser.rivals(candidates, row, prefix)
        token, gap, others = choose_with_gap(candidates, rivals, chooser.noise, len(prefix))
        return token, candidates.probability(token), gap, others
