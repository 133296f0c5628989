"""A large history of an earlier version is taken over while the chat runs: `python -m lab.history_takeover HISTORY [--kills 10]`.

HISTORY is a directory that `lab.history_scale` made in a checkout of that version; a copy is used, with two thousand
conversations in Chinese before its end, whose letters have to be indexed. The screens run in a real pseudo-terminal on the
tests' engine. Each run asks a question, searches, and is killed at a random moment. A pause is what the event loop takes
between two looks at its descriptors, without the time in which other processes had the core.
"""

import argparse
import json
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from random import Random

from localspec.history.archive import History
from tests.tui.terminal import CHAT, ROOT, Terminal

_WATCH = """
import asyncio, json, threading, time
def waited():
    return int(open("/proc/thread-self/schedstat").read().split()[1]) / 1e9
def watch(loop, log):
    select, since = loop._selector.select, [time.monotonic(), waited()]
    def watched(timeout=None):
        now, others = time.monotonic(), waited()
        took = now - since[0] - (others - since[1])
        if took > 0.02:
            log.write(json.dumps([now, took]) + "\\n")
        ready = select(timeout)
        since[:] = time.monotonic(), waited()
        return ready
    loop._selector.select = watched
run = asyncio.base_events.BaseEventLoop.run_forever
def run_forever(loop):
    watch(loop, open({log!r}, "a", buffering=1))
    run(loop)
asyncio.base_events.BaseEventLoop.run_forever = run_forever
"""
_F7, _ESCAPE = "\x1b[18~", "\x1b"
_CHINESE = 2000


def add_chinese(file: Path) -> int:
    """Add conversations whose letters have to be indexed; return how many messages there are now."""
    with closing(sqlite3.connect(file)) as connection, connection:
        (last,) = connection.execute("SELECT max(id) FROM message").fetchone()
        connection.execute("PRAGMA defer_foreign_keys = ON")
        for number in range(_CHINESE):
            conversation = connection.execute(
                "INSERT INTO conversation(title, created_s, updated_s, leaf) VALUES (?, 1, 1, ?)",
                (f"第{number}次", last + number + 1),
            ).lastrowid
            connection.execute(
                "INSERT INTO message(id, conversation, role, content, state, created_s) VALUES (?, ?, 'user', ?, 'complete', 1)",
                (last + number + 1, conversation, f"第{number}次說話天氣很好。" * 20),
            )
        return int(connection.execute("SELECT count(*) FROM message").fetchone()[0])


def run(folder: Path, log: Path, question: str, alive_s: float | None) -> list[float]:
    """Chat until the question is answered, search, and be killed, or end; return the pauses since the screen was there."""
    source = _WATCH.format(log=str(log)) + CHAT.format(
        root=str(ROOT), folder=str(folder), script={"otherwise": ["An answer."]}
    )
    source = source.replace("latest = history.latest()", "latest = None").replace(
        "app = ChatApp", "history.work_in_background()\napp = ChatApp"
    )
    log.unlink(missing_ok=True)
    terminal = Terminal(sys.executable, "-c", source)
    terminal.until("context 0%", timeout_s=600)
    began_s = time.monotonic()
    terminal.type(f"{question}\r")
    terminal.until(" tokens ·", timeout_s=600)
    terminal.type(_F7)
    for key in "the word":
        terminal.type(key)
        terminal.read(0.3)
    terminal.type(_ESCAPE)
    until_s = time.monotonic() + (alive_s or 0)
    while time.monotonic() < until_s:
        terminal.read()
    if alive_s is None:
        terminal.close()
    else:
        terminal.process.send_signal(signal.SIGKILL)
        terminal.process.wait()
    times = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    return [took for at_s, took in times if at_s >= began_s]


def main() -> None:
    """Take a history over, and print figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("history", type=Path)
    parser.add_argument("--kills", type=int, default=10)
    wanted = parser.parse_args()
    chance, asked, pauses = Random(1), list[str](), list[float]()
    with tempfile.TemporaryDirectory() as name:
        folder, log = Path(name, "history"), Path(name, "log")
        folder.mkdir(mode=0o700)
        shutil.copy(wanted.history / "history.db", folder)
        before = add_chinese(folder / "history.db")
        for number in range(wanted.kills):
            asked.append(f"question {number} of a chat that is killed")
            pauses += run(folder, log, asked[-1], chance.uniform(0, 6))
            with closing(sqlite3.connect(folder / "history.db")) as file:
                chores = file.execute("SELECT name, next FROM chore").fetchall()
            print(asked[-1], chores, f"{max(pauses, default=0):.3f}", flush=True)
        with closing(History(folder)) as history:
            history.tidy()
            for each in asked:
                found = history.read("SELECT id FROM message WHERE content = ?", (each,))
                assert len(found) == 1, each
            (count,) = history.read("SELECT count(*) AS n FROM message")
            assert count["n"] == before + 2 * wanted.kills, (count["n"], before)
            (letters,) = history.read("SELECT count(*) AS n FROM letters")
            assert letters["n"] == _CHINESE
            for index in ("found", "letters"):
                history.read(f"INSERT INTO {index}({index}) VALUES ('integrity-check')")
            assert history.trouble is None
    longest = ", ".join(f"{1000 * each:.0f}" for each in sorted(pauses)[-5:])
    print(f"{wanted.kills} kills: all {before} messages and {len(asked)} exchanges are there once")
    print(f"pauses above 20 ms: {len(pauses)}, the longest {longest} ms")


if __name__ == "__main__":
    main()
