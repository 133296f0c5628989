"""Where nothing can be saved: one line that says so, and a chat that goes on; what was said is saved when it can be."""

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from localspec.history import database as databases
from localspec.history.archive import History
from localspec.history.database import STEPS
from localspec.messages import Message
from tests.history.test_archive import said, talk

NOBODY = 65534


def assert_one_line(trouble: str | None, *words: str) -> None:
    assert trouble is not None
    assert "\n" not in trouble
    for word in words:
        assert word in trouble


def assert_a_chat_goes_on(history: History) -> None:
    number = talk(history, "still there?", "yes")
    talk(history, "really?", "really", number)
    second = history.branch(number)[2]
    history.begin_reply(number, second.id).finish(Message.assistant("no"))
    assert said(history, number) == ["still there?", "yes", "really?", "no"]
    assert (history.conversation(number).title, history.conversation(number).n_messages) == (
        "still there?",
        5,
    )
    assert number not in [each.id for each in history.conversations()], "lists show what is saved"
    assert history.state_directory(number) is None
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


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    history = History(tmp_path / "file" / "history")
    assert_one_line(history.trouble, "Not a directory", "in memory")
    assert_a_chat_goes_on(history)


def test_a_reply_that_grows_is_written_once_when_the_file_can_be_written_again(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").write_text("not a directory")
    history = History(tmp_path / "file" / "history", stopwatch=iter(range(1000)).__next__)
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
    again = History(tmp_path / "file" / "history")
    assert said(again, number)[1].endswith("98 99 ")
    again.close()


def test_a_later_version_is_left_alone(tmp_path: Path) -> None:
    database = filled(tmp_path)
    with sqlite3.connect(database) as connection:
        connection.execute(f"PRAGMA user_version = {len(STEPS) + 1}")
    connection.close()
    before = database.read_bytes()
    history = History(tmp_path)
    assert_one_line(history.trouble, "later localspec", f"version {len(STEPS) + 1}", "update")
    assert_a_chat_goes_on(history)
    assert database.read_bytes() == before


@pytest.mark.parametrize(
    ("offset", "damage"),
    [(0, b"\xff" * 64), (100, b"\xff" * 200), (4096 * 8, b"\xff" * 4096 * 40)],
)
def test_damage_is_told_when_it_is_met_and_costs_no_word(
    tmp_path: Path, offset: int, damage: bytes
) -> None:
    database = filled(tmp_path)
    with database.open("r+b") as file:
        file.seek(offset)
        file.write(damage)
    before = database.read_bytes()
    history = History(tmp_path)
    history.conversations("old")
    assert_one_line(history.trouble, "nothing is saved", "move", "history.db away")
    assert_a_chat_goes_on(history)
    assert database.read_bytes() == before


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "history.db").write_text("my shopping list\n" * 100)
    history = History(tmp_path)
    assert_one_line(history.trouble, "file is not a database", "move")
    assert_a_chat_goes_on(history)
    assert (tmp_path / "history.db").read_text().startswith("my shopping list")


def test_an_empty_file_becomes_a_history(tmp_path: Path) -> None:
    (tmp_path / "history.db").touch()
    history = History(tmp_path)
    assert history.trouble is None
    talk(history, "a", "A")
    history.close()


def test_damage_while_it_is_open_costs_no_word_of_the_chat(tmp_path: Path) -> None:
    database = filled(tmp_path)
    history = History(tmp_path)
    number = history.latest() or 0
    reply = history.begin_reply(number, history.add_user(number, None, Message.user("new")))
    reply.feed("half an answer")
    with database.open("r+b") as file:
        file.write(b"\xff" * database.stat().st_size)
    for log in tmp_path.glob("history.db-*"):
        log.write_bytes(b"\xff" * log.stat().st_size)
    reply.finish()
    assert_a_chat_goes_on(history)


