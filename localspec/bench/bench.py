"""One bench run from beginning to end: load, measure, work out."""

import os
import platform
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import localspec
from localspec.bench.instruments import instrument
from localspec.bench.loading import RANDOM, BenchModels, Watchers, load, synthetic_models
from localspec.bench.measure import Runs, measure, prompt_tokens
from localspec.bench.modes import is_peer
from localspec.bench.own import OwnRuns
from localspec.bench.prompts import BenchPrompt
from localspec.bench.result import Result, result
from localspec.bench.schedule import schedule
from localspec.bench.trial import Trial
from localspec.decoding.cancel import CancelFlag
from localspec.errors import UsageError
from localspec.llama.build import build
from localspec.options import LaunchOptions, ReplyOptions
from localspec.resources import default_threads

OnTrial = Callable[[int, int, Trial], None]
_SAMPLING = ("top_k", "top_p", "min_p", "repeat_penalty")


class Peers(Protocol):
    """`lab.peers`: measures another program as localspec is measured."""

    def peer_program(self, text: str) -> Path:
        """Return the path that `--against llama-server=PATH` names, or raise UsageError."""
        ...

    def open_runs(
        self,
        program: Path,
        loaded: BenchModels,
        prompts: Sequence[Sequence[int]],
        asked: ReplyOptions,
        is_cancelled: Callable[[], bool],
    ) -> AbstractContextManager[Runs]:
        """Return what answers prompts of token ids by the files and options of `loaded`."""
        ...


def peers() -> Peers:
    """Return what measures other programs; raises UsageError where there is no checkout."""
    found: Peers = instrument("peers", "--against")
    return found


@dataclass(frozen=True, slots=True)
class Bench:
    """What to measure.

    Args:
        launch: which models, and how they are loaded.
        prompts: what to answer.
        prompts_name: where they are from.
        modes: to compare, `off` among them.
        temperatures: at each of which.
        asked: how every answer is made; the seed is of the first repeat.
        repeats: how often each.
        synthetic: how many times as heavy to make the target; None leaves it.
        peer: the binary of llama-server, where its modes are compared, too.
    """

    launch: LaunchOptions
    prompts: Sequence[BenchPrompt]
    prompts_name: str
    modes: Sequence[str]
    temperatures: Sequence[float]
    asked: ReplyOptions
    repeats: int = 1
    synthetic: int | None = None
    peer: Path | None = None

    def __post_init__(self) -> None:
        if self.repeats < 1:
            raise UsageError(f"repeat is {self.repeats}: it must be 1 or more")
        if any(map(is_peer, self.modes)) and self.peer is None:
            raise UsageError("modes of llama-server need it: add --against llama-server=PATH")
        if any(map(is_peer, self.modes)) and self.launch.workers:
            raise UsageError(
                "modes of llama-server are not measured beside models on workers, since a worker serves one program "
                "at a time: leave out --workers or --against"
            )
        if self.synthetic is not None or self.launch.draft_model == RANDOM:
            synthetic_models()


def run_bench(
    bench: Bench, cancel: CancelFlag, watchers: Watchers, on_trial: OnTrial = lambda *_: None
) -> Result:
    """Load, measure, and return what was found; of the runs before `cancel` was set, if it is.

    Args:
        bench: what to measure.
        cancel: ends the measurement.
        watchers: are told how far fetching and loading is.
        on_trial: called after each run with how many are done, of how many, and what came of it.

    Raises:
        LocalspecError: something cannot be loaded, started or answered.
        Cancelled: `cancel` was set before anything was measured.
    """
    slots = schedule(bench.prompts, bench.modes, bench.temperatures, bench.repeats)
    with ExitStack() as stack:
        loaded = load(bench.launch, bench.modes, bench.synthetic, cancel, watchers)
        stack.callback(loaded.assistant.close)
        tokens = prompt_tokens(loaded.assistant, bench.prompts)
        own = OwnRuns(loaded.assistant, loaded.policy, bench.prompts, bench.asked)
        peer = None
        if bench.peer is not None and any(map(is_peer, bench.modes)):
            runs = peers().open_runs(bench.peer, loaded, tokens, bench.asked, lambda: cancel.is_set)
            peer = stack.enter_context(runs)
        measured = measure(slots, own, peer, lambda done, trial: on_trial(done, len(slots), trial))
        described = _described(bench, loaded)
        return result(measured, bench.prompts, bench.modes, described, len(slots))


def _described(bench: Bench, loaded: BenchModels) -> dict[str, object]:
    """Return what the figures hold for, in the order in which it is told."""
    options = loaded.options
    sampling = bench.asked.sampling
    return {
        "machine": machine(),
        "build": {
            "localspec": localspec.__version__,
            **native_build(),
            "python": platform.python_version(),
        },
        "target": _file(loaded.target_name, loaded.target, bench.synthetic),
        "draft_model": None
        if loaded.draft_model is None
        else {
            **_file(loaded.draft_model_name or "", loaded.draft_model, None),
            "random": bench.launch.draft_model == RANDOM or None,
        },
        "options": {
            "threads": options.threads or default_threads(),
            "n_ctx": loaded.assistant.models.target.n_ctx,
            "kv_type": options.kv_type,
            "exact": bench.launch.exact,
            "gpu_layers": options.gpu_layers,
            "devices": list(options.devices),
        },
        "sampling": {
            **{each: getattr(sampling, each) for each in _SAMPLING},
            "seed": bench.asked.seed,
        },
        "prompts": {"from": bench.prompts_name, "count": len(bench.prompts)},
        "max_tokens": bench.asked.max_tokens,
        "repeats": bench.repeats,
        "modes": list(bench.modes),
        "temperatures": list(bench.temperatures),
        "peer": None if bench.peer is None else bench.peer.name,
        "notes": list(loaded.assistant.notes),
    }


def _file(name: str, path: Path, synthetic: int | None) -> dict[str, object]:
    return {"name": name, "bytes": path.stat().st_size, "synthetic": synthetic}


def machine() -> str:
    """Return processor, cores and system."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{_processor()}, {cores} cores, {platform.system()} {platform.machine()}"


def native_build() -> dict[str, object]:
    """Return what the loaded llama.cpp says of itself."""
    native = build()
    return {
        "llama-cpp-python": native.version,
        "backends": list(native.backends),
        "features": list(native.features),
    }


def _processor(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
