"""One measurement from beginning to end: load, measure, keep what was found."""

import math
import os
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import localspec
from localspec.bench.arms import Arm
from localspec.bench.estimate import FIRST_PAIRS, LEAST_PAIRS, pairs_needed
from localspec.bench.measure import (
    BenchModels,
    OwnRuns,
    Runs,
    Watchers,
    load,
    measure,
    prompt_tokens,
    schedule,
)
from localspec.bench.prompts import BenchPrompt
from localspec.bench.trial import Slot, Trial, speed_ratio
from localspec.decoding.cancel import CancelFlag
from localspec.decoding.policy import Policy
from localspec.errors import UsageError
from localspec.llama.build import build
from localspec.options import LaunchOptions, ReplyOptions
from localspec.resources import default_threads, processor_name

_SAMPLING = ("top_k", "top_p", "min_p", "repeat_penalty")


@dataclass(frozen=True, slots=True)
class Bench:
    """What to measure.

    Args:
        arms: to compare, all of them with the first.
        prompts: what to answer.
        prompts_name: where they are from.
        temperatures: at each of which.
        reply: how every answer is made; the seed is of the first repeat.
        repeats: how often each.
        verdict: whether two arms are compared in as many pairs as the noise requires.
        pairs: how many pairs there are for that; None lets the noise of the first ones decide.
    """

    arms: Sequence[Arm]
    prompts: Sequence[BenchPrompt]
    prompts_name: str
    temperatures: Sequence[float]
    reply: ReplyOptions
    repeats: int = 1
    verdict: bool = False
    pairs: int | None = None

    def __post_init__(self) -> None:
        if self.repeats < 1:
            raise UsageError(f"repeat is {self.repeats}: it must be 1 or more")
        if self.pairs is not None and self.pairs < LEAST_PAIRS:
            raise UsageError(f"pairs is {self.pairs}: give {LEAST_PAIRS} or more")

    @property
    def names(self) -> list[str]:
        """Names of the arms."""
        return [arm.name for arm in self.arms]


@dataclass(frozen=True, slots=True, eq=False)
class Result:
    """All that a measurement found.

    Args:
        bench: what was measured.
        setting: what the figures hold for, in words, in order.
        trials: the runs.
        planned: how many there were to be.
    """

    bench: Bench
    setting: Mapping[str, object]
    trials: Sequence[Trial]
    planned: int

    def neighbours(self) -> list[tuple[Trial, Trial]]:
        """Return every run of another arm with its neighbour of the first."""
        return neighbours(self.trials, self.bench.arms[0].name)

    @property
    def is_whole(self) -> bool:
        """Whether all runs that were planned were made."""
        return len(self.trials) >= self.planned


def neighbours(trials: Sequence[Trial], first: str) -> list[tuple[Trial, Trial]]:
    """Return every run of another arm with its neighbour of the first."""
    groups: dict[tuple[int, float, int, int], dict[str, Trial]] = {}
    for trial in trials:
        slot = trial.slot
        key = (slot.prompt, slot.temperature, slot.repeat, slot.group)
        groups.setdefault(key, {})[slot.mode] = trial
    return [
        (trial, group[first])
        for group in groups.values()
        if first in group
        for name, trial in group.items()
        if name != first
    ]


def log_ratio(pair: tuple[Trial, Trial]) -> float:
    """Return the logarithm of how many times as fast as its neighbour a run was, at equal lengths."""
    return math.log(speed_ratio(*pair))


OnTrial = Callable[[int, int, Trial], None]
OtherRuns = Callable[[BenchModels, ExitStack], Mapping[str, Runs]]


