"""Result: all that a bench run found, in the terms in which it is told."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from localspec.bench.intervals import Estimate, combined, estimate
from localspec.bench.modes import OFF, is_peer
from localspec.bench.prediction import Costs, Prediction, measured_costs, predict
from localspec.bench.prompts import BenchPrompt
from localspec.bench.summary import ALL, Cell, Figures, neighbours, seed_of, summarise
from localspec.bench.trial import Trial, speed_ratio


@dataclass(frozen=True, slots=True, eq=False)
class Duel:
    """A mode of ours against the best of a peer's on one kind of text."""

    cell: Cell
    peer: str
    ratio: Estimate


@dataclass(frozen=True, slots=True, eq=False)
class Result:
    """All that a bench run found.

    Args:
        setting: what was compared, in words, in order.
        figures: by cell.
        predictions: by cell, for our own modes that drafted.
        duels: against a peer; empty without one.
        costs: of passes; None where none was plain.
        n_runs: how many runs there were.
        n_planned: how many there were to be.
    """

    setting: Mapping[str, object]
    figures: Mapping[Cell, Figures]
    predictions: Mapping[Cell, Prediction]
    duels: Sequence[Duel]
    costs: Costs | None
    n_runs: int
    n_planned: int


def result(
    trials: Sequence[Trial],
    prompts: Sequence[BenchPrompt],
    modes: Sequence[str],
    setting: Mapping[str, object],
    n_planned: int,
) -> Result:
    """Work out what runs show."""
    figures = summarise(trials, prompts, modes)
    costs = measured_costs(trial for trial in trials if not is_peer(trial.slot.mode))
    return Result(
        setting=setting,
        figures=figures,
        predictions={} if costs is None else _predictions(trials, prompts, figures, costs),
        duels=_duels(trials, prompts, figures),
        costs=costs,
        n_runs=len(trials),
        n_planned=n_planned,
    )


def _predictions(
    trials: Sequence[Trial],
    prompts: Sequence[BenchPrompt],
    figures: Mapping[Cell, Figures],
    costs: Costs,
) -> dict[Cell, Prediction]:
    found = {}
    pairs = neighbours(trials)
    for cell, its in figures.items():
        if cell.mode == OFF or is_peer(cell.mode) or its.ratio is None or cell.workload == ALL:
            continue
        chosen = [pair for pair in pairs if _is_in(pair[0], cell, prompts)]
        runs, off = [run for run, _ in chosen], [plain for _, plain in chosen]
        found[cell] = predict(runs, off, costs, its.ratio.ratio)
    return found


def _duels(
    trials: Sequence[Trial], prompts: Sequence[BenchPrompt], figures: Mapping[Cell, Figures]
) -> list[Duel]:
    """Return how each of our modes does against the best of the peer's, by kind of text."""
    parts: dict[Cell, list[Duel]] = {}
    for cell in figures:
        rivals = _rivals(cell, figures)
        if is_peer(cell.mode) or cell.workload == ALL or not rivals:
            continue
        best = max(rivals, key=lambda rival: _speed(figures[rival]))
        ratio = _ratio_between(cell, best, trials, prompts)
        if ratio is not None:
            whole = Cell(cell.temperature, ALL, cell.mode)
            parts.setdefault(whole, []).append(Duel(cell, best.mode, ratio))
    every = [duel for duels in parts.values() for duel in duels]
    for whole, duels in parts.items():
        if len(duels) > 1:
            every.append(Duel(whole, "best", combined([duel.ratio for duel in duels])))
    return every


def _rivals(cell: Cell, figures: Mapping[Cell, Figures]) -> list[Cell]:
    return [
        rival
        for rival, its in figures.items()
        if is_peer(rival.mode)
        and its.ratio is not None
        and (rival.temperature, rival.workload) == (cell.temperature, cell.workload)
    ]


def _speed(figures: Figures) -> float:
    return 0.0 if figures.ratio is None else figures.ratio.ratio


def _ratio_between(
    ours: Cell, theirs: Cell, trials: Sequence[Trial], prompts: Sequence[BenchPrompt]
) -> Estimate | None:
    """Return the ratio of two modes, each by its own neighbour of `off`, prompt by prompt."""
    one, other = (_relative(cell, trials, prompts) for cell in (ours, theirs))
    both = {
        prompt: [
            one[prompt, repeat] / other[prompt, repeat]
            for p, repeat in one
            if p == prompt and (p, repeat) in other
        ]
        for prompt, _ in one
    }
    both = {prompt: ratios for prompt, ratios in both.items() if ratios}
    return estimate(both, seed_of(ours, theirs)) if both else None


def _relative(
    cell: Cell, trials: Sequence[Trial], prompts: Sequence[BenchPrompt]
) -> dict[tuple[int, int], float]:
    """Return a mode's speed relative to `off`, by prompt and repeat; that of `off` itself is 1."""
    if cell.mode == OFF:
        chosen = [trial for trial in trials if _is_in(trial, cell, prompts)]
        return {(trial.slot.prompt, trial.slot.repeat): 1.0 for trial in chosen}
    return {
        (trial.slot.prompt, trial.slot.repeat): speed_ratio(trial, off)
        for trial, off in neighbours(trials)
        if _is_in(trial, cell, prompts)
    }


def _is_in(trial: Trial, cell: Cell, prompts: Sequence[BenchPrompt]) -> bool:
    slot = trial.slot
    return cell == Cell(slot.temperature, prompts[slot.prompt].workload, slot.mode)
