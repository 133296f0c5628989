"""How the costs of the history grow: `python -m lab.history_scale [--sizes 1000 10000 100000] [--into FILE]`.

Run by two checkouts in turns, it compares them: it uses only what both have (`History` with `conversations`, `delete`, `create`,
`add_user`, `begin_reply`). Each figure is the CPU time of a process of its own, in seconds, the median of `--times`; a history
is made once for each size, with SQL, and copied for what changes it.
"""

import argparse
import json
import os
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from random import Random

MESSAGES = 10
LONG = 1000
"""Messages of the last conversation but one."""
_MEASURE = """
import json, sys, time
from pathlib import Path
from localspec.history.archive import History
from localspec.messages import Message
what, directory = sys.argv[1], Path(sys.argv[2])
begun, wall = time.process_time(), time.perf_counter()
history = History(directory)
assert history.trouble is None, history.trouble
opened = time.process_time() - begun
begun, wall = time.process_time(), time.perf_counter()
if what == "rare":
    assert history.conversations("rareword7")
elif what == "frequent":
    assert history.conversations("the")
elif what == "key":
    history.conversations("t")
elif what == "list":
    assert history.conversations()
elif what == "title":
    history.named("title 3 ")
elif what == "delete 10":
    history.delete(5)
elif what == "delete 1000":
    history.delete(2)
elif what == "add":
    number = history.create()
    for _ in range(50):
        last = history.add_user(number, None, Message.user("one more question"))
        history.begin_reply(number, last).finish(Message.assistant("one more answer " * 20))
spent, lasted = time.process_time() - begun, time.perf_counter() - wall
print(json.dumps({"opening": opened, what: spent / (50 if what == "add" else 1), "wall": lasted}))
"""
WHAT = ("rare", "frequent", "key", "list", "title", "delete 10", "delete 1000", "add")


def make(directory: Path, conversations: int) -> None:
    """Make a history of so many conversations, about 14 KB each."""
    chance = Random(conversations)
    words = ["the", "of", "a", "to", *(f"word{n}" for n in range(5000))]
    weights = [200.0, 150.0, 100.0, 80.0, *(1000 / (n + 10) for n in range(5000))]
    code = "import sys; from pathlib import Path; from localspec.history.archive import History; History(Path(sys.argv[1])).close()"
    subprocess.run([sys.executable, "-c", code, directory], check=True)
    with closing(sqlite3.connect(directory / "history.db")) as file:
        file.execute("PRAGMA synchronous = OFF")
        message = 0
        for number in range(1, conversations + 1):
            file.execute(
                "INSERT INTO conversation(id, title, created_s, updated_s) VALUES (?, ?, ?, ?)",
                (number, f"title {number} of a talk", number, number),
            )
            parent = None
            for turn in range(LONG if number == 2 else MESSAGES):
                message += 1
                text = " ".join(chance.choices(words, weights, k=140))
                text += f" rareword{message}" if message < 20 else ""
                role = "assistant" if turn % 2 else "user"
                file.execute(
                    "INSERT INTO message(id, conversation, parent, role, content, state, created_s) VALUES (?, ?, ?, ?, ?, 'complete', ?)",
                    (message, number, parent, role, text, number),
                )
                parent = message
            file.execute("UPDATE conversation SET leaf = ? WHERE id = ?", (parent, number))
            if number % 2000 == 0:
                file.commit()
        file.commit()
        file.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def figures(made: Path, times: int) -> dict[str, float]:
    """Return the median of each figure."""
    found: dict[str, list[float]] = {}
    for what in WHAT:
        for _ in range(times):
            with tempfile.TemporaryDirectory(dir=made.parent) as folder:
                place = made
                if what.startswith(("delete", "add")):
                    place = Path(folder, "history")
                    shutil.copytree(made, place)
                    os.sync()  # else a deletion, which syncs its file, pays for the copy, too
                done = subprocess.run(
                    [sys.executable, "-c", _MEASURE, what, place],
                    check=True,
                    capture_output=True,
                    text=True,
                )
            for name, seconds in json.loads(done.stdout).items():
                if name != "wall":
                    found.setdefault(name, []).append(seconds)
    return {name: statistics.median(each) for name, each in found.items()}


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000, 10_000, 100_000])
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument(
        "--into", type=Path, help="where histories are made, and kept for the next run"
    )
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = {}
        for size in wanted.sizes:
            made = (wanted.into or Path(folder)) / str(size)
            if not (made / "history.db").exists():
                make(made, size)
            rows[size] = figures(made, wanted.times)
        print("| |", " | ".join(map(str, rows)), "|")
        for name in ("opening", *WHAT):
            print(f"| {name} |", " | ".join(f"{rows[size][name]:.4f}" for size in rows), "|")


if __name__ == "__main__":
    main()
