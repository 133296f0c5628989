"""Outputs and their records: whole ones or none, never over what is there, one run at a time, read again whatever their texts are."""

import io
import json
import os
import resource
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.batch.output import FinishedLines, Output, open_output, whole_records
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
from localspec.batch.request import Form
from localspec.batch.source import Line
from localspec.cli.batch import digest
from localspec.errors import LocalspecError, UsageError
from localspec.options import LaunchOptions, ReplyOptions
from tests.batch.toy import MODELS, RECEIPT, reply, run
from tests.support.checks import refuses


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def opened(out: Path, *, resume: bool = False) -> Output:
    return open_output(str(out), resume=resume)


def lines(*numbers: int) -> bytes:
    """Return the records of these lines; those of even ones are errors."""
    outcomes = (error_fields(UsageError("x")), {"text": "x"})
    return b"".join(
        encoded(record_of(Line(n, f"{n:016x}", {}), 'a\n"', RECEIPT, **outcomes[n % 2]))
        for n in numbers
    )


def read_out(content: bytes) -> tuple[list[int], int]:
    records = list(whole_records(io.BytesIO(content), "out"))
    return [record.line for _, record in records], sum(len(raw) for raw, _ in records)


def test_a_file_that_is_there_is_not_touched(out: Path, tmp_path: Path) -> None:
    out.write_bytes(b"mine")
    refuses("exists; use --resume", opened, out)
    assert out.read_bytes() == b"mine"
    for name in ["no/folder/out", ".", "nul\0", "x" * 300]:
        for resume in [False, True]:
            with pytest.raises(LocalspecError, match="cannot be"):
                open_output(f"{tmp_path}/{name}", resume=resume)
    out.touch()
    (tmp_path / "link").symlink_to("out")
    with closing(opened(tmp_path / "link", resume=True)) as output:
        assert output.path == out.resolve()
        assert output.name == str(tmp_path / "link")


def test_two_runs_do_not_write_one_file(out: Path) -> None:
    with closing(opened(out)) as output:
        output.append(1, b"one\n")
        refuses("another run is writing", opened, out, resume=True)
    opened(out, resume=True).close()


def test_a_run_without_a_record_leaves_no_file_behind(out: Path) -> None:
    opened(out).close()
    with closing(opened(out, resume=True)) as output:
        assert output.finished(retry_failed=True) == FinishedLines()
        output.put_in_order()
    assert not out.exists()
    out.touch()
    opened(out, resume=True).close()
    assert out.exists()


def test_streams_cannot_be_resumed_and_say_when_they_are_full() -> None:
    for name in ("-", "/dev/null"):
        refuses("resume", open_output, name, resume=True)
    output = open_output("/dev/full", resume=False)
    assert output.path is None
    with closing(output), pytest.raises(LocalspecError, match="/dev/full cannot be written"):
        output.append(1, b"one\n")


FILL = """
import json, sys
from pathlib import Path
from localspec.errors import LocalspecError
from tests.batch.toy import run
source, output = map(Path, sys.argv[1:])
source.write_text("".join(json.dumps({"prompt": f"{n}"}) + "\\n" for n in range(100)))
try:
    run(source, output)
except LocalspecError as error:
    print(error)
"""


def test_a_full_disk_leaves_whole_records(tmp_path: Path, out: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FILL, str(tmp_path / "in"), str(out)],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000)),
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert "out cannot be written (File too large): its lines are complete" in done.stdout
    content = out.read_text()
    assert 0 < len(content) <= 10_000
    assert content.endswith("\n")
    numbers = [json.loads(line)["line"] for line in content.splitlines()]
    assert numbers == [*range(1, len(numbers) + 1)]


def test_cut_at_any_byte_what_is_whole_before_it_counts() -> None:
    content = lines(1, 2, 3)
    ends = [len(lines(*range(1, count + 1))) for count in range(4)]
    for size in range(len(content) + 1):
        whole = max(count for count, end in enumerate(ends) if end <= size)
        assert read_out(content[:size]) == ([*range(1, whole + 1)], ends[whole])


def test_a_file_of_others_or_a_damaged_one_is_refused_and_stays(tmp_path: Path, out: Path) -> None:
    for content, record in [
        (b"my notes", 1),
        (b'{"prompt": "Hi"}\n', 1),
        (b"\0", 1),
        (lines(1) + b"\n" + lines(2), 2),
    ]:
        (tmp_path / "in").write_bytes(b'{"prompt": "Hi"}\n')
        out.write_bytes(content)
        with pytest.raises(UsageError, match=f"or is damaged: record {record} is not valid"):
            run(tmp_path / "in", out, resume=True)
        assert out.read_bytes() == content


