"""What a history costs is what is touched: statements look through no whole table, words leave the index, room goes back."""

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from localspec.history import chores
from localspec.history.archive import History
from localspec.history.chores import ChoreThread, step, work
from localspec.history.schema import STEPS
from localspec.history.search import letters_of
from localspec.messages import Message
from localspec.storage.database import open_database, transaction
from tests.history.test_archive import ids, talk, texts
from tests.support.checks import on_disk
from tests.waiting import PATIENCE_S


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    with closing(History(tmp_path)) as history:
        yield history


@contextmanager
def counted(history: History) -> Iterator[list[str]]:
    """Gather the statements of a connection."""
    statements = list[str]()
    connection = history._connection
    assert connection is not None
    connection.set_trace_callback(statements.append)
    yield statements
    connection.set_trace_callback(None)


def plans(history: History, statements: list[str]) -> set[str]:
    """Return how SQLite does statements, a line for each table."""
    connection = history._connection
    assert connection is not None
    found = set[str]()
    for each in statements:
        if each.startswith(("SELECT", "UPDATE", "DELETE", "WITH", "\nSELECT", "\nWITH")):
            found |= {row["detail"] for row in connection.execute(f"EXPLAIN QUERY PLAN {each}")}
    return found


def test_nothing_looks_through_all_messages(history: History) -> None:
    numbers = [talk(history, f"question {n}", f"answer {n} 今天") for n in range(5)]
    with counted(history) as statements:
        history.cut_growing()
        history.conversation(numbers[0])
        history.conversations()
        history.conversations("question")
        history.conversations("今天")
        history.named("question 3")
        history.latest()
        history.branch(numbers[1])
        history.older_than(5.0)
        history.delete(numbers[2])
    scans = {each for each in plans(history, statements) if each.startswith("SCAN")}
    scans -= {
        "SCAN hit",
        "SCAN json_each VIRTUAL TABLE INDEX 1:",
        "SCAN CONSTANT ROW",
        "SCAN (subquery-1)",
    }
    tables = {each.split()[1] for each in scans}
    assert not tables & {"message", "m"}, scans


@pytest.mark.parametrize(
    ("text", "queries", "misses"),
    [
        ("我們今天去動物園", ("今天", "動物園", "我", "去動"), ("天今", "明天")),
        ("好きな音楽は何ですか", ("音楽", "何で", "ですか"), ("楽音",)),
        ("สวัสดีชาวโลก", ("ชาว", "โลก"), ("แมว",)),
        ("안녕하세요 세계", ("하세", "세계"), ("계세",)),
        ("mixed 今天 Wetter", ("今天 wett", "mixed 今", "今"), ("今天 snow",)),
        ("plain words of Latin", ("wor", "latin", "lain wor"), ("今",)),
    ],
)
def test_scripts_without_spaces_are_found_letter_by_letter(
    history: History, text: str, queries: tuple[str, ...], misses: tuple[str, ...]
) -> None:
    talk(history, "another question", "yes")
    number = talk(history, "say it", text)
    for query in queries:
        assert ids(history, query) == [number], query
        assert [each.id for each in history.found(query)] == [number], query
    for query in misses:
        assert ids(history, query) == [], query
    history.delete(number)
    assert ids(history, queries[0]) == []


def test_excerpts_are_around_letters(history: History) -> None:
    talk(history, "say it", "長" * 200 + "音楽" + "短" * 200)
    (hit,) = history.conversations("音楽")
    assert "音楽" in hit.excerpt
    assert len(hit.excerpt) < 200


