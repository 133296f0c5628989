"""Exchanges beside a writer that holds the history, on a disk that fills, with kills: `python -m lab.history_exchanges [--exchanges 200]`.

Each is a command of its own: `run`, `run -c`, `chat` or `batch`, by SmolLM2. Several disks are tried side by side, each a file
system in memory, which root mounts. A process holds the write lock for 1 to 60 seconds, over and over; some exchanges meet a
disk that is full from the beginning or from a random moment on, some get SIGKILL at one. In the end each exchange has to be
there once, or its code has said that it is not; and what a killed chat had reported as answered has to be there, too.
"""

import argparse
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

from lab.faults.ground import ANSWER, SHORT_CHAT, Ended, Ground
from lab.faults.soundness import assert_fine, assert_told, messages, records
from localspec.models.pull import pull
from localspec.storage.paths import data_dir

_DISK = "size=12m"
_WRITER = """
import random, sqlite3, sys, time
path, seed, most = sys.argv[1:]
chance = random.Random(seed)
with sqlite3.connect(path, timeout=600, isolation_level=None) as file:
    while True:
        file.execute("BEGIN IMMEDIATE")
        time.sleep(chance.uniform(1, float(most)))
        file.execute("ROLLBACK")
        time.sleep(chance.uniform(0, 10))
"""
KINDS = ("run", "run -c", "chat", "batch")
FATES = ("beside the writer", "a full disk", "a disk that fills", "killed")


@dataclass(frozen=True, slots=True)
class Exchange:
    """What was tried, and how it ended: its code, and whether it said that it was answered and saved."""

    kind: str
    fate: str
    question: str
    code: int
    promised: bool


@contextmanager
def disk() -> Iterator[Path]:
    """Mount a small file system in memory."""
    with tempfile.TemporaryDirectory() as name:
        subprocess.run(["mount", "-t", "tmpfs", "-o", _DISK, "none", name], check=True)
        try:
            yield Path(name)
        finally:
            subprocess.run(["umount", "--lazy", name], check=True)


def fill(filler: Path, room: int) -> None:
    """Fill a disk, but for some room."""
    state = os.statvfs(filler.parent)
    with suppress(OSError), filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(1, state.f_bavail * state.f_frsize - room))


def exchange(
    ground: Ground, kind: str, fate: str, question: str, chance: Random, usual_s: float
) -> Exchange:
    """Try one exchange, which usually takes so long, and see that what it says is news in lines of its own."""
    filler, stdin, ended = ground.folder / "filler", b"", threading.Event()
    arguments = ["run", *ANSWER, "--max-tokens", "8", *(("-c",) if "-c" in kind else ("--keep",))]
    if kind == "chat":
        arguments, stdin = [*SHORT_CHAT], f"{question}\n".encode()
    elif kind == "batch":
        output, stdin = ground.folder / f"{question}.jsonl", _line(question)
        arguments = ["batch", "-", "-o", str(output), "--resume", "--seed", "1", *ANSWER]
    else:
        arguments.append(question)
    room, moment_s = chance.choice([0, 4096, 50_000, 200_000]), chance.uniform(0, 1.2 * usual_s)
    if fate == "a full disk":
        fill(filler, room)

    def strike() -> None:
        if not ended.wait(moment_s):
            process.kill() if fate == "killed" else fill(filler, room)

    with ground.start(*arguments, stdin=subprocess.PIPE) as process:
        thread = threading.Thread(target=strike)
        if fate in {"killed", "a disk that fills"}:
            thread.start()
        out, err = process.communicate(stdin)
        ended.set()
        if thread.ident is not None:
            thread.join()
    filler.unlink(missing_ok=True)
    done = Ended(process.returncode, out.decode(errors="replace"), err.decode(errors="replace"))
    if done.code != -signal.SIGKILL:
        assert_told(done)
    is_answered = kind == "chat" and " \u00b7 seed " in done.err
    was_killed = done.code == -signal.SIGKILL and "cannot be saved" not in done.err
    return Exchange(kind, fate, question, done.code, done.code == 0 or (is_answered and was_killed))


def _line(question: str) -> bytes:
    return f'{{"id": "{question}", "prompt": "{question}", "max_tokens": 8}}\n'.encode()


def tried(model: Path, count: int, most_s: float, seed: int) -> list[Exchange]:
    """Try so many exchanges on a disk of their own; see that each is there once, or its loss was told.

    Args:
        model: SmolLM2.
        count: how many.
        most_s: how long the writer holds the lock at most.
        seed: of what happens, and when.
    """
    chance, done = Random(seed), list[Exchange]()
    with disk() as folder:
        ground = Ground(folder, model, data_dir() / "calibration")
        began_s = time.monotonic()
        assert_fine(ground.run("run", *ANSWER, "--max-tokens", "1", "--keep", "First."))
        usual_s = time.monotonic() - began_s
        held = [sys.executable, "-c", _WRITER, str(ground.history), str(seed), str(most_s)]
        with subprocess.Popen(held) as writer:
            try:
                for number in range(count):
                    kind, fate = chance.choice(KINDS), chance.choice(FATES)
                    question = f"River {seed}-{number}"
                    done.append(exchange(ground, kind, fate, question, chance, usual_s))
                    print(done[-1], file=sys.stderr)
            finally:
                writer.kill()
        for _ in range(2):
            assert_fine(ground.run("history"))
            there = answered(ground)
        for each in done:
            if each.kind == "batch":
                output = folder / f"{each.question}.jsonl"
                whole = records(output, torn=each.code < 0)
                assert whole == [each.question] if each.promised else len(whole) < 2, each
            else:
                assert there[each.question] <= 1, f"twice: {each}"
                assert there[each.question] or not each.promised, f"lost: {each}"
        return done


def answered(ground: Ground) -> Counter[str]:
    """Return how often each question has a whole answer in the history, or is there without; see that the file is sound."""
    messages(ground)
    whole = (
        "SELECT EXISTS (SELECT 1 FROM message AS m WHERE m.parent = q.id AND m.state = 'complete')"
    )
    with closing(sqlite3.connect(ground.history)) as file:
        rows = file.execute(f"SELECT content, ({whole}) FROM message AS q WHERE role = 'user'")
        count = Counter[str]()
        for question, is_answered in rows:
            count[question] += 1 if is_answered else 0
        return count


def main() -> None:
    """Try, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--exchanges", type=int, default=200)
    parser.add_argument("--disks", type=int, default=5, help="tried side by side")
    parser.add_argument("--most-s", type=float, default=60.0, help="how long the writer holds it")
    parser.add_argument("--seed", type=int, default=0)
    wanted = parser.parse_args()
    (model, *_) = pull("smollm2-135m")
    each = wanted.exchanges // wanted.disks

    def one(number: int) -> list[Exchange]:
        return tried(model, each, wanted.most_s, wanted.seed + number)

    with ThreadPoolExecutor(wanted.disks) as pool:
        done = [each for some in pool.map(one, range(wanted.disks)) for each in some]
    codes = sorted({each.code for each in done})
    print("| command | fate |", " | ".join(f"code {code}" for code in codes), "|")
    print("|---|---|" + "---|" * len(codes))
    for (kind, fate), _ in sorted(Counter((each.kind, each.fate) for each in done).items()):
        counts = Counter(each.code for each in done if (each.kind, each.fate) == (kind, fate))
        print(f"| {kind} | {fate} |", " | ".join(str(counts[code]) for code in codes), "|")
    print(f"{len(done)} exchanges, {sum(each.promised for each in done)} promised and there once")


if __name__ == "__main__":
    main()
