"""What is recorded, and that nothing of it disturbs a reply."""

import os
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest

from localspec.decoding.round import Draft, Round, Spent, Verdict
from localspec.telemetry.database import FILE, Database
from localspec.telemetry.recorder import Recorder
from localspec.telemetry.schema import VERSION
from localspec.telemetry.switch import Switch
from localspec.telemetry.taking_in import collect
from tests.telemetry.talking import PAIR, Talk, drafted, first, recording, stored_at_once


def rows(directory: Path, query: str) -> list[tuple[Any, ...]]:
    collect(directory)
    # Whoever opens it to look at it must not be the one who makes it.
    place = f"file:{directory / FILE}?mode=rw"
    with closing(sqlite3.connect(place, uri=True)) as connection:
        return connection.execute(query).fetchall()


def test_round_is_written_with_counts_ranks_and_stage_times(tmp_path: Path) -> None:
    with recording(tmp_path) as talk:
        talk.reply(rounds=5, acceptance=0.0)
    columns = "n, drafter, drafted, accepted, confirmed, correction_rank, width, depth"
    found = rows(tmp_path, f"SELECT {columns} FROM round")
    assert found == [
        *((n, "model", 3, 0, 1, 2, 4, 50 + n) for n in range(1, 5)),
        (5, "off", 0, 0, 1, None, 1, 55),
    ]
    stages = "draft_prefill_us, draft_us, verify_us, sample_us, truncate_us, other_us"
    assert rows(tmp_path, f"SELECT {stages} FROM round WHERE n = 1") == [
        (0, 5000, 20000, 3000, 0, 2000)
    ]


def test_what_a_round_spent_is_written_stage_by_stage(tmp_path: Path) -> None:
    with recording(tmp_path) as talk:
        trace = talk.recorder.begin("x", [1, 2], greedy=True)
        trace.note(first())
        trace.note(drafted(2, 1, spent=Spent(0.003, 0.007, 0.016, 0.001, 0.005, 0.002)))
        trace.end("", 0.1, 0.034)
    stages = "draft_prefill_us, draft_us, verify_us, sample_us, truncate_us, other_us"
    assert rows(tmp_path, f"SELECT {stages} FROM round") == [(3000, 7000, 16000, 1000, 5000, 2000)]
    assert rows(tmp_path, "SELECT prefill_us, decode_us FROM reply") == [(100_000, 34_000)]


def test_sums_are_those_of_the_rounds(tmp_path: Path) -> None:
    with recording(tmp_path) as talk:
        for number in range(4):
            talk.reply(rounds=40, n_prompt=30 + 200 * number)
    names = "count(*), sum(drafted), sum(accepted), sum(confirmed), sum(verify_us), sum(other_us)"
    of_rounds = rows(tmp_path, f"SELECT drafter, {names} FROM round GROUP BY drafter")
    of_cells = rows(
        tmp_path,
        f"SELECT drafter, {names.replace('count(*)', 'sum(rounds)')} FROM cell GROUP BY drafter",
    )
    assert of_rounds == of_cells
    assert len(rows(tmp_path, "SELECT DISTINCT depth FROM cell")) > 1
    (tried,) = rows(tmp_path, "SELECT sum(min(accepted + 1, drafted)) FROM round")[0]
    assert rows(tmp_path, "SELECT sum(tried) FROM tally WHERE kind = 'position'") == [(tried,)]
    assert rows(tmp_path, "SELECT sum(tried) FROM tally WHERE kind = 'gap'") == [(tried,)]


def test_reply_is_tagged_by_prompt_and_text_or_as_the_user_says(tmp_path: Path) -> None:
    with recording(tmp_path) as talk:
        talk.reply(asked="Write a haiku about rain.")
        talk.reply(asked="What is it?", text='{\n "name": "it"\n}')
    with recording(tmp_path, workload="code") as talk:
        talk.reply(asked="Write a haiku about rain.")
    found = rows(tmp_path, "SELECT workload, tagged_by FROM reply ORDER BY id")
    assert found[0] == ("creative", "guess")
    assert found[2] == ("code", "user")
    assert {workload for (workload,) in rows(tmp_path, "SELECT DISTINCT workload FROM cell")} == {
        workload for workload, _ in found
    }


def test_only_the_owner_can_read_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored_at_once(monkeypatch)
    place = tmp_path / "telemetry"
    with recording(place) as talk:
        talk.reply()
        wait_for(lambda: rows(place, "SELECT 1 FROM round") != [])
        files = list(place.iterdir())
        modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in files}
    assert {f"{FILE}", f"{FILE}-wal"} <= modes.keys()
    assert any(name.endswith(".spool") for name in modes)
    assert set(modes.values()) == {0o600}
    assert stat.S_IMODE(place.stat().st_mode) == 0o700


def wait_for(holds: Any) -> None:
    for _ in range(200):
        try:
            if holds():
                return
        except sqlite3.Error:
            pass
        time.sleep(0.05)
    raise AssertionError("it never came to hold")


