"""What drafting did, in words, bars and a gauge that need no colour. Pure: rounds in, lines out."""

import statistics
from collections.abc import Iterable, Sequence

from localspec.decoding.round import Round
from localspec.display import sparkline
from localspec.ui.exchange import Exchange
from localspec.ui.speed_up import measure

TIMES = "\u00d7"
_GAUGE_LEAST, _GAUGE_MOST = 0.5, 2.0
_CONTEXT_CELLS = 8


def lengths_bar(rounds: Sequence[Round], width: int) -> str:
    """Return the confirmed length of the last rounds, a bar each; the highest bar is the longest."""
    lengths = [len(each.confirmed) for each in rounds[-width:]]
    return sparkline(lengths, 1, max([2, *lengths]))


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


def split_bar(shares: tuple[float, float, float], width: int) -> str:
    """Return the three shares as one bar: `█` draft, `▒` verify, `░` other."""
    draft = round(shares[0] * width)
    verify = round((shares[0] + shares[1]) * width) - draft
    return "█" * draft + "▒" * verify + "░" * (width - draft - verify)


def gauge(predicted: float | None, measured: float | None, width: int) -> str:
    """Return speed-ups on a scale from half to twice: `│` break-even, `◇` predicted, `◆` measured."""
    line = ["─"] * width
    for value, mark in ((1.0, "│"), (predicted, "◇"), (measured, "◆")):
        if value is not None:
            share = (min(max(value, _GAUGE_LEAST), _GAUGE_MOST) - _GAUGE_LEAST) / (
                _GAUGE_MOST - _GAUGE_LEAST
            )
            line[round(share * (width - 1))] = mark
    return f"{TIMES}½ {''.join(line)} {TIMES}2"


def status(exchange: Exchange | None, n_ctx: int | None, context_tokens: int) -> list[str]:
    """Return what the status line tells, the most wanted first."""
    parts = []
    if exchange is not None and exchange.tokens_per_s is not None:
        parts.append(f"{exchange.tokens_per_s:.1f} tokens/s")
    if exchange is not None and exchange.acceptance is not None:
        parts.append(f"{exchange.acceptance:.0%} accepted")
    if n_ctx:
        parts.append(
            f"context {context_tokens / n_ctx:.0%} of {n_ctx} {filled(context_tokens / n_ctx)}"
        )
    return parts


def filled(share: float, width: int = _CONTEXT_CELLS) -> str:
    """Return how full something is: `█` full, `░` free; a cell is full only when all of it is."""
    full = min(int(share * width), width)
    return "█" * full + "░" * (width - full)


def stats_lines(exchange: Exchange | None, width: int) -> list[str]:
    """Return the stats of an answer, streaming or done.

    Args:
        exchange: the answer; None before the first.
        width: cells that a line may have.
    """
    rounds = [] if exchange is None else exchange.rounds
    if exchange is None or not rounds:
        return ["Nothing was measured yet: ask something."]
    bar = max(width - 18, 8)
    lines = _speed(exchange, bar)
    if exchange.forecast is not None and exchange.forecast.note:
        lines.append(exchange.forecast.note)
    mean = sum(len(each.confirmed) for each in rounds) / len(rounds)
    lines += [
        f"{len(rounds)} rounds, {mean:.2f} tokens confirmed in each",
        f"  {lengths_bar(rounds, bar)}",
    ]
    shares = split(rounds)
    if shares is not None:
        lines += [
            f"time: draft {shares[0]:.0%}, verify {shares[1]:.0%}, other {shares[2]:.0%}",
            f"  {split_bar(shares, bar)}",
        ]
    return lines + _drafting(rounds)


def _drafting(rounds: Sequence[Round]) -> list[str]:
    lines = []
    for name in dict.fromkeys(each.draft.drafter for each in rounds if each.drafted):
        mine = [each for each in rounds if each.draft.drafter == name]
        drafted, accepted = sum(each.drafted for each in mine), sum(each.accepted for each in mine)
        lines.append(
            f"{name}: {accepted} of {drafted} drafted tokens accepted ({accepted / drafted:.0%})"
        )
    return lines or ["nothing was drafted"]


def _speed(exchange: Exchange, bar: int) -> list[str]:
    rounds, forecast = exchange.rounds, exchange.forecast
    predicted = None if forecast is None else forecast.predicted
    measured = measure(rounds)
    words = [] if predicted is None else [f"predicted ◇ {TIMES} {predicted:.2f}"]
    if measured is not None:
        interval = f"({measured.low:.2f} to {measured.high:.2f})"
        words.append(f"measured ◆ {TIMES} {measured.estimate:.2f} {interval}")
    lines = []
    if words:
        shown = gauge(predicted, None if measured is None else measured.estimate, bar)
        lines = [f"speed-up: {', '.join(words)}", f"  {shown}"]
    drafted = [len(each.confirmed) for each in rounds if each.drafted]
    if measured is not None:
        lines.append(
            f"break-even: a drafted round costs {measured.round_cost:.2f} plain ones; "
            f"it confirms {statistics.fmean(drafted):.2f}"
        )
    elif drafted:
        lines.append("too few rounds to compare drafted with plain ones: /race measures both")
    return lines
