"""AcceptanceStats, and the textbook formulas for what drafting is worth."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from localspec.decoding.drafters.register import counted_as
from localspec.decoding.round import Round


@dataclass(slots=True)
class AcceptanceCounts:
    """Counts over rounds."""

    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    confirmed: int = 0
    branched: int = 0
    """Second choices that were verified beside the drafts, which do not count as drafted."""
    caught: int = 0
    """How many of them are in the text."""

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted over drafted tokens; None when nothing was drafted."""
        return self.accepted / self.drafted if self.drafted else None

    @property
    def mean_acceptance_length(self) -> float | None:
        """Confirmed tokens per target pass; None before the first round."""
        return self.confirmed / self.rounds if self.rounds else None


@dataclass(slots=True)
class AcceptanceStats(AcceptanceCounts):
    """Counts over the rounds of one reply, in all and by drafter."""

    by_drafter: dict[str, "AcceptanceStats"] = field(default_factory=dict)

    def add(self, done: Round) -> None:
        """Count a round; the first token, which the prompt gives, is none."""
        if done.is_first:
            return
        for stats in (self, self.by_drafter.setdefault(counted_as(done), AcceptanceStats())):
            stats.rounds += 1
            stats.drafted += done.drafted
            stats.accepted += done.accepted
            stats.confirmed += len(done.confirmed)
            stats.branched += done.branched
            stats.caught += done.caught


def expected_confirmed(acceptance_rate: float, draft_length: int) -> float:
    """Return the mean of confirmed tokens a round when each token is accepted independently.

    Source: Leviathan, Kalman and Matias 2023, arXiv:2211.17192, equation 1.
    """
    if acceptance_rate == 1:
        return draft_length + 1.0
    return (1 - acceptance_rate ** (draft_length + 1)) / (1 - acceptance_rate)


def expected_speed_up(
    acceptance_rate: float, draft_length: int, cost_ratio: float, pass_costs: Mapping[int, float]
) -> float:
    """Return the predicted speed over plain decoding; below 1 drafting is a loss.

    Args:
        acceptance_rate: chance that a drafted token is accepted, 0 to 1.
        draft_length: tokens drafted each round.
        cost_ratio: cost of a draft step over that of a target step of width 1.
        pass_costs: cost of a target pass by width, in steps of width 1.

    Source: Leviathan et al. 2023, theorem 3.8, with the width's cost in place of 1.
    """
    gain = expected_confirmed(acceptance_rate, draft_length)
    return gain / (pass_costs[draft_length + 1] + draft_length * cost_ratio)
