"""RunningCosts: a cost table, corrected by what passes really take."""

from localspec.decoding.costs import PassCosts

_MEMORY = 12
_OUTLIER = 1.5


class RunningCosts:
    """What a pass takes now: depth, heat and neighbours change it, mostly by a common factor.

    Args:
        table: measured at first, at a shallow depth.
    """

    def __init__(self, table: PassCosts) -> None:
        self.table = table
        self._factor = 1.0
        self._passes = 0
        self._of_width: dict[int, float] = {}

    def of(self, width: int) -> float:
        """Return the seconds of a pass of this width, as of now."""
        return self.table.of(width) * self._factor * self._of_width.get(width, 1.0)

    def add(self, width: int, seconds: float) -> None:
        """Take in what a pass took; one that was disturbed counts no more than half as long again."""
        if seconds <= 0:
            return
        now = self.of(width)
        ratio = min(max(seconds / now, 1 / _OUTLIER), _OUTLIER)
        # The first passes say more: a table may have been measured on another day.
        self._passes += 1
        self._factor *= ratio ** (1 / min(1 + self._passes, _MEMORY))
        # What only one width shows stays with it, and more slowly.
        own = self._of_width.get(width, 1.0) * ratio ** (1 / (4 * _MEMORY))
        self._of_width[width] = min(max(own, 0.5), 2.0)
