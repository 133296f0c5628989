"""What a measurement found, as figures, tables and values of JSON. Durations are in seconds."""

import io
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, Any

from localspec.bench.bench import Result, log_ratio
from localspec.bench.estimate import LEAST_PAIRS, Estimate, combined, compare, estimate
from localspec.bench.trial import Trial, fork
from localspec.storage.files import size_text

if TYPE_CHECKING:
    from rich.table import Table

ALL = "all"
STAGES = ("prefill", "draft_prefill", "draft", "verify", "sample", "other")
_SPEED = ("ratio", "95 %", "tokens/s", "first", "acc.", "len.", "same")
_LEGEND = (
    "ratio: speed relative to the neighbouring run of off, from the request to the last token, prefill included, at "
    "equal lengths; above 1 is faster; with its 95 % interval. first: seconds to the first token. acc.: accepted of "
    "all drafted tokens. len.: confirmed tokens per target pass. same: texts that are those of off, and the median "
    "token at which the others left it."
)
Pairs = Sequence[tuple[Trial, Trial]]


@dataclass(frozen=True, slots=True)
class Figure:
    """What came of one arm on one kind of text.

    Args:
        workload: the kind; `ALL` is every one.
        mode: name of the arm.
        temperature: at which.
        tokens_per_s: median over runs, prefill included.
        first_token_s: median over runs.
        acceptance_rate: accepted over drafted tokens; None where nothing was drafted.
        mean_acceptance_length: confirmed tokens per target pass; None where another program does not say.
        time: share of the time of each of `STAGES`; None where another program does not say.
        runs: how many runs.
        same_text: in how many of them the text was that of the first arm; None for that itself.
        forks_at: at which token the texts of the others left it.
        ratio: of its speed to that of the first arm; None for that itself.
    """

    workload: str
    mode: str
    temperature: float
    tokens_per_s: float
    first_token_s: float
    acceptance_rate: float | None
    mean_acceptance_length: float | None
    time: Mapping[str, float] | None
    runs: int
    same_text: int | None
    forks_at: Sequence[int]
    ratio: Estimate | None = None


def figures(result: Result) -> list[Figure]:
    """Return a figure for each temperature, kind of text and arm, and for all kinds together; each kind counts alike."""
    kinds = [prompt.workload for prompt in result.bench.prompts]
    modes = dict.fromkeys([*result.bench.names, *(run.slot.mode for run in result.trials)])
    runs: dict[tuple[float, str, str], list[Trial]] = {}
    pairs: dict[tuple[float, str, str], list[tuple[Trial, Trial]]] = {}
    for trial in result.trials:
        for kind in (kinds[trial.slot.prompt], ALL):
            runs.setdefault((trial.slot.temperature, kind, trial.slot.mode), []).append(trial)
    for pair in result.neighbours():
        slot = pair[0].slot
        for kind in (kinds[slot.prompt], ALL):
            pairs.setdefault((slot.temperature, kind, slot.mode), []).append(pair)
    found = []
    every = [kind for kind in dict.fromkeys(kinds) if any(place[1] == kind for place in runs)]
    for temperature in dict.fromkeys(place[0] for place in runs):
        ratios: dict[str, list[Estimate]] = {mode: [] for mode in modes}
        for place in ((temperature, kind, mode) for kind in every for mode in modes):
            if place in runs:
                its = pairs.get(place, [])
                ratio = _ratio(its)
                ratios[place[2]] += [] if ratio is None else [ratio]
                found.append(_figure(place[1], runs[place], its, ratio))
        for mode in modes if len(every) > 1 else ():
            place = (temperature, ALL, mode)
            if place in runs:
                together = combined(ratios[mode]) if ratios[mode] else None
                found.append(_figure(ALL, runs[place], pairs.get(place, []), together))
    return found


def _ratio(pairs: Pairs) -> Estimate | None:
    by_prompt: dict[int, list[float]] = {}
    for pair in pairs:
        by_prompt.setdefault(pair[0].slot.prompt, []).append(log_ratio(pair))
    # Repeats of one prompt share its text, and say nothing of other prompts.
    values = [median(each) for each in by_prompt.values()]
    if len(values) == 1:
        (values,) = by_prompt.values()
    return estimate(values, len(pairs)) if values else None


