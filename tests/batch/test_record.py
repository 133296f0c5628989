"""Record: what is written of a line is read again, in both formats, whatever its texts are."""

import csv
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.batch.record import (
    NoRecordError,
    Written,
    answer_record,
    encoded,
    error_record,
    header,
    read_record,
)
from localspec.batch.rows import FORMATS, Format, Row
from localspec.errors import UsageError
from tests.batch.toy import NAMES, RECEIPT, reply

ROW = Row(7, b"12345678", {})
ANY_TEXT = (
    st.text() | st.text(st.characters(max_codepoint=159)) | st.sampled_from(['"\r"\n', "\x00"])
)


@given(st.sampled_from(FORMATS), ANY_TEXT, ANY_TEXT)
def test_what_is_written_is_read_again(form: Format, text: str, line_id: str) -> None:
    answered = encoded(answer_record(ROW, line_id, reply(text), NAMES, RECEIPT), form)
    failed = encoded(error_record(ROW, line_id, UsageError(text or "?"), RECEIPT), form)
    assert read_record(answered, form) == Written(7, b"12345678", RECEIPT, failed=False)
    assert read_record(failed, form) == Written(7, b"12345678", RECEIPT, failed=True)
    if form == "jsonl":
        assert answered.count(b"\n") == 1
        assert json.loads(answered)["text"] == text
    else:
        rows = io.StringIO((header(form) + answered).decode(), newline="")
        (row,) = csv.DictReader(rows)
        assert (row["text"], row["id"], row["line"], row["error"]) == (text, line_id, "7", "")


def test_half_of_a_character_in_an_id_comes_out_as_it_came_in() -> None:
    record = error_record(ROW, "\ud800", UsageError("x"), RECEIPT)
    assert json.loads(encoded(record, "jsonl"))["id"] == "\ud800"
    assert b"?" in encoded(record, "csv")


def test_a_terminal_gets_nothing_that_it_would_obey() -> None:
    record = answer_record(ROW, None, reply("\x1b[2J\x9b2J"), NAMES, RECEIPT)
    for form in FORMATS:
        line = encoded(record, form, to_terminal=True)
        assert all(32 <= byte < 127 for byte in line[:-1])


def test_what_is_wrong_with_a_line_is_said_in_a_line_that_no_terminal_obeys() -> None:
    record = error_record(ROW, None, UsageError("no \x1b[2J\n\ud800 here"), RECEIPT)
    assert record["error"]["message"] == "no ?[2J ? here"


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b'{"line": 1, "input": "00"}',
        b'{"line": 0, "input": "0011223344556677", "receipt": {"seed": 1, "target": "", "build": "", "options": ""}}',
        b'{"line": 1, "input": "0011223344556677", "receipt": {"seed": "1", "target": "", "build": "", "options": ""}}',
        b'{"line": 1, "input": "0011223344556677", "receipt": {"seed": 1}}',
        b"\xff",
    ],
)
@pytest.mark.parametrize("form", FORMATS)
def test_what_is_no_record_is_said_to_be_none(raw: bytes, form: Format) -> None:
    with pytest.raises(NoRecordError):
        read_record(raw, form)


def test_a_digest_of_another_length_is_no_record() -> None:
    record = {**error_record(ROW, None, UsageError("x"), RECEIPT), "input": "1234"}
    with pytest.raises(NoRecordError):
        read_record(encoded(record, "jsonl"), "jsonl")
