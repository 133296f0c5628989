"""PlainCost: what a token costs without drafting, so that what drafting saved can be said.

Measured where enough rounds without a draft were recorded at that depth of context; elsewhere on the line that fits
them best; and where there were hardly any, the calibration's pass of width 1, which knows nothing of depth.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

_FEW_ROUNDS, LEAST_ROUNDS = 5, 20
"""Plain rounds at one depth before they count, and before they are believed: in all, or there as they are."""

Source = Literal["measured", "calibrated", "unknown"]


@dataclass(frozen=True, slots=True)
class PlainCost:
    """Seconds of a plain round by depth.

    Args:
        source: where it is known from.
        rounds: plain rounds that it rests on.
        base_s: at depth 0.
        slope_s: more, for every token of depth.
        at: as measured, by where a bucket of depths begins.
    """

    source: Source
    rounds: int
    base_s: float
    slope_s: float
    at: Mapping[int, float]

    def of(self, depth: int) -> float | None:
        """Return the seconds of a plain round in the bucket that begins at `depth`; None where nothing is known."""
        if self.source == "unknown":
            return None
        return self.at.get(depth) or self.base_s + self.slope_s * middle(depth)


UNKNOWN = PlainCost("unknown", 0, 0.0, 0.0, {})


def plain_cost(rounds: Mapping[int, tuple[int, float]], calibrated_s: float | None) -> PlainCost:
    """Return what plain rounds cost.

    Args:
        rounds: by where a bucket of depths begins: how many plain rounds, and their seconds.
        calibrated_s: a plain pass as it was calibrated; None where it was not.
    """
    rounds = {depth: its for depth, its in rounds.items() if its[0] >= _FEW_ROUNDS}
    if sum(count for count, _ in rounds.values()) < LEAST_ROUNDS:
        if calibrated_s is None:
            return UNKNOWN
        return PlainCost("calibrated", 0, calibrated_s, 0.0, {})
    weights = {middle(depth): count for depth, (count, _) in rounds.items()}
    means = {middle(depth): seconds / count for depth, (count, seconds) in rounds.items()}
    whole = sum(weights.values())
    x = sum(weights[at] * at for at in weights) / whole
    y = sum(weights[at] * means[at] for at in weights) / whole
    spread = sum(weights[at] * (at - x) ** 2 for at in weights)
    slope = 0.0
    if spread > 0:
        slope = max(0.0, sum(weights[at] * (at - x) * (means[at] - y) for at in weights) / spread)
    at = {
        depth: seconds / count
        for depth, (count, seconds) in rounds.items()
        if count >= LEAST_ROUNDS
    }
    return PlainCost("measured", whole, max(y - slope * x, 0.5 * y), slope, at)


def middle(depth: int) -> float:
    """Return the middle of the bucket of depths that begins there."""
    return 128.0 if depth == 0 else 1.5 * depth
