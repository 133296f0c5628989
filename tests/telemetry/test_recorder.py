"""What is recorded, and that nothing of it disturbs a reply."""

import json
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from localspec.decoding.round import Draft, Round, Spent, Verdict
from localspec.options.recording import Switch
from localspec.telemetry.log import FILE, read_records
from localspec.telemetry.recorder import Recorder
from localspec.telemetry.reply import ReplyRecord
from tests.telemetry.talking import PAIR, Talk, drafted, first, recording
from tests.waiting import PATIENCE_S, until


def replies(directory: Path) -> list[ReplyRecord]:
    return list(read_records(directory).replies.values())


def recorded(directory: Path, *rounds: Round, prompt: Sequence[int] = (1, 2)) -> ReplyRecord:
    """Record a reply of these rounds, and return what was recorded."""
    with recording(directory) as talk:
        trace = talk.recorder.begin("x", prompt, greedy=True)
        for done in rounds:
            trace.note(done)
        trace.end("", 0.1, 0.034)
    (reply,) = replies(directory)
    return reply


def test_reply_is_one_small_record_with_counts_and_stage_times(tmp_path: Path) -> None:
    with recording(tmp_path) as talk:
        talk.reply(rounds=5, acceptance=0.0)
        talk.reply(rounds=500)
    reply, _ = replies(tmp_path)
    assert reply.cells == {
        "model": {0: (4, 12, 0, 4, 0, 20_000, 80_000, 12_000, 0, 8000)},
        "off": {0: (1, 0, 0, 1, 0, 0, 20_000, 3000, 0, 2000)},
    }
    assert (reply.pair, reply.prompt, reply.tokens) == (PAIR, 50, 6)
    assert reply.tallies["model"]["position"] == [(4, 0)]
    assert reply.tallies["model"]["rank"] == [(0, 0), (0, 0), (4, 0)]
    with closing(sqlite3.connect(tmp_path / FILE)) as connection:
        _, (body,) = connection.execute("SELECT body FROM record").fetchall()
    assert json.loads(body)["type"] == "reply"
    assert len(body) < 3000


def test_rounds_are_recorded_by_stage_depth_and_drafter(tmp_path: Path) -> None:
    spent = Spent(0.003, 0.007, 0.016, 0.001, 0.005, 0.002)
    reply = recorded(tmp_path / "stages", first(), drafted(2, 1, spent=spent))
    assert reply.sums[4:] == [3000, 7000, 16000, 1000, 5000, 2000]
    assert (reply.prefill_s, reply.decode_s, reply.greedy) == (0.1, 0.034, True)
    # What is accepted behind the end of the text is not counted.
    whole = drafted(9, 9)
    reply = recorded(tmp_path / "end", first(), replace(whole, confirmed=whole.confirmed[:4]))
    assert (reply.tokens, reply.sums[:4]) == (5, [1, 9, 4, 4])
    # All tokens before a round count: these begin at 251, 254, 257 and 260.
    reply = recorded(tmp_path / "depth", first(), *[drafted(3, 2)] * 4, prompt=range(250))
    assert {depth: counts[0] for depth, counts in reply.cells["model"].items()} == {0: 2, 256: 2}
    # Lookup without a match is a plain round.
    nothing = Round(Draft(drafter="lookup"), Verdict(0, 5), (5,), Spent(verify_s=0.03))
    reply = recorded(tmp_path / "lookup", first(), nothing, drafted(2, 1, "lookup"), nothing)
    counts = {drafter: its[0][:2] for drafter, its in reply.cells.items()}
    assert counts == {"lookup": (1, 2), "off": (2, 0)}


def test_tokens_are_judged_up_to_the_first_that_was_not_accepted(tmp_path: Path) -> None:
    reply = recorded(tmp_path, *(drafted(3, accepted) for accepted in (0, 1, 3, 3)))
    its = reply.tallies["model"]
    assert its["position"] == [(4, 3), (3, 2), (2, 2)]
    assert its["confidence"] == [*([(0, 0)] * 8), (9, 7)]  # all of them are 80 % sure
    assert its["gap"] == [*([(0, 0)] * 3), (4, 3), (3, 2), (2, 2)]  # 1.5, 2.5 and 3.5
    assert reply.judged("model") == (9, 7)


