"""A report as one JSON object. Durations are in seconds, moments in seconds since 1970."""

import json
from collections.abc import Mapping
from typing import Any

from localspec.telemetry.figures import Figures, Report, Tally
from localspec.telemetry.plain_cost import PlainCost

Row = dict[str, Any]


def as_json(report: Report) -> str:
    """Return one JSON object, on one line. Durations are in seconds, moments in seconds since 1970."""
    return json.dumps(
        {
            "since": report.since_s,
            "first": report.first_s,
            "replies": report.replies,
            "total": _row(report.total),
            "pairs": {
                name: {
                    **_row(its),
                    "plain": _plain(report.plain[name]) if name in report.plain else None,
                }
                for name, its in report.by_pair.items()
            },
            "workloads": {name: _row(its) for name, its in report.by_workload.items()},
            "drafters": {
                name: {
                    **_row(its),
                    "positions": _tallies(report.positions.get(name, {})),
                    "confidences": _tallies(report.confidences.get(name, {})),
                    "correction_ranks": {
                        "farther" if rank == 0 else str(rank): count
                        for rank, count in report.ranks.get(name, {}).items()
                    },
                }
                for name, its in report.by_drafter.items()
            },
            "depths": {str(at): _row(its) for at, its in report.by_depth.items()},
            "trend": [{"start": each.start_s, **_row(each.figures)} for each in report.trend],
            "trend_step_s": report.step_s,
            "changes": [
                {
                    "pair": each.pair,
                    "workload": each.workload,
                    "drafter": each.drafter,
                    "since": each.since_s,
                    "found": each.found_s,
                    "before": _rounded(each.before),
                    "after": _rounded(each.after),
                }
                for each in report.shifts
            ],
        }
    )


def _row(its: Figures) -> Row:
    return {
        "rounds": its.rounds,
        "drafted": its.drafted,
        "accepted": its.accepted,
        "confirmed": its.confirmed,
        "acceptance_rate": _rounded(its.acceptance_rate),
        "mean_acceptance_length": _rounded(its.mean_acceptance_length),
        "seconds": _rounded(its.seconds),
        "rounds_compared": its.compared.rounds,
        "stages_s": {stage: _rounded(seconds) for stage, seconds in its.stages_s.items()},
        "speed_up": _rounded(its.speed_up),
        "saved_s": _rounded(its.saved_s),
    }


def _tallies(tallies: Mapping[int, Tally]) -> list[Row]:
    return [
        {"bucket": bucket, "judged": tally.tried, "accepted": tally.accepted}
        for bucket, tally in sorted(tallies.items())
    ]


def _plain(cost: PlainCost) -> Row:
    return {
        "source": cost.source,
        "rounds": cost.rounds,
        "base_s": _rounded(cost.base_s),
        "slope_s_per_token": cost.slope_s,
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)
