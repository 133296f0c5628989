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
from dataclasses import dataclass
from pathlib import Path

from lab.fuzz.targets import NAMES

_DONE = re.compile(r"stat::number_of_executed_units:\s+(\d+)")
_COVERED = re.compile(r"cov: (\d+)")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one target."""

    name: str
    runs: int
    seconds: float
    covered: str
    crash: str


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
    failed = False
    for name in asked.names or NAMES:
        outcome = run_one(name, asked.runs, asked.seconds, asked.keep)
        failed = failed or bool(outcome.crash)
        told = f"CRASH: {outcome.crash}" if outcome.crash else "no crash"
        print(
            f"{outcome.name:<12} {outcome.runs:>8} executions {outcome.seconds:>7.1f} s  "
            f"edges {outcome.covered:>6}  {told}",
            flush=True,
        )
    return int(failed)


def run_one(name: str, runs: int, seconds: int, keep: Path | None = None) -> Outcome:
    """Run one target in a process of its own, and read what it says."""
    with tempfile.TemporaryDirectory(prefix="localspec-fuzz-") as scratch:
        corpus = Path(scratch, "corpus") if keep is None else keep / name
        corpus.mkdir(parents=True, exist_ok=True)
        log = Path(scratch, "log")
        begun_s = time.monotonic()
        with log.open("wb") as output:
            code = subprocess.run(
                [sys.executable, "-m", "lab.fuzz.driver", name, str(runs), str(seconds), corpus],
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "LOCALSPEC_FUZZ_SCRATCH": scratch},
                check=False,
            ).returncode
        took_s = time.monotonic() - begun_s
        text = log.read_text(errors="replace")
        if code and keep is not None:
            (keep / f"{name}.log").write_text(text)
    done = _DONE.findall(text)
    covered = _COVERED.findall(text)
    return Outcome(
        name,
        int(done[-1]) if done else 0,
        took_s,
        covered[-1] if covered else "-",
        "" if code == 0 else _reason(text, code),
    )


def _reason(text: str, code: int) -> str:
    errors = [line for line in text.splitlines() if "Error" in line or "ERROR" in line]
    inputs = [line for line in text.splitlines() if line.startswith("input: ")]
    return f"exit {code}: {' | '.join([*errors[:1], *inputs[:1]])[:600]}"


if __name__ == "__main__":
    sys.exit(main())