FULL = """
import resource, sys
from pathlib import Path
from localspec.history.archive import History
from localspec.messages import Message
from tests.history.test_archive import said, talk
from tests.history.test_trouble import assert_a_chat_goes_on, assert_one_line

history = History(Path(sys.argv[1]))
number = history.latest()
before = said(history, number)
# Every file may have a few pages more than the largest has now: a disk that fills up.
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
asked = history.add_user(number, history.conversation(number).leaf, Message.user("and now?"))
reply = history.begin_reply(number, asked)
for _ in range(200):
    reply.feed("words that find no room any more " * 100)
reply.finish()
talk(history, "next", "x" * 400_000, number)
assert_one_line(history.trouble, "cannot be saved", "keeps trying", "kept in memory")
shown = said(history, number)
assert shown[: len(before) + 1] == [*before, "and now?"]
assert len(shown[len(before) + 1]) == 200 * 3300
assert shown[-1] == "x" * 400_000
assert_a_chat_goes_on(history)
print("went on:", history.trouble)
"""


def test_a_disk_that_fills_up_costs_no_word_of_the_chat(tmp_path: Path) -> None:
    filled(tmp_path)
    room = 300_000
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path), str(room)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("went on: the history cannot be saved")
    assert done.stderr == ""
    again = History(tmp_path)
    assert again.trouble is None
    assert len(again.conversations("old")) == 30
    again.close()


FULL_FOR_A_WHILE = """
import resource, sys
from pathlib import Path
from localspec.history.archive import History
from localspec.messages import Message
from tests.history.test_archive import said, talk

def room(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

history = History(Path(sys.argv[1]))
kept, gone, begun = (talk(history, name, "fine") for name in ("kept", "gone", "begun"))
reply = history.begin_reply(begun, history.add_user(begun, history.conversation(begun).leaf, Message.user("and?")))
room(300_000)
reply.feed("x" * 400_000)
talk(history, "said in memory", "y" * 400_000)
history.delete(gone)
history.rename(kept, "a new title")
reply.finish()
assert history.trouble is not None
if sys.argv[2] == "mends":
    history.retry(wait_s=0)
    assert history.trouble is not None, "there is no room yet"
    room(resource.RLIM_INFINITY)
    history.retry()
    assert history.trouble is not None, "not so soon again"
    history.retry(wait_s=0)
    assert history.trouble is None
    talk(history, "after that", "fine", kept)
else:
    other = History(Path(sys.argv[1]))
    talk(other, "said by another chat", "fine")
    other.close()
    room(resource.RLIM_INFINITY)
history.close()
"""


@pytest.mark.first(1)
@pytest.mark.parametrize("how", ["mends", "closes"])
def test_what_was_said_while_the_disk_was_full_is_saved_when_it_is_not(
    tmp_path: Path, how: str
) -> None:
    filled(tmp_path)
    command = [sys.executable, "-c", FULL_FOR_A_WHILE, str(tmp_path), how]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    again = History(tmp_path)
    assert again.trouble is None
    titles = [each.title for each in again.conversations()]
    assert "gone" not in titles
    assert {"a new title", "begun", "said in memory"} < set(titles)
    assert ("after that" if how == "mends" else "said by another chat") in str(
        [said(again, each.id) for each in again.conversations()]
    )
    (begun,) = [each.id for each in again.conversations() if each.title == "begun"]
    assert said(again, begun)[3] == "x" * 400_000
    assert len(again.conversations("yyyyyyyyyy")) == 1
    assert len(again.conversations("old question")) == 30
    check = sqlite3.connect(tmp_path / "history.db")
    assert check.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert check.execute("PRAGMA foreign_key_check").fetchall() == []
    check.execute("INSERT INTO found(found, rank) VALUES ('integrity-check', 1)")
    check.close()
    again.close()


