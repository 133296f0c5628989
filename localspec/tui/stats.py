"""What drafting did, in words, bars and a gauge, and what it gained by the clock. Pure: rounds in, lines with meanings out; colours come later."""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from localspec.decoding.round import Round
from localspec.display import sparkline
from localspec.tui.exchange import Exchange

# How far away a plain round may be, in rounds, and how many of the nearest ones are compared with.
_REACH = 8
_NEIGHBOURS = 4
# With fewer, the interval would say nothing.
_LEAST_DRAFTED = 8
_LEAST_PLAIN = 6
# No draft costs so many times what another one does: a round that does waited for a core.
_WAITED = 3.0
_STANDARD_ERRORS = 2.0


@dataclass(frozen=True, slots=True)
class SpeedUp:
    """The speed of a reply over plain decoding; 1 is no gain.

    Args:
        estimate: the speed-up.
        low: lower end of its interval, of two standard errors.
        high: its upper end.
        round_cost: what a drafted round took, in plain rounds.
    """

    estimate: float
    low: float
    high: float
    round_cost: float


def measure(rounds: Sequence[Round]) -> SpeedUp | None:
    """Return what drafting gained in these rounds; None where too few can be compared to say so.

    Args:
        rounds: of one reply, in order.
    """
    drafted = [at for at, each in enumerate(rounds) if each.drafted]
    neighbours = {at: _plain_rounds_next_to(rounds, at) for at in drafted}
    compared = [at for at in drafted if len(neighbours[at]) > 1]
    plain = {each for at in compared for each in neighbours[at]}
    if len(compared) < max(_LEAST_DRAFTED, len(drafted) / 2) or len(plain) < _LEAST_PLAIN:
        return None
    costs = _without_waits([_cost(rounds, at, neighbours[at]) for at in compared])
    if len(costs) < _LEAST_DRAFTED:
        return None
    cost = statistics.fmean(costs)
    # Drafted rounds that share their neighbours share these neighbours' chance, too.
    error = statistics.stdev(costs) / math.sqrt(min(len(costs), len(plain)))
    confirmed = sum(len(each.confirmed) for each in rounds)
    others = len(rounds) - len(drafted)

    def speed_up(round_cost: float) -> float:
        return confirmed / (others + len(drafted) * round_cost)

    margin = _STANDARD_ERRORS * error
    return SpeedUp(speed_up(cost), speed_up(cost + margin), speed_up(max(cost - margin, 0.0)), cost)


def seconds(each: Round) -> float:
    """Return what a round took in all."""
    return each.spent.wall_s


def _plain_rounds_next_to(rounds: Sequence[Round], at: int) -> list[int]:
    near = range(max(at - _REACH, 0), min(at + _REACH + 1, len(rounds)))
    plain = [each for each in near if not rounds[each].drafted and seconds(rounds[each]) > 0]
    return sorted(plain, key=lambda each: abs(each - at))[:_NEIGHBOURS]


def _cost(rounds: Sequence[Round], at: int, neighbours: Sequence[int]) -> float:
    return seconds(rounds[at]) / statistics.median(seconds(rounds[each]) for each in neighbours)


def _without_waits(costs: Sequence[float]) -> list[float]:
    usual = statistics.median(costs)
    return [each for each in costs if usual / _WAITED <= each <= usual * _WAITED]


TIMES = "\u00d7"
_GAUGE_LEAST, _GAUGE_MOST = 0.5, 4.0
FULL, FREE = "█", "░"
_CONTEXT_CELLS = 8
_LABEL = 10
_STACKED_BELOW = 56
_MOST_BAR = 72
_SPEED, _STEPS, _TIME, _DRAFTS = "speed-up", "steps", "time", "drafts"
# Where the time of a step goes: marks, meanings, names.
_PARTS = (("█", "draft", "draft model"), ("▒", "verify", "large model"), ("░", "other", "other"))

Span = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Section:
    """One figure of the stats: its name, what is to be said of it, and a bar."""

    label: str
    words: Sequence[Sequence[Span]]
    bar: Sequence[Span] = ()


