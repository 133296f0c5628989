"""BatchProgress: how far a batch is, on stderr."""

import time
from collections.abc import Callable

from localspec.batch.batch import Tally
from localspec.cli.redrawn_line import RedrawnLine, columns
from localspec.display import cells_of, duration_text, notice

_TOLD_EVERY_S = 30.0
_DRAWN_EVERY_S = 0.1


class BatchProgress:
    """Says how many lines are done: on a terminal in one line, elsewhere now and then.

    Args:
        enabled: False says nothing at all.
        drawing: whether a line may be drawn over: not where answers go to the same terminal.
        share: tells how much of the input was read, 0 to 1; None where nobody knows.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        *,
        enabled: bool,
        drawing: bool,
        share: Callable[[], float | None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._enabled = enabled
        self._line = RedrawnLine(enabled=enabled and drawing)
        self._share = share
        self._clock = clock
        self._start = self._told = clock()
        self._share_before = 0.0

    def begin(self) -> None:
        """Take in that answering begins: what went before takes no part in any rate."""
        self._start = self._clock()
        self._share_before = self._share() or 0.0

    @property
    def elapsed_s(self) -> float:
        """Seconds since it began."""
        return self._clock() - self._start

    def tell(self, tally: Tally) -> None:
        """Take in that a line is done."""
        now = self._clock()
        every_s = _DRAWN_EVERY_S if self._line.drawn else _TOLD_EVERY_S
        if not self._enabled or now - self._told < every_s:
            return
        self._told = now
        parts = progress_parts(tally, self.elapsed_s, self._share(), self._share_before)
        if self._line.drawn:
            self._line.draw(fitting(parts, columns()))
        else:
            notice(", ".join(parts))

    def end(self) -> None:
        """Clear the line."""
        self._line.clear()


def summary(tally: Tally, elapsed_s: float) -> str:
    """Return what came of a batch."""
    parts = [f"{tally.answered} answered"]
    if tally.failed:
        parts.append(f"{tally.failed} failed")
    if tally.n_tokens:
        parts.append(f"{tally.n_tokens} tokens, {tally.n_tokens / elapsed_s:.1f} tokens/s")
    if tally.first_error:
        parts.append(f"the first that failed, {tally.first_error}")
    return " · ".join(parts)


def progress_parts(
    tally: Tally, elapsed_s: float, share: float | None, share_before: float
) -> list[str]:
    """Return what there is to say, the most important first.

    Args:
        tally: of the lines.
        elapsed_s: seconds since answering began.
        share: of the input that was read.
        share_before: likewise, when answering began.
    """
    parts = [f"{tally.answered} done"]
    if tally.failed:
        parts.append(f"{tally.failed} failed")
    if share is not None and share > share_before:
        left_s = elapsed_s * max(1 - share, 0.0) / (share - share_before)
        parts.append(f"{duration_text(left_s)} left")
    if elapsed_s > 0:
        parts.append(f"{tally.n_tokens / elapsed_s:.1f} tokens/s")
    return parts


def fitting(parts: list[str], columns: int) -> str:
    """Return as many of the parts as so many cells have room for."""
    while len(parts) > 1 and cells_of(", ".join(parts)) > columns:
        parts = parts[:-1]
    return ", ".join(parts)[: max(columns, 0)]
