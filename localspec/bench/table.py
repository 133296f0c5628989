"""A result as text for people."""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from localspec.bench.intervals import Estimate
from localspec.bench.result import Result
from localspec.bench.summary import STAGES, Cell, Figures
from localspec.storage.files import size_text

_GAP = "  "
_INDENT = "    "


def grid(headers: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """Return lines: headers, then a line for each row; the first column is flush left.

    Where a line would be wider than `width`, the columns that do not fit follow on lines of their
    own, indented under the first column.
    """
    sizes = [max(len(row[at]) for row in [headers, *rows]) for at in range(len(headers))]
    parts = _parts(sizes, width)
    lines = []
    for row in [headers, *rows]:
        for number, part in enumerate(parts):
            cells = [
                row[at].ljust(sizes[at]) if at == 0 else row[at].rjust(sizes[at]) for at in part
            ]
            if any(cell.strip() for cell in cells):
                lines.append(((_INDENT if number else "") + _GAP.join(cells)).rstrip())
    return lines


def _parts(sizes: Sequence[int], width: int) -> list[list[int]]:
    parts: list[list[int]] = [[]]
    used = 0
    for at, size in enumerate(sizes):
        if parts[-1] and used + len(_GAP) + size > width:
            parts.append([])
            used = len(_INDENT) - len(_GAP)
        used += size + (len(_GAP) if parts[-1] or len(parts) > 1 else 0)
        parts[-1].append(at)
    return parts


_RATIO = ("ratio", "95 %")
_SPEED = (*_RATIO, "tokens/s", "first", "acc.", "len.", "same")
_LEAST_WIDTH = 20


def table(result: Result, width: int = 80) -> str:
    """Return what was found, in lines of at most `width` characters where words allow it."""
    width = max(width, _LEAST_WIDTH)
    return "\n".join(_lines(result, width))


def _lines(result: Result, width: int) -> Iterator[str]:
    for name, value in result.setting.items():
        if value not in (None, "", [], {}):
            yield from _wrapped(f"{name}: {_said(value)}", width)
    if result.n_runs < result.n_planned:
        yield from _wrapped(
            f"interrupted: {result.n_runs} of {result.n_planned} runs were made", width
        )
    for temperature in dict.fromkeys(cell.temperature for cell in result.figures):
        yield from _speeds(result, temperature, width)
        yield from _stages(result, temperature, width)
        yield from _predictions(result, temperature, width)
        yield from _duels(result, temperature, width)
    yield ""
    yield from _wrapped(
        "ratio: speed relative to the neighbouring run of off, from the request to the last token, "
        "prefill included, at equal lengths; above 1 is faster; with its 95 % interval. first: "
        "seconds to the first token. acc.: accepted of all drafted tokens. len.: confirmed tokens "
        "per target pass. same: texts that are those of off, and the median token at which the "
        "others left it.",
        width,
    )


def _speeds(result: Result, temperature: float, width: int) -> Iterator[str]:
    rows = []
    for workload, cells in _workloads(result.figures, temperature):
        rows.append([workload, *[""] * len(_SPEED)])
        rows += [[f"  {cell.mode}", *_speed(its)] for cell, its in cells]
    yield from _titled("speed", temperature, grid(("", *_SPEED), rows, width), width)


def _speed(figures: Figures) -> list[str]:
    same = ""
    if figures.same is not None:
        same = f"{figures.same}/{figures.same + len(figures.forks)}"
        if figures.forks:
            same += f"@{median(figures.forks):.0f}"
    return [
        *_estimate(figures.ratio),
        f"{figures.tokens_per_s:.1f}",
        f"{figures.first_token_s:.2f}",
        "" if figures.acceptance_rate is None else f"{figures.acceptance_rate:.0%}",
        "" if figures.mean_acceptance_length is None else f"{figures.mean_acceptance_length:.2f}",
        same,
    ]


def _stages(result: Result, temperature: float, width: int) -> Iterator[str]:
    headers = ["", *(stage.replace("_", " ") for stage in STAGES)]
    rows: list[list[str]] = []
    for workload, cells in _workloads(result.figures, temperature):
        own = [(cell, its.stages) for cell, its in cells if its.stages is not None]
        rows.append([workload, *[""] * len(STAGES)])
        rows += [
            [f"  {cell.mode}", *(f"{stages[stage]:.1%}" for stage in STAGES)]
            for cell, stages in own
        ]
    yield from _titled("where the time went", temperature, grid(headers, rows, width), width)


def _predictions(result: Result, temperature: float, width: int) -> Iterator[str]:
    rows, reasons = [], []
    for cell, its in result.predictions.items():
        if cell.temperature == temperature and its.textbook != 1:
            name = f"{cell.workload} {cell.mode}"
            numbers = (its.textbook, its.with_widths, its.measured)
            rows.append([name, *(f"{number:.3f}" for number in numbers)])
            if its.reason:
                reasons.append(f"{name}: {its.reason}")
    headers = ("", "textbook", "with widths", "measured")
    lines = grid(headers, rows, width)
    if reasons:
        lines += _wrapped(
            "where textbook and measurement differ by more than 10 %, mainly because:", width
        )
        lines += [line for reason in reasons for line in _wrapped(f"  {reason}", width)]
    if rows:
        yield from _titled("speed-up predicted and measured", temperature, lines, width)


def _duels(result: Result, temperature: float, width: int) -> Iterator[str]:
    duels = [duel for duel in result.duels if duel.cell.temperature == temperature]
    if not duels:
        return
    rows = [
        [f"{duel.cell.workload} {duel.cell.mode}", *_estimate(duel.ratio), duel.peer]
        for duel in duels
    ]
    lines = grid(("", *_RATIO, "against"), rows, width)
    yield from _titled("against the best of the peer's modes", temperature, lines, width)


def _workloads(
    figures: Mapping[Cell, Figures], temperature: float
) -> Iterator[tuple[str, list[tuple[Cell, Figures]]]]:
    cells = [(cell, its) for cell, its in figures.items() if cell.temperature == temperature]
    for workload in dict.fromkeys(cell.workload for cell, _ in cells):
        yield workload, [(cell, its) for cell, its in cells if cell.workload == workload]


def _titled(title: str, temperature: float, lines: Sequence[str], width: int) -> Iterator[str]:
    sampling = "greedy" if temperature == 0 else f"temperature {temperature:g}"
    yield ""
    yield from _wrapped(f"{title}, {sampling}", width)
    yield from lines


def _estimate(estimate: Estimate | None) -> list[str]:
    if estimate is None:
        return ["", ""]
    interval = estimate.interval
    return [
        f"{estimate.ratio:.3f}",
        "" if interval is None else f"{interval[0]:.3f}-{interval[1]:.3f}",
    ]


def _said(value: object) -> str:
    if isinstance(value, Mapping):
        said = {name: each for name, each in value.items() if each not in (None, "", [], False)}
        return ", ".join(
            size_text(each) if name == "bytes" else f"{name} {_said(each)}"
            for name, each in said.items()
        )
    if isinstance(value, list | tuple):
        return ", ".join(map(_said, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(
        text, width, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )
