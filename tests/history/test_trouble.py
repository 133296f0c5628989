"""Where nothing can be saved: one line that says so, and a chat that goes on; what was added is saved when it can be."""

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from localspec.errors import HistoryError
from localspec.history import database as databases
from localspec.history.archive import History
from localspec.history.schema import STEPS
from localspec.messages import Message
from localspec.storage import database
from tests.history.test_archive import ids, talk, texts

pytestmark = pytest.mark.slow

NOBODY = 65534


def check_one_line(trouble: str | None, *words: str) -> None:
    assert trouble is not None
    assert "\n" not in trouble
    assert all(word in trouble for word in words), trouble


def check_a_chat_goes_on(history: History) -> None:
    number = talk(history, "still there?", "yes")
    talk(history, "really?", "really", number)
    second = history.branch(number)[2]
    history.begin_reply(number, second.id).finish(Message.assistant("no"))
    assert texts(history, number) == ["still there?", "yes", "really?", "no"]
    stored = history.conversation(number)
    assert (stored.title, stored.n_messages) == ("still there?", 5)
    assert number not in ids(history), "lists show what is saved"
    history.delete(number)
    assert history.branch(number) == []
    history.close()


def filled(directory: Path) -> Path:
    """Write a few conversations and return the database."""
    history = History(directory)
    for _ in range(30):
        talk(history, "an old question", "an old answer " * 300)
    history.close()
    return directory / "history.db"


def overwrite(offset: int, content: bytes) -> Callable[[Path], None]:
    def damage(file: Path) -> None:
        with file.open("r+b") as stream:
            stream.seek(offset, os.SEEK_END if offset < 0 else os.SEEK_SET)
            stream.write(content)

    return damage


def of_a_later_version(file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection:
        connection.execute(f"PRAGMA user_version = {len(STEPS) + 1}")
        connection.commit()


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (of_a_later_version, (f"version {len(STEPS) + 1}", "update localspec; nothing is saved")),
        (overwrite(0, b"\xff" * 64), ("nothing is saved", "history.db away")),
        (overwrite(100, b"\xff" * 200), ("nothing is saved", "move")),
        (overwrite(4096 * 8, b"\xff" * 4096 * 40), ("nothing is saved", "move")),
        (overwrite(-4096, b"\xff" * 4096), ("malformed", "move")),
        (lambda file: file.write_text("my list\n" * 500), ("file is not a database", "move")),
    ],
)
def test_a_file_of_no_use_is_left_alone_and_costs_no_word(
    tmp_path: Path, damage: Callable[[Path], None], words: tuple[str, ...]
) -> None:
    database = filled(tmp_path)
    damage(database)
    before = database.read_bytes()
    history = History(tmp_path)
    history.conversations("old")  # damage is met where it is read
    check_one_line(history.trouble, *words)
    check_a_chat_goes_on(history)
    assert database.read_bytes() == before


def test_damage_while_it_is_open_costs_no_word_of_the_chat(tmp_path: Path) -> None:
    database = filled(tmp_path)
    history = History(tmp_path)
    number = history.latest() or 0
    reply = history.begin_reply(number, history.add_user(number, None, Message.user("new")))
    reply.feed("half an answer")
    for file in (database, *tmp_path.glob("history.db-*")):
        file.write_bytes(b"\xff" * file.stat().st_size)
    reply.finish()
    check_a_chat_goes_on(history)


def test_the_first_message_of_all_waits_where_nothing_can_be_written(tmp_path: Path) -> None:
    file = databases.HistoryDatabase(tmp_path / "history.db")
    file.read("PRAGMA query_only = ON")
    values = {"created_s": 0.0, "updated_s": 0.0}
    number = file.save(databases.RowChange("conversation", None, values))
    check_one_line(file.trouble, "cannot be saved", "keeps trying")
    assert [row["id"] for row in file.rows("conversation", "id", number)] == [number]
    file.retry(wait_s=0)
    assert file.trouble is None
    file.close()


def test_a_growing_reply_is_written_when_the_file_can_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    directory = tmp_path / "file" / "history"
    with_none = History(directory)
    check_one_line(with_none.trouble, "Not a directory", "in memory")
    check_a_chat_goes_on(with_none)
    history = History(directory, stopwatch=iter(range(1000)).__next__)
    number = history.create()
    reply = history.begin_reply(number, history.add_user(number, None, Message.user("count")))
    for each in range(100):
        reply.feed(f"{each} ")
    assert len(history._waiting) == 3, "a conversation and two messages"
    reply.finish()
    (tmp_path / "file").unlink()
    history.retry(wait_s=0)
    assert history.trouble is None
    history.close()
    again = History(directory)
    assert texts(again, number)[1].endswith("98 99 ")
    again.close()


