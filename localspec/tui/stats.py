"""What drafting did, in words and bars. Pure: rounds in, lines with meanings out; colours come later."""

import statistics
from collections.abc import Iterable, Sequence
from itertools import groupby

from localspec.decoding.drafters.register import uses_passes
from localspec.decoding.gain import LEAST_ANSWERS, Gain, together
from localspec.decoding.round import SERVER, Round
from localspec.display import (
    average_gain_text,
    counted,
    gain_interval_text,
    gain_text,
    sparkline,
    unknown_gain_text,
)
from localspec.tui.exchange import Exchange

Span = tuple[str, str]
"""A text with what it means, as `colours` knows it; empty for text as it is."""
FULL, FREE = "█", "░"
_CONTEXT_CELLS = 8
_LABEL = 10
_MOST_BAR = 72
_MUCH = 1.5  # of a gain, which needs no reason
_LEAST_PASSES = 3  # of either width, of which a median says anything
# Where the time of a round goes: marks, meanings, names.
_PARTS = (("█", "draft", "draft model"), ("▒", "verify", "large model"), ("░", "other", "other"))
_PERIOD = " since this chat loaded the model"


def ribbon(rounds: Sequence[Round], width: int) -> list[Span]:
    """Return the confirmed length of the last rounds, a bar each, by who drafted them; the highest is the longest."""
    last = rounds[-width:]
    most = max([2, *(len(each.confirmed) for each in last)])
    return [
        (sparkline([len(each.confirmed) for each in group], 1, most), name)
        for name, group in groupby(last, lambda each: each.draft.drafter)
    ]


def split(rounds: Iterable[Round]) -> list[float] | None:
    """Return the shares of draft, verify and other in the time of rounds."""
    times = [(e.spent.drafting_s, e.spent.verify_s, e.spent.aside_s) for e in rounds]
    sums = [sum(column) for column in zip(*times, strict=True)]
    return [each / sum(sums) for each in sums] if sum(sums) > 0 else None


def split_bar(shares: Sequence[float], width: int) -> list[Span]:
    """Return the three shares as one bar."""
    draft = round(shares[0] * width)
    verify = round((shares[0] + shares[1]) * width) - draft
    cells = (draft, verify, width - draft - verify)
    return [
        (mark * count, meaning) for (mark, meaning, _), count in zip(_PARTS, cells, strict=True)
    ]


def status(exchange: Exchange | None, n_ctx: int | None, context_tokens: int) -> list[str]:
    """Return the figures of the status line, the longest form first; each shorter one gives up what matters least."""
    speed = None if exchange is None else exchange.tokens_per_s
    parts = [] if speed is None else [f"{speed:.1f} tokens/s"]
    why = [] if exchange is None else [*filter(None, [_short_gain(exchange)])]
    if not n_ctx:
        return [" · ".join([*parts, *why]), *parts]
    share = context_tokens / n_ctx
    short = f"context {share:.0%}"
    full = min(int(share * _CONTEXT_CELLS), _CONTEXT_CELLS)  # a cell is full only when all of it is
    long = f"{short} of {n_ctx}"
    bar = f"{long} {FULL * full}{FREE * (_CONTEXT_CELLS - full)}"
    forms = ([*parts, *why, bar], [*parts, bar], [*parts, long], [*parts, short], [short])
    return [" · ".join(form) for form in forms]


def stats(
    exchange: Exchange | None, width: int, gains: Sequence[Gain] = (), *, resumed: bool = False
) -> list[list[Span]]:
    """Return the stats of an answer, streaming or done, in lines of a width with meanings.

    Args:
        exchange: None before the first.
        width: columns.
        gains: of drafting, in all answers so far, see `average_line`.
        resumed: whether there are answers all the same, of an earlier run.
    """
    rounds = [] if exchange is None else exchange.rounds
    if exchange and exchange.finished and exchange.finished.reply.drafter == SERVER:
        return [[("A server answered, which sends no rounds: drafting is its own.", "dim")]]
    if exchange is None or not rounds:
        earlier = "No rounds are kept of these answers: the line under each has its figures."
        return [[(earlier if resumed else "Nothing measured yet: ask something first.", "dim")]]
    room = max(min(width, _MOST_BAR), 8)
    mean = statistics.fmean(len(each.confirmed) for each in rounds)
    many = f"the last {room} of {len(rounds)}" if len(rounds) > room else f"all {len(rounds)}"
    lines = [
        *_line("drafting", _gain(exchange)),
        *_line("rounds", [[(many, "")], [(f"{mean:.2f} tokens per round", "")]]),
        ribbon(rounds, room),
        *_line("drafts", _drafts(rounds)),
        *_line("passes", _passes(exchange)),
    ]
    if shares := split(rounds):
        names = [name for _, _, name in _PARTS]
        if not any(uses_passes(each.draft.drafter) for each in rounds):
            names[0] = "drafting"  # what looks drafts up has no model
        parts = [
            [(f"{mark} ", meaning), (f"{name} {share:.0%}", "")]
            for (mark, meaning, _), name, share in zip(_PARTS, names, shares, strict=True)
        ]
        lines += [*_line("time", parts), split_bar(shares, room)]
    done, why = exchange.finished, exchange.no_drafting
    note = "" if done is None else done.draft_note
    reason = f"{why[0].upper()}{why[1:]}." if why else ""
    return lines + [[(each, "")] for each in (reason, note, average_line(gains)) if each]


