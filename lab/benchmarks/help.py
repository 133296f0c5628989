"""CPU time of `localspec --help`, user and system together: the best and the median of many runs.

    python -m lab.benchmarks.help [RUNS]

The target is 60 ms. Python's own start is shown beside it.
"""

import resource
import statistics
import subprocess
import sys

TARGET_MS = 60.0


def cpu_ms(*command: str) -> float:
    """Return the CPU time of Python with these arguments."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *command], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def main() -> int:
    """Measure, print, and return 1 where the target is missed."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    for name, command in (("python", ("-c", "")), ("--help", ("-m", "localspec", "--help"))):
        times = [cpu_ms(*command) for _ in range(runs)]
        median = statistics.median(times)
        print(f"{name:8} best {min(times):5.1f} ms   median {median:5.1f} ms of CPU, {runs} runs")
    print(f"target   {TARGET_MS:.0f} ms: {'met' if median < TARGET_MS else 'missed'}")
    return int(median >= TARGET_MS)


if __name__ == "__main__":
    sys.exit(main())