def test_lines_are_known_whatever_their_order(out: Path) -> None:
    for retry, numbers, failed in [(False, [9, 2, 5], 1), (True, [9, 5], 0)]:
        out.write_bytes(lines(9, 2, 5))
        with closing(opened(out, resume=True)) as output:
            finished = output.finished(retry_failed=retry)
        assert finished.digests == {each: f"{each:016x}" for each in numbers}
        assert (len(finished.failed), finished.seed, finished.dropped) == (
            failed,
            RECEIPT.seed,
            retry,
        )


def test_records_are_dropped_and_put_in_order_under_the_lock(tmp_path: Path, out: Path) -> None:
    out.write_bytes(lines(5, 1, 4, 3) + lines(7)[:9])
    (tmp_path / ".out.localspec-new").write_bytes(b"of a run that was killed")
    with closing(opened(out, resume=True)) as output:
        output.take_up(output.finished(retry_failed=True))
        assert out.read_bytes() == lines(1, 3, 5)
        output.append(4, lines(4))
        assert out.read_bytes() == lines(1, 3, 5, 4)
        output.put_in_order()
        assert out.read_bytes() == lines(1, 3, 4, 5)
        refuses("another run", opened, out, resume=True)
        output.append(6, lines(6))
    assert out.read_bytes() == lines(1, 3, 4, 5, 6)
    assert list(tmp_path.iterdir()) == [out]


def test_a_full_disk_at_the_end(tmp_path: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out.write_bytes(lines(2, 1))

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    with closing(opened(out, resume=True)) as output:
        output.take_up(output.finished(retry_failed=False))
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(LocalspecError, match=r"No space left on device.*it stays as it was"):
            output.put_in_order()
        output.append(3, lines(3))
    assert out.read_bytes() == lines(2, 1, 3)
    assert list(tmp_path.iterdir()) == [out]


DIGEST = b"12345678".hex()
LINE = Line(7, DIGEST, {})
DRAFTED = replace(RECEIPT, draft_model="ef" * 32)
ANY_TEXT = st.text() | st.text(st.characters(max_codepoint=159)) | st.sampled_from(['"\r"\n', "\0"])


@given(ANY_TEXT, ANY_TEXT)
def test_what_is_written_is_read_again(text: str, line_id: str) -> None:
    answered = encoded(record_of(LINE, line_id, DRAFTED, **reply_fields(reply(text), MODELS, "")))
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


def test_what_is_no_record_is_refused() -> None:
    raw = (
        b'{"line": 1, "id": "p0", "text": "x", "stop_reason": "length", "seed": 2, "model": {"target": "m", "draft_model": null}, '
        b'"usage": {"prompt_tokens": 3}, "timings": {"tokens_per_s": NaN}, "input": "0900727e3eb49bc0", "receipt": {"seed": 11, '
        b'"target": "b179", "build": "localspec 0.1", "options": "087e", "draft_model": null}}\n'
    )
    receipt = Receipt(seed=11, target="b179", build="localspec 0.1", options="087e")
    assert read_record(raw) == Record(1, "0900727e3eb49bc0", receipt)
    rows: list[Any] = [
        *(b"", b"\xff", [], {"line": 1, "input": "00"}),
        {"line": 1, "input": "1234", "receipt": WHOLE},
        {"line": 0, "input": DIGEST, "receipt": WHOLE},
        {"line": 1, "input": DIGEST, "receipt": {**WHOLE, "seed": "1"}},
    ]
    for record in rows:
        with pytest.raises(ValueError, match="not a record"):
            read_record(record if isinstance(record, bytes) else json.dumps(record).encode())
    assert options_digest({"a": 1, "b": (2,)}) == options_digest({"b": [2], "a": 1})
    assert options_digest({"a": 1}) != options_digest({"a": 2})
    # Of an output that an earlier version began: another digest would have all of it answered again.
    assert digest(Form(ReplyOptions()), LaunchOptions()) == "e80a34aee91c50f1"
    assert digest(Form(ReplyOptions()), LaunchOptions(), (), "a" * 64) != "e80a34aee91c50f1"
    assert RECEIPT.difference(replace(RECEIPT, seed=2, build="2")) == "another seed and another build"  # fmt: skip


def test_half_of_a_character_in_an_id_comes_out_as_it_came_in() -> None:
    line = encoded(record_of(LINE, "\ud800", RECEIPT, **error_fields(UsageError("x"))))
    assert json.loads(line)["id"] == "\ud800"
    assert read_record(line).line == 7
    record = record_of(LINE, None, RECEIPT, **reply_fields(reply("\x1b[2J\x9b2J"), MODELS, ""))
    assert all(32 <= byte < 127 for byte in encoded(record, ascii_only=True)[:-1])
    message = error_fields(UsageError("no \x1b[2J\n\ud800 here"))["error"]["message"]
    assert message == "no ?[2J ? here"


WHOLE = {"seed": 1, "target": "", "build": "", "options": ""}