@pytest.mark.parametrize("what", ["no database", "read-only folder", "a folder", "too new"])
def test_file_of_no_use_switches_off_and_says_so_once(
    tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored_at_once(monkeypatch)
    if what == "no database":
        (tmp_path / FILE).write_bytes(
            b"this is no database, and long enough to be told from one" * 20
        )
    elif what == "a folder":
        (tmp_path / FILE).mkdir()
    elif what == "too new":
        with closing(sqlite3.connect(tmp_path / FILE)) as connection:
            connection.execute(f"PRAGMA user_version = {VERSION + 1}")
    elif os.geteuid() == 0:
        (tmp_path / "telemetry").write_text(
            "root writes everywhere: a file in the way of the folder"
        )
        tmp_path = tmp_path / "telemetry"
    else:
        tmp_path.chmod(0o500)
    before = (tmp_path / FILE).read_bytes() if what == "no database" else b""
    with recording(tmp_path) as talk:
        talk.reply()
        wait_for(lambda: talk.recorder.trouble is not None)
        talk.reply()
    assert talk.recorder.trouble is not None
    assert "telemetry is off for this run" in talk.recorder.trouble
    assert "\n" not in talk.recorder.trouble
    if before:
        assert (tmp_path / FILE).read_bytes() == before


def test_locked_database_is_waited_for_and_then_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored_at_once(monkeypatch)
    with recording(tmp_path) as talk:
        talk.reply(rounds=3)
    with recording(tmp_path) as talk:
        with closing(sqlite3.connect(tmp_path / FILE, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            start = time.monotonic()
            for _ in range(30):
                talk.reply(rounds=1)
            assert time.monotonic() - start < 4  # telling never waits: SQLite would, 0.3 s each
            time.sleep(1.2)
            other.execute("ROLLBACK")
        wait_for(lambda: rows(tmp_path, "SELECT count(*) FROM round") == [(33,)])
    assert talk.recorder.trouble is None


def test_closing_while_another_process_writes_leaves_it_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored_at_once(monkeypatch)
    Database(tmp_path).close()
    recorder = Recorder(tmp_path, PAIR, Switch(), lambda _: b"")
    with closing(sqlite3.connect(tmp_path / FILE, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        Talk(recorder).reply(rounds=3)
        recorder.close(10.0)
    assert recorder.trouble is None
    assert len(list(tmp_path.glob("*.spool"))) == 1
    with recording(tmp_path) as talk:
        talk.reply(rounds=4)
    assert rows(tmp_path, "SELECT count(*), sum(rounds) FROM reply") == [(2, 7)]
    assert rows(tmp_path, "SELECT sum(rounds) FROM cell") == [(7,)]
    assert list(tmp_path.glob("*.spool")) == []


def test_nothing_is_opened_before_there_is_something_to_write(tmp_path: Path) -> None:
    place = tmp_path / "telemetry"
    with recording(place):
        pass
    assert not place.exists()


KILLED = """
import sys, time
from pathlib import Path
from tests.telemetry.talking import recording
with recording(Path(sys.argv[1])) as talk:
    number = 0
    while True:
        talk.reply(rounds=1, ends=False)
        number += 1
        print(number, time.monotonic(), flush=True)
        time.sleep(0.02)
"""


def test_sigkill_loses_at_most_a_second(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        told = []
        for line in process.stdout:
            number, at = line.split()
            told.append((int(number), float(at)))
            if len(told) > 1 and told[-1][1] - told[0][1] > 2.5:
                process.send_signal(signal.SIGKILL)
                break
    killed_at = told[-1][1]
    (written,) = rows(tmp_path, "SELECT count(*) FROM round")[0]
    older = sum(at < killed_at - 1.0 for _, at in told)
    assert written >= older
    assert older > 20


def test_wiped_database_is_written_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored_at_once(monkeypatch)
    with recording(tmp_path) as talk:
        talk.reply(rounds=5)
        wait_for(lambda: rows(tmp_path, "SELECT count(*) FROM round") == [(5,)])
        with closing(Database(tmp_path, busy_s=5.0)) as database:
            database.wipe()
        talk.reply(rounds=2)
    assert rows(tmp_path, "SELECT count(*) FROM round") == [(2,)]


def test_two_recorders_write_into_one_database(tmp_path: Path) -> None:
    with recording(tmp_path) as one, recording(tmp_path) as other:
        for talk in (one, other) * 5:
            talk.reply(rounds=8)
    assert rows(tmp_path, "SELECT count(*), count(DISTINCT reply) FROM round") == [(80, 10)]
    assert rows(tmp_path, "SELECT sum(rounds) FROM cell") == [(80,)]


def test_depth_of_a_round_counts_all_tokens_before_it(tmp_path: Path) -> None:
    with recording(tmp_path) as talk:
        talk.rng = Random(3)
        talk.reply(rounds=12, n_prompt=20)
    depth = 21
    for found, confirmed in rows(tmp_path, "SELECT depth, confirmed FROM round ORDER BY n"):
        assert found == depth
        depth += confirmed


def test_lookup_that_finds_nothing_is_a_plain_round(tmp_path: Path) -> None:
    nothing = Round(Draft(drafter="lookup"), Verdict(0, 5), (5,), Spent(verify_s=0.03))
    with recording(tmp_path) as talk:
        trace = talk.recorder.begin("x", [1, 2], greedy=True)
        for done in (first(), nothing, drafted(2, 1, "lookup"), nothing):
            trace.note(done)
        trace.end("", 0.0, 0.09)
    assert rows(tmp_path, "SELECT drafter, rounds, drafted FROM cell ORDER BY drafter") == [
        ("lookup", 1, 2),
        ("off", 2, 0),
    ]
