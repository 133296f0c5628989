"""PassCosts: what one pass of a model takes, by its width. RunningCosts: as of now."""

from bisect import bisect_left
from dataclasses import dataclass

_MEMORY = 12
_OUTLIER = 1.5
_FORGETS = 100
"""Plain passes in a row after which what only wide passes showed counts half."""


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


@dataclass(frozen=True, slots=True)
class PairCosts:
    """What passes of a pair of models take on this machine.

    Args:
        target: passes of the target, with the logits of every token, as verification asks for them.
        draft_model: passes of the draft model, with the logits of the last token; None without one.
        sure: whether both were measured while the machine was quiet.
    """

    target: PassCosts
    draft_model: PassCosts | None = None
    sure: bool = True


class RunningCosts:
    """What a pass takes now: depth, heat and neighbours change it, mostly by a common factor.

    A pass of one token waits for memory, a wide one for arithmetic: what slows one down need not
    slow the other, so that wide passes have a factor of their own beside the common one.

    Args:
        table: measured at first, at a shallow depth.
    """

    def __init__(self, table: PassCosts) -> None:
        self.table = table
        self._factor = 1.0
        self._passes = 0
        self._wide, self._wide_passes, self._plain_passes = 1.0, 0, 0
        self._of_width: dict[int, float] = {}
        # Of the first widths the table's seconds, with what only that width showed.
        self._narrow: list[float] = []

    def of(self, width: int) -> float:
        """Return the seconds of a pass of this width, as of now."""
        known = width <= len(self._narrow)
        alone = self._narrow[width - 1] if known else self._alone(width)
        return alone * (self._factor * self._wide if width > 1 else self._factor)

    def upto(self, width: int, beside: int = 0, token_s: float = 0.0) -> list[float]:
        """Return the seconds of passes of 1 to `width` tokens, as of now.

        Args:
            width: of the widest.
            beside: tokens that each pass has beside them.
            token_s: seconds that each of them takes besides.
        """
        narrow, factor, widest = self._narrow, self._factor * self._wide, beside + width
        if widest > len(narrow):
            narrow += map(self._alone, range(len(narrow) + 1, widest + 1))
        found = [
            seconds * factor + token_s * own
            for own, seconds in enumerate(narrow[beside:widest], start=1)
        ]
        if not beside:
            found[0] = narrow[0] * self._factor + token_s
        return found

    def _alone(self, width: int) -> float:
        return self.table.of(width) * self._of_width.get(width, 1.0)

    def add(self, width: int, seconds: float) -> None:
        """Take in what a pass took; one that was disturbed counts no more than half as long again."""
        if seconds <= 0:
            return
        now = self.of(width)
        ratio = min(max(seconds / now, 1 / _OUTLIER), _OUTLIER)
        # The first passes say more: a table may have been measured on another day.
        self._passes += 1
        self._factor *= ratio ** (1 / min(1 + self._passes, _MEMORY))
        if width == 1:
            self._plain_passes += 1
            if self._plain_passes % _FORGETS == 0:
                self._forget()
            return
        self._plain_passes = 0
        self._wide_passes += 1
        self._wide *= ratio ** (1 / min(1 + self._wide_passes, _MEMORY))
        self._wide = min(max(self._wide, 0.5), 2.0)
        # What only one width shows stays with it, and more slowly.
        own = self._of_width.get(width, 1.0) * ratio ** (1 / (4 * _MEMORY))
        self._of_width[width] = min(max(own, 0.5), 2.0)
        if width <= len(self._narrow):
            self._narrow[width - 1] = self._alone(width)

    def _forget(self) -> None:
        """Halve what only wide passes showed: while none is made, nothing would correct it."""
        self._wide **= 0.5
        self._of_width = {width: own**0.5 for width, own in self._of_width.items()}
        self._narrow.clear()
