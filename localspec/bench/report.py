"""What a measurement found, as tables for people and as one JSON object. Durations are in seconds."""

import io
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
_LEGEND = (
    "ratio: speed relative to the neighbouring run of off, from the request to the last token, prefill included, at "
    "equal lengths; above 1 is faster; with its 95 % interval. first: seconds to the first token. acc.: accepted of "
    "all drafted tokens. len.: confirmed tokens per target pass. same: texts that are those of off, and the median "
    "token at which the others left it."
)
Pairs = Sequence[tuple[Trial, Trial]]


@dataclass(frozen=True, slots=True, order=True)
class Cell:
    """Where a figure belongs; `ALL` is every kind of text."""

    temperature: float
    workload: str
    mode: str


@dataclass(frozen=True, slots=True, eq=False)
class Figures:
    """What came of one arm on one kind of text.

    Args:
        ratio: of its speed to that of the first arm; None for that itself.
        runs: its runs.
        forks: at which token texts left that of the neighbour; None where they did not.
    """

    ratio: Estimate | None
    runs: Sequence[Trial]
    forks: Sequence[int | None]

    @property
    def tokens_per_s(self) -> float:
        """Median over runs, prefill included."""
        return median(run.n_tokens / run.wall_s for run in self.runs)

    @property
    def first_token_s(self) -> float:
        """Median over runs."""
        return median(run.first_token_s for run in self.runs)

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted over drafted tokens; None where nothing was drafted."""
        drafted = sum(run.drafted for run in self.runs)
        return sum(run.accepted for run in self.runs) / drafted if drafted else None

    @property
    def mean_acceptance_length(self) -> float | None:
        """Confirmed tokens per target pass; None where another program does not say."""
        rounds = [each for run in self.runs for each in run.rounds]
        return sum(len(each.confirmed) for each in rounds) / len(rounds) if rounds else None

    @property
    def stages(self) -> dict[str, float] | None:
        """Share of the time of each of `STAGES`; None where another program does not say."""
        spent = [each.spent for run in self.runs for each in run.rounds]
        if not spent:
            return None
        wall = sum(run.wall_s for run in self.runs)
        seconds = {
            "prefill": sum(run.prefill_s for run in self.runs),
            "draft_prefill": sum(each.draft_prefill_s for each in spent),
            "draft": sum(each.draft_s for each in spent),
            "verify": sum(each.verify_s for each in spent),
            "sample": sum(each.sample_s for each in spent),
        }
        shares = {stage: its / wall for stage, its in seconds.items()}
        return {**shares, "other": 1 - sum(shares.values())}


def figures(result: Result) -> dict[Cell, Figures]:
    """Return figures for every cell that has runs, and for all kinds together, each of which counts alike."""
    workloads = list(dict.fromkeys(prompt.workload for prompt in result.bench.prompts))
    modes = list(dict.fromkeys([*result.bench.names, *(run.slot.mode for run in result.trials)]))
    runs: dict[Cell, list[Trial]] = {}
    pairs: dict[Cell, list[tuple[Trial, Trial]]] = {}
    for trial in result.trials:
        runs.setdefault(_cell(result, trial), []).append(trial)
    for pair in result.neighbours():
        pairs.setdefault(_cell(result, pair[0]), []).append(pair)

    def place(cell: Cell) -> tuple[float, int, int]:
        return cell.temperature, workloads.index(cell.workload), modes.index(cell.mode)

    found = {cell: _figures(runs[cell], pairs.get(cell, ())) for cell in sorted(runs, key=place)}
    parts: dict[Cell, list[Cell]] = {}
    for cell in found:
        parts.setdefault(Cell(cell.temperature, ALL, cell.mode), []).append(cell)
    for whole, its in parts.items():
        if len(its) > 1:
            ratios = [ratio for cell in its if (ratio := found[cell].ratio) is not None]
            found[whole] = Figures(
                combined(ratios) if ratios else None,
                [run for cell in its for run in found[cell].runs],
                [at for cell in its for at in found[cell].forks],
            )
    return found


def _cell(result: Result, trial: Trial) -> Cell:
    slot = trial.slot
    return Cell(slot.temperature, result.bench.prompts[slot.prompt].workload, slot.mode)


def _figures(runs: Sequence[Trial], pairs: Pairs) -> Figures:
    by_prompt: dict[int, list[float]] = {}
    for pair in pairs:
        by_prompt.setdefault(pair[0].slot.prompt, []).append(log_ratio(pair))
    # Repeats of one prompt share its text, and say nothing of other prompts.
    values = [median(each) for each in by_prompt.values()]
    if len(values) == 1:
        (values,) = by_prompt.values()
    forks = [fork(run.tokens, other.tokens) for run, other in pairs]
    return Figures(estimate(values, len(pairs)) if values else None, runs, forks)


def table(result: Result, width: int = 80) -> str:
    """Return what was found, as tables; lines are as long as tables need, and 80 columns or `width` at most."""
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
        for temperature in dict.fromkeys(cell.temperature for cell in found):
            its = {cell: found[cell] for cell in found if cell.temperature == temperature}
            sampling = "greedy" if temperature == 0 else f"temperature {temperature:g}"
            console.print(f"\nspeed, {sampling}")
            console.print(_grid(its, _SPEED, _speed))
            console.print(f"\nwhere the time went, {sampling}")
            stages = {cell: figure for cell, figure in its.items() if figure.stages is not None}
            console.print(_grid(stages, [each.replace("_", " ") for each in STAGES], _stages))
        console.print(f"\n{_LEGEND}")
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


_SPEED = ("ratio", "95 %", "tokens/s", "first", "acc.", "len.", "same")


def _grid(
    found: Mapping[Cell, Figures], heads: Sequence[str], row: Callable[[Figures], list[str]]
) -> "Table":
    from rich.table import Table  # noqa: PLC0415 - as above

    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    grid.add_column("")
    for head in heads:
        grid.add_column(head, justify="right", no_wrap=True)
    workload = ""
    for cell, figure in found.items():
        if cell.workload != workload:
            workload = cell.workload
            grid.add_row(workload)
        grid.add_row(f"  {cell.mode}", *row(figure))
    return grid


def _speed(figure: Figures) -> list[str]:
    ratio = figure.ratio
    interval = None if ratio is None else ratio.interval
    left = [at for at in figure.forks if at is not None]
    same = f"{len(figure.forks) - len(left)}/{len(figure.forks)}" if figure.forks else ""
    acceptance, length = figure.acceptance_rate, figure.mean_acceptance_length
    return [
        "" if ratio is None else f"{ratio.ratio:.3f}",
        "" if interval is None else f"{interval[0]:.3f}-{interval[1]:.3f}",
        f"{figure.tokens_per_s:.1f}",
        f"{figure.first_token_s:.2f}",
        "" if acceptance is None else f"{acceptance:.0%}",
        "" if length is None else f"{length:.2f}",
        f"{same}@{median(left):.0f}" if left else same,
    ]


def _stages(figure: Figures) -> list[str]:
    return [f"{share:.1%}" for share in (figure.stages or {}).values()]


def _text(value: object) -> str:
    if isinstance(value, Mapping):
        parts = {name: each for name, each in value.items() if each not in (None, "", [], False)}
        return ", ".join(
            size_text(each) if name == "bytes" else f"{name} {_text(each)}"
            for name, each in parts.items()
        )
    if isinstance(value, list | tuple):
        return ", ".join(map(_text, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def document(result: Result) -> dict[str, Any]:
    """Return what was found, as values of JSON."""
    found = figures(result)
    return {
        **result.setting,
        "runs": len(result.trials),
        "runs_planned": result.planned,
        "ratios": [
            {**_place(cell), **_ratio(its.ratio)}
            for cell, its in found.items()
            if its.ratio is not None
        ],
        "figures": [{**_place(cell), **_facts(its)} for cell, its in found.items()],
    }


def _place(cell: Cell) -> dict[str, Any]:
    return {"workload": cell.workload, "mode": cell.mode, "temperature": cell.temperature}


def _ratio(ratio: Estimate) -> dict[str, Any]:
    low, high = ratio.interval or (None, None)
    return rounded({"ratio": ratio.ratio, "low": low, "high": high, "pairs": ratio.pairs})


def _facts(its: Figures) -> dict[str, Any]:
    left = [at for at in its.forks if at is not None]
    numbers = {
        "tokens_per_s": its.tokens_per_s,
        "first_token_s": its.first_token_s,
        "acceptance_rate": its.acceptance_rate,
        "mean_acceptance_length": its.mean_acceptance_length,
    }
    return rounded(numbers) | {
        "time": None if its.stages is None else rounded(its.stages),
        "runs": len(its.runs),
        "same_text": len(its.forks) - len(left) if its.forks else None,
        "forks_at": sorted(left),
    }


def rounded(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return numbers with six decimals."""
    return {key: round(each, 6) if isinstance(each, float) else each for key, each in row.items()}


