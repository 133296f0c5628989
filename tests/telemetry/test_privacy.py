"""No text on the disk unless it was asked for: the files are searched for what was said, and for its ids."""

import json
import os
import sqlite3
import struct
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest

from localspec.chat.request import Request
from localspec.config.own import adopt_switches
from localspec.launch.observe import Telemetry
from localspec.launch.recording import recording as what_is_recorded
from localspec.launch.recording import store_megabytes
from localspec.messages import Message
from localspec.options.recording import Switch
from localspec.telemetry.log import FILE, read_records, store, wipe
from localspec.telemetry.recorder import Recorder
from localspec.telemetry.reply import GateCount
from localspec.telemetry.report import make_report
from localspec.telemetry.text import proposals
from tests.chat.test_assistant import assistant
from tests.telemetry.talking import PAIR, recording

SECRET_ASKED, SECRET_TEXT = "my password is xyzzy-plugh-42", "the answer is quuxfrobnicate"


def content(directory: Path) -> bytes:
    """Return every byte of every file."""
    return b"".join(path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file())


def spellings(tokens: range) -> list[bytes]:
    """Return how ids of a text could stand in a file: as integers of any usual kind, or as digits."""
    forms = [struct.pack(f"<{len(tokens)}{kind}", *tokens) for kind in "iqhfd"]
    forms += [struct.pack(f">{len(tokens)}{kind}", *tokens) for kind in "iqh"]
    joined = (", ", ",", " ", "-")
    return [*forms, *(mark.join(map(str, tokens)).encode() for mark in joined)]


PROMPT, DRAFT = range(1000, 1010), range(100, 103)


def test_neither_text_nor_ids_are_written_by_default(tmp_path: Path) -> None:
    with recording(tmp_path) as talk:
        talk.reply(rounds=40, asked=SECRET_ASKED, text=SECRET_TEXT, n_prompt=10)
    found = content(tmp_path)
    assert b"qwen-target" in found  # the search does find what is there
    for word in (*SECRET_ASKED.split(), *SECRET_TEXT.split()):
        if len(word) > 3:
            assert word.encode() not in found
            assert word.encode("utf-16-le") not in found
    for tokens in (PROMPT, DRAFT):
        assert not any(each in found for each in spellings(tokens))
    assert b"<1000>" not in found
    assert b"<1000>".hex().encode() not in found


def test_ids_are_written_where_text_was_asked_for_and_the_same_search_finds_them(
    tmp_path: Path,
) -> None:
    with recording(tmp_path, Switch(text=True)) as talk:
        talk.reply(rounds=40, asked=SECRET_ASKED, text=SECRET_TEXT, n_prompt=10)
    found = content(tmp_path)
    for tokens in (PROMPT, DRAFT):
        assert any(each in found for each in spellings(tokens))
    assert b"<1000>".hex().encode() in found


@pytest.mark.parametrize("only_text", [True, False])
def test_nothing_of_the_text_is_left_after_wiping(tmp_path: Path, only_text: bool) -> None:
    with recording(tmp_path, Switch(text=True)) as talk:
        talk.reply(rounds=400, n_prompt=10)
    assert wipe(tmp_path, only_text=only_text)
    found = content(tmp_path)
    for tokens in (PROMPT, DRAFT):
        assert not any(each in found for each in spellings(tokens))
    assert b"<1000>".hex().encode() not in found
    assert (b"qwen-target" in found) is only_text


@pytest.mark.parametrize("only_text", [True, False])
def test_files_of_earlier_versions_go_with_a_wipe(tmp_path: Path, only_text: bool) -> None:
    for name in ("replies.jsonl", "telemetry.db", "telemetry.db-wal", "telemetry.db-1.spool"):
        (tmp_path / name).write_bytes(b"a secret")
    assert wipe(tmp_path, only_text=only_text)
    assert [*tmp_path.iterdir()] == []


def test_damaged_log_is_wiped_as_well(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"secret, and no record: " * 400)
    assert wipe(tmp_path)
    assert content(tmp_path) == b""
    assert not wipe(tmp_path)


