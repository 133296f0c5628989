"""Peak resident memory of an answer, against what files and KV caches explain.

    python -m lab.benchmarks.memory

Each configuration runs in a process of its own. Wanted: peak RSS at most model files + KV + 200 MB.
"""

import json
import resource
import subprocess
import sys
from pathlib import Path

from lab.benchmarks.workbench import machine
from localspec.launch.load import load
from localspec.launch.plan import make_plan
from localspec.models.gguf import read_header
from localspec.options import LaunchOptions, ReplyOptions

CONFIGURATIONS: list[tuple[str, str]] = [
    ("smollm2-135m", "lookup"),
    ("qwen2.5-coder-1.5b", "off"),
    ("qwen2.5-coder-1.5b", "model"),
]
_BYTES_F16 = 2


def kv_bytes(path: Path, n_ctx: int) -> int:
    """Return the size of an f16 KV cache, from the file's header."""
    header = read_header(path)

    def number(key: str) -> int:
        value = header.metadata[f"{header.architecture}.{key}"]
        assert isinstance(value, int), key
        return value

    layers, heads = number("block_count"), number("attention.head_count_kv")
    width = number("embedding_length") // number("attention.head_count")
    return 2 * layers * heads * width * n_ctx * _BYTES_F16


def measure(pair: str, draft: str) -> None:
    """Answer once with a long prompt, and print what it took as JSON."""
    plan = make_plan(LaunchOptions(pair=pair, draft=draft))
    assistant = load(plan).assistant
    assistant.reply("word " * 1500 + "\nWhat is this?", ReplyOptions(seed=1, max_tokens=40))
    # Read first: what follows is this script's own memory.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    files = [p for p in (plan.target, plan.draft_model) if p is not None]
    n_ctx = assistant.models.target.n_ctx
    print(
        json.dumps(
            {
                "files": sum(file.stat().st_size for file in files),
                "kv": sum(kv_bytes(file, n_ctx) for file in files),
                "peak": peak,
            }
        )
    )


def main() -> None:
    """Measure every configuration and print a table in MB."""
    print(machine())
    print(f"{'':34}{'files':>8}{'KV':>8}{'peak':>8}{'beyond':>8}")
    for pair, draft in CONFIGURATIONS:
        command = [sys.executable, "-m", "lab.benchmarks.memory", pair, draft]
        sizes = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        beyond = sizes["peak"] - sizes["files"] - sizes["kv"]
        columns = (sizes["files"], sizes["kv"], sizes["peak"], beyond)
        print(f"{pair} --draft {draft}".ljust(34) + "".join(f"{c / 1e6:8.0f}" for c in columns))


if __name__ == "__main__":
    if len(sys.argv) == 3:
        measure(sys.argv[1], sys.argv[2])
    else:
        main()
