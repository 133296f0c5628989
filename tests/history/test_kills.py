"""SIGKILLs at random moments of a process that streams into the history, in the midst of chores, and of programs that cannot save."""

import hashlib
import json
import os
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

KILLS = 30
# The promise is a second of a writer that runs: measured by what the writer itself reported last, since one that gets no
# time from a busy machine feeds nothing and saves nothing.
LOST_S = 1.0
WHOLE = set[str]()
"""Pictures that were read already: nothing changes them."""


def killed_writer(
    directory: Path, alive_s: float, *seed: int
) -> tuple[dict[int, int], dict[int, int]]:
    """Kill a writer after a while; return the lengths of its complete messages, and of those fed more than a second before its end."""
    reader, writer = os.pipe()
    arguments = map(str, (directory, *seed))
    command = [sys.executable, "-m", "tests.history.streaming_writer", *arguments]
    with subprocess.Popen(command, stdout=writer) as process, os.fdopen(reader) as lines:
        os.close(writer)
        assert lines.readline().startswith("open")
        time.sleep(alive_s)
        process.kill()
        process.wait()
        rows = [line.split() for line in lines.read().splitlines()]
    complete = {int(row[1]): int(row[2]) for row in rows if row[0] == "done"}
    fed = [(int(row[1]), int(row[2]), float(row[3])) for row in rows if row[0] == "fed"]
    last_s = max((at_s for *_, at_s in fed), default=0.0)
    return complete, {number: length for number, length, at_s in fed if at_s < last_s - LOST_S}


def lengths(directory: Path) -> tuple[dict[int, int], dict[int, int]]:
    """Return the lengths of all messages, and of the complete ones, as a plain SQLite reads them. Their pictures are whole."""
    with closing(sqlite3.connect(directory / "history.db")) as file:
        assert file.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        # The index agrees with the messages it was made of.
        file.execute("INSERT INTO found(found, rank) VALUES ('integrity-check', 0)")
        rows = file.execute("SELECT id, length(content), state, acts FROM message").fetchall()
    named = {each["sha256"] for row in rows if row[3] for each in json.loads(row[3])["media"]}
    for each in named - WHOLE:
        assert hashlib.sha256((directory / "media" / each).read_bytes()).hexdigest() == each
    WHOLE.update(named)
    return dict(row[:2] for row in rows), dict(row[:2] for row in rows if row[2] == "complete")


def test_no_kill_loses_a_complete_message_or_more_than_a_second_of_another(tmp_path: Path) -> None:
    moments, complete, kill = random.Random(0), dict[int, int](), 0
    # Where the disk is slow, a writer has done little in a quarter of a second.
    while kill < KILLS or (len(complete) <= KILLS / 2 and kill < 5 * KILLS):
        done, fed = killed_writer(tmp_path, moments.uniform(0, 0.25), kill)
        kill += 1
        complete |= done
        stored, settled = lengths(tmp_path)
        assert complete.items() <= settled.items()
        assert all(stored[message] >= length for message, length in fed.items())
    assert len(complete) > KILLS / 2  # it did write
    history = History(tmp_path)
    latest = history.latest() or 0
    states = {message.state for message in history.messages(latest)}
    assert WHOLE, "it had pictures"
    history.delete(latest)
    history.close()
    assert not [*(tmp_path / "media").iterdir()], "nor is one left of a message that was not saved"
    assert history.trouble is None
    assert states == {"complete", "cut"}


def test_a_kill_loses_less_than_a_second_of_a_long_reply(tmp_path: Path) -> None:
    for _ in range(2):
        _, fed = killed_writer(tmp_path, 2.0)
        stored, _ = lengths(tmp_path)
        assert fed
        assert all(stored[message] >= length for message, length in fed.items())


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
