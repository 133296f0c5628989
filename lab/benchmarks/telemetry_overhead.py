"""What recording costs, and that its bounds hold: CPU a round, a million rounds, a report of a big database.

    python -m lab.benchmarks.telemetry_overhead [cpu] [bound] [stats]

cpu: processor time of this process, the writer's thread included, for rounds that come at a pace; less that of the same loop
without a recorder: the median of five runs. And what it takes to put the rounds of all runs from spools into the database,
as far as the recorder has not done it: that happens some 800 rounds at a time. Wanted: 0.1 ms a round or less.
bound: a million rounds into a database of 16 MB; the most that its files ever took together.
stats: a database of 100 MB; how long `localspec stats` takes, as a process, and reading alone.
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

from localspec.telemetry.reading import reading
from localspec.telemetry.taking_in import collect

from lab.benchmarks.workbench import machine
from localspec.telemetry.recorder import Recorder
from localspec.telemetry.report import read_report
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


_PACES = ((0.1, 150), (0.04, 400), (0.01, 1500), (0.001, 10000))


def cpu(directory: Path, runs: int = 5) -> None:
    """Print processor time a round at several paces."""
    warm = recorder_in(
        directory
    )  # the database is there already, and so is all that is imported once
    tell(warm, 300, 0.0)
    warm.close(30)
    collect(directory)
    print(f"{'rounds/s':>9} {'spooled':>9} {'taken in':>9} {'both, ms a round':>17}")
    for pause_s, rounds in _PACES:
        its = [cpu_of(directory, rounds, pause_s) for _ in range(runs)]
        pace, spooled = (median(column) for column in zip(*its, strict=True))
        start = time.process_time()
        collect(directory)
        taken_in = 1000 * (time.process_time() - start) / (runs * rounds)
        print(f"{pace:9.0f} {spooled:9.4f} {taken_in:9.4f} {spooled + taken_in:17.4f}", flush=True)


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
    recorder = recorder_in(directory, megabytes)
    start = time.perf_counter()
    for number in range(rounds // 2000):
        tell(recorder, 2000, 0.0)
        while recorder.writer.waiting > 8000:  # faster than any model
            time.sleep(0.01)
        if number % 10 == 0:
            most = max(most, size_of(directory))
    recorder.close(60)
    most = max(most, size_of(directory))
    took = time.perf_counter() - start
    with reading(directory) as connection:
        assert connection is not None
        (kept,) = connection.execute("SELECT count(*) FROM round").fetchone()
        counted = read_report(connection).total.rounds
    print(
        f"{rounds} rounds in {took:.0f} s: never more than {most / 2**20:.1f} of {megabytes} MB, "
        f"{kept} rounds kept, {counted} in the sums {recorder.trouble or ''}"
    )


def stats(directory: Path, megabytes: int = 100) -> None:
    """Print how long a report of a big database takes; a year of replies in six kinds of text."""
    telemetry, asked = (
        directory / "telemetry",
        ("Why?", "Write a poem.", "Fix this text:\n\n" + "a b c " * 20),
    )
    moment = [time.time() - 365 * 86400]
    recorder = recorder_in(telemetry, 2 * megabytes, lambda: moment[0])
    number = 0
    while size_of(telemetry) < megabytes << 20:
        tell(recorder, 1000, 0.0, asked[number % 3])
        moment[0] += 3600 if number % 2 else 5
        number += 1
        while recorder.writer.waiting > 8000:
            time.sleep(0.01)
    recorder.close(60)
    print(f"{size_of(telemetry) / 2**20:.0f} MB, {1000 * number} rounds {recorder.trouble or ''}")
    for arguments in ([], ["--json"], ["--since", "30d"], ["--html", str(directory / "page.html")]):
        start = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "localspec", "stats", *arguments],
            check=True,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "LOCALSPEC_DATA_DIR": str(directory)},
        )
        print(f"stats {' '.join(arguments[:1]):8} {time.perf_counter() - start:.2f} s", flush=True)
    with reading(telemetry) as connection:
        assert connection is not None
        start = time.perf_counter()
        report = read_report(connection)
        print(f"reading alone {time.perf_counter() - start:.3f} s, {report.total.rounds} rounds")


def size_of(directory: Path) -> int:
    """Return what all files of the database take."""
    return sum(each.stat().st_size for each in directory.glob("telemetry.db*"))


MEASURES: dict[str, Callable[[Path], None]] = {"cpu": cpu, "bound": bound, "stats": stats}


def main() -> None:
    """Run what was asked for."""
    print(machine())
    for name in sys.argv[1:] or ["cpu", "bound", "stats"]:
        with tempfile.TemporaryDirectory() as place:
            MEASURES[name](Path(place))


if __name__ == "__main__":
    main()
