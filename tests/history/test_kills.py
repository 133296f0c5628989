"""SIGKILLs at random moments of a process that streams into the history."""

import hashlib
import json
import os
import random
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from localspec.history.archive import History

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
