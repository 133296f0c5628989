"""What the history did not take is kept beside it, and taken in by the next program, once; or its loss is said."""

import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from localspec.errors import HistoryError
from localspec.history import database
from localspec.history.archive import History
from localspec.messages import MediaPart, Message, TextPart
from tests.history.test_archive import ids, talk, texts
from tests.support.media import picture_file
from tests.waiting import PATIENCE_S


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "BUSY_S", 0.05)


@contextmanager
def writer(directory: Path) -> Iterator[None]:
    """A program that writes for long."""
    with closing(sqlite3.connect(directory / "history.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


def everything(directory: Path) -> list[list[str]]:
    with closing(History(directory)) as history:
        return [texts(history, each) for each in sorted(ids(history))]


def test_an_exchange_beside_a_long_writer_is_kept_and_taken_in_once(tmp_path: Path) -> None:
    with closing(History(tmp_path)) as history:
        number = talk(history, "one?", "one")
    with writer(tmp_path):
        history = History(tmp_path)
        talk(history, "two?", "two", number)
        other = talk(history, "new?", "new")
        assert texts(history, other) == ["new?", "new"]
        unsaved = history.close()
        assert unsaved is not None
        assert unsaved.kept
        assert unsaved.code == 0
        assert "next localspec saves it" in unsaved.line
    kept = shutil.copytree(tmp_path / "kept", tmp_path / "copy")
    history = History(tmp_path)
    assert history.taken_in == 4
    assert "saved 4 messages" in history.taken_in_line
    assert history.close() is None
    assert everything(tmp_path) == [["one?", "one", "two?", "two"], ["new?", "new"]]
    assert not [*(tmp_path / "kept").iterdir()]
    shutil.copytree(kept, tmp_path / "kept", dirs_exist_ok=True)  # a kill before it was removed
    assert everything(tmp_path) == [["one?", "one", "two?", "two"], ["new?", "new"]]
    assert not [*(tmp_path / "kept").iterdir()]


def test_a_screen_waits_for_no_other_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "BUSY_S", 4 * PATIENCE_S)
    history = History(tmp_path)
    history.work_in_background()
    number = talk(history, "one?", "one")
    began_s = time.monotonic()
    with writer(tmp_path):
        talk(history, "two?", "two", number)
        history.retry(wait_s=0)
        assert time.monotonic() - began_s < 2 * PATIENCE_S
        assert history.trouble is not None
        assert history.lasting_trouble is None, "it may pass before anyone reads it"
    history.retry(wait_s=0)
    assert history.trouble is None
    assert texts(history, number) == ["one?", "one", "two?", "two"]
    assert history.close() is None


def test_what_cannot_wait_is_refused_beside_a_writer(tmp_path: Path) -> None:
    with closing(History(tmp_path)) as history:
        number = talk(history, "one?", "one")
        with writer(tmp_path), pytest.raises(HistoryError, match="another program is writing"):
            history.tag(number, ["rivers"])
        assert history.trouble is None
        assert history.tag(number, ["rivers"]) == ["rivers"]


def test_what_a_living_program_keeps_is_its_own(tmp_path: Path) -> None:
    History(tmp_path).close()
    with writer(tmp_path):
        chat = History(tmp_path)
        talk(chat, "still here?", "yes")
    assert everything(tmp_path) == []
    chat.retry(wait_s=0)
    assert chat.trouble is None
    chat.update(ids(chat)[0], title="another")
    assert chat.close() is None
    assert everything(tmp_path) == [["still here?", "yes"]]


KILLED = """
import os, signal, sys
from pathlib import Path
from localspec.history import database
from localspec.history.archive import History
from localspec.messages import Message
from tests.history.test_archive import talk
from tests.history.test_unsaved import writer
database.BUSY_S = 0.05
History(Path(sys.argv[1])).close()
with writer(Path(sys.argv[1])):
    history = History(Path(sys.argv[1]))
    number = talk(history, "who?", "me")
    talk(history, "again?", "again", number)
    reply = history.begin_reply(number, history.add_user(number, history.branch(number)[-1].id, Message.user("and?")))
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_kill_leaves_what_was_kept_to_the_next(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", KILLED, tmp_path], check=False)
    assert everything(tmp_path) == [["who?", "me", "again?", "again", "and?"]]


def test_a_reply_that_was_growing_is_whole_or_cut(tmp_path: Path) -> None:
    history = History(tmp_path)
    number = history.create()
    reply = history.begin_reply(number, history.add_user(number, None, Message.user("count")))
    with writer(tmp_path):
        reply.finish(Message.assistant("one two three"))
        second = history.add_user(number, reply.message, Message.user("on"))
        history.begin_reply(number, second).cut(Message.assistant("four"))
        assert history.close() is not None
    with closing(History(tmp_path)) as again:
        branch = again.branch(number)
        assert [each.message.text for each in branch] == ["count", "one two three", "on", "four"]
        assert [each.state for each in branch] == ["complete", "complete", "complete", "cut"]


def test_what_belongs_to_a_deleted_conversation_begins_its_own(tmp_path: Path) -> None:
    with closing(History(tmp_path)) as history:
        number = talk(history, "old?", "old")
    with writer(tmp_path):
        history = History(tmp_path)
        talk(history, "kept?", "kept", number)
        history.close()
    with closing(sqlite3.connect(tmp_path / "history.db")) as other, other:
        other.execute("UPDATE conversation SET leaf = NULL")
        other.execute("DELETE FROM message")
        other.execute("DELETE FROM conversation")
    assert everything(tmp_path) == [["kept?", "kept"]]


def test_a_picture_is_kept_with_its_message(tmp_path: Path) -> None:
    History(tmp_path).close()
    picture = picture_file(1)
    with writer(tmp_path):
        history = History(tmp_path)
        message = Message("user", (TextPart("what?"), MediaPart("image", "a.png", picture)))
        history.add_user(history.create(), None, message)
        history.close()
    with closing(History(tmp_path)) as history:
        (stored,) = history.branch(ids(history)[0])
        assert stored.message.media[0].data == picture


@pytest.mark.parametrize("content", [b"", b"{", b'{"rows": [{"table": "x"}]}'])
def test_a_damaged_file_stops_no_start(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "kept" / "abc").mkdir(parents=True)
    (tmp_path / "kept" / "abc" / "changes.json").write_bytes(content)
    with closing(History(tmp_path)) as history:
        assert history.trouble is None
        talk(history, "fine?", "fine")


def test_what_cannot_be_kept_is_lost_with_a_code(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    history = History(tmp_path / "file" / "history")
    talk(history, "gone?", "gone")
    unsaved = history.close()
    assert unsaved is not None
    assert not unsaved.kept
    assert unsaved.code == 7
    assert "lost" in unsaved.line
    assert "Not a directory" in unsaved.line
    assert os.listdir(tmp_path) == ["file"]  # noqa: PTH208 - names alone