def has_verdict(result: Result) -> bool:
    """Return whether there are enough pairs for a verdict."""
    return len(result.neighbours()) >= LEAST_PAIRS


def verdict_lines(result: Result) -> Iterator[str]:
    """Yield which of two arms is faster, and what came of each."""
    pairs, (a, b) = result.neighbours(), result.bench.arms
    values = [*map(log_ratio, pairs)]
    yield compare(values).verdict(f"a ({a.text})", f"b ({b.text})")
    for arm, runs in ((a, [of_a for _, of_a in pairs]), (b, [of_b for of_b, _ in pairs])):
        its = Figures(None, runs, ())
        drafted = sum(run.drafted for run in runs)
        rate = its.acceptance_rate
        share = (
            "nothing drafted"
            if rate is None
            else f"{rate:.0%} of {drafted} drafted tokens accepted"
        )
        yield f"{arm.name} ({arm.text}): {its.tokens_per_s:.1f} tokens/s, {share}"
    by_kind: dict[str, list[float]] = {}
    for pair, value in zip(pairs, values, strict=True):
        by_kind.setdefault(_cell(result, pair[0]).workload, []).append(value)
    if len(by_kind) > 1:
        ratios = (f"{kind} {math.exp(median(its)):.2f}" for kind, its in by_kind.items())
        yield f"median ratio by kind of text, from a few pairs each: {', '.join(ratios)}"
    same = sum(of_a.tokens == of_b.tokens for of_b, of_a in pairs)
    yield f"the same text in {same} of {len(pairs)} pairs"
    if not result.is_whole:
        yield f"interrupted after {len(pairs)} of {result.planned // 2} pairs"


def verdict_document(result: Result) -> dict[str, Any]:
    """Return which of two arms is faster, as values of JSON."""
    pairs, (a, b) = result.neighbours(), result.bench.arms
    values = [*map(log_ratio, pairs)]
    found = compare(values)
    return {
        "a": a.text,
        "b": b.text,
        **_ratio(found),
        "differs": found.differs,
        "verdict": found.verdict("a", "b"),
        "pairs": [
            {
                "workload": _cell(result, of_a).workload,
                "log_ratio": round(value, 6),
                "a_tokens_per_s": round(of_a.n_tokens / of_a.wall_s, 3),
                "b_tokens_per_s": round(of_b.n_tokens / of_b.wall_s, 3),
                "same_text": of_a.tokens == of_b.tokens,
            }
            for (of_b, of_a), value in zip(pairs, values, strict=True)
        ],
        "pairs_planned": result.planned // 2,
    }


def as_json(found: Mapping[str, Any], *, only_ascii: bool = False) -> str:
    """Return one JSON object, on one line.

    Args:
        found: its values.
        only_ascii: escape every other character, for a stream that has not all of them.
    """
    return json.dumps(found, ensure_ascii=only_ascii)