def average_line(gains: Sequence[Gain]) -> str:
    """Return what drafting gained in several answers, with the interval that holds it in 95 of 100 cases, in a sentence."""
    average = together(gains)
    ratio, interval = (average.ratio, average.interval) if average else (None, None)
    text = average_gain_text(len(gains), LEAST_ANSWERS, ratio, interval, _PERIOD)
    return f"{text[0].upper()}{text[1:]}."


def stats_lines(
    exchange: Exchange | None, width: int, gains: Sequence[Gain] = (), *, resumed: bool = False
) -> list[str]:
    """Return what `stats` does, as plain lines."""
    lines = stats(exchange, width, gains, resumed=resumed)
    return ["".join(text for text, _ in line) for line in lines]


def _line(label: str, parts: Sequence[Sequence[Span]]) -> list[list[Span]]:
    """Return a line of parts behind a label; none where there are no parts."""
    line: list[Span] = [(f"{label:<{_LABEL}}", "title")]
    for at, part in enumerate(parts):
        line += [(" · ", "dim"), *part] if at else part
    return [line] if parts else []


def _short_gain(exchange: Exchange) -> str:
    """Return what drafting gained in an answer, or why nothing was drafted; nothing before the end."""
    done = exchange.finished
    if done is None or not done.reply.acceptance.drafted:
        return exchange.no_drafting
    return gain_text(done.reply.gain_ratio, done.reply.no_gain)


def _gain(exchange: Exchange) -> list[list[Span]]:
    """Return what drafting gained in an answer that is done; nothing where nothing was drafted."""
    done = exchange.finished
    if done is None or not done.reply.acceptance.drafted:
        return []
    gain = done.reply.gain
    if gain is None:
        return [[(unknown_gain_text(done.reply.no_gain), "")]]
    text = gain_interval_text(gain.ratio, gain.interval)
    return [[(text, ("good" if gain.ratio > 1 else "bad") if gain.is_clear else "")]]


def _passes(exchange: Exchange) -> list[list[Span]]:
    """Return, where drafting gained little, what a pass that verifies a draft takes, relative to a plain one, and what it confirms: why."""
    done, rounds = exchange.finished, exchange.rounds
    if done is None or done.reply.gain is None or done.reply.gain.ratio >= _MUCH:
        return []
    wide = [each for each in rounds if each.drafted]
    plain = [each.spent.verify_s for each in rounds if not each.drafted]
    if min(len(wide), len(plain)) < _LEAST_PASSES or not (plain_s := statistics.median(plain)):
        return []
    width = statistics.median_high(1 + each.drafted + each.branched for each in wide)
    times = statistics.median(each.spent.verify_s for each in wide) / plain_s
    confirmed = statistics.fmean(len(each.confirmed) for each in wide)
    takes = f"one over {width} tokens takes {times:.1f} plain ones here"
    return [[(takes, "")], [(f"confirms {confirmed:.1f}", "")]]


def _drafts(rounds: Sequence[Round]) -> list[list[Span]]:
    parts: list[list[Span]] = []
    for name in dict.fromkeys(each.draft.drafter for each in rounds if each.drafted):
        mine = [each for each in rounds if each.draft.drafter == name]
        drafted, accepted = sum(each.drafted for each in mine), sum(each.accepted for each in mine)
        text = f"{name}: {accepted} of {drafted} accepted ({accepted / drafted:.0%})"
        if branches := sum(each.branched for each in mine):
            caught = sum(each.caught for each in mine)
            text += f", and {caught} of {counted(branches, 'second choice')}"
        parts.append([("■ ", name), (text, "")])
    return parts