def test_a_file_that_cannot_be_written_is_tried_again_at_intervals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries, now_s = list[Path](), [1000.0]

    def refused(path: Path, *_: object) -> sqlite3.Connection:
        tries.append(path)
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(databases, "open_database", refused)
    monkeypatch.setattr("time.monotonic", lambda: now_s[0])
    history = databases.HistoryDatabase(tmp_path / "history.db")
    for second, tried in ((1, 1), (9, 1), (11, 2), (20, 2), (22, 3)):
        now_s[0] = 1000.0 + second
        history.retry()
        assert len(tries) == tried, second
    history.close()


def test_a_disk_that_is_full_from_the_start(tmp_path: Path) -> None:
    script = (
        "import resource, sys\n"
        "from pathlib import Path\n"
        "from localspec.history.archive import History\n"
        "from tests.history.test_trouble import assert_a_chat_goes_on, assert_one_line\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))\n"
        "history = History(Path(sys.argv[1]))\n"
        "assert_one_line(history.trouble, 'cannot be saved')\n"
        "assert_a_chat_goes_on(history)\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "new")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture
def open_to_all() -> Iterator[Path]:
    """A directory that another user can reach, since nothing is read-only to root."""
    directory = Path(tempfile.mkdtemp())
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory)


def test_a_directory_that_can_only_be_read_shows_what_it_has(open_to_all: Path) -> None:
    directory = open_to_all / "history"
    database = filled(directory)
    if os.geteuid() == 0:
        shutil.chown(directory, NOBODY)
        shutil.chown(database, NOBODY)
    database.chmod(0o400)
    directory.chmod(0o500)
    script = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from localspec.history.archive import History\n"
        "from tests.history.test_trouble import NOBODY, assert_a_chat_goes_on, assert_one_line\n"
        "if os.geteuid() == 0: os.setuid(NOBODY)\n"
        "history = History(Path(sys.argv[1]))\n"
        "assert_one_line(history.trouble, 'cannot be saved', 'in memory')\n"
        "assert len(history.conversations('old question')) == 30\n"
        "assert_a_chat_goes_on(history)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(directory)],
        capture_output=True,
        text=True,
        check=False,
    )
    directory.chmod(0o700)
    assert (done.returncode, done.stderr) == (0, "")
    assert [file.name for file in directory.iterdir()] == ["history.db"]


def test_a_message_that_another_chat_deleted_is_no_trouble_of_the_disk(tmp_path: Path) -> None:
    one, other = History(tmp_path), History(tmp_path)
    number = talk(one, "a", "A")
    other.delete(number)
    with pytest.raises(Exception, match="cannot do that") as caught:
        one.add_user(number, None, Message.user("b"))
    assert type(caught.value).__name__ == "HistoryError"
    assert one.trouble is None
    one.close()
    other.close()


TWO_CHATS = """
import resource, sys
from pathlib import Path
from localspec.history.archive import History
from localspec.messages import Message
from tests.history.test_archive import said, talk

chats = [History(Path(sys.argv[1])) for _ in range(2)]
shared = talk(chats[0], "shared", "by both")
resource.setrlimit(resource.RLIMIT_FSIZE, (250_000, resource.RLIM_INFINITY))
numbers = []
for chat, name in zip(chats, "ab"):
    chat.add_user(shared, chat.conversation(shared).leaf, Message.user(name + "x" * 300_000))
    numbers.append([talk(chat, f"{name}{n}", "y" * 1000) for n in range(3)])
    assert chat.trouble is not None
assert not {*numbers[0]} & {*numbers[1]}, numbers
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
for chat in chats:
    shown = chat.branch(shared)[-1].message.text
    chat.close()
    assert chat.trouble is None
    again = History(Path(sys.argv[1]))
    assert shown in [each.message.text for each in again.messages(shared)]
    again.close()
"""


def test_two_chats_whose_disk_is_full_save_all_that_was_on_both_screens(tmp_path: Path) -> None:
    command = [sys.executable, "-c", TWO_CHATS, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
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
    assert said(third, first) == ["a", "A"]
    assert third.branch(second)[1].state == "complete"
    assert len(third.conversations("a")) == 1
    for each in (one, other, third):
        each.close()
