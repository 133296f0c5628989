"""One measurement of a campaign, in this process: `python -m lab.gpu_campaign.measured WHAT FILE`.

A measure yields all that it has found whenever that is more, and each is printed as one JSON object: the last one holds
the others, and what is interrupted, killed or crashes has told what it had.
"""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from typing import Any

from lab.benchmarks.workbench import add_settings, forget, machine, opened, with_settings
from localspec.chat.events import RoundDone
from localspec.decoding.cancel import Cancelled
from localspec.errors import LocalspecError
from localspec.launch.load import HOLD_UP_S, Runtime
from localspec.llama.buffer_log import together
from localspec.llama.devices import devices
from localspec.llama.model import LlamaModel
from localspec.llama.native import native
from localspec.llama.safe_widths import DEPTHS, WIDEST, safe_widths
from localspec.llama.sequence import LlamaContext
from localspec.models.gguf import read_header
from localspec.options import LaunchOptions, LoadOptions, ReplyOptions, SamplingParams
from localspec.plan.facts import free_memory
from localspec.plan.fit import PairLoad
from localspec.plugins.workers.rpc import use_workers

Found = dict[str, Any]

WIDTHS = (*range(1, 17), 32)
_IDLE_S = 3.0
_SWEEPS = 3
_WORD = "The ferry left at 7:45, twelve minutes late, with 63 people on board. "


