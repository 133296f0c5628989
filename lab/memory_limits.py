"""`serve` and `run` in groups with a memory limit: how often a model is refused, killed, or loaded otherwise than at first.

    python -m lab.memory_limits [--high] [--mb 1500 2000 2600] [MODEL]

Needs root and the memory controller of cgroup v1 or v2; `lab/user_mode_linux` starts a machine that has v2. Ends with code 1
where anything was refused, killed or changed.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx

from localspec.storage.paths import data_dir

_COMMAND = (sys.executable, "-m", "localspec")
_PATIENCE_S = 600.0


@dataclass(frozen=True, slots=True)
class Group:
    """A control group that bounds memory; version 2 has `memory.events`."""

    folder: Path
    version: int

    def count(self, event: str) -> int:
        """Return how often something happened in it: `oom_kill`, `high`."""
        file = "memory.events" if self.version == 2 else "memory.oom_control"
        found = re.search(rf"^{event} (\d+)$", (self.folder / file).read_text(), re.MULTILINE)
        return int(found[1]) if found else 0

    def command(self, *words: str) -> list[str]:
        """Return what runs a command of localspec's in it."""
        script = f'echo $$ > {self.folder}/cgroup.procs; exec "$@"'
        return ["sh", "-c", script, "sh", *_COMMAND, *words]


@contextmanager
def memory_group(megabytes: int, *, high: bool) -> Iterator[Group]:
    """Make a group with a limit; what still runs in it is ended with it."""
    one, two = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
    version = 1 if one.is_dir() else 2
    if version == 2:
        (two / "cgroup.subtree_control").write_text("+memory")
    folder = (one if version == 1 else two) / f"localspec-lab-{os.getpid()}"
    limit = ("memory.limit_in_bytes", f"memory.{'high' if high else 'max'}")[version - 1]
    folder.mkdir()
    try:
        (folder / limit).write_text(str(megabytes * 10**6))
        yield Group(folder, version)
    finally:
        for _ in range(100):
            for each in (folder / "cgroup.procs").read_text().split():
                os.kill(int(each), 9)
            with suppress(OSError):
                folder.rmdir()
                break
            time.sleep(0.1)


@dataclass(frozen=True, slots=True)
class Tried:
    """What came of one load: the plan in words, and the error or none."""

    plan: tuple[str, ...]
    error: str
    seconds: float


def forget_files() -> None:
    """Have the system read models anew, so that their pages count for the group."""
    for each in (data_dir() / "blobs").iterdir():
        descriptor = os.open(each, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def runs(group: Group, model: str, times: int) -> Iterator[Tried]:
    """Yield what came of `run`, so many times."""
    for _ in range(times):
        began_s = time.monotonic()
        words = ("run", "--own", "--json", "-n", "1", model, "Name a river.")
        done = subprocess.run(group.command(*words), check=False, capture_output=True, text=True)
        lines = done.stderr.splitlines()
        models = str(json.loads(done.stdout)["model"]) if done.returncode == 0 else ""
        error = f"{done.returncode} {lines[-1:]}" if done.returncode else ""
        yield Tried((models, *_notes(lines)), error, time.monotonic() - began_s)


def reloads(group: Group, model: str, times: int) -> Iterator[Tried]:
    """Yield what came of requests to `serve`, each of which loads the model."""
    with tempfile.TemporaryFile("w+") as log:
        words = ("serve", model, "--port", "0", "--keep-alive", "0")
        process = subprocess.Popen(group.command(*words), stderr=log)

        def lines() -> list[str]:
            log.seek(0)
            return log.read().splitlines()

        def address() -> str | None:
            return next(
                (m[1] for each in lines() if (m := re.search(r"(http://\S+)/v1", each))), None
            )

        try:
            _wait(lambda: address() is not None or process.poll() is not None)
            if (url := address()) is None:
                yield Tried((), f"{process.returncode} {lines()[-1:]}", 0)
                return
            n_lines = len(lines())
            yield Tried(tuple(_notes(lines())), "", 0)
            with httpx.Client(base_url=url, timeout=_PATIENCE_S) as client:
                for _ in range(times):
                    _wait(lambda: client.get("/health").json()["status"] == "unloaded")
                    began_s = time.monotonic()
                    said = [{"role": "user", "content": "Name a river."}]
                    body = {"messages": said, "max_tokens": 1}
                    answer = client.post("/v1/chat/completions", json=body)
                    error = "" if answer.is_success else f"{answer.status_code} {answer.text}"
                    new, n_lines = lines()[n_lines:], len(lines())
                    yield Tried(tuple(_notes(new)), error, time.monotonic() - began_s)
        finally:
            process.terminate()
            process.wait()


def _notes(lines: Sequence[str]) -> list[str]:
    """Return how a model was loaded, without what is free at that moment."""
    kinds = re.compile(r"localspec: (.*at a time|running without|.*context of|.*do not fit)")
    return [each.partition(": it needs")[0] for each in lines if kinds.match(each)]


def _wait(done: Callable[[], bool]) -> None:
    end_s = time.monotonic() + _PATIENCE_S
    while not done():
        if time.monotonic() > end_s:
            raise TimeoutError("it neither answers nor ends")
        time.sleep(0.1)


def main() -> None:
    """Try what is asked for, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default="qwen2.5-coder-1.5b")
    parser.add_argument("--mb", type=int, nargs="+", default=[1500, 2000, 2600])
    parser.add_argument("--high", action="store_true", help="bound memory.high, not memory.max")
    parser.add_argument("--times", type=int, default=20)
    asked = parser.parse_args()
    print("| MB | verb | tried | refused | killed | other plans | events of memory.high | s |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    bad = 0
    # What passes cost is measured by the first run; a draft model that cannot pay is left out from then on.
    subprocess.run([*_COMMAND, "run", "--own", "-n", "1", asked.model, "Name a river."], check=True)
    for megabytes in asked.mb:
        for verb, tries in (("serve", reloads), ("run", runs)):
            forget_files()
            with memory_group(megabytes, high=asked.high) as group:
                tried = list(tries(group, asked.model, asked.times))
                killed, slowed = group.count("oom_kill"), group.count("high")
            refused = [each.error for each in tried if each.error]
            changes = _changes(verb, tried)
            seconds = sorted(each.seconds for each in tried)[len(tried) // 2]
            figures = (megabytes, verb, len(tried), len(refused), killed, changes, slowed)
            print(f"| {' | '.join(map(str, figures))} | {seconds:.1f} |", flush=True)
            for line in sorted({*refused, *tried[0].plan}):
                print(f"  {verb}, {megabytes} MB: {line}", file=sys.stderr, flush=True)
            bad += len(refused) + killed + changes
    sys.exit(1 if bad else 0)


def _changes(verb: str, tried: Sequence[Tried]) -> int:
    """Return how many loads had another plan than the first; a server says its plan where it changes."""
    if verb == "serve":
        return sum(bool(each.plan) for each in tried[1:])
    return sum(each.plan != tried[0].plan for each in tried[1:])


if __name__ == "__main__":
    main()
