"""What drafting did, in words, bars and a gauge that need no colour. Pure: rounds in, lines out."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from localspec.decoding.round import Round
from localspec.ui.exchange import Exchange

TIMES = "\u00d7"
_BARS = "▁▂▃▄▅▆▇█"
_LEAST_PLAIN_ROUNDS = 3
_GAUGE_LEAST, _GAUGE_MOST = 0.5, 2.0
_CONTEXT_CELLS = 8


@dataclass(frozen=True, slots=True)
class Costs:
    """What rounds cost on this machine, in seconds, as far as it was seen.

    Args:
        plain_round_s: a round without a draft; None until enough of them were seen.
        drafted_round_s: a round with one; None without any.
    """

    plain_round_s: float | None = None
    drafted_round_s: float | None = None

    @property
    def break_even(self) -> float | None:
        """Tokens that a drafted round has to confirm to be worth its cost."""
        if self.plain_round_s is None or self.drafted_round_s is None:
            return None
        return self.drafted_round_s / self.plain_round_s


def costs_of(rounds: Iterable[Round]) -> Costs:
    """Return the medians of what rounds cost."""
    plain: list[float] = []
    drafted: list[float] = []
    for each in rounds:
        seconds = each.spent.wall_s
        (drafted if each.drafted else plain).append(seconds)
    usual = statistics.median(plain) if len(plain) >= _LEAST_PLAIN_ROUNDS else None
    return Costs(usual, statistics.fmean(drafted) if drafted else None)


def measured_speed_up(rounds: Sequence[Round], plain_round_s: float | None) -> float | None:
    """Return the speed of these rounds over plain ones; None where nothing was drafted, or compared."""
    seconds = sum(each.spent.wall_s for each in rounds)
    if plain_round_s is None or seconds <= 0 or not any(each.drafted for each in rounds):
        return None
    return sum(len(each.confirmed) for each in rounds) * plain_round_s / seconds


def sparkline(rounds: Sequence[Round], width: int) -> str:
    """Return the confirmed length of the last rounds, a bar each; the highest bar is the longest."""
    lengths = [len(each.confirmed) for each in rounds[-width:]]
    most = max(lengths, default=1)
    return "".join(
        _BARS[round((each - 1) / max(most - 1, 1) * (len(_BARS) - 1))] for each in lengths
    )


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


def stats_lines(exchange: Exchange | None, earlier: Sequence[Round], width: int) -> list[str]:
    """Return the stats of an answer, streaming or done.

    Args:
        exchange: the answer; None before the first.
        earlier: rounds of earlier answers with the same models, which tell what a plain round costs.
        width: cells that a line may have.
    """
    rounds = [] if exchange is None else exchange.rounds
    if exchange is None or not rounds:
        return ["Nothing was measured yet: ask something."]
    bar = max(width - 18, 8)
    lines = _speed(exchange, costs_of([*earlier, *rounds]), bar)
    if exchange.forecast is not None and exchange.forecast.note:
        lines.append(exchange.forecast.note)
    mean = sum(len(each.confirmed) for each in rounds) / len(rounds)
    lines += [
        f"{len(rounds)} rounds, {mean:.2f} tokens confirmed in each",
        f"  {sparkline(rounds, bar)}",
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


def _speed(exchange: Exchange, costs: Costs, bar: int) -> list[str]:
    rounds, forecast = exchange.rounds, exchange.forecast
    predicted = None if forecast is None else forecast.predicted
    measured = measured_speed_up(rounds, costs.plain_round_s)
    lines = []
    if predicted is not None or measured is not None:
        words = [
            f"{name} {TIMES} {value:.2f}"
            for name, value in (("predicted ◇", predicted), ("measured ◆", measured))
            if value is not None
        ]
        lines = [f"speed-up: {', '.join(words)}", f"  {gauge(predicted, measured, bar)}"]
    if costs.break_even is not None:
        mine = [len(each.confirmed) for each in rounds if each.drafted]
        got = f"; it confirms {statistics.fmean(mine):.2f}" if mine else ""
        lines.append(f"break-even: a drafted round costs {costs.break_even:.2f} plain ones{got}")
    elif measured is None and any(each.drafted for each in rounds):
        lines.append("no plain rounds to compare with yet: /race measures both")
    return lines
