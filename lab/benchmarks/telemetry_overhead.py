"""What recording costs, and that its bounds hold: CPU a round and a reply, a million rounds, a report of a big log.

    python -m lab.benchmarks.telemetry_overhead [cpu] [bound] [stats]

cpu: processor time of this process for rounds that come at a pace, and for replies that end, the writer's thread included;
less that of the same loop without a recorder: the median of five runs.
bound: a million rounds into a log of 16 MB; the most that its files ever took together.
stats: the log of a year of 20,000 replies; how long `localspec stats` takes, as a process, and reading alone; and the prior.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from statistics import median

from lab.benchmarks.workbench import machine
from localspec.telemetry.log import read_records
from localspec.telemetry.prior import read_prior
from localspec.telemetry.recorder import Recorder
from localspec.telemetry.report import make_report
from localspec.telemetry.switch import Switch
from tests.telemetry.talking import PAIR, drafted

_ROUNDS = [drafted(3, accepted) for accepted in range(4)]


def recorder_in(
    directory: Path, megabytes: int = 128, now: Callable[[], float] = time.time
) -> Recorder:
    """Return a recorder of counts and times."""
    switch = Switch(megabytes=megabytes)
    return Recorder(directory, PAIR, switch, lambda _: b"", now=now)


def tell(recorder: Recorder | None, rounds: int, pause_s: float, asked: str = "Why?") -> None:
    """Go through the motions of replies of 100 rounds, with or without a recorder."""
    rng, trace = Random(0), None
    for number in range(rounds):
        if number % 100 == 0:
            if trace is not None:
                trace.end("So.", 0.02, 3.0)
            trace = None if recorder is None else recorder.begin(asked, range(200), greedy=False)
        done = rng.choice(_ROUNDS)
        if trace is not None:
            trace.note(done)
        if pause_s:
            time.sleep(pause_s)
    if trace is not None:
        trace.end("So.", 0.02, 3.0)


_PACES = ((0.1, 150), (0.04, 400), (0.01, 1500), (0.001, 10000))


def cpu(directory: Path, runs: int = 5) -> None:
    """Print processor time a round at several paces; a reply ends every 100 rounds."""
    warm = recorder_in(directory)  # all that is imported once is imported
    tell(warm, 300, 0.0)
    warm.close(30)
    print(f"{'rounds/s':>9} {'ms a round':>11}")
    for pause_s, rounds in _PACES:
        its = [cpu_of(directory, rounds, pause_s) for _ in range(runs)]
        pace, spent_ms = (median(column) for column in zip(*its, strict=True))
        print(f"{pace:9.0f} {spent_ms:11.4f}", flush=True)


def cpu_of(directory: Path, rounds: int, pause_s: float) -> tuple[float, float]:
    """Return the pace, and milliseconds of processor time a round."""
    start = time.process_time()
    tell(None, rounds, pause_s)
    bare_s = time.process_time() - start
    recorder = recorder_in(directory)
    start, began = time.process_time(), time.perf_counter()
    tell(recorder, rounds, pause_s)
    pace = rounds / (time.perf_counter() - began)
    recorder.close(60)
    spent_s = time.process_time() - start - bare_s
    assert recorder.trouble is None, recorder.trouble
    return pace, 1000 * spent_s / rounds


def bound(directory: Path, rounds: int = 1_000_000, megabytes: int = 16) -> None:
    """Print the most that the files took while a million rounds were written."""
    most = 0
    start = time.perf_counter()
    for number in range(rounds // 2000):
        recorder = recorder_in(directory, megabytes)
        tell(recorder, 2000, 0.0)
        recorder.close(60)
        if number % 10 == 0:
            most = max(most, size_of(directory))
    took = time.perf_counter() - start
    kept = make_report(read_records(directory)).total.rounds
    print(
        f"{rounds} rounds in {took:.0f} s: never more than {most / 2**20:.1f} of {megabytes} MB, "
        f"{kept} rounds in it {recorder.trouble or ''}"
    )


def stats(directory: Path, replies: int = 20_000) -> None:
    """Print how long a report of a big log takes; a year of replies in three kinds of text."""
    telemetry, asked = (
        directory / "telemetry",
        ("Why?", "Write a poem.", "Fix this text:\n\n" + "a b c " * 20),
    )
    year_s = 365 * 86400
    moment = [time.time() - year_s]
    for number in range(100):
        recorder = recorder_in(telemetry, now=lambda: moment[0])
        for part in range(replies // 100):
            tell(recorder, 100, 0.0, asked[(number + part) % 3])
            moment[0] += year_s / replies
        recorder.close(60)
    print(f"{size_of(telemetry) / 2**20:.0f} MB {recorder.trouble or ''}")
    for arguments in ([], ["--json"], ["--since", "30d"], ["--html", str(directory / "page.html")]):
        start = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "localspec", "stats", *arguments],
            check=True,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "LOCALSPEC_DATA_DIR": str(directory)},
        )
        print(f"stats {' '.join(arguments[:1]):8} {time.perf_counter() - start:.2f} s", flush=True)
    start = time.perf_counter()
    report = make_report(read_records(telemetry))
    print(f"reading alone {time.perf_counter() - start:.3f} s, {report.total.rounds} rounds")
    start = time.perf_counter()
    read_prior(telemetry, PAIR, "creative", greedy=False, now_s=time.time())
    print(f"prior {1000 * (time.perf_counter() - start):.1f} ms")


def size_of(directory: Path) -> int:
    """Return what all files take."""
    return sum(each.stat().st_size for each in directory.iterdir())


MEASURES: dict[str, Callable[[Path], None]] = {"cpu": cpu, "bound": bound, "stats": stats}


def main() -> None:
    """Run what was asked for."""
    print(machine())
    for name in sys.argv[1:] or ["cpu", "bound", "stats"]:
        with tempfile.TemporaryDirectory() as place:
            MEASURES[name](Path(place))


if __name__ == "__main__":
    main()
