"""Tokens per second beside programs that keep cores busy: with threads that give way to them, and with all threads always.

    python -m lab.benchmarks.busy_machine [--pair NAME] [--busy 0,1,2,4] [--runs 3]

Greedy, without a draft, in processes of their own and in turns; the busy programs are loops of Python. A run that takes longer
than the patience of 40 s counts with the tokens that it had by then.
"""

import argparse
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

PATIENCE_S = 40.0
_PROGRAM = """
import sys, time
from localspec.options import ReplyOptions
from localspec.options import SamplingParams
from localspec.launch import prepare
from localspec.options import LaunchOptions
from localspec.llama.spare_cores import SpareCores

pair, threads, patience_s = sys.argv[1], sys.argv[2], float(sys.argv[3])
if threads == "always":
    SpareCores.threads = lambda self, now_s: self._wanted
assistant = prepare(LaunchOptions(pair=pair, draft="off", offline=True)).load()
options = ReplyOptions(sampling=SamplingParams(temperature=0), max_tokens=80)
times = []
for _ in assistant.stream(
    "Write about the history of bridges.", options, watch=lambda *_: times.append(time.perf_counter())
):
    if len(times) > 1 and times[-1] - times[0] > patience_s:
        break
print((len(times) - 1) / (times[-1] - times[0]))
assistant.close()
"""


@contextmanager
def busy(programs: int) -> Iterator[None]:
    """Keep so many programs busy meanwhile."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(programs)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def tokens_per_s(pair: str, threads: str) -> float:
    """Return the pace of an answer, from its first token on, in a process of its own."""
    command = [sys.executable, "-c", _PROGRAM, pair, threads, str(PATIENCE_S)]
    env = {**os.environ, "LOCALSPEC_TELEMETRY": "off"}
    return float(subprocess.run(command, check=True, capture_output=True, env=env).stdout)


def main() -> None:
    """Print the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pair", default="smollm2-135m")
    parser.add_argument("--busy", default="0,1,2,4")
    parser.add_argument("--runs", type=int, default=3)
    chosen = parser.parse_args()
    print(f"{chosen.pair}, tokens per second, medians of {chosen.runs}")
    for programs in map(int, chosen.busy.split(",")):
        seen: dict[str, list[float]] = {"give way": [], "always": []}
        with busy(programs):
            for _ in range(chosen.runs):
                for threads, paces in seen.items():
                    paces.append(tokens_per_s(chosen.pair, threads))
        told = "; ".join(
            f"{threads} {statistics.median(paces):.1f} ({min(paces):.1f} to {max(paces):.1f})"
            for threads, paces in seen.items()
        )
        print(f"{programs} busy programs: {told}", flush=True)


if __name__ == "__main__":
    main()
