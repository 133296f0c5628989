"""Where layers are: memory predicted and allocated, texts and gaps, with devices that llama.cpp's RPC server shows, in MB.

    python -m lab.benchmarks.placement

SmolLM2 as its own draft model, on this machine's CPU and on servers with a processor of their own on loopback. Each place of
each placement has a line. Files are read, not mapped: of a mapped file llama.cpp logs the whole range that it maps, parts of
which may be on another device. Wanted: every total within 2 %, the same text everywhere, and no gap.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

from lab.benchmarks.remote import rpc_library, tried, workers
from lab.benchmarks.workbench import machine
from localspec.models.pull import pull

Options = dict[str, Any]
CPU, REMOTE, BOTH = ["cpu"], ["RPC0"], ["RPC0", "RPC1"]
WANTED = 0.02
LAYERS = (0, 10, None)
EXACT: Options = {"n_ctx": 512, "threads": 1, "n_batch": 128, "repack": False}
PROMPT = "Write a short poem about the sea at night."

_TARGET: Options = {"n_ctx": 4096, "max_rows": 16, "load_mode": "copy"}
_DRAFT: Options = {"n_ctx": 4096, "max_rows": 1, "load_mode": "copy"}


def placements() -> dict[str, tuple[Options, Options]]:
    """Return how target and draft model are loaded, by a name for it."""
    on_cpu = _TARGET | {"devices": CPU}, _DRAFT | {"devices": CPU}
    far = _TARGET | {"devices": REMOTE}, _DRAFT | {"devices": REMOTE}
    found = {}
    for count in LAYERS:
        layers = "all" if count is None else count
        of_count = {"gpu_layers": count}
        found[f"{layers} layers of the target away"] = (far[0] | of_count, on_cpu[1])
        found[f"{layers} layers of the draft model away"] = (on_cpu[0], far[1] | of_count)
    shared = _TARGET | {"devices": BOTH, "tensor_split": "2,1"}
    return found | {
        "both away": far,
        "the target away, its cache here": (far[0] | {"kv_offload": False}, on_cpu[1]),
        "the target on two devices, 2 to 1": (shared, on_cpu[1]),
        "20 layers of it on two devices, 2 to 1": (shared | {"gpu_layers": 20}, on_cpu[1]),
    }


def memory_jobs(path: Path) -> list[Options]:
    """Return what is asked for the memory of each placement."""
    return [
        {"do": "memory", "path": str(path), "options": target, "draft_options": draft_model}
        for target, draft_model in placements().values()
    ]


def text_jobs(path: Path) -> list[Options]:
    """Return what is asked for an answer wherever the two models are, the CPU for both first."""
    places = [(CPU, CPU), (REMOTE, REMOTE), (REMOTE, CPU), (CPU, REMOTE), (BOTH, CPU)]
    return [
        {
            "do": "text",
            "path": str(path),
            "options": EXACT | {"devices": target},
            "draft_devices": draft_model,
            "prompt": PROMPT,
            "temperature": 0.8,
        }
        for target, draft_model in places
    ]


def gap_jobs(path: Path) -> list[Options]:
    """Return what is asked for the gap to the CPU, of exact kernels and of the usual ones."""
    usual = EXACT | {"repack": True}
    return [
        {
            "do": "gap",
            "path": str(path),
            "options": kernels | {"devices": CPU},
            "others": kernels | {"devices": devices, "gpu_layers": count},
        }
        for kernels, devices, count in (
            (EXACT, REMOTE, 10),
            (EXACT, REMOTE, None),
            (EXACT, BOTH, None),
            (usual, REMOTE, None),
        )
    ]


def main() -> int:
    """Try everything, print tables, and return 1 where something is not as wanted."""
    if rpc_library() is None:
        print("this llama.cpp was built without GGML_RPC")
        return 1
    path = pull("smollm2-135m")[0]
    asked = [memory_jobs(path), text_jobs(path), gap_jobs(path)]
    with workers(2) as places, tempfile.TemporaryDirectory() as data:
        memory, texts, gaps = (tried(places, jobs, Path(data)) for jobs in asked)
    print(machine())
    missed = 0
    for name, found in zip(placements(), memory, strict=True):
        for place, (predicted, real) in found.items():
            off = predicted / real - 1 if real else 0.0
            missed += abs(off) > WANTED
            print(f"{name:40}{place:6}{predicted / 1e6:10.1f}{real / 1e6:10.1f} {off:+.2%}")
    print(f"within {WANTED:.0%}: {'met' if not missed else f'missed {missed} times'}")
    first = texts[0]["text"]
    for found in texts:
        same = "the same text" if found["text"] == first else "another text"
        print(f"{found['places']} {found['draft_places']}: {same}, {found['drafted']} drafted")
        missed += found["text"] != first
    print("gaps of logits to the CPU:", gaps)
    return int(missed > 0 or any(gaps[:-1]))


if __name__ == "__main__":
    sys.exit(main())
