"""Predicted memory against what llama.cpp allocates and what the process then holds, in MB.

    python -m lab.benchmarks.fit [MODEL ...]

For every model and setting: weights, caches and compute buffer as predicted and as llama.cpp logs
them, and the growth of the resident memory after a prompt that fills the batch. Each load runs in
a process of its own, on the CPU. Wanted: every total within 5 %.
"""

import json
import re
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

from lab.benchmarks.workbench import machine
from localspec.models.gguf import read_header
from localspec.models.memory import Settings, model_shape, predict
from localspec.models.pull import pull

MODELS = ["smollm2-135m", "qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b"]
SETTINGS = [
    Settings(4096, rows=16),
    Settings(1024, rows=1),
    Settings(8192, rows=4, kv_type="q8_0"),
    Settings(4096, rows=4, flash_attention=False),
    Settings(4096, rows=4, mapped_and_repacked=True),
]
WANTED = 0.05


def resident_bytes() -> int:
    """Return what this process holds in memory now."""
    match = re.search(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text())
    assert match, "measured on Linux only"
    return int(match[1]) * 1024


def measure(path: Path, settings: Settings) -> dict[str, float]:
    """Load, evaluate a batch, and return bytes by kind."""
    from localspec.llama.backend import log_lines
    from localspec.llama.context import LlamaContext
    from localspec.llama.devices import devices
    from localspec.llama.model import LlamaModel
    from localspec.options import LoadOptions

    devices()
    before = resident_bytes()
    options = LoadOptions(
        settings.n_ctx,
        gpu_layers=0,
        kv_type=settings.kv_type,
        flash_attention=settings.flash_attention,
        load_mode="mmap" if settings.mapped_and_repacked else None,
        max_rows=settings.rows,
        n_batch=settings.n_batch,
    )
    model = LlamaModel(path, options)
    log = "\n".join(log_lines())  # a context begins it anew
    context = LlamaContext(model)
    log += "\n".join(log_lines())
    context.prefill(list(range(1000, 1000 + min(600, settings.n_ctx))))
    context.logits(list(range(1000, 1000 + 64)), settings.rows)

    def logged(kind: str) -> float:
        found = re.findall(rf"{kind} buffer size += +([\d.]+) MiB", log)
        return sum(map(float, found)) * 2**20

    return {
        "weights": logged("model"),
        "kv": logged("KV"),
        "compute": logged("compute"),
        "resident": resident_bytes() - before,
    }


def main(models: list[str]) -> int:
    """Measure everything, print a table, and return 1 where a total is off by more than wanted."""
    print(machine())
    kinds = ("weights", "kv", "compute", "total")
    print(" " * 44 + "".join(f"{kind + ' pred/real':>22}" for kind in kinds) + f"{'resident':>18}")
    missed = 0
    for name in models:
        path = pull(name)[0]
        shape = model_shape(read_header(path))
        assert shape is not None
        for settings in SETTINGS:
            command = [sys.executable, "-m", "lab.benchmarks.fit"]
            command += [str(path), json.dumps(asdict(settings))]
            real = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
            real["total"] = real["weights"] + real["kv"] + real["compute"]
            usage = predict(shape, settings)[0]
            predicted = {
                "weights": usage.weights_bytes,
                "kv": usage.kv_bytes,
                "compute": usage.compute_bytes,
                "total": usage.total_bytes - usage.output_bytes,
            }
            line = f"{name} {settings.n_ctx} {settings.kv_type}"
            line += "" if settings.flash_attention else " no flash"
            line += " mapped" if settings.mapped_and_repacked else ""
            print(line.ljust(44), end="")
            for kind in kinds:
                off = predicted[kind] / real[kind] - 1
                cell = f"{predicted[kind] / 1e6:.1f}/{real[kind] / 1e6:.1f} {off:+.1%}"
                print(f"{cell:>22}", end="")
            off = usage.total_bytes / real["resident"] - 1
            print(f"{real['resident'] / 1e6:10.1f} {off:+6.1%}", flush=True)
            missed += abs(predicted["total"] / real["total"] - 1) > WANTED
    print(f"total within {WANTED:.0%}: {'met' if not missed else f'missed {missed} times'}")
    return int(missed > 0)


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[2].startswith("{"):
        print(json.dumps(measure(Path(sys.argv[1]), Settings(**json.loads(sys.argv[2])))))
    else:
        sys.exit(main(sys.argv[1:] or MODELS))
