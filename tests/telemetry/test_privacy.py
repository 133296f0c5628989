"""No text on the disk unless it was asked for: the files are searched for texts and for their ids."""

import json
import sqlite3
import struct
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest

from localspec.chat.request import Request
from localspec.config.recorded import recording as what_is_recorded
from localspec.launch.observe import Telemetry
from localspec.messages import Message
from localspec.options.recording import Switch
from localspec.telemetry.log import FILE, read_records, store, wipe
from localspec.telemetry.recorder import Recorder
from localspec.telemetry.reply import GateCount
from localspec.telemetry.report import make_report
from localspec.telemetry.text import proposals
from tests.chat.test_assistant import assistant
from tests.support.checks import on_disk
from tests.telemetry.talking import PAIR, drafted, first, recording

SECRET_ASKED, SECRET_TEXT = "my password is xyzzy-plugh-42", "the answer is quuxfrobnicate"
PROMPT, DRAFT = range(1000, 1010), range(100, 103)
KEY = b"AKIAABCDEFGH234567AB"


def has_ids(found: bytes) -> list[bool]:
    """Return of prompt and draft whether their ids stand there: as integers of any usual kind, or as digits."""

    def spellings(tokens: range) -> list[bytes]:
        forms = [f"{order}{len(tokens)}{kind}" for order in "<>" for kind in "iqhfd"]
        joined = (mark.join(map(str, tokens)).encode() for mark in (", ", ",", " ", "-"))
        return [*(struct.pack(form, *tokens) for form in forms), *joined]

    return [any(each in found for each in spellings(tokens)) for tokens in (PROMPT, DRAFT)]


def assert_no_text(found: bytes) -> None:
    assert has_ids(found) == [False, False]
    assert b"<1000>" not in found
    assert b"<1000>".hex().encode() not in found


def test_neither_text_nor_ids_are_written_by_default(tmp_path: Path) -> None:
    for name, switch in (("counts", Switch()), ("text", Switch(text=True))):
        with recording(tmp_path / name, switch) as talk:
            talk.reply(rounds=40, asked=SECRET_ASKED, text=SECRET_TEXT, n_prompt=10)
    found = on_disk(tmp_path / "counts")
    assert b"qwen-target" in found  # the search does find what is there
    for word in (*SECRET_ASKED.split(), *SECRET_TEXT.split()):
        if len(word) > 3:
            assert word.encode() not in found
            assert word.encode("utf-16-le") not in found
    assert_no_text(found)
    assert list(proposals(tmp_path / "counts")) == []
    found = on_disk(tmp_path / "text")
    assert has_ids(found) == [True, True]
    assert b"<1000>".hex().encode() in found


@pytest.mark.parametrize("only_text", [True, False])
def test_nothing_of_the_text_is_left_after_wiping(tmp_path: Path, only_text: bool) -> None:
    with recording(tmp_path, Switch(text=True)) as talk:
        talk.reply(rounds=400, n_prompt=10)
    before = read_records(tmp_path).replies
    earlier = ("replies.jsonl", "telemetry.db", "telemetry.db-wal", "telemetry.db-1.spool")
    for name in earlier:
        (tmp_path / name).write_bytes(b"a secret")
    assert wipe(tmp_path, only_text=only_text)
    found = on_disk(tmp_path)
    assert_no_text(found)
    assert b"a secret" not in found
    assert (b"qwen-target" in found) is only_text
    assert read_records(tmp_path).replies == (before if only_text else {})
    assert not any((tmp_path / name).exists() for name in earlier)
    (tmp_path / FILE).write_bytes(b"secret, and no record: " * 400)
    assert wipe(tmp_path), "also what is damaged"
    assert on_disk(tmp_path) == b""
    assert not wipe(tmp_path)


