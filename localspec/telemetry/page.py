"""A report as one HTML page that needs nothing else: no script, no font, no address of anywhere."""

from collections.abc import Iterator, Mapping
from html import escape

from localspec.telemetry.figures import Figures, Report, Tally
from localspec.telemetry.moments import day, minute
from localspec.telemetry.plots import bars, line, stacked
from localspec.telemetry.rows import STAGES
from localspec.telemetry.sentences import (
    said_of_comparison,
    said_of_plain,
    said_of_saving,
    said_of_shift,
    share,
)

_STYLE = """
:root { color-scheme: light dark; --ink: #1d2733; --back: #fbfbf9; --soft: #8a94a3; --bar: #3b7dd8; }
@media (prefers-color-scheme: dark) { :root { --ink: #dfe5ec; --back: #15191e; --soft: #7d8794; --bar: #5b9bf0; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--back); max-width: 720px;
  margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.05rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .2rem .5rem; border-bottom: 1px solid #8883; font-weight: normal; }
th:first-child, td:first-child { text-align: left; } th { color: var(--soft); }
svg { width: 100%; height: auto; display: block; margin: .5rem 0; font-size: 12px; }
svg text { fill: var(--ink); } .bar { fill: var(--bar); } .axis { stroke: #8885; }
.line { fill: none; stroke: var(--bar); stroke-width: 2; } .dot { fill: var(--bar); } .note { color: var(--soft); }
.part0 { fill: #8d6ab8; } .part1 { fill: #3b7dd8; } .part2 { fill: #2f9e77; }
.part3 { fill: #d9a13b; } .part4 { fill: #c4574b; } .part5 { fill: #8a94a3; }
"""
_HEADERS = ("rounds", "tokens", "accepted", "per pass", "speed-up", "saved, s")


def html_page(report: Report, now_s: float) -> str:
    """Return the page."""
    body = "".join(_body(report))
    made = minute(now_s)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>What drafting did here</title><style>{_STYLE}</style></head><body>"
        f'<h1>What drafting did here</h1>{body}<p class="note">Made by localspec on {made}. '
        "Counts and times of this machine; no text.</p></body></html>\n"
    )


def _body(report: Report) -> Iterator[str]:
    total = report.total
    if total.rounds == 0:
        yield "<p>Nothing was recorded.</p>"
        return
    replies = "reply" if report.replies == 1 else "replies"
    yield f"<p>{report.replies} {replies}, {total.confirmed} tokens in {total.rounds} rounds: "
    yield f"{escape(said_of_saving(total))}.</p>"
    if (compared := said_of_comparison(total)) is not None:
        yield f'<p class="note">{escape(compared[0].upper() + compared[1:])}.</p>'
    for shift in report.shifts[:10]:
        yield f"<p><strong>Changed</strong> {escape(said_of_shift(shift))}.</p>"
    yield from _trend(report)
    yield from _section("By kind of text", report.by_workload)
    yield from _section("By pair", report.by_pair)
    for name, cost in report.plain.items():
        if name in report.by_pair:
            yield f'<p class="note">A plain token of {escape(name)}: {escape(said_of_plain(cost))}.</p>'
    yield from _section("By drafter", report.by_drafter)
    for drafter, tallies in report.positions.items():
        places = {f"token {at + 1}": tally for at, tally in sorted(tallies.items())[:16]}
        yield from _rates(f"Accepted by place in a draft of {drafter}", places)
    for drafter, tallies in report.confidences.items():
        tenths = {
            f"{at / 10:.0%} to {(at + 1) / 10:.0%} sure": its for at, its in sorted(tallies.items())
        }
        yield from _rates(f"Accepted by how sure {drafter} was", tenths)
    for drafter, ranks in report.ranks.items():
        yield from _ranks(drafter, ranks)
    yield from _section(
        "By depth of the context", {f"from {at} tokens": its for at, its in report.by_depth.items()}
    )
    yield "<h2>Where the time went</h2>"
    yield stacked([(stage.replace("_", " "), total.stages_s[stage]) for stage in STAGES])


def _trend(report: Report) -> Iterator[str]:
    if len(report.trend) < 2:
        return
    first, last = (day(report.trend[at].start_s) for at in (0, -1))
    figures = [point.figures for point in report.trend]
    if any(its.drafted for its in figures):
        yield "<h2>Acceptance over time</h2>"
        yield line([its.acceptance_rate for its in figures], (first, last))
    if any(its.speed_up is not None for its in figures):
        yield "<h2>Speed-up over time</h2>"
        yield line([its.speed_up for its in figures], (first, last), "{:.2f}")


def _section(title: str, rows: Mapping[str, Figures]) -> Iterator[str]:
    yield f"<h2>{escape(title)}</h2>"
    drafted = [(name, its.acceptance_rate or 0.0, share(its.acceptance_rate)) for name, its in rows.items() if its.drafted]  # fmt: skip
    yield bars(drafted, 1.0)
    yield f"<table><tr><th></th>{''.join(f'<th>{header}</th>' for header in _HEADERS)}</tr>"
    for name, its in rows.items():
        cells = "".join(f"<td>{escape(cell)}</td>" for cell in _cells(its))
        yield f"<tr><td>{escape(name)}</td>{cells}</tr>"
    yield "</table>"


def _cells(its: Figures) -> tuple[str, ...]:
    numbers = (its.mean_acceptance_length, its.speed_up, its.saved_s)
    length, speed_up, saved_s = (
        "" if number is None else f"{number:.{places}f}"
        for number, places in zip(numbers, (2, 2, 1), strict=True)
    )
    return (
        str(its.rounds),
        str(its.confirmed),
        share(its.acceptance_rate),
        length,
        speed_up,
        saved_s,
    )


def _rates(title: str, tallies: Mapping[str, Tally]) -> Iterator[str]:
    yield f"<h2>{escape(title)}</h2>"
    rows = [(name, its.rate, f"{its.rate:.0%} of {its.tried}") for name, its in tallies.items()]
    yield bars(rows, 1.0)


def _ranks(drafter: str, ranks: Mapping[int, int]) -> Iterator[str]:
    whole = sum(ranks.values())
    yield f"<h2>Where corrections stood among the choices of {escape(drafter)}</h2>"
    near = [(f"choice {rank}", ranks[rank] / whole) for rank in sorted(ranks) if 0 < rank <= 10]
    near.append(
        ("farther", sum(count for rank, count in ranks.items() if rank == 0 or rank > 10) / whole)
    )
    yield bars([(name, part, f"{part:.0%}") for name, part in near], 1.0)
