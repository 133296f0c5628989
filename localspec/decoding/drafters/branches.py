"""Branches: second choices that the target verifies in the same pass beside a draft, where that is worth a row."""

from collections.abc import Collection, Sequence

from localspec.decoding.drafters.worth import Worth
from localspec.decoding.round import Round

MOST_BRANCHES = 7
"""Most second choices beside a draft: each branch costs one sequence of llama.cpp."""
_RIGHT, _WEIGHT = 0.42, 1 / 100
"""How often the second choice is right where the first is not, at first as counted on a real pair; what one shows."""


class Branches:
    """Chooses where a draft branches, by how often second choices were right."""

    def __init__(self) -> None:
        self._right = _RIGHT

    def learn(self, done: Round) -> None:
        """Take in whether the second choice was the correction, where a token was corrected."""
        if done.verdict.accepted < done.drafted:
            self._right += _WEIGHT * ((done.correction_rank == 2) - self._right)

    def choose(
        self,
        worth: Worth,
        alternatives: Sequence[Sequence[int]],
        eog: Collection[int],
        most: int,
    ) -> tuple[int, ...]:
        """Return the places of a draft whose second choice is worth a row of the pass, descending.

        One that is accepted is worth a token, less the row that evaluates it again in the next pass.

        Args:
            worth: of the draft.
            alternatives: to each of its tokens, best first; nothing may follow those in `eog`.
            eog: ids that end a generation.
            most: branches that there may be.
        """
        n_verified, verify = worth.n_verified, worth.verify
        most = min(most, len(verify) - 1 - n_verified)
        if most <= 0:
            return ()
        gains: list[tuple[float, int]] = []
        reach = self._right * (1 - max(0.0, verify[1] - verify[0]))
        for at, chance in enumerate(worth.chances[:n_verified]):
            others = alternatives[at]
            if others and others[0] not in eog:
                gains.append((reach * (1 - chance), at))
            reach *= chance
        gains.sort(reverse=True)
        gained = best = 0.0
        count = 0
        for width, (gain, _) in enumerate(gains[:most], start=1):
            gained += gain
            surplus = gained - (verify[n_verified + width] - verify[n_verified])
            if surplus > best:
                best, count = surplus, width
        return tuple(sorted((at for _, at in gains[:count]), reverse=True))
