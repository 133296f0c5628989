"""Branches: second choices that the target verifies in the same pass beside a draft, where that is worth a row."""

from collections.abc import Collection, Sequence
from itertools import accumulate

from localspec.decoding.drafters.draft_length import Worth
from localspec.decoding.round import Round

MOST_BRANCHES = 7
"""Most second choices beside a draft: each branch costs one sequence of llama.cpp."""
RIGHT, _WEIGHT = 0.42, 1 / 100
"""How often the second choice is right where the first is not, as counted on a real pair; what one that is seen shows."""


def right_after(right: float, done: Round) -> float:
    """Return how often second choices are right, after a round in which a token may have been corrected."""
    missed = done.verdict.accepted < done.drafted
    return right + missed * _WEIGHT * ((done.correction_rank == 2) - right)


def choose_branches(
    worth: Worth, others: Sequence[Sequence[int]], eog: Collection[int], most: int, right: float
) -> tuple[int, ...]:
    """Return the places of a draft whose second choice is worth a row of the pass, descending.

    One that is accepted is worth a token, less the row that evaluates it again in the next pass.

    Args:
        worth: of the draft.
        others: alternatives to each of its tokens, best first; nothing may follow those in `eog`.
        eog: ids that end a generation.
        most: branches that there may be.
        right: how often a second choice is right where the first is not.
    """
    n_verified, verify = worth.n_verified, worth.verify
    most = min(most, len(verify) - 1 - n_verified)
    if most <= 0:
        return ()
    gains: list[tuple[float, int]] = []
    reach = right * (1 - max(0.0, verify[1] - verify[0]))
    for at, chance in enumerate(worth.chances[:n_verified]):
        if others[at] and others[at][0] not in eog:
            gains.append((reach * (1 - chance), at))
        reach *= chance
    gains = sorted(gains, reverse=True)[:most]
    gained = accumulate((gain for gain, _ in gains), initial=0.0)
    surplus = [each - verify[n_verified + width] for width, each in enumerate(gained)]
    count = surplus.index(max(surplus))
    return tuple(sorted((at for _, at in gains[:count]), reverse=True))
