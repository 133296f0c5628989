"""Progress on stderr: one line that is drawn over on a terminal, silence elsewhere."""

import os
import sys
import time
from types import TracebackType
from typing import Self

from localspec.models.paths import shown
from localspec.models.progress import Progress

_REDRAW_S = 0.1


class ProgressLine:
    """Shows downloads and loading. Leaves nothing behind on the terminal.

    Args:
        enabled: False shows nothing at all.
    """

    def __init__(self, *, enabled: bool) -> None:
        self._drawing = enabled and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._speaking = enabled
        self._last_s = 0.0
        self._announced: set[tuple[str, str]] = set()
        self._source_start_s = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._draw("")

    def download(self, progress: Progress) -> None:
        """Show how far a download is; elsewhere than on a terminal, only that it began."""
        key = (progress.name, progress.source)
        now = time.monotonic()
        if key not in self._announced:
            self._announced.add(key)
            self._source_start_s = now
            if self._speaking and not self._drawing:
                size = f"{progress.total_bytes / 1e6:.0f} MB"
                what = f"fetching {progress.name} ({size}) from {progress.source}"
                print(f"localspec: {what}", file=sys.stderr)
        if not self._due(now):
            return
        elapsed = now - self._source_start_s
        rate = progress.done_bytes / elapsed if elapsed > 0 else 0.0
        left = (progress.total_bytes - progress.done_bytes) / rate if rate else 0.0
        self._draw(
            f"fetching {progress.name}  {progress.done_bytes / 1e6:.0f} of "
            f"{progress.total_bytes / 1e6:.0f} MB  {rate / 1e6:.1f} MB/s  {left:.0f} s left"
        )

    def load(self, name: str, share: float) -> None:
        """Show how much of a model is loaded."""
        if self._due(time.monotonic()):
            self._draw(f"loading {shown(name)[-40:]}  {share:.0%}")

    def _due(self, now: float) -> bool:
        if not self._drawing or now - self._last_s < _REDRAW_S:
            return False
        self._last_s = now
        return True

    def _draw(self, text: str) -> None:
        if self._drawing:
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
