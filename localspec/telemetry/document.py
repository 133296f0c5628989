"""Document: a report as one JSON object. Durations are in seconds, moments in seconds since 1970."""

import json
from typing import Any

from localspec.telemetry.log import Shift
from localspec.telemetry.reply import Pairs
from localspec.telemetry.report import PlainCost, Report, RoundSums

_FIGURES = (
    *("rounds", "drafted", "accepted", "confirmed", "acceptance_rate", "mean_acceptance_length"),
    *("seconds", "rounds_compared", "speed_up", "saved_s"),
)
_TALLIES = {"position": "positions", "confidence": "confidences", "branch": "branches"}


def as_json(report: Report) -> str:
    """Return one JSON object, on one line. Durations are in seconds, moments in seconds since 1970."""
    rows = {
        group: {str(name): _row(its) for name, its in by.items()} for group, by in report.by.items()
    }
    for name, row in rows["pair"].items():
        row["plain"] = _plain(report.plain.get(name))
    for name, row in rows["drafter"].items():
        for kind, plural in _TALLIES.items():
            row[plural] = _buckets(report.tallies[kind].get(name, []))
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
            "changes": [_change(each) for each in report.shifts],
            "found": [
                {"rule": rule, "action": action, "count": count}
                for (rule, action), count in sorted(report.found.items())
            ],
        }
    )


def _row(its: RoundSums) -> dict[str, Any]:
    stages_s = {stage: round(seconds, 6) for stage, seconds in its.stages_s.items()}
    figures = {name: _rounded(getattr(its, name)) for name in _FIGURES}
    return {**figures, "is_measurable": its.is_measurable, "stages_s": stages_s}


def _plain(cost: PlainCost | None) -> dict[str, Any] | None:
    if cost is None:
        return None
    known = {"source": cost.source, "rounds": cost.rounds, "base_s": _rounded(cost.base_s)}
    return {**known, "slope_s_per_token": cost.slope_s}


def _change(shift: Shift) -> dict[str, Any]:
    moments = {"since": shift.since_s, "found": shift.at}
    where = {"pair": shift.pair, "workload": shift.workload, "drafter": shift.drafter}
    return {**where, **moments, "before": _rounded(shift.before), "after": _rounded(shift.after)}


def _buckets(pairs: Pairs) -> list[dict[str, int]]:
    names = ("bucket", "judged", "accepted")
    return [dict(zip(names, (at, *both), strict=True)) for at, both in enumerate(pairs) if both[0]]


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)
