"""Report: what replies add up to, and what drafting gained by it.

A machine is busy in one hour and idle in another. Rounds are therefore compared with rounds without a draft of their own hour
and pair, and with none where that hour has too few of them: else a quiet hour would look like a speed-up.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import add
from statistics import stdev
from typing import Any, Literal

from localspec.decoding.round import OFF
from localspec.decoding.stats import AcceptanceCounts
from localspec.telemetry.log import Records
from localspec.telemetry.reply import STAGES, ReplyRecord, Shift

_FEW_ROUNDS, LEAST_ROUNDS = 5, 20
"""Plain rounds at one depth before they count, and before they are believed: in all, or there as they are."""
_LEAST_REPLIES = 5
"""Fewer do not separate what drafting saved from noise."""
_NORMAL_95 = 1.96
_HOUR_S = 3600
_STEPS_H = (1, 24, 7 * 24, 28 * 24, 365 * 24)
_MOST_POINTS = 60
_GROUPS = ("pair", "workload", "drafter", "depth", "time")

Measured = Mapping[int, tuple[int, float]]
"""By where a bucket of depths begins: how many plain rounds, and their seconds."""


@dataclass(frozen=True, slots=True)
class PlainCost:
    """Seconds of a plain round by depth, so that what drafting saved can be said.

    Measured where enough rounds without a draft were recorded at that depth of context; elsewhere on the line that fits
    them best; and where there were hardly any, the calibration's pass of width 1, which knows nothing of depth.

    Args:
        source: where it is known from.
        rounds: plain rounds that it rests on.
        base_s: at depth 0.
        slope_s: more, for every token of depth.
        at: as measured, by where a bucket of depths begins.
    """

    source: Literal["measured", "calibrated", "unknown"] = "unknown"
    rounds: int = 0
    base_s: float = 0.0
    slope_s: float = 0.0
    at: Mapping[int, float] = field(default_factory=dict)

    def of(self, depth: int) -> float:
        """Return the seconds of a plain round in the bucket that begins at `depth`; 0 where nothing is known."""
        return self.at.get(depth) or self.base_s + self.slope_s * _middle(depth)

    def load(self, hour: Measured) -> float | None:
        """Return what plain rounds took in some hour, as a multiple of what they usually do; None if unknown."""
        if self.source != "measured":
            return 1.0 if self.source == "calibrated" else None
        if sum(rounds for rounds, _ in hour.values()) < LEAST_ROUNDS:
            return None
        usually_s = sum(rounds * self.of(depth) for depth, (rounds, _) in hour.items())
        return sum(seconds for _, seconds in hour.values()) / usually_s if usually_s else None


def plain_cost(rounds: Measured, calibrated_s: float | None) -> PlainCost:
    """Return what plain rounds cost, by those that were measured, or by the calibration's plain pass."""
    rounds = {depth: its for depth, its in rounds.items() if its[0] >= _FEW_ROUNDS}
    whole = sum(count for count, _ in rounds.values())
    if whole < LEAST_ROUNDS:
        return PlainCost() if calibrated_s is None else PlainCost("calibrated", 0, calibrated_s)
    x = sum(count * _middle(depth) for depth, (count, _) in rounds.items()) / whole
    y = sum(seconds for _, seconds in rounds.values()) / whole
    spread = sum(count * (_middle(depth) - x) ** 2 for depth, (count, _) in rounds.items())
    together = sum((_middle(at) - x) * (s - count * y) for at, (count, s) in rounds.items())
    slope = max(0.0, together / spread) if spread > 0 else 0.0
    at = {depth: s / count for depth, (count, s) in rounds.items() if count >= LEAST_ROUNDS}
    return PlainCost("measured", whole, max(y - slope * x, 0.5 * y), slope, at)


def _middle(depth: int) -> float:
    """Return the middle of the bucket of depths that begins there."""
    return 128.0 if depth == 0 else 1.5 * depth


