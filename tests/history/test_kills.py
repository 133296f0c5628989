"""A hundred SIGKILLs at random moments of a process that streams into the history."""

import os
import random
import sqlite3
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from localspec.history.archive import History

pytestmark = pytest.mark.slow

KILLS = 100
# The promise is a second of a writer that runs: it is measured by what the writer itself said last, since one that
# gets no time from a busy machine feeds nothing and saves nothing.
LOST_S = 1.0


@dataclass(slots=True)
class Seen:
    """What a writer said before it died: lengths of complete messages, and of what was fed when."""

    complete: dict[int, int] = field(default_factory=dict)
    fed: list[tuple[int, int, float]] = field(default_factory=list)

    @property
    def long_ago(self) -> list[tuple[int, int, float]]:
        """What was fed more than a second before the writer's last word."""
        last_s = max((fed_s for _, _, fed_s in self.fed), default=0.0)
        return [each for each in self.fed if each[2] < last_s - LOST_S]


def killed_at_a_moment(directory: Path, seed: int, alive_s: float) -> Seen:
    """Run a writer, kill it `alive_s` after it opened the history; return what it said."""
    reader, writer = os.pipe()
    command = [sys.executable, "-m", "tests.history.streaming_writer", str(directory), str(seed)]
    with subprocess.Popen(command, stdout=writer) as process, os.fdopen(reader) as lines:
        os.close(writer)
        assert lines.readline().startswith("open")
        time.sleep(alive_s)
        process.kill()
        process.wait()
        return heard(lines.read())


def heard(said: str) -> Seen:
    seen = Seen()
    for line in said.splitlines():
        word, message, length, *rest = line.split()
        if word == "done":
            seen.complete[int(message)] = int(length)
        else:
            seen.fed.append((int(message), int(length), float(rest[0])))
    return seen


def lengths(directory: Path) -> tuple[dict[int, int], dict[int, int]]:
    """Return the lengths of all messages, and of the complete ones, as a plain SQLite reads them."""
    connection = sqlite3.connect(directory / "history.db")
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    # The index agrees with the messages it was made of.
    connection.execute("INSERT INTO found(found, rank) VALUES ('integrity-check', 0)")
    rows = connection.execute("SELECT id, length(content), state FROM message").fetchall()
    connection.close()
    return {row[0]: row[1] for row in rows}, {
        row[0]: row[1] for row in rows if row[2] == "complete"
    }


def test_no_kill_loses_a_complete_message_or_more_than_a_second_of_another(tmp_path: Path) -> None:
    moments = random.Random(0)
    complete: dict[int, int] = {}
    kill = 0
    # Where the disk is slow, a writer has done little in a quarter of a second.
    while kill < KILLS or (len(complete) <= KILLS / 2 and kill < 5 * KILLS):
        seen = killed_at_a_moment(tmp_path, kill, moments.uniform(0, 0.25))
        kill += 1
        complete |= seen.complete
        here, settled = lengths(tmp_path)
        assert complete.items() <= settled.items()
        for message, length, _ in seen.long_ago:
            assert here[message] >= length
    assert len(complete) > KILLS / 2  # it did write
    history = History(tmp_path)
    states = {message.state for message in history.messages(history.latest() or 0)}
    history.close()
    assert history.trouble is None
    assert states == {"complete", "cut"}


def test_a_kill_loses_less_than_a_second_of_a_long_reply(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.history.slow_writer", str(tmp_path)]
    for _ in range(3):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            fed = [process.stdout.readline() for _ in range(160)]
            process.kill()
            said = heard("".join(fed))
        here, _ = lengths(tmp_path)
        assert said.long_ago
        for message, length, _ in said.long_ago:
            assert here[message] >= length