# Every file may have a few pages more than the largest has now: a disk that fills up.
PREAMBLE = """
import os, resource, sys
import localspec.decoding.drafters.register, tomllib  # another user may not be able to read Python's own files
from pathlib import Path
from types import SimpleNamespace
from localspec.history.archive import History
from localspec.messages import Message
from localspec.storage import database
from tests.history.test_archive import ids, talk, texts
from tests.history.test_trouble import NOBODY, check_a_chat_goes_on, check_one_line

def room(size=resource.RLIM_INFINITY):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

place = Path(sys.argv[1])
"""


def run(script: str, *arguments: object) -> None:
    """Run a script in a process of its own, whose files may be bounded; it prints nothing."""
    command = [sys.executable, "-c", PREAMBLE + script, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


FULL = """
history = History(place)
number = history.latest()
before = texts(history, number)
room(300_000)
user = history.add_user(number, history.conversation(number).leaf, Message.user("and now?"))
reply = history.begin_reply(number, user)
for _ in range(200):
    reply.feed("words that find no room any more " * 100)
reply.finish()
talk(history, "next", "x" * 400_000, number)
check_one_line(history.trouble, "cannot be saved", "keeps trying", "kept in memory")
visible = texts(history, number)
assert visible[: len(before) + 1] == [*before, "and now?"]
assert len(visible[len(before) + 1]) == 200 * 3300
assert visible[-1] == "x" * 400_000
check_a_chat_goes_on(history)
assert "cannot be saved" in history.trouble
"""
FULL_FROM_THE_START = """
room(0)
history = History(place / "new")
check_one_line(history.trouble, "cannot be saved")
check_a_chat_goes_on(history)
"""


@pytest.mark.parametrize("script", [FULL, FULL_FROM_THE_START])
def test_a_disk_that_is_full_costs_no_word_of_the_chat(tmp_path: Path, script: str) -> None:
    filled(tmp_path)
    run(script, tmp_path)
    again = History(tmp_path)
    assert again.trouble is None
    assert len(ids(again, "old")) == 30
    again.close()


FULL_FOR_A_WHILE = """
history = History(place)
left, gone, begun = (talk(history, name, "fine") for name in ("left", "gone", "begun"))
reply = history.begin_reply(begun, history.add_user(begun, history.conversation(begun).leaf, Message.user("and?")))
room(300_000)
reply.feed("x" * 400_000)
talk(history, "added in memory", "y" * 400_000)
history.delete(gone)
history.rename(left, "a new title")
reply.finish()
assert history.trouble is not None
if sys.argv[2] == "retries":
    history.retry(wait_s=0)
    assert history.trouble is not None, "there is no room yet"
    room()
    history.retry()
    assert history.trouble is not None, "not so soon again"
    history.retry(wait_s=0)
    assert history.trouble is None
    talk(history, "after that", "fine", left)
else:
    other = History(place)
    talk(other, "added by another chat", "fine")
    other.close()
    room()
history.close()
"""


@pytest.mark.first(1)
@pytest.mark.parametrize("how", ["retries", "closes"])
def test_what_was_added_to_a_full_disk_is_saved_later(tmp_path: Path, how: str) -> None:
    filled(tmp_path)
    run(FULL_FOR_A_WHILE, tmp_path, how)
    again = History(tmp_path)
    assert again.trouble is None
    by_title = {each.title: each.id for each in again.conversations()}
    assert "gone" not in by_title
    assert {"a new title", "begun", "added in memory"} < by_title.keys()
    later = "after that" if how == "retries" else "added by another chat"
    assert later in str([texts(again, each) for each in by_title.values()])
    assert texts(again, by_title["begun"])[3] == "x" * 400_000
    assert len(ids(again, "yyyyyyyyyy")) == 1
    assert len(ids(again, "old question")) == 30
    with closing(sqlite3.connect(tmp_path / "history.db")) as check:
        assert check.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert check.execute("PRAGMA foreign_key_check").fetchall() == []
        check.execute("INSERT INTO found(found, rank) VALUES ('integrity-check', 1)")
    again.close()


def test_a_full_file_is_tried_at_intervals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tries, now_s = list[Path](), [1000.0]

    def refused(path: Path, *_: object, **__: object) -> sqlite3.Connection:
        tries.append(path)
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error

    monkeypatch.setattr(databases, "open_database", refused)
    monkeypatch.setattr("time.monotonic", lambda: now_s[0])
    history = databases.HistoryDatabase(tmp_path / "history.db")
    check_one_line(history.trouble, "is full", "free some space")
    for second, tried in ((1, 1), (9, 1), (11, 2), (20, 2), (22, 3)):
        now_s[0] = 1000.0 + second
        history.retry()
        assert len(tries) == tried, second
    history.close()


def test_a_write_that_fails_on_a_disk_without_room_is_told_as_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR
    file = tmp_path / "history.db"
    for free, reason, advice in ((1 << 30, "disk I/O error", "check "), (0, "the disk is full", "free some space")):  # fmt: skip
        monkeypatch.setattr("shutil.disk_usage", lambda _, free=free: SimpleNamespace(free=free))
        assert database.reason_of(error, file) == reason
        assert database.remedy(error, file, "").startswith(advice)


READ_ONLY = """
if os.geteuid() == 0: os.setuid(NOBODY)
history = History(place)
check_one_line(history.trouble, 'cannot be saved', 'in memory')
assert len(ids(history, 'old question')) == 30
check_a_chat_goes_on(history)
"""


def test_a_directory_that_can_only_be_read_shows_what_it_has() -> None:
    """Another user reads it, since nothing is read-only to root."""
    with tempfile.TemporaryDirectory() as open_to_all:
        Path(open_to_all).chmod(0o755)
        directory = Path(open_to_all) / "history"
        database = filled(directory)
        if os.geteuid() == 0:
            shutil.chown(directory, NOBODY)
            shutil.chown(database, NOBODY)
        database.chmod(0o400)
        directory.chmod(0o500)
        run(READ_ONLY, directory)
        directory.chmod(0o700)
        assert [file.name for file in directory.iterdir()] == ["history.db"]


def test_a_message_that_another_chat_deleted_is_no_trouble_of_the_disk(tmp_path: Path) -> None:
    one, other = History(tmp_path), History(tmp_path)
    number = talk(one, "a", "A")
    other.delete(number)
    with pytest.raises(HistoryError, match="cannot do that"):
        one.add_user(number, None, Message.user("b"))
    assert one.trouble is None
    one.close()
    other.close()


TWO_CHATS = """
chats = [History(place) for _ in range(2)]
shared = talk(chats[0], "shared", "by both")
room(250_000)
numbers = []
for chat, name in zip(chats, "ab"):
    chat.add_user(shared, chat.conversation(shared).leaf, Message.user(name + "x" * 300_000))
    numbers.append([talk(chat, f"{name}{n}", "y" * 1000) for n in range(3)])
    assert chat.trouble is not None
assert not {*numbers[0]} & {*numbers[1]}, numbers
room()
for chat in chats:
    visible = chat.branch(shared)[-1].message.text
    chat.close()
    assert chat.trouble is None
    again = History(place)
    assert visible in [each.message.text for each in again.messages(shared)]
    again.close()
"""


def test_two_chats_whose_disk_is_full_save_all_that_was_on_both_screens(tmp_path: Path) -> None:
    run(TWO_CHATS, tmp_path)
    again = History(tmp_path)
    titles = sorted(each.title for each in again.conversations())
    assert titles == ["a0", "a1", "a2", "b0", "b1", "b2", "shared"]
    again.close()


def test_two_chats_write_at_the_same_time(tmp_path: Path) -> None:
    one, other = History(tmp_path), History(tmp_path)
    first, second = one.create(), other.create()
    mine = one.begin_reply(first, one.add_user(first, None, Message.user("a")))
    yours = other.begin_reply(second, other.add_user(second, None, Message.user("b")))
    third = History(tmp_path)  # calls both cut, since it cannot know that their writers live
    mine.finish(Message.assistant("A"))
    yours.finish(Message.assistant("B"))
    assert texts(third, first) == ["a", "A"]
    assert third.branch(second)[1].state == "complete"
    assert len(ids(third, "a")) == 1
    for each in (one, other, third):
        each.close()
