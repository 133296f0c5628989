"""A report in lines, for a terminal."""

from collections.abc import Iterator, Mapping, Sequence

from localspec.telemetry.figures import Figures, Report
from localspec.telemetry.moments import day, minute
from localspec.telemetry.reading import ListedReply
from localspec.telemetry.rows import STAGES
from localspec.telemetry.sentences import (
    duration,
    said_of_comparison,
    said_of_plain,
    said_of_saving,
    said_of_shift,
    share,
)

_BARS = "▁▂▃▄▅▆▇█"
_HEADERS = ("", "rounds", "tokens", "accepted", "per pass", "speed-up", "saved")


def lines(report: Report, *, with_bars: bool = True) -> Iterator[str]:
    """Yield the report, a line at a time.

    Args:
        report: what is told.
        with_bars: whether the stream has the characters for sparklines.
    """
    if report.total.rounds == 0:
        yield "nothing was recorded" + (
            "" if report.since_s is None else f" since {day(report.since_s)}"
        )
        return
    yield from _head(report)
    yield from _table("by pair", report.by_pair)
    yield from _table("by kind of text", report.by_workload)
    yield from _table("by drafter (off: rounds without a draft)", report.by_drafter)
    yield from _table(
        "by depth of the context", {f"from {at}": its for at, its in report.by_depth.items()}
    )
    yield from _positions(report)
    yield from _stages(report.total)
    if with_bars:
        yield from _trend(report)
    yield from _shifts(report)


def told_replies(replies: Sequence[ListedReply]) -> Iterator[str]:
    """Yield replies, the last one first, with the numbers that `--retag` takes."""
    for reply in replies:
        by = "you" if reply.by_user else "guess"
        yield (
            f"{reply.id:6} {minute(reply.started_s)} {reply.workload:10} ({by}) {reply.tokens:5} tokens "
            f"{reply.accepted}/{reply.drafted} accepted {reply.wall_s:.1f} s  {reply.pair}"
        )


def _head(report: Report) -> Iterator[str]:
    total = report.total
    since = "" if report.first_s is None else f" since {day(report.first_s)}"
    yield (
        f"{report.replies} {'reply' if report.replies == 1 else 'replies'}, {total.confirmed} tokens in "
        f"{total.rounds} rounds{since}: "
        f"{said_of_saving(total)}"
    )
    for name, cost in report.plain.items():
        if name in report.by_pair:
            yield f"a plain token of {name}: {said_of_plain(cost)}"
    if (compared := said_of_comparison(total)) is not None:
        yield compared


def _table(title: str, rows: Mapping[str, Figures]) -> Iterator[str]:
    yield ""
    yield title
    cells = [_HEADERS, *((name, *_cells(its)) for name, its in rows.items())]
    widths = [max(len(row[column]) for row in cells) for column in range(len(_HEADERS))]
    for row in cells:
        first, *rest = (f"{cell:<{width}}" if at == 0 else f"{cell:>{width}}" for at, (cell, width) in enumerate(zip(row, widths, strict=True)))  # fmt: skip
        yield "  ".join((f"  {first}", *rest)).rstrip()


def _cells(its: Figures) -> tuple[str, ...]:
    length, speed_up, saved_s = its.mean_acceptance_length, its.speed_up, its.saved_s
    return (
        str(its.rounds),
        str(its.confirmed),
        share(its.acceptance_rate),
        "" if length is None else f"{length:.2f}",
        "" if speed_up is None else f"{speed_up:.2f}",
        "" if saved_s is None else duration(saved_s),
    )


def _positions(report: Report) -> Iterator[str]:
    if not report.positions:
        return
    yield ""
    yield "accepted by place in the draft, of those that were judged"
    width = max(map(len, report.positions))
    for drafter, tallies in report.positions.items():
        places = [f"{at + 1}: {tally.rate:.0%}" for at, tally in sorted(tallies.items())[:12]]
        yield f"  {drafter:<{width}}  {'  '.join(places)}"
    for drafter, ranks in report.ranks.items():
        whole = sum(ranks.values())
        second, third = ranks.get(2, 0) / whole, ranks.get(3, 0) / whole
        yield f"  {drafter:<{width}}  corrections: {second:.0%} were its second choice, {third:.0%} its third"


def _stages(total: Figures) -> Iterator[str]:
    if total.seconds == 0:
        return
    yield ""
    yield "where the time went"
    parts = [
        f"{stage.replace('_', ' ')} {total.stages_s[stage] / total.seconds:.1%}" for stage in STAGES
    ]
    yield f"  {'  '.join(parts)}  of {duration(total.seconds)}"


def _trend(report: Report) -> Iterator[str]:
    if len(report.trend) < 2 or report.total.drafted == 0:
        return
    figures = [point.figures for point in report.trend]
    step = {3600.0: "hour", 86400.0: "day", 604800.0: "week"}.get(report.step_s, "period")
    yield ""
    yield f"trend, a bar for each {step} with rounds, from {minute(report.trend[0].start_s)} on"
    yield f"  acceptance {sparkline([its.acceptance_rate for its in figures])}"
    if any(its.speed_up is not None for its in figures):
        yield f"  speed-up   {sparkline([its.speed_up for its in figures])}"


def _shifts(report: Report) -> Iterator[str]:
    if report.shifts:
        yield ""
        yield "what changed"
        for shift in report.shifts[:10]:
            yield f"  {said_of_shift(shift)}"


def sparkline(values: Sequence[float | None]) -> str:
    """Return a bar for each value, from the least to the greatest; a blank where there is none."""
    known = [value for value in values if value is not None]
    if not known:
        return ""
    low, high = min(known), max(known)
    span = high - low

    def bar(value: float | None) -> str:
        if value is None:
            return " "
        return _BARS[-1 if span == 0 else round((value - low) / span * (len(_BARS) - 1))]

    return f"{''.join(map(bar, values))}  {low:.2f} to {high:.2f}"