def test_proposals_are_context_draft_verdict_and_correction(tmp_path: Path) -> None:
    with recording(tmp_path, Switch(text=True), workload="code") as talk:
        talk.reply(rounds=10, acceptance=0.5, n_prompt=4)
    found = list(proposals(tmp_path))
    plain = list(proposals(tmp_path, drafters=["off"]))
    cut = list(proposals(tmp_path, most_context=3))
    assert len(found) == 8
    assert len(plain) == 2
    first = found[0]
    assert first["context_ids"] == [1000, 1001, 1002, 1003, 7]
    assert first["context"] == "<1000><1001><1002><1003><7>"
    assert first["draft_ids"] == [100, 101, 102]
    assert first["draft"] == "<100><101><102>"
    assert first["confidences"] == [0.8, 0.8, 0.8]
    assert (first["target"], first["draft_model"], first["workload"]) == (
        "qwen-target",
        "qwen-draft",
        "code",
    )
    for proposal, following in pairwise(sorted([*found, *plain], key=lambda each: each["round"])):
        said = [*proposal["draft_ids"][: proposal["accepted"]], proposal["next_id"]]
        assert following["context_ids"] == proposal["context_ids"] + said
    kinds = {each["accepted"]: each["next_is"] for each in found}
    assert all(
        kind == ("bonus" if accepted == 3 else "correction") for accepted, kind in kinds.items()
    )
    assert all(len(each["context_ids"]) == 3 for each in cut)
    assert json.loads(json.dumps(found)) == found


def test_without_text_there_are_no_proposals(tmp_path: Path) -> None:
    with recording(tmp_path) as talk:
        talk.reply()
    assert list(proposals(tmp_path)) == []


def test_damaged_text_costs_no_other(tmp_path: Path) -> None:
    with recording(tmp_path, Switch(text=True)) as talk:
        talk.reply(rounds=5)
        talk.reply(rounds=5)
    with closing(sqlite3.connect(tmp_path / FILE)) as connection:
        connection.execute("UPDATE record SET text = ? WHERE id = 1", (b'{"prompt": ["x"]}',))
        connection.commit()
    assert {each["reply"] for each in proposals(tmp_path)} == {2}
    assert list(proposals(tmp_path, since_s=1e11)) == []


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's file of settings, of which no variable says anything."""
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("LOCALSPEC_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.delenv("LOCALSPEC_TELEMETRY")
    (tmp_path / "config").mkdir()
    return tmp_path / "config" / "config.toml"


def test_counts_are_recorded_by_default_and_text_where_it_is_set(settings: Path) -> None:
    assert what_is_recorded() == Switch(text=False, megabytes=128, days=365)
    settings.write_text('telemetry = "text"\ntelemetry_megabytes = 20\ntelemetry_days = 3\n')
    assert what_is_recorded() == Switch(text=True, megabytes=20, days=3)


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("telemetry = false", ""),
        ('telemetry = "off"', ""),
        ('telemetry = "perhaps"', ""),
        ("telemetry = ", ""),
        ("telemetry_days = 0", ""),
        ("telemetry_megabytes = 1", ""),
        ("", "off"),
        ("", "0"),
        ("", "no?"),
        ("telemetry = true", "off"),
    ],
)
def test_what_is_off_or_not_understood_records_nothing(
    settings: Path, monkeypatch: pytest.MonkeyPatch, file: str, text: str
) -> None:
    settings.write_text(file)
    monkeypatch.setenv("LOCALSPEC_TELEMETRY", text)
    assert what_is_recorded() is None


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", '{"on": true}', '{"on": 1, "text": true, "megabytes": 128, "days": 1}',
     '{"on": true, "text": true, "megabytes": 1, "days": 1}', "[" * 4000,
     '{"on": false, "text": false, "megabytes": 128, "days": 365}'],
)  # fmt: skip
def test_an_earlier_switch_that_was_off_or_is_not_understood_stays_off(
    settings: Path, text: str
) -> None:
    switch = settings.parent.parent / "data" / "telemetry" / "switch.json"
    switch.parent.mkdir(parents=True)
    switch.write_text(text)
    adopt_switches()
    assert what_is_recorded() is None
    assert not switch.exists()
    assert 'telemetry = "off"' in settings.read_text()
    adopt_switches()
    settings.unlink()
    assert what_is_recorded() is not None, "it is read once"


