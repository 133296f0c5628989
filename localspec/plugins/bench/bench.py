"""One measurement from beginning to end: load, measure, and what the figures hold for."""

import os
import platform
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import localspec
from localspec.api import LaunchOptions, make_plan
from localspec.chat.assistant import Assistant
from localspec.decoding.cancel import CancelFlag
from localspec.decoding.policy import Policy
from localspec.launch.load import Report, Runtime, load
from localspec.llama.backend import build
from localspec.models.transfer import Progress
from localspec.plan.load_plan import LoadPlan
from localspec.plugins.bench.measure import (
    Bench,
    OnTrial,
    OwnRuns,
    Result,
    Runs,
    measure,
    prompt_tokens,
)
from localspec.resources import default_threads, processor_name

_SAMPLING = ("top_k", "top_p", "min_p", "repeat_penalty")


class BenchModels(NamedTuple):
    """Models that are loaded: how they were planned, and the assistant that answers with them."""

    plan: LoadPlan
    assistant: Assistant


@dataclass(frozen=True, slots=True)
class Watchers:
    """Callbacks that show how far fetching, loading and calibrating are, and that all of it is done."""

    download: Callable[[Progress], None] = lambda _: None
    load: Report = lambda _notice: None
    loaded: Callable[[], None] = lambda: None


OtherRuns = Callable[[BenchModels, ExitStack], Mapping[str, Runs]]


def run_bench(
    bench: Bench,
    cancel: CancelFlag,
    watchers: Watchers,
    on_trial: OnTrial = lambda *_: None,
    others: OtherRuns | None = None,
) -> Result:
    """Load, measure, and return the result; of the runs before `cancel` was set, if it is.

    Args:
        bench: what to measure.
        cancel: ends the measurement.
        watchers: show how far fetching and loading is.
        on_trial: called after each run with how many are done, of how many, and the run.
        others: makes what answers for other programs, by the names that figures call them; these count as arms.

    Raises:
        LocalspecError: something cannot be loaded, started or answered.
        Cancelled: `cancel` was set before anything was measured.
    """
    with ExitStack() as stack:
        loaded: dict[LaunchOptions, BenchModels] = {}
        runs: dict[str, Runs] = {}
        for models in dict.fromkeys(arm.models for arm in bench.arms):
            modes = {arm.name: arm.mode for arm in bench.arms if arm.models == models}
            request = replace(models, further=tuple(modes.values()), mmproj="off")
            plan = make_plan(request, watchers.download)
            runtime = load(plan, cancel, watchers.load)
            stack.callback(runtime.assistant.close)
            prompt_tokens(runtime.assistant, bench.prompts)  # one that is too long ends it here
            policy = partial(_policy, runtime, modes)
            own = OwnRuns(runtime.assistant, policy, bench.prompts, bench.reply)
            runs |= dict.fromkeys(modes, own)
            loaded[models] = BenchModels(plan, runtime.assistant)
        first = loaded[bench.arms[0].models]
        if others is not None:
            runs |= others(first, stack)
        watchers.loaded()
        trials, planned = measure(bench, runs, on_trial)
        return Result(bench, _setting(bench, first), trials, planned)


def _policy(runtime: Runtime, modes: Mapping[str, str], name: str) -> Policy:
    return runtime.drafting.policy(modes[name])


def _setting(bench: Bench, loaded: BenchModels) -> dict[str, object]:
    """Return what the figures hold for, in the order in which it is printed."""
    plan, assistant = loaded
    options, sampling, native = plan.options, bench.reply.sampling, build()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    machine = f"{platform.system()} {platform.machine()}"
    return {
        "machine": f"{processor_name()}, {cores} cores, {machine}",
        "build": {
            "localspec": localspec.__version__,
            "llama-cpp-python": native.version,
            "backends": list(native.backends),
            "features": native.features_text.split(", "),
            "python": platform.python_version(),
        },
        **{
            name: file and {"name": plan.names[file], "bytes": file.stat().st_size}
            for name, file in (("target", plan.target), ("draft_model", plan.draft_model))
        },
        "options": {
            "threads": options.threads or default_threads(),
            "n_ctx": assistant.models.target.n_ctx,
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
        "notes": list(assistant.notes),
    }
