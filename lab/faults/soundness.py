"""What must hold after any fault: one clear message, sound stores, nothing lost that was reported as saved."""

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from lab.faults.ground import Ended, Ground, chat
from localspec.telemetry.log import read_records

_ABOUT_A_FAULT = ("Traceback", "bug in localspec", "Exception ", "core dumped")


def assert_clear(ended: Ended) -> str:
    """See that it failed, with one line that says why and no trace of the program's insides; return the line."""
    assert ended.code > 0, f"code {ended.code}: {ended.err}"
    return assert_told(ended)


def assert_told(ended: Ended) -> str:
    """See that whatever it said is news in lines of ours; return the last one."""
    for word in _ABOUT_A_FAULT:
        assert word not in ended.err, ended.err
    lines = ended.err.splitlines()
    assert all(line.startswith("localspec: ") for line in lines), ended.err
    return ended.told


def assert_fine(ended: Ended) -> None:
    """See that it did what was asked."""
    assert ended.code == 0, f"code {ended.code}: {ended.err}"
    assert_told(ended)


def messages(ground: Ground) -> list[tuple[str, str, str]]:
    """Return role, content and state of every message, as a plain SQLite reads them; see that the file is sound."""
    connection = sqlite3.connect(ground.history)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    rows = connection.execute("SELECT role, content, state FROM message ORDER BY id").fetchall()
    # 1 compares the index with all messages, and one that still grows has no place in it.
    whole = int(all(state != "streaming" for _, _, state in rows))
    connection.execute("INSERT INTO found(found, rank) VALUES ('integrity-check', ?)", (whole,))
    connection.close()
    return rows


def assert_sound_telemetry(ground: Ground) -> int:
    """See that the record of replies can be read, and has each of them once; return how many there are."""
    directory = ground.data / "telemetry"
    bodies = [str(each) for each in read_records(directory).replies.values()]
    assert len(bodies) == len(set(bodies))
    return len(read_records(directory).replies)


def assert_kept(ground: Ground, questions: Sequence[str]) -> None:
    """See that questions which were answered, and so reported as saved, are there, each with a complete answer."""
    kept = messages(ground)
    for question in questions:
        place = next(i for i, each in enumerate(kept) if each[:2] == ("user", question))
        role, content, state = kept[place + 1]
        assert (role, state) == ("assistant", "complete")
        assert content


def records(path: Path, *, torn: bool = False) -> list[str]:
    """Return the ids of the records of a batch, each a whole line; after a kill, the last may be torn."""
    if not path.exists():
        return []
    content = path.read_bytes()
    whole, _, rest = content.rpartition(b"\n")
    assert torn or rest == b""
    lines = whole.split(b"\n") if whole else []
    return [str(json.loads(line)["id"]) for line in lines]


def unsaved(ended: Ended) -> str:
    """Return the first line in which a chat says that it cannot save; empty where it says that of nothing."""
    return next((line for line in ended.err.splitlines() if "cannot be saved" in line), "")


@contextmanager
def with_chats_around(ground: Ground, *questions: str) -> Iterator[None]:
    """Chat before and after what happens meanwhile; see that both are kept, with some questions between them."""
    assert_fine(chat(ground, "Before."))
    yield
    assert_fine(chat(ground, "After."))
    assert_kept(ground, ["Before.", *questions, "After."])
