"""Peak resident memory of an answer, against what files and KV caches explain.

    python benchmarks/memory.py

Each configuration runs in a process of its own. Wanted: peak RSS at most model files + KV + 200 MB.
"""

import json
import resource
import subprocess
import sys

from workbench import machine

from localspec.chat.reply_options import ReplyOptions
from localspec.launch import DraftMode, Launch, prepare

CONFIGURATIONS: list[tuple[str, DraftMode]] = [
    ("smollm2-135m", "lookup"),
    ("qwen2.5-coder-1.5b", "off"),
    ("qwen2.5-coder-1.5b", "model"),
]
_BYTES_F16 = 2


def kv_bytes(path: str, n_ctx: int) -> int:
    """Return the size of an f16 KV cache, from the file's header."""
    from pathlib import Path

    from localspec.models.gguf import read_header

    meta = read_header(Path(path)).metadata
    arch = meta["general.architecture"]
    layers = meta[f"{arch}.block_count"]
    heads = meta[f"{arch}.attention.head_count_kv"]
    width = meta[f"{arch}.embedding_length"] // meta[f"{arch}.attention.head_count"]
    return 2 * layers * heads * width * n_ctx * _BYTES_F16


def measure(pair: str, draft: DraftMode) -> None:
    """Answer once with a long prompt, and print what it took as JSON."""
    prepared = prepare(Launch(pair=pair, draft=draft))
    assistant = prepared.load()
    assistant.reply("word " * 1500 + "\nWhat is this?", ReplyOptions(seed=1, max_tokens=40))
    # Read first: what follows is this script's own memory.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    files = [p for p in (prepared.target, prepared.draft_model) if p is not None]
    n_ctx = assistant.models.target.n_ctx
    print(
        json.dumps(
            {
                "files": sum(file.stat().st_size for file in files),
                "kv": sum(kv_bytes(str(file), n_ctx) for file in files),
                "peak": peak,
            }
        )
    )


def main() -> None:
    """Measure every configuration and print a table in MB."""
    print(machine())
    print(f"{'':34}{'files':>8}{'KV':>8}{'peak':>8}{'beyond':>8}")
    for pair, draft in CONFIGURATIONS:
        command = [sys.executable, __file__, pair, draft]
        sizes = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        beyond = sizes["peak"] - sizes["files"] - sizes["kv"]
        columns = (sizes["files"], sizes["kv"], sizes["peak"], beyond)
        print(f"{pair} --draft {draft}".ljust(34) + "".join(f"{c / 1e6:8.0f}" for c in columns))


if __name__ == "__main__":
    if len(sys.argv) == 3:
        measure(sys.argv[1], sys.argv[2])  # type: ignore[arg-type]
    else:
        main()