def test_earlier_switches_are_taken_over_and_a_setting_that_says_no_stays(settings: Path) -> None:
    data = settings.parent.parent / "data"
    for folder in ("telemetry", "store"):
        (data / folder).mkdir(parents=True)
    on = '{"on": true, "text": true, "megabytes": 20, "days": 3}'
    (data / "telemetry" / "switch.json").write_text(on)
    (data / "store" / "on").write_text("2")
    adopt_switches()
    assert what_is_recorded() == Switch(text=True, megabytes=20, days=3)
    assert store_megabytes() == 2
    settings.write_text("telemetry = false\n")
    (data / "telemetry" / "switch.json").write_text(on)
    adopt_switches()
    assert what_is_recorded() is None


def test_where_no_setting_can_be_written_an_earlier_switch_still_holds(
    settings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    switch = settings.parent.parent / "data" / "telemetry" / "switch.json"
    switch.parent.mkdir(parents=True)
    switch.write_text('{"on": false, "text": false, "megabytes": 128, "days": 365}')
    settings.parent.rmdir()
    settings.parent.write_text("no folder")
    adopt_switches()
    assert os.environ["LOCALSPEC_TELEMETRY"] == "off"
    monkeypatch.setenv("LOCALSPEC_TELEMETRY", "off")  # as it was


def test_reply_with_what_a_gate_finds_leaves_no_text_and_is_counted(tmp_path: Path) -> None:
    key = b"AKIAABCDEFGH234567AB"
    with recording(tmp_path, Switch(text=True)) as talk:
        talk.recorder.spell = lambda token: b" " + key if token == 100 else b" word"
        talk.reply(rounds=8, acceptance=1.0)
        talk.recorder.spell = lambda token: b" word"
        talk.reply(rounds=8)
    found = content(tmp_path)
    assert key.hex().encode() not in found
    assert b" word".hex().encode() in found
    assert [*read_records(tmp_path).replies] == [1, 2]
    assert read_records(tmp_path).texts == {2}


def test_draft_that_was_rejected_is_said_as_well(tmp_path: Path) -> None:
    key = b"AKIAABCDEFGH234567AB"
    with recording(tmp_path, Switch(text=True)) as talk:
        talk.recorder.spell = lambda token: b" " + key if token == 102 else b" word"
        talk.reply(rounds=8, acceptance=0.0)
    assert key.hex().encode() not in content(tmp_path)


def test_what_a_gate_found_in_a_reply_is_counted_when_it_is_recorded(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, PAIR, Switch(), lambda _: b"")
    telemetry = Telemetry()
    telemetry.recorder = recorder
    speaker = assistant("My key is AKIAABCDEFGH234567AB.")
    speaker.observers = (telemetry,)
    for rules in ("usual", ""):
        list(speaker.events(Request(1, (Message.user("hello"),), gate=rules)))
    recorder.close(60.0)
    (found,) = read_records(tmp_path).findings
    assert (found.rule, found.action, found.times) == ("AWS access key", "mask", 1)


def test_findings_are_counted_by_rule_and_kept_within_bounds(tmp_path: Path) -> None:
    now_s = 1.8e9
    counts = {("GitHub token", "mask"): 2, ("e-mail address", "note"): 1}
    store(tmp_path, None, None, counts, Switch(), now_s)
    store(tmp_path, None, None, {("GitHub token", "mask"): 3}, Switch(), now_s + 9)
    records = read_records(tmp_path)
    assert records.findings == [
        GateCount(now_s, "GitHub token", "mask", 2),
        GateCount(now_s, "e-mail address", "note", 1),
        GateCount(now_s + 9, "GitHub token", "mask", 3),
    ]
    assert make_report(records).findings == {
        ("GitHub token", "mask"): 5,
        ("e-mail address", "note"): 1,
    }
    assert make_report(records, now_s + 5).findings == {("GitHub token", "mask"): 3}
    store(tmp_path, None, None, {}, Switch(days=1), now_s + 3 * 86400)
    assert read_records(tmp_path).findings == []
