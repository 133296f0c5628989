"""best_length: how many tokens to draft, from chances and costs."""

from collections.abc import Sequence
from dataclasses import dataclass

WORTH_TRYING = 1.1
"""Tokens that a plain round's time has to promise: chances and costs are estimates."""
DOUBT = 1.1
"""How far off a speed-up may be that is foreseen, or was measured beside other programs."""


@dataclass(frozen=True, slots=True)
class Worth:
    """What a draft length promises.

    Args:
        draft_length: tokens to draft.
        confirmed: expected tokens that the round confirms.
        cost_s: what the round takes, in seconds.
    """

    draft_length: int
    confirmed: float
    cost_s: float

    @property
    def rate(self) -> float:
        """Expected confirmed tokens per second."""
        return self.confirmed / self.cost_s


def best_length(
    chances: Sequence[float], cost_s: Sequence[float], affordable_s: float = float("inf")
) -> Worth | None:
    """Return the length of 1 or more with the highest rate; None where none is affordable.

    Costs by width have dips, so that a longer draft can pay where a shorter one does not: every
    length is looked at.

    Args:
        chances: of every drafted token, to be accepted when those before it were.
        cost_s: seconds of a round by its draft length, from 0 on; longer drafts are not considered.
        affordable_s: rounds that take longer are not considered.
    """
    if not chances:
        return None
    best, rate = None, 0.0
    confirmed = reached = 1.0
    for length, (chance, seconds) in enumerate(zip(chances, cost_s[1:], strict=False), start=1):
        reached *= chance
        confirmed += reached
        if seconds <= affordable_s and confirmed / seconds > rate:
            best, rate = (length, confirmed, seconds), confirmed / seconds
    return None if best is None else Worth(*best)
