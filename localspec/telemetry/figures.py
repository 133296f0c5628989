"""Figures: what rounds add up to, and the report that is made of many such sums."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from localspec.telemetry.plain_cost import PlainCost
from localspec.telemetry.rows import STAGES


@dataclass(slots=True)
class Compared:
    """Rounds of hours in which the price of a plain token is known.

    Attributes:
        rounds: how many.
        drafted: tokens that were drafted in them.
        seconds: what they took.
        plain_s: what as many tokens would have taken without drafting.
    """

    rounds: int = 0
    drafted: int = 0
    seconds: float = 0.0
    plain_s: float = 0.0

    def add(self, other: "Compared") -> None:
        """Count others."""
        self.rounds += other.rounds
        self.drafted += other.drafted
        self.seconds += other.seconds
        self.plain_s += other.plain_s


@dataclass(slots=True)
class Figures:
    """Sums over rounds.

    Attributes:
        rounds: how many.
        drafted: tokens that were judged or lay behind one that was not accepted.
        accepted: how many of them came through.
        confirmed: tokens that came of the rounds.
        stages_s: seconds by stage.
        compared: what can be compared with rounds without a draft.
    """

    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    confirmed: int = 0
    stages_s: dict[str, float] = field(default_factory=lambda: dict.fromkeys(STAGES, 0.0))
    compared: Compared = field(default_factory=Compared)

    def add(self, counts: Sequence[int], compared: Compared) -> None:
        """Count a cell: rounds, drafted, accepted, confirmed and the stages' microseconds."""
        rounds, drafted, accepted, confirmed, *stages_us = counts
        self.rounds += rounds
        self.drafted += drafted
        self.accepted += accepted
        self.confirmed += confirmed
        for stage, took_us in zip(STAGES, stages_us, strict=True):
            self.stages_s[stage] += took_us / 1e6
        self.compared.add(compared)

    @property
    def seconds(self) -> float:
        """What the rounds took."""
        return sum(self.stages_s.values())

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted over drafted tokens; None when nothing was drafted."""
        return self.accepted / self.drafted if self.drafted else None

    @property
    def mean_acceptance_length(self) -> float | None:
        """Confirmed tokens per target pass; None without any."""
        return self.confirmed / self.rounds if self.rounds else None

    @property
    def speed_up(self) -> float | None:
        """How many times as fast as without drafting; None where nothing was drafted, or that is not known."""
        return self.compared.plain_s / self.compared.seconds if self._has_comparison else None

    @property
    def saved_s(self) -> float | None:
        """Seconds that drafting saved, below 0 where it cost some; None likewise."""
        return self.compared.plain_s - self.compared.seconds if self._has_comparison else None

    @property
    def _has_comparison(self) -> bool:
        return self.compared.drafted > 0 and self.compared.seconds > 0


@dataclass(frozen=True, slots=True)
class Tally:
    """So many tokens were judged, and so many of them accepted."""

    tried: int
    accepted: int

    @property
    def rate(self) -> float:
        """Share that was accepted."""
        return self.accepted / self.tried


@dataclass(frozen=True, slots=True)
class Point:
    """The figures of some hours, for a trend."""

    start_s: float
    figures: Figures


@dataclass(frozen=True, slots=True)
class Shift:
    """A drafter came to be accepted at another rate; see `drift.Change`."""

    pair: str
    workload: str
    drafter: str
    since_s: float
    found_s: float
    before: float
    after: float


@dataclass(frozen=True, slots=True, eq=False)
class Report:
    """What was recorded since some moment.

    Args:
        since_s: that moment, seconds since 1970; None for all there is.
        first_s: when the first reply of it began; None without any.
        replies: how many are listed still; sums live longer.
        total: everything.
        by_pair: likewise, by target and draft model.
        by_workload: by kind of text.
        by_drafter: by who drafted; `off` are plain rounds.
        by_depth: by depth of the context.
        positions: by drafter, for each place in a draft: tokens that were judged there.
        confidences: by drafter, for each tenth of the drafter's own confidence.
        ranks: by drafter: how many corrections were the draft's second choice, third, and so on; 0 is farther.
        trend: by time.
        step_s: seconds from one point of the trend to the next.
        shifts: changes of acceptance, the latest first.
        plain: by pair, what a plain token costs.
    """

    since_s: float | None
    first_s: float | None
    replies: int
    total: Figures
    by_pair: Mapping[str, Figures]
    by_workload: Mapping[str, Figures]
    by_drafter: Mapping[str, Figures]
    by_depth: Mapping[int, Figures]
    positions: Mapping[str, Mapping[int, Tally]]
    confidences: Mapping[str, Mapping[int, Tally]]
    ranks: Mapping[str, Mapping[int, int]]
    trend: Sequence[Point]
    step_s: float
    shifts: Sequence[Shift]
    plain: Mapping[str, PlainCost]