def run_bench(
    bench: Bench,
    cancel: CancelFlag,
    watchers: Watchers,
    on_trial: OnTrial = lambda *_: None,
    others: OtherRuns | None = None,
) -> Result:
    """Load, measure, and return what was found; of the runs before `cancel` was set, if it is.

    Args:
        bench: what to measure.
        cancel: ends the measurement.
        watchers: show how far fetching and loading is.
        on_trial: called after each run with how many are done, of how many, and what came of it.
        others: makes what answers for other programs, by the names that figures call them; these count as arms.

    Raises:
        LocalspecError: something cannot be loaded, started or answered.
        Cancelled: `cancel` was set before anything was measured.
    """
    with ExitStack() as stack:
        loaded: dict[LaunchOptions, BenchModels] = {}
        runs: dict[str, Runs] = {}
        for models in dict.fromkeys(arm.models for arm in bench.arms):
            arms = {arm.name: arm.mode for arm in bench.arms if arm.models == models}
            of_models = load(models, [*arms.values()], cancel, watchers)
            stack.callback(of_models.assistant.close)
            prompt_tokens(of_models.assistant, bench.prompts)
            own = OwnRuns(
                of_models.assistant, _policies(of_models, arms), bench.prompts, bench.reply
            )
            runs |= dict.fromkeys(arms, own)
            loaded[models] = of_models
        first = loaded[bench.arms[0].models]
        if others is not None:
            runs |= others(first, stack)
        repeats = None if bench.verdict else bench.repeats
        slots: Iterable[Slot] = schedule(len(bench.prompts), [*runs], bench.temperatures, repeats)
        planned = 2 * (bench.pairs or FIRST_PAIRS)
        if not bench.verdict:
            slots = list(slots)
            planned = len(slots)
        trials, planned = measure(slots, runs, planned, on_trial, _more(bench))
        return Result(bench, _described(bench, first), trials, planned)


def _policies(models: BenchModels, arms: Mapping[str, str]) -> Callable[[str], Policy]:
    return lambda name: models.policy(arms[name])


def _more(bench: Bench) -> Callable[[Sequence[Trial]], int]:
    """Return what says how many runs a verdict takes, once the first pairs are there."""

    def more(trials: Sequence[Trial]) -> int:
        if not bench.verdict or bench.pairs is not None or len(trials) != 2 * FIRST_PAIRS:
            return 0
        return 2 * pairs_needed([*map(log_ratio, neighbours(trials, bench.arms[0].name))])

    return more


def _described(bench: Bench, loaded: BenchModels) -> dict[str, object]:
    """Return what the figures hold for, in the order in which it is shown."""
    options, sampling = loaded.options, bench.reply.sampling
    draft_model = loaded.draft_model
    return {
        "machine": machine(),
        "build": {
            "localspec": localspec.__version__,
            **native_build(),
            "python": platform.python_version(),
        },
        "target": _file(loaded, loaded.target),
        "draft_model": None if draft_model is None else _file(loaded, draft_model),
        "options": {
            "threads": options.threads or default_threads(),
            "n_ctx": loaded.assistant.models.target.n_ctx,
            "kv_type": options.kv_type,
            "exact": bench.arms[0].launch.exact,
            "gpu_layers": options.gpu_layers,
            "devices": list(options.devices),
        },
        "sampling": {
            **{each: getattr(sampling, each) for each in _SAMPLING},
            "seed": bench.reply.seed,
        },
        "prompts": {"from": bench.prompts_name, "count": len(bench.prompts)},
        "max_tokens": bench.reply.max_tokens,
        "repeats": bench.repeats,
        "modes": bench.names,
        "temperatures": list(bench.temperatures),
        "notes": list(loaded.assistant.notes),
    }


def _file(loaded: BenchModels, path: Path) -> dict[str, object]:
    return {"name": loaded.names[path], "bytes": path.stat().st_size}


def machine() -> str:
    """Return processor, cores and system."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{processor_name()}, {cores} cores, {platform.system()} {platform.machine()}"


def native_build() -> dict[str, object]:
    """Return what the loaded llama.cpp says of itself."""
    native = build()
    return {
        "llama-cpp-python": native.version,
        "backends": list(native.backends),
        "features": list(native.features),
    }
