"""The long form: `python -m lab.fuzz [NAME…] --runs N`, each target in a process of its own, one after the other.

With atheris installed (`pip install atheris`) it is guided by coverage; without, it says so and mutates blindly.
A line for each target tells what was done; the exit code is 1 where a target crashed.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from lab.fuzz.targets import NAMES

_DONE = re.compile(r"stat::number_of_executed_units:\s+(\d+)")
_COVERED = re.compile(r"cov: (\d+)")


def main() -> int:
    """Run the targets that were asked for."""
    parser = argparse.ArgumentParser(prog="python -m lab.fuzz", description=__doc__)
    parser.add_argument(
        "names", nargs="*", default=[], help=f"of {', '.join(NAMES)}; all without any"
    )
    parser.add_argument("--runs", type=int, default=65_000, help="executions of each target")
    parser.add_argument("--seconds", type=int, default=600, help="at most, for each target")
    parser.add_argument("--keep", type=Path, help="folder for inputs that were worth keeping")
    asked = parser.parse_args()
    unknown = set(asked.names) - set(NAMES)
    if unknown:
        parser.error(f"no target {', '.join(sorted(unknown))}")
    os.nice(19 - os.nice(0))
    crashed = [name for name in asked.names or NAMES if not run_one(name, asked)]
    return int(bool(crashed))


def run_one(name: str, asked: argparse.Namespace) -> bool:
    """Run one target in a process of its own, print what was done, and return whether it ended well."""
    with tempfile.TemporaryDirectory(prefix="localspec-fuzz-") as scratch:
        corpus = Path(scratch, "corpus") if asked.keep is None else asked.keep / name
        corpus.mkdir(parents=True, exist_ok=True)
        limits, begun_s = (str(asked.runs), str(asked.seconds)), time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "lab.fuzz.driver", name, *limits, corpus],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
    took_s, text = time.monotonic() - begun_s, done.stdout.decode(errors="replace")
    if done.returncode and asked.keep is not None:
        (asked.keep / f"{name}.log").write_text(text)
    runs, covered = (([*each.findall(text)] or ["-"])[-1] for each in (_DONE, _COVERED))
    errors = [line for line in text.splitlines() if "Error" in line or "ERROR" in line]
    inputs = [line for line in text.splitlines() if line.startswith("input: ")]
    reason = f"exit {done.returncode}: {' | '.join([*errors[:1], *inputs[:1]])[:600]}"
    outcome = f"CRASH: {reason}" if done.returncode else "no crash"
    print(
        f"{name:<12} {runs:>8} executions {took_s:>7.1f} s  edges {covered:>6}  {outcome}",
        flush=True,
    )
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
