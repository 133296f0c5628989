"""BenchProgress: how far a measurement is, on stderr."""

import time
from pathlib import Path

from localspec.bench.trial import Trial
from localspec.cli.redrawn_line import RedrawnLine
from localspec.display import duration_text, notice
from localspec.storage.files import size_text
from localspec.storage.paths import shown

_TOLD_EVERY_S = 30.0


class BenchProgress:
    """Says which run is done: on a terminal in one line, elsewhere now and then.

    Args:
        enabled: False says nothing at all.
    """

    def __init__(self, *, enabled: bool) -> None:
        self._enabled = enabled
        self._line = RedrawnLine(enabled=enabled)
        self._start = time.monotonic()
        self._told = -_TOLD_EVERY_S

    def tell(self, done: int, planned: int, trial: Trial) -> None:
        """Take in that a run is done."""
        if done == 1:
            self._start = time.monotonic() - trial.wall_s
        now = time.monotonic()
        if not self._enabled or (not self._line.drawn and now - self._told < _TOLD_EVERY_S):
            return
        self._told = now
        left_s = (now - self._start) / done * (planned - done)
        speed = trial.n_tokens / trial.wall_s
        text = f"run {done} of {planned}, {trial.slot.mode} {speed:.1f} tokens/s, {duration_text(left_s)} left"
        if self._line.drawn:
            self._line.draw(text)
        else:
            notice(text)

    def made(self, path: Path) -> None:
        """Say where a file that was made lies: it may be large, and nothing removes it."""
        if self._enabled:
            size = size_text(path.stat().st_size)
            notice(f"{shown(path)} ({size}) is kept for later runs")

    def end(self) -> None:
        """Clear the line."""
        self._line.clear()