def test_reply_is_tagged_by_prompt_and_text_or_as_the_user_says(tmp_path: Path) -> None:
    with recording(tmp_path) as talk:
        talk.reply(asked="Write a haiku about rain.")
        talk.reply(asked="What is it?", text='{\n "name": "it"\n}')
    with recording(tmp_path, workload="code") as talk:
        talk.reply(asked="Write a haiku about rain.")
    tags = [(each.workload, each.by_user) for each in replies(tmp_path)]
    assert tags == [("creative", False), ("structured", False), ("code", True)]


def test_the_files_are_made_late_and_only_their_owner_can_read_them(tmp_path: Path) -> None:
    place = tmp_path / "telemetry"
    with recording(place) as talk:
        talk.reply(ends=False)
    assert not place.exists()
    with recording(place) as talk:
        talk.reply()
    modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in place.iterdir()}
    assert FILE in modes
    assert set(modes.values()) == {0o600}
    assert stat.S_IMODE(place.stat().st_mode) == 0o700


@pytest.mark.parametrize("what", ["no folder", "a folder", "a round of no sense"])
def test_what_is_of_no_use_switches_off_and_says_so_once(tmp_path: Path, what: str) -> None:
    place = tmp_path / "telemetry"
    if what == "a folder":
        (place / FILE).mkdir(parents=True)
    elif what == "no folder":
        place.write_text("root writes everywhere: a file in the folder's place")
    with recording(place) as talk:
        if what == "a round of no sense":
            trace = talk.recorder.begin("x", [1], greedy=True)
            trace.note(Round(Draft((1,), (float("nan"),)), Verdict(0, 1), (1,)))
        else:
            talk.reply()
        assert until(lambda: talk.recorder.trouble is not None)
        talk.reply()
    assert "telemetry is off for this run" in (talk.recorder.trouble or "")
    assert "\n" not in (talk.recorder.trouble or "")
    assert what != "a round of no sense" or replies(place) == []


@contextmanager
def written_elsewhere(directory: Path) -> Iterator[None]:
    """Be in the middle of a change of the log."""
    with closing(sqlite3.connect(directory / FILE, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL").fetchall()
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")


def test_neither_answers_nor_the_end_wait_for_another_process_that_writes(tmp_path: Path) -> None:
    # Only behind the inner one can anything be written.
    with recording(tmp_path) as talk, written_elsewhere(tmp_path):
        for _ in range(30):
            talk.reply(rounds=1)
    assert len(replies(tmp_path)) == 30
    assert talk.recorder.trouble is None
    recorder = Recorder(tmp_path, PAIR, Switch(), lambda _: b"")
    with written_elsewhere(tmp_path):
        Talk(recorder).reply(rounds=3)
        recorder.close(0.2)
    recorder.close(PATIENCE_S)
    assert len(replies(tmp_path)) == 31


KILLED = """
import sys
from pathlib import Path
from tests.telemetry.talking import recording
with recording(Path(sys.argv[1])) as talk:
    for number in range(10**6):
        talk.reply(rounds=1)
        print(number, flush=True)
"""


def test_sigkill_leaves_a_sound_log_to_which_others_add(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert until(lambda: (tmp_path / FILE).exists() and len(replies(tmp_path)) > 20)
        process.send_signal(signal.SIGKILL)
    before = [each.id for each in replies(tmp_path)]
    with recording(tmp_path) as talk:
        talk.reply()
    *others, last = [each.id for each in replies(tmp_path)]
    assert others == before == sorted(set(before))
    assert last > max(before)


def test_two_recorders_write_into_one_log(tmp_path: Path) -> None:
    with recording(tmp_path) as one, recording(tmp_path) as other:
        for talk in (one, other) * 5:
            talk.reply(rounds=8)
    assert [each.id for each in replies(tmp_path)] == list(range(1, 11))
    assert sum(each.sums[0] for each in replies(tmp_path)) == 80
