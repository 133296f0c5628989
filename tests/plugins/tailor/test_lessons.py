"""What a head learns from: prompts, questions, replies that it was worst at, and those marked good; none that is marked bad."""

from pathlib import Path

import pytest

from localspec.errors import HistoryError, UsageError
from localspec.history.archive import History
from localspec.messages import Message
from localspec.plugins.tailor.lessons import RecordedReply, own_lessons, replies_to_learn
from localspec.telemetry.log import FILE
from tests.plugins.tailor.replies import PROMPT, add_marked, record


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path))
    return tmp_path


def tokens(seed: int, accepted: int) -> tuple[int, ...]:
    """Return what `record` records of a reply, but for its last token."""
    confirmed = [*range(100 + seed, 100 + seed + accepted), 1]
    return (*PROMPT, 7, *confirmed, *confirmed[:-1])


def test_what_was_rejected_comes_first_then_what_is_good_and_never_what_is_bad(data: Path) -> None:
    assert replies_to_learn("toy") == []
    record(
        data,
        "toy",
        [(1, "heads", 2), (2, "heads", 0), (3, "heads", 0), (4, "heads", 3), (5, "model", 0)],
    )
    record(data, "other", [(6, "heads", 0)])
    for seed, mark in ((1, "good"), (3, "bad"), (4, "good"), (7, "good"), (8, "")):
        add_marked(data, "toy", seed, mark)
    add_marked(data, "other", 9, "good")
    add_marked(data, "toy", 10, "good", words="")
    worst, other, *good = replies_to_learn("/models/toy")
    assert worst == RecordedReply(6, len(PROMPT), tokens(2, 0))
    assert other == RecordedReply(2, len(PROMPT), tokens(1, 2))
    texts = [[turn.text for turn in turns] for turns in good if isinstance(turns, tuple)]
    assert texts == [["Be brief.", f"One {n}?", "Yes.", "Two?", "Yes."] for n in (4, 7)]


def test_records_without_text_teach_nothing_and_an_unreadable_history_is_an_error(
    data: Path,
) -> None:
    record(data, "toy", [(1, "heads", 0)])
    (data / "telemetry" / FILE).unlink()
    assert replies_to_learn("toy") == []
    (data / "history" / "history.db").write_bytes(b"no database" * 999)
    with pytest.raises(HistoryError):
        replies_to_learn("toy")


def test_own_prompts_are_read_where_they_are_wanted_and_some_are_held_out(data: Path) -> None:
    history = History(data / "history")
    for number in range(40):
        if number == 19:
            with pytest.raises(UsageError, match="history has 19 questions"):
                own_lessons(None, history=True, replies_of=None)
        history.add_user(history.create(), None, Message.from_text("user", f"What is {number}?"))
    history.close()
    file = data / "prompts.jsonl"
    file.write_text('{"workload": "code", "prompt": "A test."}')
    record(data, "toy", [(1, "heads", 0)])
    own = own_lessons(str(file), history=True, replies_of="toy")
    kinds = [getattr(each, "workload", "") for each in own.values()]
    assert [kinds.count(each) for each in ("history", "code", "")] == [40, 1, 1]
    held = [key.startswith("held:") for key in own]
    assert 0 < sum(held) < 20
    assert held == sorted(held, reverse=True), "they are answered however many others there are"
    assert own_lessons(None, history=False, replies_of=None) == {}
    assert own == own_lessons(str(file), history=True, replies_of="toy")
