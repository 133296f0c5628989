"""Peak memory of a batch of 1,000 and of 100,000 lines, and of taking each up again.

Who answers is a toy; reading, conversations, the loop, ordering, records and resuming are the program's own.
From the root of a checkout: `python -m lab.benchmarks.batch_memory [--lines 1000 100000]`.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from localspec.batch.resumed import Resumption
from tests.batch.toy import Brief, run

_WORDS = "Tell me what the number is good for, in one sentence and without hurry. " * 8


def main() -> None:
    """Run each size in a process of its own, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, nargs="+", default=[1000, 100_000])
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        _one(*map(Path, asked.one))
        return
    for n_lines in asked.lines:
        with tempfile.TemporaryDirectory() as folder:
            source, output = Path(folder, "in.jsonl"), Path(folder, "out.jsonl")
            with source.open("w") as file:
                for number in range(n_lines):
                    line = {"id": f"line-{number}", "prompt": f"{number}: {_WORDS}"}
                    file.write(f"{json.dumps(line)}\n")
            for what in ("answered", "taken up again"):
                command = [sys.executable, "-m", "lab.benchmarks.batch_memory", "--one"]
                start = time.monotonic()
                done = subprocess.run(
                    [*command, str(source), str(output)],
                    check=True,
                    capture_output=True,
                    text=True,
                    env={**os.environ, "PYTHONHASHSEED": "0"},
                )
                print(
                    f"{n_lines} lines ({source.stat().st_size / 1e6:.1f} MB in, {output.stat().st_size / 1e6:.1f} MB "
                    f"out) {what}: peak {done.stdout.strip()} MB, {time.monotonic() - start:.0f} s",
                    flush=True,
                )


def _one(source: Path, output: Path) -> None:
    tally, _ = run(source, output, Brief(), resumption=Resumption())
    assert tally.answered == sum(1 for _ in output.open())
    print(f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3:.1f}")


if __name__ == "__main__":
    main()