def _figure(kind: str, runs: Sequence[Trial], pairs: Pairs, ratio: Estimate | None) -> Figure:
    rounds = [each for run in runs for each in run.rounds]
    drafted = sum(run.drafted for run in runs)
    forks = [fork(run.tokens, other.tokens) for run, other in pairs]
    return Figure(
        workload=kind,
        mode=runs[0].slot.mode,
        temperature=runs[0].slot.temperature,
        tokens_per_s=median(run.n_tokens / run.wall_s for run in runs),
        first_token_s=median(run.first_token_s for run in runs),
        acceptance_rate=sum(run.accepted for run in runs) / drafted if drafted else None,
        mean_acceptance_length=sum(len(each.confirmed) for each in rounds) / len(rounds)
        if rounds
        else None,
        time=_stages(runs) if rounds else None,
        runs=len(runs),
        same_text=forks.count(None) if forks else None,
        forks_at=sorted(each for each in forks if each is not None),
        ratio=ratio,
    )


def _stages(runs: Sequence[Trial]) -> dict[str, float]:
    wall = sum(run.wall_s for run in runs)
    spent = [each.spent for run in runs for each in run.rounds]
    seconds = [sum(run.prefill_s for run in runs)]
    seconds += [sum(getattr(each, f"{stage}_s") for each in spent) for stage in STAGES[1:-1]]
    return dict(
        zip(STAGES, [*(each / wall for each in seconds), 1 - sum(seconds) / wall], strict=True)
    )


def table(result: Result, width: int = 80) -> str:
    """Return what was found, as tables of 80 columns at least."""
    from rich.console import Console  # noqa: PLC0415 - only tables need it

    console = Console(width=max(width, 80), file=io.StringIO(), highlight=False, markup=False)
    with console.capture() as capture:
        for name, value in result.setting.items():
            if value not in (None, "", [], {}):
                console.print(f"{name}: {_text(value)}")
        if not result.is_whole:
            made = len(result.trials)
            console.print(f"interrupted: {made} of {result.planned} runs were made")
        found = figures(result)
        for temperature in dict.fromkeys(each.temperature for each in found):
            its = [each for each in found if each.temperature == temperature]
            sampling = "greedy" if temperature == 0 else f"temperature {temperature:g}"
            console.print(f"\nspeed, {sampling}")
            console.print(_grid(its, _SPEED, _speed))
            console.print(f"\nwhere the time went, {sampling}")
            its = [each for each in its if each.time is not None]
            console.print(_grid(its, [each.replace("_", " ") for each in STAGES], _shares))
        console.print(f"\n{_LEGEND}")
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


