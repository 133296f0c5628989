"""The result of a measurement as figures, tables and values of JSON. Durations are in seconds."""

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from localspec.api import size_text
from localspec.plugins.bench.estimate import LEAST_PAIRS, Estimate, combined, compare, estimate
from localspec.plugins.bench.measure import Result
from localspec.plugins.bench.trial import Trial, fork, log_ratio

if TYPE_CHECKING:
    from rich.table import Table

ALL = "all"
STAGES = ("prefill", "draft_prefill", "draft", "verify", "sample", "other")
_SPEED = ("ratio", "95 %", "tokens/s", "first", "acc.", "len.", "same")
_LEGEND = (
    "ratio: speed relative to the neighbouring run of {0}, from the request to the last token, prefill included, at "
    "equal lengths; above 1 is faster; with its 95 % interval. tokens/s: of the median run, prefill included. first: seconds to the first token. acc.: accepted of "
    "all drafted tokens, or that nothing was drafted. len.: confirmed tokens per round. same: texts that are those of {0}, and the median "
    "token at which the others left it. all: each kind counts alike in ratio, and each run in tokens/s, so the two need not agree."
)
Pairs = Sequence[tuple[Trial, Trial]]


@dataclass(frozen=True, slots=True)
class Figure:
    """The figures of one arm on one kind of text.

    Args:
        workload: the kind; `ALL` is every one.
        mode: name of the arm.
        temperature: at which.
        tokens_per_s: median over runs, prefill included.
        first_token_s: median over runs.
        acceptance_rate: accepted over drafted tokens; None where nothing was drafted.
        mean_acceptance_length: confirmed tokens per round; None where another program does not say.
        time: share of the time of each of `STAGES`; None where another program does not say.
        runs: how many runs.
        same_text: in how many of them the text was that of the first arm; None for that itself.
        forks_at: at which token the texts of the others left it.
        ratio: of its speed to that of the first arm; None for that itself.
        gains: what drafting gained, by the median of what its answers show; None where none does.
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
    gains: float | None = None


def figures(result: Result) -> list[Figure]:
    """Return a figure for each temperature, kind of text and arm, and for all kinds together; each kind counts alike."""
    kinds = [prompt.workload for prompt in result.bench.prompts]
    trials = _comparable(result)
    modes = dict.fromkeys([*result.bench.names, *(run.slot.mode for run in trials)])
    groups: dict[tuple[float, str, str], list[Trial]] = {}
    for trial in trials:
        for kind in (kinds[trial.slot.prompt], ALL):
            groups.setdefault((trial.slot.temperature, kind, trial.slot.mode), []).append(trial)
    every = [kind for kind in dict.fromkeys(kinds) if any(kind == place[1] for place in groups)]
    neighbours = {trial.slot: off for trial, off in result.neighbours}
    rows: list[Figure] = []
    for temperature in dict.fromkeys(place[0] for place in groups):
        of_kinds: list[Figure] = []
        for place in ((temperature, kind, mode) for kind in every for mode in modes):
            if runs := groups.get(place):
                pairs = [(run, neighbours[run.slot]) for run in runs if run.slot in neighbours]
                of_kinds.append(_figure(place[1], runs, pairs, _ratio(pairs)))
        rows += of_kinds
        for mode in modes if len(every) > 1 else ():
            if runs := groups.get((temperature, ALL, mode)):
                pairs = [(run, neighbours[run.slot]) for run in runs if run.slot in neighbours]
                ratios = [each.ratio for each in of_kinds if each.mode == mode and each.ratio]
                rows.append(_figure(ALL, runs, pairs, combined(ratios) if ratios else None))
    return rows


def _comparable(result: Result) -> Sequence[Trial]:
    """Return the runs that figures are made of: where it was interrupted, those of prompts that every arm has answered."""
    if result.is_whole:
        return result.trials
    answered: dict[tuple[int, float, int], set[str]] = {}
    for run in result.trials:
        answered.setdefault(_prompt_of(run), set()).add(run.slot.mode)
    arms = {run.slot.mode for run in result.trials}
    return [run for run in result.trials if answered[_prompt_of(run)] == arms] or result.trials


def _prompt_of(run: Trial) -> tuple[int, float, int]:
    return run.slot.prompt, run.slot.temperature, run.slot.repeat


def _ratio(pairs: Pairs) -> Estimate | None:
    by_prompt: dict[int, list[float]] = {}
    for pair in pairs:
        by_prompt.setdefault(pair[0].slot.prompt, []).append(log_ratio(*pair))
    # Repeats of one prompt share its text, and say nothing of other prompts.
    values = [median(each) for each in by_prompt.values()]
    if len(values) == 1:
        (values,) = by_prompt.values()
    return estimate(values, len(pairs)) if values else None


def _figure(kind: str, runs: Sequence[Trial], pairs: Pairs, ratio: Estimate | None) -> Figure:
    rounds = [each for run in runs for each in run.rounds]
    drafted = sum(run.drafted for run in runs)
    forks = [fork(run.tokens, other.tokens) for run, other in pairs]
    gains = [run.gain.ratio for run in runs if run.gain is not None]
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
        gains=median(gains) if gains else None,
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
    """Return the figures as tables of 80 columns at least, and the verdict if there is one."""
    from rich.console import Console  # noqa: PLC0415 - only tables need it

    console = Console(width=max(width, 80), file=io.StringIO(), highlight=False, markup=False)
    with console.capture() as capture:
        for name, value in result.setting.items():
            if value not in (None, "", [], {}):
                console.print(f"{name}: {_text(value)}")
        if not result.is_whole:
            made = len(result.trials)
            left_out = made - len(_comparable(result))
            more = f"; the figures leave out the last {left_out}, of a prompt that not every mode has answered"
            text = (
                f"interrupted: {made} of {result.planned} runs were made{more if left_out else ''}"
            )
            console.print(text)
        rows = figures(result)
        for temperature in dict.fromkeys(each.temperature for each in rows):
            its = [each for each in rows if each.temperature == temperature]
            sampling = "greedy" if temperature == 0 else f"temperature {temperature:g}"
            console.print(f"\nspeed, {sampling}")
            console.print(_grid(its, _SPEED, _speed))
            console.print(f"\nwhere the time went, {sampling}")
            its = [each for each in its if each.time is not None]
            console.print(_grid(its, [each.replace("_", " ") for each in STAGES], _shares))
        console.print(f"\n{_LEGEND.format(result.bench.names[0])}")
        if (verdict := compared(result)) is not None:
            texts = [f"{arm.name} ({arm.text})" for arm in result.bench.arms]
            console.print(f"\n{verdict.verdict(*texts)}")
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


def _grid(
    rows: Sequence[Figure], heads: Sequence[str], row: Callable[[Figure], list[str]]
) -> "Table":
    from rich.table import Table  # noqa: PLC0415 - as above

    grid = Table("", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for head in heads:
        grid.add_column(head, justify="right", no_wrap=True)
    for before, figure in zip([None, *rows], rows, strict=False):
        if before is None or before.workload != figure.workload:
            grid.add_row(figure.workload)
        grid.add_row(f"  {figure.mode}", *row(figure))
    return grid


def _speed(figure: Figure) -> list[str]:
    interval = figure.ratio and figure.ratio.interval
    same = figure.same_text
    forks = f"@{median(figure.forks_at):.0f}" if figure.forks_at else ""
    acceptance, length = figure.acceptance_rate, figure.mean_acceptance_length
    few = "too few" if figure.ratio else ""
    idle = "none" if figure.ratio and length is not None else ""
    return [
        f"{figure.ratio.ratio:.3f}" if figure.ratio else "",
        "{:.3f}-{:.3f}".format(*interval) if interval else few,
        f"{figure.tokens_per_s:.1f}",
        f"{figure.first_token_s:.2f}",
        f"{acceptance:.0%}" if acceptance is not None else idle,
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
    """Return the figures as values of JSON, and the verdict if there is one."""
    rows = figures(result)
    keys = ("workload", "mode", "temperature")
    verdict = compared(result)
    return {
        **result.setting,
        "runs": len(result.trials),
        "runs_planned": result.planned,
        "ratios": [
            {**{key: getattr(each, key) for key in keys}, **_interval(each.ratio)}
            for each in rows
            if each.ratio is not None
        ],
        "figures": [
            {key: value for key, value in asdict(each).items() if key != "ratio"} for each in rows
        ],
        **({} if verdict is None else _verdict(result, verdict)),
    }


def _verdict(result: Result, verdict: Estimate) -> dict[str, Any]:
    a, b = (arm.text for arm in result.bench.arms)
    words = {"differs": verdict.differs, "verdict": verdict.verdict("a", "b")}
    return {"a": a, "b": b, **_interval(verdict), **words}


def _interval(ratio: Estimate) -> dict[str, float | None]:
    low, high = ratio.interval or (None, None)
    return {"ratio": ratio.ratio, "low": low, "high": high, "pairs": ratio.pairs}


def compared(result: Result) -> Estimate | None:
    """Return how fast the second of two arms is beside the first; None where no verdict is wanted, or pairs are too few."""
    pairs = result.neighbours
    if not result.bench.verdict or len(pairs) < LEAST_PAIRS:
        return None
    return compare([log_ratio(*pair) for pair in pairs])