@dataclass(slots=True)
class RoundSums(AcceptanceCounts):
    """Sums over rounds: `COUNTS`, and those of hours in which the price of a plain token is known.

    Attributes:
        stages_s: seconds of each of `STAGES`.
        rounds_compared: rounds of such hours.
        compared_drafted: tokens that were drafted in them.
        compared_s: what they took.
        plain_s: what as many tokens would have taken without drafting.
        saved_by_reply: seconds that drafting saved, by the number of a reply.
    """

    stages_s: dict[str, float] = field(default_factory=lambda: dict.fromkeys(STAGES, 0.0))
    rounds_compared: int = 0
    compared_drafted: int = 0
    compared_s: float = 0.0
    plain_s: float = 0.0
    saved_by_reply: dict[int, float] = field(default_factory=dict)

    def add(self, counts: tuple[int, ...], plain_s: float | None, reply: int) -> None:
        """Count a cell, and what it would have taken without drafting."""
        rounds, drafted, accepted, confirmed, *stages_us = counts
        self.rounds += rounds
        self.drafted += drafted
        self.accepted += accepted
        self.confirmed += confirmed
        for stage, took_us in zip(STAGES, stages_us, strict=True):
            self.stages_s[stage] += took_us / 1e6
        if plain_s is not None:
            self.rounds_compared += rounds
            self.compared_drafted += drafted
            took_s = sum(stages_us) / 1e6
            self.compared_s += took_s
            self.plain_s += plain_s
            before_s = self.saved_by_reply.get(reply, 0.0)
            self.saved_by_reply[reply] = before_s + plain_s - took_s

    @property
    def seconds(self) -> float:
        """What the rounds took."""
        return sum(self.stages_s.values())

    @property
    def speed_up(self) -> float | None:
        """How many times as fast as without drafting; None where nothing was drafted, or that is not known."""
        return None if self.saved_s is None else self.plain_s / self.compared_s

    @property
    def saved_s(self) -> float | None:
        """Seconds that drafting saved, below 0 where it cost some; None if that is not known."""
        known = self.compared_drafted and self.compared_s
        return self.plain_s - self.compared_s if known else None

    @property
    def is_measurable(self) -> bool:
        """Whether the 95 % interval of what drafting saved, over replies, excludes nothing saved: a speed-up of 1."""
        saved_s, count = list(self.saved_by_reply.values()), len(self.saved_by_reply)
        if self.saved_s is None or count < _LEAST_REPLIES:
            return False
        error_s = stdev(saved_s) * math.sqrt(count)
        return abs(sum(saved_s)) > _student_95(count - 1) * error_s


def _student_95(freedom: int) -> float:
    """Return what 97.5 % of Student's t distribution lie below, to 2 % from 4 degrees of freedom on.

    Source: Abramowitz and Stegun 1964, 26.7.5, two terms.
    """
    z = _NORMAL_95
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