def ribbon(rounds: Sequence[Round], width: int) -> list[Span]:
    """Return the confirmed length of the last rounds, a bar each, by who drafted them; the highest is the longest."""
    last = rounds[-width:]
    most = max([2, *(len(each.confirmed) for each in last)])
    return [
        (sparkline([len(each.confirmed) for each in group], 1, most), name)
        for name, group in groupby(last, lambda each: each.draft.drafter)
    ]


def split(rounds: Iterable[Round]) -> tuple[float, float, float] | None:
    """Return the shares of draft, verify and other in the time of rounds."""
    every = list(rounds)
    parts = (
        sum(each.spent.drafting_s for each in every),
        sum(each.spent.verify_s for each in every),
        sum(each.spent.aside_s for each in every),
    )
    total = sum(parts)
    return None if total <= 0 else (parts[0] / total, parts[1] / total, parts[2] / total)


def split_bar(shares: tuple[float, float, float], width: int) -> list[Span]:
    """Return the three shares as one bar: `█` draft, `▒` verify, `░` other."""
    draft = round(shares[0] * width)
    verify = round((shares[0] + shares[1]) * width) - draft
    rest = width - draft - verify
    return [("█" * draft, "draft"), ("▒" * verify, "verify"), ("░" * rest, "other")]


def gauge(predicted: float | None, measured: float | None, width: int) -> list[Span]:
    """Return speed-ups on a scale from half to four times, doublings equally far: `│` break-even, `◇` predicted, `◆` measured.

    The scale is filled from break-even to what was measured.
    """
    line = ["─"] * width
    even = _place(1.0, width)
    meanings = ["dim"] * width
    if measured is not None:
        at = _place(measured, width)
        for each in range(min(even, at), max(even, at) + 1):
            line[each], meanings[each] = "━", "gain" if measured >= 1 else "loss"
    for value, mark in ((1.0, "│"), (predicted, "◇"), (measured, "◆")):
        if value is not None:
            line[_place(value, width)] = mark
    spans = [
        ("".join(mark for mark, _ in group), meaning)
        for meaning, group in groupby(zip(line, meanings, strict=True), lambda each: each[1])
    ]
    return [(f"{TIMES}½ ", "dim"), *spans, (f" {TIMES}4", "dim")]


