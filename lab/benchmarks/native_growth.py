"""Loads, asks and frees models two hundred times, and prints what the process holds as it goes on.

SmolLM2 with drafting by lookup, SmolLM2 with itself as draft model, and a recurrent model of a few kilobytes, in turn. From
the root of a checkout: `python -m lab.benchmarks.native_growth [--loads 200]`.
"""

import argparse
import gc
import tempfile
import time
from pathlib import Path

from lab.benchmarks.workbench import opened
from localspec.models.pull import pull
from localspec.options import LaunchOptions, LoadOptions, ReplyOptions
from tests.llama import tiny_mamba
from tests.llama.audit import held

_OPTIONS = LoadOptions(n_ctx=512, threads=1)


def main() -> None:
    """Run, and print a line every twenty loads."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--loads", type=int, default=200)
    asked = parser.parse_args()
    smollm2 = str(pull("smollm2-135m")[0])
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        tiny = str(tiny_mamba.write(Path(folder, "tiny.gguf")))
        launches = [
            LaunchOptions(target=smollm2, draft="lookup:4", load=_OPTIONS),
            LaunchOptions(target=smollm2, draft_model=smollm2, draft="model:3", load=_OPTIONS),
            LaunchOptions(target=tiny, draft="off", load=_OPTIONS),
        ]
        for number in range(asked.loads):
            assistant = opened(launches[number % len(launches)]).assistant
            assistant.reply("Name a river.", ReplyOptions(seed=1, max_tokens=4))
            assistant.close()
            if (number + 1) % 20 == 0 or number < 3:
                gc.collect()
                now = held()
                print(
                    f"{number + 1:4} loads: {now.anonymous_kb / 1024:7.1f} MB of its own, {now.threads} threads, "
                    f"{now.descriptors} descriptors, {time.monotonic() - start:.0f} s",
                    flush=True,
                )


if __name__ == "__main__":
    main()
