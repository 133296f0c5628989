"""View: a report in tables and sentences, for a terminal and as a page that needs nothing else, and as JSON."""

import io
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from localspec.decoding.gain import LEAST_ANSWERS
from localspec.display import average_gain_text, counted, duration_text, sparkline
from localspec.errors import UsageError
from localspec.telemetry.reply import STAGES, ReplyRecord, Shift
from localspec.telemetry.report import Report, RoundSums

_NO_WIDTH = 400
_UNITS_S = {"h": 3600, "d": 86400, "w": 604800}
_FIGURES = (
    *("rounds", "drafted", "accepted", "confirmed", "acceptance_rate", "mean_acceptance_length"),
    *("seconds", "drafted_replies", "speed_up", "saved_s"),
)
Buckets = Sequence[Sequence[int]]
"""By bucket: tokens that were judged, and how many of them were accepted."""
_HEADERS = ("", "rounds", "tokens", "accepted", "per round", "speed-up", "95 %", "saved")
_PERIODS = {3600: "hour", 86400: "day", 604800: "week"}
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>What drafting did here</title><style>
:root {{ color-scheme: light dark; }} body {{ max-width: 75rem; margin: 2rem auto; padding: 0 1rem; }}
pre {{ font: 14px/1.4 monospace; overflow-x: auto; }} {stylesheet}
</style></head><body><h1>What drafting did here</h1><pre>{code}</pre></body></html>
"""


def html_page(report: Report, now_s: float) -> str:
    """Return the page: no script, no font, no address of anywhere."""
    console = _console(record=True, file=io.StringIO(), width=130)
    console.print(Group(*view(report, wide=True)))
    console.print(f"\nMade by localspec on {minute(now_s)}: counts and times of this machine.")
    return console.export_html(code_format=_PAGE)


def terminal_view(report: Report, *, every: bool = True) -> str:
    """Return it for stdout: with colours where that is a terminal, as wide as that is, or as its lines are.

    Args:
        report: what is said.
        every: whether all of it is, or only what matters most.
    """
    console = _console()
    if not console.is_terminal:
        console.width = _NO_WIDTH
    with console.capture() as captured:
        console.print(Group(*view(report, every=every, bars=console.encoding == "utf-8")))
    return "".join(f"{line.rstrip()}\n" for line in captured.get().splitlines())


def _console(**options: Any) -> Console:
    """Return a console that takes texts as they are."""
    return Console(markup=False, highlight=False, emoji=False, **options)


def view(
    report: Report, *, every: bool = True, wide: bool = False, bars: bool = True
) -> Iterator[RenderableType]:
    """Yield what a report says, part by part.

    Args:
        report: what is said.
        every: whether all of it is, or only what was saved, by which pair, and what changed lately.
        wide: whether there is room for bars, and for every period.
        bars: whether the stream has characters for sparklines.
    """
    by = report.by
    if report.total.rounds == 0:
        since = "" if report.since_s is None else f" since {day(report.since_s)}"
        yield f"nothing was recorded{since}"
        return
    yield _head(report)
    yield from _trained(report)
    yield from _section("by pair", by["pair"], wide)
    if every:
        yield from _section("by kind of text", by["workload"], wide)
        yield from _section("by drafter (off: rounds without a draft)", by["drafter"], wide)
        depths = {f"from {at}": its for at, its in by["depth"].items()}
        yield from _section("by depth of the context", depths, wide)
        tallies = report.tallies
        title = "acceptance by position in the draft, of the tokens that were checked"
        yield from _rates(title, tallies["position"], lambda at: str(at + 1), wide)
        title = "acceptance by the drafter's confidence, from this value on"
        yield from _rates(title, tallies["confidence"], lambda at: f"{10 * at}%", wide)
        title = "corrections by their rank among the drafter's choices"
        ranks = {name: _shares(pairs) for name, pairs in tallies["rank"].items()}
        yield from _rates(title, ranks, lambda at: str(at or "farther"), wide)
        title = "acceptance of second choices that were checked beside the draft, by position"
        yield from _rates(title, tallies["branch"], lambda at: str(at + 1), wide)
        yield from _stages(report.total, wide)
        if bars:
            yield from _trend(report)
        if wide and len(by["time"]) > 1:
            yield from _section(
                "by time", {minute(at): its for at, its in by["time"].items()}, wide
            )
    yield from _changes(report, 10 if every else 1)
    yield from _findings(report)
    if not every:
        yield "\n--all shows this by kind of text, drafter, depth and position, and where the time went"


def replies_view(replies: Iterable[ReplyRecord]) -> Iterator[str]:
    """Yield replies as lines, with the numbers that `--retag` takes."""
    for reply in replies:
        _, drafted, accepted, *_ = reply.sums
        yield (
            f"{reply.id:6} {minute(reply.at)} {reply.workload:10} ({'you' if reply.by_user else 'guess'}) "
            f"{reply.tokens:5} tokens {accepted}/{drafted} accepted {reply.wall_s:.1f} s  {reply.pair.name}"
        )


def _head(report: Report) -> str:
    total = report.total
    replies = "1 reply" if report.replies == 1 else f"{report.replies} replies"
    return (
        f"{replies}, {counted(total.confirmed, 'token')} in {counted(total.rounds, 'round')} since {day(report.first_s or 0)}: "
        f"{_saving(total)}{'' if total.drafted else _why_idle(report)}"
    )


def _why_idle(report: Report) -> str:
    whys = report.no_drafting.most_common()
    counts = (f"{why.removeprefix('no drafting: ')} ({count})" for why, count in whys)
    return f": {', '.join(counts)}" if whys else ""


def _trained(report: Report) -> Iterator[RenderableType]:
    if report.trained:
        yield _title("heads that were trained here")
    for name, (how, its) in report.trained.items():
        heads = its.by_heads
        yield f"  {name}: {how}"
        yield f"    since {day(its.first_s or its.since_s or 0)}: " + (
            f"{heads.mean_acceptance_length:.2f} tokens a round in {counted(heads.rounds, 'round')}; {_saving(heads)}"
            if heads.rounds
            else "they drafted nothing"
        )


def _saving(total: RoundSums) -> str:
    if total.drafted == 0:
        return "nothing was drafted"
    text = average_gain_text(total.drafted_replies, LEAST_ANSWERS, total.speed_up, total.interval)
    counts = (
        f"{total.accepted} of {counted(total.drafted, 'drafted token')} accepted in all answers"
    )
    saved_s = total.saved_s or 0.0
    plain_s = sum(each.plain_s for each in total.gains.values())
    if total.gain is None or not total.gain.is_clear:
        return f"{text} ({counts})"
    verb, of = ("saved", "of") if saved_s >= 0 else ("added", "to")
    plain = f"the {duration_text(plain_s, 1)} that they take without it"
    return f"{text}: it {verb} {duration_text(abs(saved_s), 1)} {of} {plain} ({counts})"


def _findings(report: Report) -> Iterator[RenderableType]:
    if report.findings:
        rows = [(*key, str(count)) for key, count in sorted(report.findings.items())]
        yield from _table("what gates found in answers", ("", "done", "times"), rows)


def _changes(report: Report, most: int) -> Iterator[RenderableType]:
    if report.shifts:
        yield _title("what changed")
        yield from (f"  {shift_line(shift)}" for shift in report.shifts[:most])


def shift_line(shift: Shift) -> str:
    """Return what changed, as a sentence."""
    verb = "fell" if shift.after < shift.before else "rose"
    return (
        f"since {minute(shift.since_s)}: acceptance of {shift.drafter} on {shift.workload} {verb} "
        f"from {shift.before:.0%} to {shift.after:.0%} ({shift.pair})"
    )


def _section(title: str, rows: Mapping[str, RoundSums], wide: bool) -> Iterator[RenderableType]:
    cells = []
    for name, its in rows.items():
        # Rounds without a draft take their time, which saves none.
        saved = duration_text(its.saved_s or 0.0, 1) if its.gain and its.drafted else ""
        figures = _formed("{:.2f}", its.mean_acceptance_length, its.speed_up)
        interval = "" if its.interval is None else "{:.2f}-{:.2f}".format(*its.interval)
        rate, bar = _formed("{:.0%}", its.acceptance_rate), _bar(its.acceptance_rate or 0.0, wide)
        cells.append(
            (name, str(its.rounds), str(its.confirmed), *rate, *figures, interval, saved, bar)
        )
    yield from _table(title, (*_HEADERS, ""), cells)


def _rates(
    title: str, by_drafter: Mapping[str, Buckets], label: Callable[[int], str], wide: bool
) -> Iterator[RenderableType]:
    """Yield by drafter which share of the tokens of a bucket was accepted; of ranks, which share of them it is."""
    known = {at for pairs in by_drafter.values() for at, (tried, _) in enumerate(pairs) if tried}
    buckets = sorted(known)[: 16 if wide else 12]
    rows = []
    for drafter, pairs in by_drafter.items():
        its = [pairs[at] if at < len(pairs) and pairs[at][0] else (0, 0) for at in buckets]
        rates = [hits / tried if tried else None for tried, hits in its]
        rows.append((drafter, *_formed("{:.0%}", *rates)))
        if wide:
            rows.append(("of", *(str(tried) for tried, _ in its)))
            rows.append(("", *sparkline(rates, 0.0, 1.0)))
    if buckets:
        yield from _table(title, ("", *map(label, buckets)), rows)


def _shares(ranks: Buckets) -> Buckets:
    """Return how many corrections there were for each rank that occurred, and how many were of it; 0 is farther."""
    whole = sum(count for count, _ in ranks)
    return [[whole if count else 0, count] for count, _ in ranks]


def _table(
    title: str, headers: Sequence[str], rows: Iterable[Sequence[str]]
) -> Iterator[RenderableType]:
    table = Table(box=None, padding=(0, 1), header_style="dim")
    for header in headers:
        table.add_column(header, justify="right" if header else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    yield from (_title(title), table)


def _title(title: str) -> Text:
    return Text(f"\n{title}", style="bold")


def _formed(form: str, *values: float | None) -> list[str]:
    return ["" if value is None else form.format(value) for value in values]


def _bar(share: float, wide: bool) -> str:
    return "█" * round(24 * share) if wide else ""


def _stages(total: RoundSums, wide: bool) -> Iterator[RenderableType]:
    if total.seconds:
        shares = [total.stages_s[stage] / total.seconds for stage in STAGES]
        rows = [[f"{share:.1%}" for share in shares], [_bar(share, wide) for share in shares]]
        title = f"where the time of all answers went, {duration_text(total.seconds, 1)}"
        yield from _table(title, [stage.replace("_", " ") for stage in STAGES], rows[: 1 + wide])


def _trend(report: Report) -> Iterator[RenderableType]:
    points = report.by["time"]
    if len(points) < 2 or report.total.drafted == 0:
        return
    yield _title(
        f"trend, a bar for each {_PERIODS.get(report.step_s, 'period')} with rounds, from {minute(min(points))} on"
    )
    for name, figure in (("acceptance", "acceptance_rate"), ("speed-up  ", "speed_up")):
        values = [getattr(its, figure) for its in points.values()]
        if known := [value for value in values if value is not None]:
            low, high = min(known), max(known)
            yield f"  {name} {sparkline(values, low, high)}  {low:.2f} to {high:.2f}"


def as_json(report: Report) -> str:
    """Return one JSON object, on one line. Durations are in seconds, moments in seconds since 1970."""
    rows = {
        group: {str(name): _row(its) for name, its in by.items()} for group, by in report.by.items()
    }
    for name, row in rows["drafter"].items():
        for kind in ("position", "confidence", "branch"):
            buckets = enumerate(report.tallies[kind].get(name, []))
            row[f"{kind}es" if kind == "branch" else f"{kind}s"] = [
                {"bucket": at, "judged": its[0], "accepted": its[1]}
                for at, its in buckets
                if its[0]
            ]
        ranks = enumerate(report.tallies["rank"].get(name, []))
        row["correction_ranks"] = {str(at or "farther"): its[0] for at, its in ranks if its[0]}
    return json.dumps(
        {
            "since": report.since_s,
            "first": report.first_s,
            "replies": report.replies,
            "total": _row(report.total),
            **{f"{group}s": rows[group] for group in ("pair", "workload", "drafter", "depth")},
            "trend": [{"start": at, **_row(its)} for at, its in report.by["time"].items()],
            "trend_step_s": report.step_s,
            "trained": [
                {"name": name, "how": how, "since": its.first_s, **_row(its.by_heads)}
                for name, (how, its) in report.trained.items()
            ],
            "no_drafting": dict(report.no_drafting),
            "changes": [_change(each) for each in report.shifts],
            "found": [
                {"rule": rule, "action": action, "count": count}
                for (rule, action), count in sorted(report.findings.items())
            ],
        }
    )


def _row(its: RoundSums) -> dict[str, Any]:
    stages_s = {stage: round(seconds, 6) for stage, seconds in its.stages_s.items()}
    figures = {name: _rounded(getattr(its, name)) for name in _FIGURES}
    low, high = map(_rounded, its.interval or (None, None))
    return {**figures, "speed_up_low": low, "speed_up_high": high, "stages_s": stages_s}


def _change(shift: Shift) -> dict[str, Any]:
    values = msgspec.structs.asdict(shift)
    moments = {"since": values.pop("since_s"), "found": values.pop("at")}
    return {**values, **moments, **{each: _rounded(values[each]) for each in ("before", "after")}}


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)


def day(at_s: float) -> str:
    """Return the day of a moment, in seconds since 1970, where the user is; `?` where there is none."""
    return minute(at_s).partition(" ")[0]


def minute(at_s: float) -> str:
    """Return day and minute of a moment; see `day`."""
    try:
        return time.strftime("%Y-%m-%d %H:%M", time.localtime(at_s))
    except (OverflowError, ValueError, OSError):
        return "?"


def since(text: str, now_s: float | None = None) -> float:
    """Return the moment that `2026-11-20`, `2026-11-20T08:00`, `12h`, `7d` or `4w` means, in seconds since 1970.

    Raises:
        UsageError: it means none.
    """
    now_s = time.time() if now_s is None else now_s
    if match := re.fullmatch(r"(\d{1,6})([hdw])", text.strip()):
        return now_s - int(match[1]) * _UNITS_S[match[2]]
    try:
        # A date is one of where the user is.
        return datetime.fromisoformat(text.strip()).timestamp()
    except (ValueError, OverflowError, OSError):
        raise UsageError(
            f"{text[:40]!r} is not a time: write a date like 2026-11-20, or 12h, 7d, 4w"
        ) from None
