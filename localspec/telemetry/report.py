"""Report: what replies add up to, and what drafting gained by it: see `gain` for how that is counted."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import add
from typing import Any

from localspec.decoding.gain import Gain, together
from localspec.decoding.stats import AcceptanceCounts
from localspec.telemetry.log import Records
from localspec.telemetry.reply import STAGES, ReplyRecord, Shift

_HOUR_S = 3600
_STEPS_H = (1, 24, 7 * 24, 28 * 24, 365 * 24)
_MOST_POINTS = 60
_GROUPS = ("pair", "workload", "drafter", "depth", "time")


@dataclass(slots=True)
class RoundSums(AcceptanceCounts):
    """Sums over rounds: `COUNTS`, and what drafting gained.

    Attributes:
        stages_us: microseconds of each of `STAGES`.
        gains: what drafting gained, by the number of a reply in which that is known.
    """

    stages_us: list[int] = field(default_factory=lambda: [0] * len(STAGES))
    gains: dict[int, Gain] = field(default_factory=dict)

    def add(self, counts: tuple[int, ...]) -> None:
        """Count a cell."""
        rounds, drafted, accepted, confirmed, *stages_us = counts
        self.rounds += rounds
        self.drafted += drafted
        self.accepted += accepted
        self.confirmed += confirmed
        self.stages_us = [*map(add, self.stages_us, stages_us)]

    @property
    def stages_s(self) -> dict[str, float]:
        """Seconds of each of `STAGES`."""
        return {stage: us / 1e6 for stage, us in zip(STAGES, self.stages_us, strict=True)}

    def add_gain(self, reply: int, plain_s: float, spent_s: float) -> None:
        """Count what a reply, or a part of it, took, and would have taken without drafting."""
        if reply in self.gains:
            before = self.gains[reply]
            plain_s, spent_s = before.plain_s + plain_s, before.spent_s + spent_s
        self.gains[reply] = Gain(plain_s, spent_s, 0.0)

    @property
    def seconds(self) -> float:
        """What the rounds took."""
        return sum(self.stages_us) / 1e6

    @property
    def drafted_replies(self) -> int:
        """How many replies have a known gain."""
        return len(self.gains)

    @property
    def gain(self) -> Gain | None:
        """What drafting gained in them; None of too few."""
        return together([*self.gains.values()])

    @property
    def speed_up(self) -> float | None:
        """How many times as fast as without drafting; None where that is not known yet."""
        return None if self.gain is None else self.gain.ratio

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of that."""
        return None if self.gain is None else self.gain.interval

    @property
    def saved_s(self) -> float | None:
        """Seconds that drafting saved, below 0 where it cost some; None if that is not known."""
        gains = self.gains.values()
        return sum(each.plain_s - each.spent_s for each in gains) if gains else None


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
        no_drafting: how many replies had nothing drafted, by why.
        findings: how often each rule of a gate had a match, by its name and what was done about it.
        trained: of heads that were trained on this machine, by name: how, and the report of the replies since then that had them.
    """

    since_s: float | None
    first_s: float | None
    replies: int
    shifts: list[Shift]
    total: RoundSums = field(default_factory=RoundSums)
    by: dict[str, dict[Any, RoundSums]] = field(
        default_factory=lambda: {each: defaultdict(RoundSums) for each in _GROUPS}
    )
    step_s: int = _HOUR_S
    tallies: dict[str, dict[str, list[list[int]]]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    no_drafting: Counter[str] = field(default_factory=Counter)
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
    report.no_drafting.update(each.no_drafting for each in replies if each.no_drafting)
    for reply in replies:
        for drafter, kinds in reply.tallies.items():
            for kind, pairs in kinds.items():
                whole = report.tallies[kind].setdefault(drafter, [])
                whole += [[0, 0] for _ in pairs[len(whole) :]]
                for sums, its in zip(whole, pairs, strict=False):
                    sums[:] = map(add, sums, its)
    _sum_up(report, replies)
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


def _sum_up(report: Report, replies: Sequence[ReplyRecord]) -> None:
    """Sum replies up by all that they, or their rounds, belong to."""
    hours = [int(each.at // _HOUR_S) for each in replies]
    span = max(hours, default=0) - min(hours, default=0)
    step = next((each for each in _STEPS_H if span / each < _MOST_POINTS), _STEPS_H[-1])
    report.step_s = step * _HOUR_S

    def sums(group: str, key: Any) -> RoundSums:
        return report.by[group][key]

    for reply, hour in zip(replies, hours, strict=True):
        wholes = [report.total, sums("pair", reply.pair.name), sums("workload", reply.workload)]
        wholes.append(sums("time", hour // step * report.step_s))
        gain = reply.gain
        if gain is not None:
            for whole in wholes:
                whole.add_gain(reply.id, gain.plain_s, gain.spent_s)
        token_s = (gain.plain_s - reply.prefill_s) / reply.sums[3] if gain else 0.0
        for drafter, by_depth in reply.cells.items():
            for depth, counts in by_depth.items():
                parts = [sums("drafter", drafter), sums("depth", depth)]
                for each in (*wholes, *parts):
                    each.add(counts)
                for part in parts if gain else ():
                    part.add_gain(reply.id, counts[3] * token_s, sum(counts[4:]) / 1e6)
    for name, group in report.by.items():
        order = (lambda its: its[0]) if name in {"depth", "time"} else (lambda its: -its[1].rounds)
        report.by[name] = dict(sorted(group.items(), key=order))
