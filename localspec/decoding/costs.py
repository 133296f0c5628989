"""PassCosts: what one pass of a model takes, by its width."""

from bisect import bisect_left
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PassCosts:
    """Seconds of one pass by its width in tokens, as measured: no order among them is assumed.

    Args:
        widths: measured widths, ascending, from 1.
        seconds: what a pass of each took, as many as `widths`.
    """

    widths: tuple[int, ...]
    seconds: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.widths) != len(self.seconds) or not self.widths or self.widths[0] != 1:
            raise ValueError(f"{len(self.seconds)} costs for the widths {self.widths}: from 1 on")
        if list(self.widths) != sorted(set(self.widths)) or min(self.seconds) <= 0:
            raise ValueError("widths ascend, and every pass takes time")

    def of(self, width: int) -> float:
        """Return the seconds of a pass; between two measured widths, on the line that joins them.

        Beyond the widest, each token costs what it costs there on average.
        """
        at = bisect_left(self.widths, width)
        if at == len(self.widths):
            return self.seconds[-1] * width / self.widths[-1]
        if self.widths[at] == width:
            return self.seconds[at]
        narrow, wide = self.widths[at - 1], self.widths[at]
        share = (width - narrow) / (wide - narrow)
        return self.seconds[at - 1] * (1 - share) + self.seconds[at] * share
