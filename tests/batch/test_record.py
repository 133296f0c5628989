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
DRAFTED = replace(RECEIPT, draft_model="ef" * 32)
ANY_TEXT = st.text() | st.text(st.characters(max_codepoint=159)) | st.sampled_from(['"\r"\n', "\0"])


@given(ANY_TEXT, ANY_TEXT)
def test_what_is_written_is_read_again(text: str, line_id: str) -> None:
    answered = encoded(record_of(LINE, line_id, DRAFTED, **reply_fields(reply(text), MODELS)))
    failed = encoded(record_of(LINE, line_id, RECEIPT, **error_fields(UsageError(text or "?"))))
    record = read_record(answered)
    assert record == Record(7, DIGEST, RECEIPT)
    assert record.receipt.draft_model == DRAFTED.draft_model
    error = read_record(failed).error
    assert error is not None
    assert error["type"] == "UsageError"
    assert error["message"].isprintable(), "no terminal obeys it"
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


def test_half_of_a_character_in_an_id_comes_out_as_it_came_in() -> None:
    line = encoded(record_of(LINE, "\ud800", RECEIPT, **error_fields(UsageError("x"))))
    assert json.loads(line)["id"] == "\ud800"
    assert read_record(line).line == 7


def test_a_terminal_gets_nothing_that_it_would_obey() -> None:
    record = record_of(LINE, None, RECEIPT, **reply_fields(reply("\x1b[2J\x9b2J"), MODELS))
    assert all(32 <= byte < 127 for byte in encoded(record, ascii_only=True)[:-1])
    message = error_fields(UsageError("no \x1b[2J\n\ud800 here"))["error"]["message"]
    assert message == "no ?[2J ? here"


WHOLE = {"seed": 1, "target": "", "build": "", "options": ""}


@pytest.mark.parametrize(
    "record",
    [
        b"",
        b"\xff",
        {},
        [],
        None,
        {"line": 1, "input": "00"},
        {"line": 1, "input": "1234", "receipt": WHOLE},
        {"line": 0, "input": DIGEST, "receipt": WHOLE},
        {"line": 1, "input": DIGEST, "receipt": {**WHOLE, "seed": "1"}},
        {"line": 1, "input": DIGEST, "receipt": {"seed": 1}},
    ],
)
def test_what_is_no_record_is_refused(record: object) -> None:
    with pytest.raises(ValueError, match="not a record"):
        read_record(record if isinstance(record, bytes) else json.dumps(record).encode())


def test_options_have_one_digest_in_any_order_and_receipts_differ_in_words() -> None:
    assert options_digest({"a": 1, "b": (2,)}) == options_digest({"b": [2], "a": 1})
    assert options_digest({"a": 1}) != options_digest({"a": 2})
    assert RECEIPT.difference(replace(RECEIPT, seed=2, build="2")) == "another seed and another build"  # fmt: skip
