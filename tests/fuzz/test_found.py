"""What fuzzing found, each as the fact that holds since."""

import io
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from lab.fuzz.target import load
from lab.fuzz.targets.telemetry import RECORD
from localspec.batch.source import parsed, split_lines
from localspec.config.files import read_settings
from localspec.errors import HistoryError, UsageError
from localspec.history.archive import History
from localspec.messages import Message
from localspec.session.export import as_json, as_markdown

_DIGITS = "1" * 5000


@pytest.mark.parametrize("value", [_DIGITS, "0x" + _DIGITS, "[" * 3000, "[0x" + _DIGITS + "]"])
def test_a_setting_of_thousands_of_digits(tmp_path: Path, value: str) -> None:
    file = tmp_path / "config.toml"
    file.write_text(f"threads = {value}\n")
    with pytest.raises(UsageError) as caught:
        read_settings(file)
    assert len(str(caught.value)) < 1000
    assert str(caught.value).isprintable()


@pytest.fixture
def circle(tmp_path: Path) -> History:
    """A history in which each of two messages follows the other, written in another age."""
    history = History(tmp_path)
    number = history.create()
    first = history.add_user(number, None, Message.user("Hi"))
    second = history.add_user(number, first, Message.user("Ho"))
    history.close()
    with closing(sqlite3.connect(tmp_path / "history.db")) as file:
        file.execute("UPDATE message SET parent = ? WHERE id = ?", (second, first))
        file.execute("UPDATE message SET created_s = 1e300, figures = ?", ("[" * 100_000,))
        file.execute("UPDATE conversation SET created_s = 1e300")
        file.commit()
    return History(tmp_path)


def test_messages_that_follow_each_other_end(circle: History) -> None:
    number = circle.latest()
    assert number is not None
    for branch in (circle.branch(number), circle.show(number, 1)):
        assert [each.message.text for each in branch] == ["Hi", "Ho"]
    conversation, messages = circle.conversation(number), circle.messages(number)
    assert "## You" in as_markdown(conversation, messages)
    assert json.loads(as_json(conversation, messages))["created"] == ""
    with pytest.raises(HistoryError):
        circle.conversation(99)
    circle.close()


def test_headers_versions_and_tallies_of_nothing() -> None:
    rows = parsed(split_lines(io.BytesIO(b"a,\x1b[2J,\x1b[2J\n")), "csv", "in.csv", "prompt")
    with pytest.raises(UsageError) as caught:
        list(rows)
    assert str(caught.value).isprintable()
    load("frames").check(b'{"v": "\\u0000\\u001b[2J", "type": "Bye"}\n')
    # `stats` divided by what a damaged record says was tried: 0.
    load("telemetry").check(RECORD.replace(b"[[5, 3]]", b"[[0, 0]]"))