def _grid(
    found: Sequence[Figure], heads: Sequence[str], row: Callable[[Figure], list[str]]
) -> "Table":
    from rich.table import Table  # noqa: PLC0415 - as above

    grid = Table("", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for head in heads:
        grid.add_column(head, justify="right", no_wrap=True)
    for before, figure in zip([None, *found], found, strict=False):
        if before is None or before.workload != figure.workload:
            grid.add_row(figure.workload)
        grid.add_row(f"  {figure.mode}", *row(figure))
    return grid


def _speed(figure: Figure) -> list[str]:
    interval = figure.ratio and figure.ratio.interval
    same = figure.same_text
    forks = f"@{median(figure.forks_at):.0f}" if figure.forks_at else ""
    acceptance, length = figure.acceptance_rate, figure.mean_acceptance_length
    return [
        f"{figure.ratio.ratio:.3f}" if figure.ratio else "",
        "{:.3f}-{:.3f}".format(*interval) if interval else "",
        f"{figure.tokens_per_s:.1f}",
        f"{figure.first_token_s:.2f}",
        "" if acceptance is None else f"{acceptance:.0%}",
        "" if length is None else f"{length:.2f}",
        "" if same is None else f"{same}/{same + len(figure.forks_at)}{forks}",
    ]


def _shares(figure: Figure) -> list[str]:
    return [f"{share:.1%}" for share in (figure.time or {}).values()]


def _text(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(
            size_text(each) if name == "bytes" else f"{name} {_text(each)}"
            for name, each in value.items()
            if each not in (None, "", [], False)
        )
    if isinstance(value, list | tuple):
        return ", ".join(map(_text, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def document(result: Result) -> dict[str, Any]:
    """Return what was found, as values of JSON."""
    found = figures(result)
    rows = [_rounded(asdict(replace(each, ratio=None))) for each in found]
    keys = ("workload", "mode", "temperature")
    return {
        **result.setting,
        "runs": len(result.trials),
        "runs_planned": result.planned,
        "ratios": [
            {**{key: row[key] for key in keys}, **_interval(ratio), "pairs": ratio.pairs}
            for row, each in zip(rows, found, strict=True)
            if (ratio := each.ratio) is not None
        ],
        "figures": [{key: row[key] for key in row if key != "ratio"} for row in rows],
    }


def _interval(ratio: Estimate) -> dict[str, float | None]:
    low, high = ratio.interval or (None, None)
    row = {"ratio": ratio.ratio, "low": low, "high": high}
    return {key: each if each is None else round(each, 6) for key, each in row.items()}


def _rounded(row: Any) -> Any:
    if isinstance(row, dict):
        return {key: _rounded(each) for key, each in row.items()}
    return round(row, 6) if isinstance(row, float) else row


def has_verdict(result: Result) -> bool:
    """Return whether there are enough pairs for a verdict."""
    return len(result.neighbours()) >= LEAST_PAIRS


def verdict_lines(result: Result) -> Iterator[str]:
    """Yield which of two arms is faster, and what came of each."""
    found, pairs = verdict_document(result), result.neighbours()
    texts = [f"{arm.name} ({arm.text})" for arm in result.bench.arms]
    yield compare([*map(log_ratio, pairs)]).verdict(*texts)
    for text, runs in zip(texts, zip(*(pair[::-1] for pair in pairs), strict=True), strict=True):
        its, drafted = _figure(ALL, runs, (), None), sum(run.drafted for run in runs)
        share = f"{its.acceptance_rate or 0:.0%} of {drafted} drafted tokens accepted"
        yield f"{text}: {its.tokens_per_s:.1f} tokens/s, {share if drafted else 'nothing drafted'}"
    by_kind: dict[str, list[float]] = {}
    for pair in found["pairs"]:
        by_kind.setdefault(pair["workload"], []).append(pair["log_ratio"])
    if len(by_kind) > 1:
        ratios = (f"{kind} {math.exp(median(its)):.2f}" for kind, its in by_kind.items())
        yield f"median ratio by kind of text, from a few pairs each: {', '.join(ratios)}"
    same = sum(pair["same_text"] for pair in found["pairs"])
    yield f"the same text in {same} of {len(pairs)} pairs"
    if not result.is_whole:
        yield f"interrupted after {len(pairs)} of {found['pairs_planned']} pairs"


def verdict_document(result: Result) -> dict[str, Any]:
    """Return which of two arms is faster, as values of JSON."""
    pairs, (a, b) = result.neighbours(), result.bench.arms
    found = compare([*map(log_ratio, pairs)])
    return {
        "a": a.text,
        "b": b.text,
        **_interval(found),
        "differs": found.differs,
        "verdict": found.verdict("a", "b"),
        "pairs": [
            {
                "workload": result.bench.prompts[of_a.slot.prompt].workload,
                "log_ratio": round(log_ratio((of_b, of_a)), 6),
                "a_tokens_per_s": round(of_a.n_tokens / of_a.wall_s, 3),
                "b_tokens_per_s": round(of_b.n_tokens / of_b.wall_s, 3),
                "same_text": of_a.tokens == of_b.tokens,
            }
            for of_b, of_a in pairs
        ],
        "pairs_planned": result.planned // 2,
    }