def devices_and_versions(asked: argparse.Namespace) -> Iterator[Found]:
    """Find what this build computes on, and what is of which version."""
    import llama_cpp

    smi = shutil.which("nvidia-smi")
    query = [str(smi), "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    commit = ["git", "rev-parse", "--short", "HEAD"]
    yield {
        "machine": machine(),
        "system": platform.platform(),
        "cores": os.cpu_count(),
        "devices": [
            {key: value for key, value in asdict(each).items() if key != "handle"}
            for each in devices()
        ],
        "features": native.llama_print_system_info().decode(),
        "llama_cpp_python": llama_cpp.__version__,
        "libraries": os.environ.get("LLAMA_CPP_LIB_PATH", "the wheel's own"),
        "localspec": _said(commit),
        "driver": "" if smi is None else _said(query),
    }


def cost_of_a_pass(asked: argparse.Namespace) -> Iterator[Found]:
    """Find milliseconds of passes by depth and width, the fastest of three, and of a first pass after the device idled."""
    by_depth: dict[str, dict[str, float]] = {}
    found: Found = {"by_depth": by_depth}
    contexts: dict[int, LlamaContext] = {}
    widest = asked.widths[-1]

    def pass_ms(depth: int, width: int) -> float:
        context = contexts[depth]
        context.truncate(depth)
        start = time.perf_counter()
        context.logits([100] * (depth + width), rows=width)
        return _ms(time.perf_counter() - start)

    def sweep(depths: Sequence[int]) -> Iterator[Found]:
        for width in asked.widths:
            for depth in depths:
                its, took = by_depth.setdefault(str(depth), {}), pass_ms(depth, width)
                its[str(width)] = min(took, its.get(str(width), took))
            yield found

    with closing(LlamaModel(asked.file, asked.load)) as model:
        # To fill a deep cache takes long: costs at shallow depths are printed before.
        for depth in asked.depths:
            options = replace(model.options, n_ctx=depth + widest, max_rows=widest)
            contexts[depth] = LlamaContext(model, options=options)
            contexts[depth].prefill([100] * depth)
            yield from sweep([depth])
        for _ in range(_SWEEPS - 1):
            yield from sweep(asked.depths)
        found["after_idling"] = []
        for _ in range(3):
            time.sleep(_IDLE_S)
            found["after_idling"].append(pass_ms(asked.depths[0], 1))
            yield found


def safe(asked: argparse.Namespace) -> Iterator[Found]:
    """Find which widths change no bit, by kernels; after each depth, of those until then."""
    found: Found = {}
    for kernels in ("exact", "default"):
        options = asked.load.exact() if kernels == "exact" else asked.load
        with closing(LlamaModel(asked.file, options)) as model:
            same, gaps = set(range(1, WIDEST + 1)), dict[int, float]()
            depths = [depth for depth in asked.depths if depth + WIDEST < model.n_ctx_train]
            for number, depth in enumerate(depths, start=1):
                widths = safe_widths(model, options, depths=[depth])
                same &= {*widths.widths}
                for width, gap in widths.differences.items():
                    gaps[width] = max(float(gap), gaps.get(width, 0.0))
                found[kernels] = {
                    "safe": sorted(same),
                    "others_differ_by": {str(width): gaps[width] for width in sorted(gaps)},
                    "depths": depths[:number],
                }
                yield found


def memory(asked: argparse.Namespace) -> Iterator[Found]:
    """Find what was foreseen and what llama.cpp says that it took, in bytes by place and by what it is for."""
    options = asked.load
    before = {each.name: each.free_bytes for each in devices()}
    plan = PairLoad.of(read_header(asked.file), options=options).fit(free_memory())
    uses = () if plan is None else plan.uses
    if plan is not None:
        options = replace(options, gpu_layers=plan.target_layers)
    found: Found = {"foreseen": {use.place.name: asdict(use.target) for use in uses}, "taken": {}}
    yield found
    with closing(LlamaModel(asked.file, options)) as model:
        context = LlamaContext(model)
        taken = together([model.allocated, context.native.allocated])
        found["taken"] = {place: asdict(each) for place, each in taken.items()}
        yield found
        length = max(asked.lengths)
        context.prefill([100] * min(length, options.n_ctx or length))
        after = {each.name: each.free_bytes for each in devices()}
    found["less_free"] = {
        name: free - after[name] for name, free in before.items() if name in after
    }
    yield found


def first_token(asked: argparse.Namespace) -> Iterator[Found]:
    """Find seconds to the first token by the prompt's length, from empty caches; the faster of two."""
    runtime = ready(asked)
    vocabulary = runtime.target.model.vocabulary
    options = ReplyOptions(SamplingParams(temperature=0), max_tokens=2)
    per_word = len(vocabulary.tokenize(_WORD, add_special=False, parse_special=False))
    seconds: dict[str, float] = {}
    for length in asked.lengths:
        for _ in range(2):
            forget(runtime)
            start = time.perf_counter()
            events = runtime.assistant.stream(_WORD * max(1, length // per_word), options)
            times = [time.perf_counter() - start for each in events if isinstance(each, RoundDone)]
            seconds[str(length)] = round(min(times[0], seconds.get(str(length), times[0])), 4)
            yield {"seconds_by_prompt": seconds}
    runtime.assistant.close()


def cancelling(asked: argparse.Namespace) -> Iterator[Found]:
    """Find milliseconds from a cancel to the end of what ran, by what that was; ten of each at most."""
    runtime = ready(asked)
    target, flag = runtime.target, runtime.assistant.models.cancel
    n_ctx = target.n_ctx
    found: Found = {}

    def prompt() -> None:
        target.truncate(0)
        while True:
            target.prefill([100] * (n_ctx - 1))
            target.truncate(0)

    def decoding() -> None:
        while True:
            target.truncate(0)
            for depth in range(2, n_ctx):
                target.logits([100] * depth, rows=1)

    for name, work in (("a prompt", prompt), ("decoding", decoding)):
        taken = []
        for number in range(asked.times):
            flag.clear()
            pressed: list[float] = []

            def press(pressed: list[float] = pressed) -> None:
                pressed.append(time.perf_counter())
                flag.set()

            timer = threading.Timer(0.2 + 0.037 * number, press)
            timer.start()
            try:
                work()
            except Cancelled:
                taken.append(time.perf_counter() - pressed[0])
            timer.join()
            middle, most = _ms(median(taken)), _ms(max(taken))
            found[name] = {"median_ms": middle, "most_ms": most, "n": len(taken)}
            yield found
    flag.clear()
    runtime.assistant.close()


def ready(asked: argparse.Namespace) -> Runtime:
    """Return the model ready to answer as in a chat, without drafting."""
    request = replace(asked.request, target=str(asked.file), draft="off", offline=True)
    return opened(request, hold_up_s=HOLD_UP_S)


def _said(command: Sequence[str]) -> str:
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    return ended.stdout.strip()


def _ms(seconds: float) -> float:
    return round(1000 * seconds, 3)


MEASURES: Mapping[str, Callable[[argparse.Namespace], Iterator[Found]]] = {
    "devices": devices_and_versions,
    "cost-of-a-pass": cost_of_a_pass,
    "safe-widths": safe,
    "memory": memory,
    "first-token": first_token,
    "cancelling": cancelling,
}


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=MEASURES)
    parser.add_argument("file", type=Path, nargs="?")
    parser.add_argument("--depths", type=_numbers, default=DEPTHS)
    parser.add_argument("--widths", type=_numbers, default=WIDTHS)
    parser.add_argument("--lengths", type=_numbers, default=[100])
    parser.add_argument("--times", type=int, default=10)
    add_settings(parser)
    asked = parser.parse_args()
    asked.request = with_settings(LaunchOptions(load=LoadOptions(n_ctx=4096)), asked.set)
    asked.load = asked.request.load
    use_workers(asked.request.workers)
    print_found(MEASURES[asked.what](asked))


def print_found(found: Iterable[Found]) -> None:
    """Print what was found until then, whenever it is more."""
    for each in found:
        print(json.dumps(each), flush=True)


def _numbers(text: str) -> list[int]:
    return [int(each) for each in text.split(",")]


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("interrupted")
    except LocalspecError as error:
        sys.exit(str(error))
