"""Record: what is written of a line is read again, whatever its texts are."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.batch.record import (
    Receipt,
    Record,
    encoded,
    error_fields,
    options_digest,
    read_record,
    record_of,
    reply_fields,
)
from localspec.batch.source import Line
from localspec.errors import UsageError
from tests.batch.toy import MODELS, RECEIPT, reply

DIGEST = b"12345678".hex()
LINE = Line(7, DIGEST, {})
ANY_TEXT = (
    st.text() | st.text(st.characters(max_codepoint=159)) | st.sampled_from(['"\r"\n', "\x00"])
)


@given(ANY_TEXT, ANY_TEXT)
def test_what_is_written_is_read_again(text: str, line_id: str) -> None:
    answered = encoded(record_of(LINE, line_id, RECEIPT, **reply_fields(reply(text), MODELS)))
    failed = encoded(record_of(LINE, line_id, RECEIPT, **error_fields(UsageError(text or "?"))))
    assert read_record(answered) == Record(7, DIGEST, RECEIPT)
    error = read_record(failed).error
    assert error is not None
    assert error["type"] == "UsageError"
    assert answered.count(b"\n") == 1
    assert json.loads(answered)["text"] == text


def test_outputs_of_earlier_versions_are_read() -> None:
    raw = (
        b'{"line": 1, "id": "p0", "text": "x", "stop_reason": "length", "seed": 2, "model": {"target": "m", "draft_model": null}, '
        b'"usage": {"prompt_tokens": 3}, "timings": {"tokens_per_s": NaN}, "input": "0900727e3eb49bc0", "receipt": {"seed": 11, '
        b'"target": "b179", "build": "localspec 0.1", "options": "087e", "draft_model": null}}\n'
    )
    receipt = Receipt(seed=11, target="b179", build="localspec 0.1", options="087e")
    assert read_record(raw) == Record(1, "0900727e3eb49bc0", receipt)


def test_the_receipt_is_read_as_it_was_written() -> None:
    receipt = replace(RECEIPT, draft_model="ef" * 32)
    record = read_record(encoded(record_of(LINE, "a", receipt, **reply_fields(reply("x"), MODELS))))
    assert record.receipt == RECEIPT
    assert record.receipt.draft_model == "ef" * 32


def test_half_of_a_character_in_an_id_comes_out_as_it_came_in() -> None:
    line = encoded(record_of(LINE, "\ud800", RECEIPT, **error_fields(UsageError("x"))))
    assert json.loads(line)["id"] == "\ud800"
    assert read_record(line).line == 7


def test_a_terminal_gets_nothing_that_it_would_obey() -> None:
    record = record_of(LINE, None, RECEIPT, **reply_fields(reply("\x1b[2J\x9b2J"), MODELS))
    line = encoded(record, ascii_only=True)
    assert all(32 <= byte < 127 for byte in line[:-1])


def test_what_is_wrong_with_a_line_is_said_in_a_line_that_no_terminal_obeys() -> None:
    record = error_fields(UsageError("no \x1b[2J\n\ud800 here"))
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
def test_what_is_no_record_is_said_to_be_none(raw: bytes) -> None:
    with pytest.raises(ValueError, match="not a record"):
        read_record(raw)


def test_a_digest_of_another_length_is_no_record() -> None:
    record = {**record_of(LINE, None, RECEIPT, text="x"), "input": "1234"}
    with pytest.raises(ValueError, match="not a record"):
        read_record(encoded(record))


def test_options_have_one_digest_in_any_order() -> None:
    assert options_digest({"a": 1, "b": (2,)}) == options_digest({"b": [2], "a": 1})
    assert options_digest({"a": 1}) != options_digest({"a": 2})


def test_a_difference_is_told_in_words() -> None:
    other = replace(RECEIPT, seed=2, build="toy 2")
    assert RECEIPT.difference(other) == "another seed and another build"
