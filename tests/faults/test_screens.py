"""The chat's screens where something goes wrong behind them: each says so, goes on, and nothing that was said is lost."""

import os
import resource
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from localspec.history.schema import STEPS
from tests.tui.driving import Chat, drive

pytestmark = pytest.mark.slow

LONG = "word " * 200
SLOW = {"otherwise": [LONG], "pass_s": 0.01, "load_s": 0.5}
"""What is told of an engine that died stays until another is loaded."""
AGAIN = "saved again, including everything said meanwhile"


def database_of(folder: Path) -> Path:
    return folder / "history" / "history.db"


def kept(folder: Path) -> list[tuple[str, str, str]]:
    """Return role, content and state of every message in the file, which is sound."""
    connection = sqlite3.connect(database_of(folder))
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    rows = connection.execute("SELECT role, content, state FROM message ORDER BY id").fetchall()
    connection.close()
    return rows


def kill_engine(chat: Chat, number: signal.Signals = signal.SIGKILL) -> None:
    assert chat.session.engine.pid is not None
    os.kill(chat.session.engine.pid, number)


async def until_told(chat: Chat, *words: str) -> None:
    """Wait until the screen says something, wherever its lines end."""
    await chat.until(lambda: all(each in " ".join(chat.text().split()) for each in words))


async def until_answering(chat: Chat) -> str:
    """Wait until an answer has begun; return what there is of it."""
    await chat.until(lambda: chat.session.exchange and len(chat.session.exchange.answer) > 30)
    assert chat.session.exchange is not None
    return chat.session.exchange.answer


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL])
def test_an_engine_that_dies_answering(number: signal.Signals, tmp_path: Path) -> None:
    seen: list[str] = []

    async def die(chat: Chat) -> None:
        await chat.begin("hello?")
        seen.append(await until_answering(chat))
        kill_engine(chat, number)
        await until_told(chat, f"({number.name})")
        await chat.ready()
        await chat.begin("and now?")
        await chat.until(lambda: len(chat.contents) > 2)

    drive(die, tmp_path, SLOW)
    rows = kept(tmp_path)
    assert rows[0] == ("user", "hello?", "complete")
    assert rows[1][1].startswith(seen[0])
    assert rows[1][2] == "cut"
    assert rows[2][:2] == ("user", "and now?")


@pytest.mark.parametrize("sheet", ["/history", "/lens"])
def test_an_engine_that_dies_behind_a_sheet(sheet: str, tmp_path: Path) -> None:
    async def die(chat: Chat) -> None:
        await chat.ask("hello?")
        await chat.run(sheet)
        await chat.until(lambda: len(chat.app.screen_stack) > 1)
        kill_engine(chat)
        await chat.until(lambda: chat.session.models.ready is None)
        await chat.until(lambda: chat.session.models.ready is not None)
        await chat.press("escape")
        await chat.until(lambda: "was killed" not in chat.text())
        await chat.ask("and now?")

    drive(die, tmp_path)
    assert [state for _, _, state in kept(tmp_path)] == ["complete"] * 4


def test_an_engine_that_hangs_is_restarted_by_force(tmp_path: Path) -> None:
    async def hang(chat: Chat) -> None:
        await chat.begin("hello?")
        await until_answering(chat)
        kill_engine(chat, signal.SIGSTOP)
        await chat.press("escape")  # nobody hears it
        assert chat.session.busy
        await chat.run("/restart")
        await chat.ready()
        assert not chat.session.busy
        await chat.begin("and now?")
        await chat.until(lambda: len(chat.contents) > 2)

    drive(hang, tmp_path, SLOW)
    rows = kept(tmp_path)
    assert rows[1][2] == "cut"
    assert len(rows[1][1]) > 30


@contextmanager
def full_disk(database: Path) -> Iterator[None]:
    """No file can be longer than the database is now, and no room is taken back."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    most = max(each.stat().st_size for each in database.parent.glob("history.db*"))
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_disk_that_fills_up_is_told_and_all_is_saved_once_there_is_room(tmp_path: Path) -> None:
    asked = 1

    async def fill(chat: Chat) -> None:
        nonlocal asked
        history = chat.session.talk.history
        await chat.ask("hello?")
        with full_disk(database_of(tmp_path)):
            while history.trouble is None:
                await chat.ask(f"{asked}?")
                asked += 1
                assert asked < 40, "the disk is not full"
            await until_told(chat, "cannot be saved", "in memory")
            await chat.ask("in memory?")
            assert chat.contents[-2:] == ["in memory?", "Yes."]
        history._tried_s -= 60
        await until_told(chat, AGAIN)
        await chat.ask("and now?")

    drive(fill, tmp_path, {"otherwise": ["Yes."]})
    rows = kept(tmp_path)
    assert [each for role, each, _ in rows if role == "user"] == [
        "hello?", *(f"{n}?" for n in range(1, asked)), "in memory?", "and now?",
    ]  # fmt: skip
    assert len(rows) == 2 * (asked + 2)
    assert {state for _, _, state in rows} == {"complete"}


def test_a_locked_database_is_told_and_all_is_saved(tmp_path: Path) -> None:
    async def lock(chat: Chat) -> None:
        await chat.ask("hello?")
        other = sqlite3.connect(database_of(tmp_path), isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        await chat.ask("locked?")
        await until_told(chat, "cannot be saved (database is locked)")
        assert chat.contents[2] == "locked?"
        other.execute("ROLLBACK")
        other.close()
        chat.session.talk.history._tried_s -= 60
        await until_told(chat, AGAIN)

    drive(lock, tmp_path)
    assert [content for _, content, _ in kept(tmp_path)] == [
        "hello?", "Hello **world**.", "locked?", "Hello **world**.",
    ]  # fmt: skip


def test_a_history_of_a_later_version_is_told_and_left_as_it_is(tmp_path: Path) -> None:
    async def talk(chat: Chat) -> None:
        await chat.ask("hello?")

    drive(talk, tmp_path)
    connection = sqlite3.connect(database_of(tmp_path))
    connection.execute(f"PRAGMA user_version = {len(STEPS) + 1}")
    connection.close()
    before = database_of(tmp_path).read_bytes()

    async def look(chat: Chat) -> None:
        await until_told(chat, "later localspec", "update localspec")
        await chat.ask("and now?")
        assert chat.contents == ["and now?", "Hello **world**."]
        assert chat.session.models.ready is not None

    drive(look, tmp_path)
    assert database_of(tmp_path).read_bytes() == before


def test_a_history_that_is_damaged_is_told_and_left_as_it_is(tmp_path: Path) -> None:
    database_of(tmp_path).parent.mkdir()
    database_of(tmp_path).write_bytes(b"no database " * 1000)

    async def look(chat: Chat) -> None:
        await until_told(chat, "is damaged", "away to start again")
        await chat.ask("and now?")

    drive(look, tmp_path)
    assert database_of(tmp_path).read_bytes() == b"no database " * 1000