def status(exchange: Exchange | None, n_ctx: int | None, context_tokens: int) -> list[str]:
    """Return what the status line tells, the longest form first; each shorter one gives up what is wanted least."""
    speed = None if exchange is None else exchange.tokens_per_s
    told = [] if speed is None else [f"{speed:.1f} tokens/s"]
    why = [] if exchange is None or not exchange.no_drafting else [exchange.no_drafting]
    if not n_ctx:
        return [" · ".join([*told, *why]), *told] if why else told
    share = context_tokens / n_ctx
    short = f"context {share:.0%}"
    sized = f"{short} of {n_ctx}"
    bars = [f"{sized} {filled(share, cells)}" for cells in (_CONTEXT_CELLS, _CONTEXT_CELLS // 2)]
    forms = [
        " · ".join([*told, *said, each])
        for said in ((why, []) if why else ([],))
        for each in (*bars, sized, short)
    ]
    return list(dict.fromkeys([*forms, short]))


def filled(share: float, width: int = _CONTEXT_CELLS) -> str:
    """Return how full something is: `█` full, `░` free; a cell is full only when all of it is."""
    full = min(int(share * width), width)
    return FULL * full + FREE * (width - full)


def stats(exchange: Exchange | None, width: int) -> list[list[Span]]:
    """Return the stats of an answer, streaming or done, in lines with meanings.

    Args:
        exchange: the answer; None before the first.
        width: cells that a line may have; where there are few, every figure gets a heading of its own.
    """
    rounds = [] if exchange is None else exchange.rounds
    if exchange is None or not rounds:
        return [[("Nothing measured yet: ask something first.", "dim")]]
    stacked = width < _STACKED_BELOW
    room = min(width if stacked else width - _LABEL, _MOST_BAR)
    measured = measure(rounds)
    lines: list[list[Span]] = []
    for section in _sections(exchange, measured, max(room, 8)):
        lines += _stacked(section) if stacked else _in_a_row(section)
    return lines + [[(each, "")] for each in _why(exchange, measured)]


def stats_lines(exchange: Exchange | None, width: int) -> list[str]:
    """Return the stats as plain lines."""
    return ["".join(text for text, _ in line) for line in stats(exchange, width)]


def _stacked(section: Section) -> list[list[Span]]:
    lines: list[list[Span]] = [[(section.label, "title")], *map(list, section.words)]
    if section.bar:
        lines.insert(1, list(section.bar))
    return [*lines, []]


def _in_a_row(section: Section) -> list[list[Span]]:
    line: list[Span] = [(f"{section.label:<{_LABEL}}", "title")]
    for at, words in enumerate(section.words):
        line += [(" · ", "dim")] if at else []
        line += words
    return [line, [(" " * _LABEL, ""), *section.bar]] if section.bar else [line]


def _sections(exchange: Exchange, measured: SpeedUp | None, room: int) -> list[Section]:
    rounds = exchange.rounds
    found = []
    predicted = None if exchange.forecast is None else exchange.forecast.predicted
    if predicted is not None or measured is not None:
        found.append(_speed(predicted, measured, room))
    mean = statistics.fmean(len(each.confirmed) for each in rounds)
    many = f"the last {room} of {len(rounds)}" if len(rounds) > room else f"all {len(rounds)}"
    words = [[(many, "")], [(f"{mean:.2f} tokens per step", "")]]
    found.append(Section(_STEPS, words, ribbon(rounds, room)))
    drafts = _drafts(rounds)
    if drafts:
        found.append(Section(_DRAFTS, drafts))
    shares = split(rounds)
    if shares is not None:
        words = [
            [(f"{mark} ", meaning), (f"{name} {share:.0%}", "")]
            for (mark, meaning, name), share in zip(_PARTS, shares, strict=True)
        ]
        found.append(Section(_TIME, words, split_bar(shares, room)))
    return found


def _speed(predicted: float | None, measured: SpeedUp | None, room: int) -> Section:
    words: list[list[Span]] = []
    if measured is not None:
        meaning = "good" if measured.low > 1 else "bad" if measured.high < 1 else "title"
        interval = f" ({measured.low:.2f} to {measured.high:.2f})"
        words.append(
            [("◆ ", meaning), (f"{TIMES}{measured.estimate:.2f}", meaning), (interval, "")]
        )
    if predicted is not None:
        words.append([(f"◇ {TIMES}{predicted:.2f} predicted", "")])
    words.append([("│ break-even", "dim")])
    ends = len(f"{TIMES}½  {TIMES}4")
    estimate = None if measured is None else measured.estimate
    return Section(_SPEED, words, gauge(predicted, estimate, max(room - ends, 3)))


def _drafts(rounds: Sequence[Round]) -> list[list[Span]]:
    words: list[list[Span]] = []
    for name in dict.fromkeys(each.draft.drafter for each in rounds if each.drafted):
        mine = [each for each in rounds if each.draft.drafter == name]
        drafted, accepted = sum(each.drafted for each in mine), sum(each.accepted for each in mine)
        told = f"{name}: {accepted} of {drafted} accepted ({accepted / drafted:.0%})"
        words.append([("■ ", name), (told, "")])
        if branches := sum(each.branched for each in mine):
            caught = sum(each.caught for each in mine)
            words.append([(f"  second choices: {caught} of {branches} accepted", "dim")])
    return words


def _why(exchange: Exchange, measured: SpeedUp | None) -> list[str]:
    """Return why drafting gained what it did, in a sentence or two."""
    note = "" if exchange.forecast is None else exchange.forecast.note
    drafted = [len(each.confirmed) for each in exchange.rounds if each.drafted]
    if measured is not None:
        reason = (
            f"A drafted pass must yield {measured.round_cost:.1f} tokens to pay off; "
            f"it yielded {statistics.fmean(drafted):.1f}."
        )
    elif drafted:
        reason = "Not enough data to tell whether drafting helps; try /race."
    else:
        why = exchange.no_drafting
        reason = f"{why[0].upper()}{why[1:]}." if why else "Nothing was drafted."
    return [each for each in (reason, note) if each]


def _place(value: float, width: int) -> int:
    share = math.log2(min(max(value, _GAUGE_LEAST), _GAUGE_MOST) / _GAUGE_LEAST) / math.log2(
        _GAUGE_MOST / _GAUGE_LEAST
    )
    return round(share * (width - 1))
