"""A result as one JSON object. Durations are in seconds, ratios are speeds relative to `off`."""

import json
from collections.abc import Iterator
from dataclasses import asdict

from localspec.bench.intervals import Estimate
from localspec.bench.result import Result
from localspec.bench.summary import Cell, Figures

Row = dict[str, object]


def as_json(result: Result, *, only_ascii: bool = False) -> str:
    """Return one JSON object, on one line.

    Args:
        result: what is told.
        only_ascii: escape every other character, for a stream that has not all of them.
    """
    document = {
        **result.setting,
        "runs": result.n_runs,
        "runs_planned": result.n_planned,
        "ratios": list(_ratios(result)),
        "figures": [{**_place(cell), **_figures(its)} for cell, its in result.figures.items()],
        "predictions": [
            {**_place(cell), **_rounded(asdict(its))} for cell, its in result.predictions.items()
        ],
        "against": [
            {**_place(duel.cell), "peer": duel.peer, **_estimate(duel.ratio)}
            for duel in result.duels
        ],
        "costs": _costs(result),
    }
    return json.dumps(document, ensure_ascii=only_ascii)


def _ratios(result: Result) -> Iterator[Row]:
    for cell, its in result.figures.items():
        if its.ratio is not None:
            yield {**_place(cell), **_estimate(its.ratio)}


def _place(cell: Cell) -> Row:
    return {"workload": cell.workload, "mode": cell.mode, "temperature": cell.temperature}


def _estimate(estimate: Estimate) -> Row:
    low, high = estimate.interval or (None, None)
    return _rounded({"ratio": estimate.ratio, "low": low, "high": high, "pairs": estimate.n})


def _figures(figures: Figures) -> Row:
    return {
        "tokens_per_s": _number(figures.tokens_per_s),
        "first_token_s": _number(figures.first_token_s),
        "acceptance_rate": _number(figures.acceptance_rate),
        "mean_acceptance_length": _number(figures.mean_acceptance_length),
        "time": None if figures.stages is None else _rounded({**figures.stages}),
        "runs": figures.n_runs,
        "same_text": figures.same,
        "forks_at": list(figures.forks),
    }


def _costs(result: Result) -> Row | None:
    if result.costs is None:
        return None
    target = result.costs.target
    passes = dict(zip(map(str, target.widths), target.seconds, strict=True))
    return {
        "target_pass_s_by_width": _rounded({**passes}),
        "draft_step_s": _rounded({**result.costs.draft_step_s}),
    }


def _rounded(row: Row) -> Row:
    return {key: _number(value) for key, value in row.items()}


def _number(value: object) -> object:
    return round(value, 6) if isinstance(value, float) else value