@dataclass(slots=True)
class Report:
    """What was recorded since some moment.

    Attributes:
        since_s: that moment, seconds since 1970; None for all there is.
        first_s: when the first reply of it began; None without any.
        replies: how many.
        shifts: changes of acceptance, the latest first.
        total: everything.
        by: by `pair`, `workload` and `drafter`, those with the most rounds first, `off` being plain rounds; and by
            `depth` of the context and `time`, in order, where a bucket or a period begins.
        step_s: seconds from one period to the next.
        tallies: by kind and drafter, see `ReplyRecord`.
        plain: by pair, what a plain token costs; not of pairs that share their passes.
        findings: how often each rule of a gate had a match, by its name and what was done about it.
        trained: of heads that were trained on this machine, by name: how, and the report of the replies since then that had them.
    """

    since_s: float | None
    first_s: float | None
    replies: int
    shifts: list[Shift]
    total: RoundSums = field(default_factory=RoundSums)
    by: dict[str, dict[Any, RoundSums]] = field(
        default_factory=lambda: {each: {} for each in _GROUPS}
    )
    step_s: int = _HOUR_S
    tallies: dict[str, dict[str, list[list[int]]]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    plain: dict[str, PlainCost] = field(default_factory=dict)
    findings: Counter[tuple[str, str]] = field(default_factory=Counter)
    trained: dict[str, tuple[str, "Report"]] = field(default_factory=dict)

    @property
    def by_heads(self) -> RoundSums:
        """Rounds in which heads drafted."""
        return self.by["drafter"].get("heads", RoundSums())


def make_report(records: Records, since_s: float | None = None) -> Report:
    """Return the report of the replies that began since a moment."""
    begin_s = since_s or 0.0
    replies = [each for each in records.replies.values() if each.at >= begin_s]
    shifts = [each for each in reversed(records.shifts) if each.at >= begin_s]
    first_s = min((each.at for each in replies), default=None)
    report = Report(since_s, first_s, len(replies), shifts)
    for each in records.findings:
        if each.at >= begin_s:
            report.findings[each.rule, each.action] += each.times
    # Plain rounds of an hour and a pair, and of all hours, which is None.
    plain = defaultdict[tuple[int | None, str], dict[int, tuple[int, float]]](dict)
    for reply in replies:
        for depth, counts in reply.cells.get(OFF, {}).items():
            for hour in (_hour(reply), None):
                measured = plain[hour, reply.pair.name]
                rounds, seconds = measured.get(depth, (0, 0.0))
                measured[depth] = (rounds + counts[0], seconds + sum(counts[4:]) / 1e6)
        for drafter, kinds in reply.tallies.items():
            for kind, pairs in kinds.items():
                whole = report.tallies[kind].setdefault(drafter, [])
                whole += [[0, 0] for _ in pairs[len(whole) :]]
                for sums, its in zip(whole, pairs, strict=False):
                    sums[:] = map(add, sums, its)
    calibrated_s = {each.pair.name: each.pair.plain_s for each in replies if each.pair.at_once == 1}
    report.plain = {
        name: plain_cost(plain.get((None, name), {}), its) for name, its in calibrated_s.items()
    }
    drafted = {(_hour(each), each.pair.name) for each in replies if each.sums[1]}
    loads = {key: report.plain.get(key[1], PlainCost()).load(plain.get(key, {})) for key in drafted}
    _sum_up(report, replies, loads)
    return report


def add_trained(report: Report, records: Records, name: str, how: str, trained_s: float) -> None:
    """Add to a report what heads earned that were trained on this machine.

    Args:
        report: of the same records.
        records: what was recorded.
        name: of the heads.
        how: they were trained, in a line.
        trained_s: when; a reply before that is of other heads of the same name.
    """
    its = {key: each for key, each in records.replies.items() if each.pair.draft_model == name}
    since_s = max(trained_s, report.since_s or 0.0)
    report.trained[name] = how, make_report(records._replace(replies=its), since_s)


def _hour(reply: ReplyRecord) -> int:
    return int(reply.at // _HOUR_S)


def _sum_up(
    report: Report, replies: Sequence[ReplyRecord], loads: Mapping[tuple[int, str], float | None]
) -> None:
    """Sum replies up by all that their rounds belong to; `loads` are those of hours and pairs with drafts."""
    hours = [_hour(each) for each in replies]
    span = max(hours, default=0) - min(hours, default=0)
    step = next((each for each in _STEPS_H if span / each < _MOST_POINTS), _STEPS_H[-1])
    report.step_s = step * _HOUR_S
    for reply, hour in zip(replies, hours, strict=True):
        pair, period_s = reply.pair.name, hour // step * report.step_s
        load = loads.get((hour, pair))
        for drafter, by_depth in reply.cells.items():
            for depth, counts in by_depth.items():
                plain_s = load and counts[3] * load * report.plain[pair].of(depth)
                report.total.add(counts, plain_s, reply.id)
                keys = (pair, reply.workload, drafter, depth, period_s)
                for group, key in zip(report.by.values(), keys, strict=True):
                    group.setdefault(key, RoundSums()).add(counts, plain_s, reply.id)
    for name, group in report.by.items():
        order = (lambda its: its[0]) if name in {"depth", "time"} else (lambda its: -its[1].rounds)
        report.by[name] = dict(sorted(group.items(), key=order))