def test_proposals_are_context_draft_verdict_and_correction(tmp_path: Path) -> None:
    with recording(tmp_path, Switch(text=True), workload="code") as talk:
        talk.reply(rounds=10, acceptance=0.5, n_prompt=4)
    drafted, plain = list(proposals(tmp_path)), list(proposals(tmp_path, drafters=["off"]))
    assert (len(drafted), len(plain)) == (8, 2)
    expected = {
        "context_ids": [1000, 1001, 1002, 1003, 7],
        "context": "<1000><1001><1002><1003><7>",
        "draft_ids": [100, 101, 102],
        "draft": "<100><101><102>",
        "confidences": [0.8, 0.8, 0.8],
        "target": "qwen-target",
        "draft_model": "qwen-draft",
        "workload": "code",
    }
    assert {name: drafted[0][name] for name in expected} == expected
    for one, following in pairwise(sorted([*drafted, *plain], key=lambda each: each["round"])):
        confirmed = [*one["draft_ids"][: one["accepted"]], one["next_id"]]
        assert following["context_ids"] == one["context_ids"] + confirmed
    for each in drafted:
        assert each["next_is"] == ("bonus" if each["accepted"] == 3 else "correction")
    cut = proposals(tmp_path, most_context=3)
    assert {len(each["context_ids"]) for each in cut} == {3}
    assert json.loads(json.dumps(drafted)) == drafted


def test_of_a_reply_about_a_picture_no_text_is_recorded(tmp_path: Path) -> None:
    with recording(tmp_path, Switch(text=True)) as talk:
        trace = talk.recorder.begin(SECRET_ASKED, [*PROMPT, -5, -4_000_000, 1001], greedy=True)
        trace.note(first())
        trace.note(drafted(3, 2))
        trace.end(SECRET_TEXT, 0.1, 0.1)
    assert [each.prompt for each in read_records(tmp_path).replies.values()] == [13]
    assert list(proposals(tmp_path)) == []
    assert_no_text(on_disk(tmp_path))


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


SET = ("telemetry = false", 'telemetry = "off"', 'telemetry = "perhaps"', "telemetry = ", "telemetry_days = 0", "telemetry_megabytes = 1")  # fmt: skip
VARIABLES = (("", "off"), ("", "0"), ("", "no?"), ("telemetry = true", "off"))


@pytest.mark.parametrize(("file", "text"), [*((each, "") for each in SET), *VARIABLES])
def test_what_is_off_or_not_understood_records_nothing(
    settings: Path, monkeypatch: pytest.MonkeyPatch, file: str, text: str
) -> None:
    settings.write_text(file)
    monkeypatch.setenv("LOCALSPEC_TELEMETRY", text)
    assert what_is_recorded() is None


@pytest.mark.parametrize(("secret", "acceptance"), [(100, 1.0), (102, 0.0)])
def test_reply_with_a_secret_leaves_no_text(tmp_path: Path, secret: int, acceptance: float) -> None:
    with recording(tmp_path, Switch(text=True)) as talk:
        talk.recorder.spell = lambda token: b" " + KEY if token == secret else b" word"
        talk.reply(rounds=8, acceptance=acceptance)
        talk.recorder.spell = lambda token: b" word"
        talk.reply(rounds=8)
    found = on_disk(tmp_path)
    assert KEY.hex().encode() not in found
    assert b" word".hex().encode() in found
    records = read_records(tmp_path)
    assert (list(records.replies), records.texts) == ([1, 2], {2})


def test_a_match_of_a_gate_is_counted_when_the_reply_is_recorded(tmp_path: Path) -> None:
    recorder, telemetry = Recorder(tmp_path, PAIR, Switch(), lambda _: b""), Telemetry()
    telemetry.recorder = recorder
    speaker = assistant(f"My key is {KEY.decode()}.")
    speaker.observers = (telemetry,)
    for rules in ("usual", ""):
        list(speaker.events(Request(1, (Message.user("hello"),), gate=rules)))
    recorder.close(60.0)
    (found,) = read_records(tmp_path).findings
    assert (found.rule, found.action, found.times) == ("AWS access key", "mask", 1)


def test_findings_are_counted_by_rule_and_bounded_by_age(tmp_path: Path) -> None:
    now_s, token, mail = 1.8e9, ("GitHub token", "mask"), ("e-mail address", "note")
    store(tmp_path, None, None, {token: 2, mail: 1}, Switch(), now_s)
    store(tmp_path, None, None, {token: 3}, Switch(), now_s + 9)
    records = read_records(tmp_path)
    expected = [(now_s, *token, 2), (now_s, *mail, 1), (now_s + 9, *token, 3)]
    assert records.findings == [GateCount(*each) for each in expected]
    assert make_report(records).findings == {token: 5, mail: 1}
    assert make_report(records, now_s + 5).findings == {token: 3}
    store(tmp_path, None, None, {}, Switch(days=1), now_s + 3 * 86400)
    assert read_records(tmp_path).findings == []
