"""What a table and a program want to know of many runs: by kind of text, temperature and mode."""

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from localspec.bench.intervals import Estimate, combined, estimate
from localspec.bench.modes import OFF, is_peer
from localspec.bench.prompts import BenchPrompt
from localspec.bench.trial import Trial, fork, speed_ratio

ALL = "all"
STAGES = ("prefill", "draft_prefill", "draft", "verify", "sample", "other")

Pairs = Sequence[tuple[Trial, Trial]]


@dataclass(frozen=True, slots=True, order=True)
class Cell:
    """Where a figure belongs; `ALL` is every kind of text."""

    temperature: float
    workload: str
    mode: str


@dataclass(frozen=True, slots=True, eq=False)
class Figures:
    """What came of one mode on one kind of text.

    Args:
        ratio: of its speed to that of `off`; None for `off` itself.
        tokens_per_s: median over runs, prefill included.
        first_token_s: median over runs.
        acceptance_rate: accepted over drafted tokens; None where nothing was drafted.
        mean_acceptance_length: confirmed tokens per target pass; None where a peer does not tell.
        stages: share of the time of each of `STAGES`; None where a peer does not tell.
        n_runs: how many runs.
        same: in how many of them the text was that of `off`; None where it cannot be.
        forks: at which token the texts of the others left it.
    """

    ratio: Estimate | None
    tokens_per_s: float
    first_token_s: float
    acceptance_rate: float | None
    mean_acceptance_length: float | None
    stages: Mapping[str, float] | None
    n_runs: int
    same: int | None
    forks: tuple[int, ...]


def neighbours(trials: Iterable[Trial]) -> list[tuple[Trial, Trial]]:
    """Return every run of another mode with its neighbour of `off`."""
    groups: dict[tuple[int, float, int, int], list[Trial]] = {}
    for trial in trials:
        slot = trial.slot
        key = (slot.prompt, slot.temperature, slot.repeat, slot.group)
        groups.setdefault(key, []).append(trial)
    pairs = []
    for group in groups.values():
        off = next((trial for trial in group if trial.slot.mode == OFF), None)
        if off is not None:
            pairs += [(trial, off) for trial in group if trial is not off]
    return pairs


def summarise(
    trials: Sequence[Trial], prompts: Sequence[BenchPrompt], modes: Sequence[str]
) -> dict[Cell, Figures]:
    """Return figures for every cell that has runs.

    Args:
        trials: the runs.
        prompts: what their numbers mean; its order is that of the kinds of text.
        modes: in the order in which they are told.
    """
    by_cell: dict[Cell, list[Trial]] = {}
    pairs: dict[Cell, list[tuple[Trial, Trial]]] = {}
    workloads = list(dict.fromkeys(prompt.workload for prompt in prompts))

    def place(trial: Trial) -> tuple[int, int]:
        return workloads.index(prompts[trial.slot.prompt].workload), modes.index(trial.slot.mode)

    for trial in sorted(trials, key=place):
        by_cell.setdefault(_cell(trial, prompts), []).append(trial)
    for pair in neighbours(trials):
        pairs.setdefault(_cell(pair[0], prompts), []).append(pair)
    found = {cell: _figures(cell, runs, pairs.get(cell, [])) for cell, runs in by_cell.items()}
    return {**found, **_over_all(found, by_cell, pairs)}


def paired_ratios(pairs: Pairs) -> dict[int, list[float]]:
    """Return ratios by prompt."""
    found: dict[int, list[float]] = {}
    for trial, other in pairs:
        found.setdefault(trial.slot.prompt, []).append(speed_ratio(trial, other))
    return found


def seed_of(*names: object) -> int:
    """Return a number that is fixed by names, so that no two cells draw alike."""
    return zlib.crc32(repr(names).encode())


def _cell(trial: Trial, prompts: Sequence[BenchPrompt]) -> Cell:
    slot = trial.slot
    return Cell(slot.temperature, prompts[slot.prompt].workload, slot.mode)


def _figures(
    cell: Cell, runs: Sequence[Trial], pairs: Pairs, ratio: Estimate | None = None
) -> Figures:
    if ratio is None and pairs:
        ratio = estimate(paired_ratios(pairs), seed_of(cell))
    rounds = sum(len(run.rounds) for run in runs)
    confirmed = sum(len(each.confirmed) for run in runs for each in run.rounds)
    drafted = sum(run.drafted for run in runs)
    # A peer draws its own noise: above temperature 0 its text is another one.
    comparable = not (is_peer(cell.mode) and cell.temperature > 0) and cell.mode != OFF
    forks = [fork(run.tokens, off.tokens) for run, off in pairs] if comparable else []
    return Figures(
        ratio=ratio,
        tokens_per_s=median(run.n_tokens / run.wall_s for run in runs),
        first_token_s=median(run.first_token_s for run in runs),
        acceptance_rate=sum(run.accepted for run in runs) / drafted if drafted else None,
        mean_acceptance_length=confirmed / rounds if rounds else None,
        stages=None if is_peer(cell.mode) else _stages(runs),
        n_runs=len(runs),
        same=forks.count(None) if comparable else None,
        forks=tuple(sorted(each for each in forks if each is not None)),
    )


def _stages(runs: Sequence[Trial]) -> dict[str, float]:
    wall = sum(run.wall_s for run in runs)
    spent = [each.spent for run in runs for each in run.rounds]
    seconds = {
        "prefill": sum(run.prefill_s for run in runs),
        "draft_prefill": sum(each.draft_prefill_s for each in spent),
        "draft": sum(each.draft_s for each in spent),
        "verify": sum(each.verify_s for each in spent),
        "sample": sum(each.sample_s for each in spent),
    }
    return {**{k: s / wall for k, s in seconds.items()}, "other": 1 - sum(seconds.values()) / wall}


def _over_all(
    found: Mapping[Cell, Figures],
    by_cell: Mapping[Cell, Sequence[Trial]],
    pairs: Mapping[Cell, Pairs],
) -> dict[Cell, Figures]:
    """Return the figures of all kinds together; each kind counts alike."""
    whole: dict[Cell, list[Cell]] = {}
    for cell in found:
        whole.setdefault(Cell(cell.temperature, ALL, cell.mode), []).append(cell)
    together = {}
    for cell, parts in whole.items():
        if len(parts) < 2:
            continue
        ratios = [each for part in parts if (each := found[part].ratio) is not None]
        runs = [run for part in parts for run in by_cell[part]]
        its_pairs = [pair for part in parts for pair in pairs.get(part, [])]
        ratio = combined(ratios) if ratios else None
        together[cell] = _figures(cell, runs, its_pairs, ratio)
    return together
