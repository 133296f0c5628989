"""Kills in the midst of chores, and of programs that cannot save: nothing is lost, nothing is there twice."""

import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from localspec.history.archive import History
from tests.history.test_archive import ids, texts
from tests.history.test_size import earlier
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.slow

CHAT = """
import sys
from pathlib import Path
from localspec.history.archive import History
from tests.history.test_archive import talk
history = History(Path(sys.argv[1]))
history.work_in_background()
for number in range(10_000):
    talk(history, f"said {sys.argv[2]} {number}", "還在說話")
    if number % 3 == 0:
        history.delete(int(sys.argv[2]) * 40 + number // 3 % 40 + 1)
    print(number, flush=True)
"""


def test_kills_while_a_history_is_taken_over_lose_nothing(tmp_path: Path) -> None:
    earlier(tmp_path, 4000)
    chance, said = random.Random(7), Counter[str]()
    for run in range(10):
        command = [sys.executable, "-c", CHAT, str(tmp_path), str(run)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as chat:
            assert chat.stdout is not None
            last = int(chat.stdout.readline())
            until = time.monotonic() + chance.uniform(0.0, 0.4)
            while time.monotonic() < until:
                last = int(chat.stdout.readline())
            chat.send_signal(signal.SIGKILL)
        said.update(f"said {run} {number}" for number in range(last + 1))
    with closing(History(tmp_path)) as history:
        until = time.monotonic() + PATIENCE_S
        while not history.tidy(1.0):
            assert time.monotonic() < until
        assert history.read("SELECT * FROM chore") == []
        rows = history.read("SELECT content FROM message WHERE role = 'user'")
        there = Counter(row["content"] for row in rows)
        assert not [each for each in said if there[each] != 1]
        old = [each for each in ids(history, "說話", limit=-1) if each > 400]
        assert {*range(401, 4001)} <= {*old}
        assert ids(history, "第4000次") == [4000]
        for index in ("found", "letters"):
            history.read(f"INSERT INTO {index}({index}) VALUES ('integrity-check')")
    with closing(sqlite3.connect(tmp_path / "history.db")) as file:
        assert file.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert file.execute("PRAGMA foreign_key_check").fetchall() == []


# Exchanges beside writers and kills, each in a fork: what one says of itself is its exit code.
EXCHANGES = """
import os, resource, sys, traceback
from pathlib import Path
from localspec.history import database
from localspec.history.archive import History
from tests.history.test_archive import talk
directory = Path(sys.argv[1])
database.BUSY_S = 0.05

def exchange(name, fate):
    if fate == "full":
        resource.setrlimit(resource.RLIMIT_FSIZE, (512, resource.RLIM_INFINITY))
    history = History(directory)
    talk(history, name, "answer " * 30)
    if fate == "killed":
        os.kill(os.getpid(), 9)
    unsaved = history.close()
    return 0 if unsaved is None else unsaved.code

for line in sys.stdin:
    child, code = os.fork(), 1
    if not child:
        try:
            code = exchange(*line.split())
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
WRITER = """
import sqlite3, sys, time
with sqlite3.connect(sys.argv[1], timeout=60, isolation_level=None) as file:
    for hold in sys.argv[2:]:
        file.execute("BEGIN IMMEDIATE")
        time.sleep(float(hold))
        file.execute("ROLLBACK")
        time.sleep(0.05)
"""


def test_each_exchange_is_there_once_or_its_loss_was_told(tmp_path: Path) -> None:
    History(tmp_path).close()
    chance = random.Random(3)
    holds = [str(chance.uniform(0.05, 1.5)) for _ in range(200)]
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path / "history.db"), *holds])
    fates = [chance.choice(["plain", "plain", "killed", "full"]) for _ in range(60)]
    try:
        done = subprocess.run(
            [sys.executable, "-c", EXCHANGES, str(tmp_path)],
            input="".join(f"exchange{number} {fate}\n" for number, fate in enumerate(fates)),
            check=True,
            capture_output=True,
            text=True,
        )
    finally:
        writer.kill()
        writer.wait()
    told = {f"exchange{number}": int(code) for number, code in enumerate(done.stdout.split())}
    assert len(told) == len(fates)
    assert {*told.values()} <= {0, 7, -9}, done.stderr
    for _ in range(2):
        with closing(History(tmp_path)) as history:
            said = Counter(texts(history, each)[0] for each in ids(history, limit=-1))
    assert {*said} <= {*told}
    assert max(said.values()) == 1
    assert not [each for each, code in told.items() if code == 0 and said[each] != 1]
    assert {0, -9} <= {*told.values()}