def test_a_frequent_word_finds_as_many_as_are_asked_for(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("localspec.history.search._FIRST_HITS", 3)
    numbers = [talk(history, "the same word", "the same word") for _ in range(30)]
    assert ids(history, "same", limit=10) == numbers[:-11:-1]
    assert ids(history, "same") == numbers[::-1]
    history.tag(numbers[0], ["old"])
    assert ids(history, "same tag:old", limit=1) == [numbers[0]]


def test_a_later_search_ends_the_one_before(history: History) -> None:
    for _ in range(50):
        talk(history, "x" * 3000, "y " * 3000)
    found = list[int]()
    threads = [
        threading.Thread(target=lambda: found.append(len(history.found("zzzz")))) for _ in range(8)
    ]
    for each in threads:
        each.start()
    talk(history, "meanwhile", "saved")
    for each in threads:
        each.join()
    assert found == [0] * 8
    assert history.trouble is None


def test_deleted_words_leave_a_large_index_step_by_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(History, "is_small", False)
    monkeypatch.setattr(chores, "_PAGES", 2)
    history = History(tmp_path)
    for number in range(60):
        talk(history, f"question{number} " * 20, f"answer{number} 音楽 " * 50)
    number = talk(history, "verysecretword", "密かな言葉 confidential " * 40)
    history.delete(number)
    with closing(sqlite3.connect(tmp_path / "history.db")) as file:
        assert file.execute("SELECT name FROM chore").fetchall() == [("merge",)]
    history.close()
    steps = 0
    with closing(open_database(tmp_path / "history.db", STEPS)) as connection:
        while step(connection):
            steps += 1
        work(connection)
    assert steps > 3
    for word in ("secretword", "confidential"):
        assert word.encode() not in on_disk(tmp_path)
    with closing(History(tmp_path)) as again:
        assert len(ids(again, "音楽")) == 60
        assert ids(again, "question7") != []
        assert ids(again, "confidential") == []


def test_room_goes_back_to_the_disk(history: History, tmp_path: Path) -> None:
    for _ in range(20):
        talk(history, "a question", "an answer " * 5000)
    history.tidy()
    before = (tmp_path / "history.db").stat().st_size
    for each in ids(history)[1:]:
        history.delete(each)
    assert history.tidy()
    assert (tmp_path / "history.db").stat().st_size < before / 4
    assert texts(history, ids(history)[0])[0] == "a question"


def earlier(directory: Path, conversations: int) -> None:
    """Make a history of the version before this one, with Chinese among its words, and a reply that a dead program left."""
    with closing(open_database(directory / "history.db", STEPS[:4])) as file, transaction(file):
        for number in range(1, conversations + 1):
            file.execute(
                "INSERT INTO conversation(id, title, created_s, updated_s) VALUES (?, 't', 1, ?)",
                (number, number),
            )
            for turn in (0, 1):
                values = (
                    2 * number + turn,
                    number,
                    2 * number if turn else None,
                    "assistant" if turn else "user",
                    f"第{number}次 說話 plain{number}",
                )
                file.execute(
                    "INSERT INTO message(id, conversation, parent, role, content, state, created_s) VALUES (?, ?, ?, ?, ?, 'complete', 1)",
                    values,
                )
        file.execute(
            "UPDATE message SET state = 'streaming' WHERE id = (SELECT max(id) FROM message)"
        )
        file.execute("UPDATE conversation SET leaf = 2 * id + 1")


def test_a_history_of_the_version_before_is_taken_over_in_steps(tmp_path: Path) -> None:
    earlier(tmp_path, 1000)
    history = History(tmp_path)
    assert history.branch(1000)[-1].state == "cut"
    assert ids(history, "說話", limit=-1)[0] == 1000, "found before its letters are indexed"
    assert len(ids(history, "說話", limit=-1)) == 1000
    connection = history._connection
    assert connection is not None
    assert step(connection)
    assert len(ids(history, "說話", limit=-1)) == 1000, "and half-way"
    history.close()
    with closing(History(tmp_path)) as again:
        assert again.tidy()
        assert len(ids(again, "說話", limit=-1)) == 1000
        assert ids(again, "第7次") == [7]
        assert ids(again, "plain12")[-1] == 12
        assert again.read("SELECT * FROM chore") == []


def test_a_thread_does_chores_beside_what_is_said(tmp_path: Path) -> None:
    earlier(tmp_path, 2000)
    history = History(tmp_path)
    history.work_in_background()
    until = time.monotonic() + PATIENCE_S
    while history.read("SELECT 1 FROM chore"):
        talk(history, "meanwhile", "還在說話")
        assert time.monotonic() < until
    history.delete(5)
    while history.read("SELECT 1 FROM chore"):
        assert time.monotonic() < until
        time.sleep(0.01)
    assert history.trouble is None
    assert 5 not in ids(history, "說話", limit=-1)
    assert history.close() is None


def test_a_thread_ends_at_once(tmp_path: Path) -> None:
    earlier(tmp_path, 50)
    History(tmp_path).close()
    for _ in range(20):
        ChoreThread(tmp_path / "history.db").close()
    with closing(History(tmp_path)) as history:
        assert len(ids(history)) == 50


def test_what_is_too_old_goes(tmp_path: Path) -> None:
    now = [1000.0 * 86400]
    history = History(tmp_path, clock=lambda: now[0])
    old, kept = talk(history, "old", "old"), talk(history, "open", "open")
    now[0] += 40 * 86400
    new = talk(history, "new", "new")
    assert history.expire(0) == 0
    assert history.expire(41) == 0
    assert history.expire(30, lambda: kept) == 1
    assert ids(history) == [new, kept]
    assert history.older_than(now[0] - 1) == [kept]
    assert old not in ids(history)
    history.close()


def test_letters() -> None:
    assert letters_of("plain") == letters_of("naïve é") == ""
    assert letters_of("今天 ok").split() == ["今", "天", "ok"]


def test_a_message_that_changes_is_found_by_its_last_words(history: History) -> None:
    number = history.create()
    reply = history.begin_reply(number, history.add_user(number, None, Message.user("說")))
    reply.feed("半句話")
    reply.finish(Message.assistant("整句話"))
    assert ids(history, "整句") == [number]
    assert ids(history, "半句") == []
    history.resume_reply(reply.message).finish(Message.assistant("words"))
    assert ids(history, "整句") == []
    assert ids(history, "words") == [number]


def test_what_is_opened_while_others_go_stays(tmp_path: Path) -> None:
    now = [1000.0 * 86400]
    with closing(History(tmp_path, clock=lambda: now[0])) as history:
        first, opened, last = (talk(history, each, each) for each in ("one", "two", "three"))
        now[0] += 40 * 86400
        assert history.expire(30, lambda: None if first in ids(history) else opened) == 2
        assert ids(history) == [opened]
        assert last not in ids(history)


def test_a_program_that_ends_waits_for_the_one_that_is_going_and_no_other(tmp_path: Path) -> None:
    now, goes, ends = [1000.0 * 86400], threading.Event(), threading.Event()
    history = History(tmp_path, clock=lambda: now[0])
    talks = [talk(history, str(each), "old") for each in range(9)]
    now[0] += 40 * 86400

    def but() -> None:
        goes.set()
        ends.wait()

    history.work_in_background(30, but)
    goes.wait()
    threading.Timer(0.1, ends.set).start()
    history.close()
    with closing(History(tmp_path)) as again:
        assert len(ids(again)) >= len(talks) - 1


def test_a_search_goes_on_where_the_one_before_it_has_just_ended(tmp_path: Path) -> None:
    with closing(History(tmp_path)) as history:
        number = talk(history, "one", "two")
        history._finder = sqlite3.connect(":memory:")
        history._finder.close()
        assert [each.id for each in history.found("two")] == [number]
