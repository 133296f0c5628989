"""Source: lines in constant memory, however they come, in either form; what is wrong with one is said of that one."""

import hashlib
import io
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.batch.source import (
    MOST_HELD,
    MOST_LINE_BYTES,
    Format,
    Line,
    ReadAhead,
    Source,
    parsed,
    split_lines,
)
from localspec.decoding.cancel import CancelFlag, Cancelled
from localspec.errors import UsageError


@given(st.binary(max_size=30), st.integers(0, 4))
def test_lines_keep_their_bytes_and_their_digest(content: bytes, most: int) -> None:
    content = content.replace(b"\r", b"\n")
    wanted = content.removesuffix(b"\n").split(b"\n") if content else []
    lines = list(split_lines(io.BytesIO(content), most))
    assert [number for number, _, _ in lines] == [*range(1, len(wanted) + 1)]
    assert [raw for _, raw, _ in lines] == [each if len(each) <= most else None for each in wanted]
    digests = [hashlib.sha256(each).digest()[:8] for each in wanted]
    assert [digest for _, _, digest in lines] == digests


def test_a_long_line_is_passed_over_and_keeps_its_digest() -> None:
    long = b"x" * (MOST_LINE_BYTES + 1)
    first, second = split_lines(io.BytesIO(long + b"\nshort"))
    (other,) = split_lines(io.BytesIO(long[:-1] + b"y"))
    assert (first[1], second[1], second[0]) == (None, b"short", 2)
    assert first[2] == hashlib.sha256(long).digest()[:8] != other[2]


def test_a_byte_order_mark_is_no_part_of_the_first_line() -> None:
    lines = split_lines(io.BytesIO(b"\xef\xbb\xbfa\n\xef\xbb\xbfb"))
    assert [raw for _, raw, _ in lines] == [b"a", b"\xef\xbb\xbfb"]


@contextmanager
def pipe(folder: Path) -> Iterator[tuple[BinaryIO, Source]]:
    os.mkfifo(folder / "pipe")
    with (folder / "pipe").open("r+b", buffering=0) as writer, Source(str(folder / "pipe")) as it:
        yield writer, it


def test_the_share_that_was_read_is_known_of_a_file_and_not_of_a_pipe(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"[]\n[1]\n")
    with Source(str(tmp_path / "in")) as source:
        assert [source.share() for _ in source.lines("jsonl", None)] == [3 / 7, 1.0]
    with pipe(tmp_path) as (_, source):
        assert source.share() is None


@pytest.mark.parametrize("name", ["none", ".", "nul\0"])
def test_what_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match=r"check the path|is a directory"):
        Source(f"{tmp_path}/{name}")


def rows(content: bytes, form: Format = "jsonl", needed: str | None = "prompt") -> list[Line]:
    return list(parsed(split_lines(io.BytesIO(content), 200), form, "in", needed))


@pytest.mark.parametrize(
    ("form", "line", "problem"),
    [
        ("jsonl", b"{", "not valid JSON (Expecting property name"),
        ("jsonl", b"[1]", "not an object"),
        ("jsonl", b"null", "not an object"),
        ("jsonl", b'{"prompt": "caf\xe9"}', "not UTF-8 (byte 0xe9 at offset 15)"),
        ("jsonl", b"[" * 190, "not valid JSON"),
        ("jsonl", b'{"prompt": "' + b"x" * 200 + b'"}', "more than 4 MB"),
        ("jsonl", b"\x00", "not valid JSON"),
        ("csv", b"only one", "1 cells and the header 2"),
        ("csv", b'a,"b"c', "not valid CSV"),
        ("csv", b"a,caf\xe9", "not UTF-8"),
        ("csv", b"a," + b"x" * 200, "more than 4 MB"),
    ],
)
def test_a_line_that_cannot_be_read_says_why_and_the_next_goes_on(
    form: Format, line: bytes, problem: str
) -> None:
    head, good = (b"id,prompt\n", b"b,Hi") if form == "csv" else (b"", b'{"id": "b", "prompt": "Hi"}')  # fmt: skip
    first, second = rows(head + line + b"\r\n" + good + b"\r\n", form)
    assert problem in first.problem
    assert (second.number - first.number, second.fields) == (1, {"id": "b", "prompt": "Hi"})
    assert second.problem == ""


def test_what_never_ends_is_one_bad_line() -> None:
    (row,) = parsed(split_lines(io.BytesIO(b"[" * 200_000)), "jsonl", "in", None)
    assert "not valid JSON" in row.problem
    (row,) = rows(b'id,prompt\na,"b\nc,d\n', "csv")
    assert "not valid CSV (unexpected end of data)" in row.problem


def test_empty_lines_count_and_say_nothing() -> None:
    assert [row.number for row in rows(b'\n \n{"a": 1}\n\n{"a": 2}')] == [3, 5]
    assert rows(b"") == rows(b"", "csv") == rows(b"prompt\n", "csv") == []


def test_a_csv_has_fields_and_numbers_where_options_are_named() -> None:
    content = b'id,prompt,temperature,top_k,note\na,"Say ""hi"",\nplease",0.5,3,\nb,Two,,,x\n'
    first, second = rows(content, "csv")
    say = {"id": "a", "prompt": 'Say "hi",\nplease'}
    assert first.fields == {**say, "temperature": 0.5, "top_k": 3, "note": ""}
    assert second.fields == {"id": "b", "prompt": "Two", "note": "x"}
    assert (first.number, second.number) == (2, 4)


def test_cells_for_a_template_stay_as_they_are() -> None:
    lines = split_lines(io.BytesIO(b"seed,stop,top_k\n007,,many\n"))
    (row,) = parsed(lines, "csv", "in.csv", None, plain=True)
    assert row.fields == {"seed": "007", "stop": "", "top_k": "many"}


def test_rows_over_several_lines_differ_when_any_of_them_does() -> None:
    one, other = (rows(b'prompt\n"a\n' + last + b'"\n', "csv")[0] for last in (b"b", b"c"))
    assert one.digest != other.digest


@pytest.mark.parametrize(
    ("header", "complaint"),
    [
        (b"id,text", "no column 'prompt' among 'id, text'"),
        (b"a,a", "columns of the same name"),
        (b"", "has no header: name each column"),
    ],
)
def test_a_header_that_is_of_no_use_stops_the_run(header: bytes, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        rows(header + b"\n1,2\n", "csv")


def lines(end: int) -> Iterator[Line]:
    return (Line(number, "0" * 16, {}) for number in range(1, end))


def test_rows_come_in_order_and_the_end_stays_the_end() -> None:
    ahead = ReadAhead(lines(101), CancelFlag())
    assert [each.number for each in ahead] == [*range(1, 101)]
    assert ahead.ready()
    assert next(ahead, None) is None


def test_no_more_rows_are_held_than_a_few_and_errors_come_behind_them() -> None:
    taken: list[int] = []

    def rows() -> Iterator[Line]:
        for line in lines(51):
            taken.append(line.number)
            yield line
        raise OSError("gone")

    ahead = ReadAhead(rows(), CancelFlag())
    for number in range(50):
        assert next(ahead).number == number + 1
        assert len(taken) <= number + 1 + MOST_HELD
    for _ in range(2):
        with pytest.raises(OSError, match="gone"):
            next(ahead)


def test_half_a_row_of_a_pipe_is_not_ready_and_none_waits_for_it(tmp_path: Path) -> None:
    with pipe(tmp_path) as (writer, source):
        assert source.waits
        ahead = ReadAhead(source.lines("csv", None), CancelFlag())
        writer.write(b'prompt\n"one\n')
        assert not ahead.ready()
        writer.write(b'and more"\n')
        assert next(ahead).fields == {"prompt": "one\nand more"}
        assert not ahead.ready()


def test_ctrl_c_ends_the_wait_for_a_row(tmp_path: Path) -> None:
    cancel = CancelFlag()
    with pipe(tmp_path) as (writer, source):
        ahead = ReadAhead(source.lines("jsonl", None), cancel)
        writer.write(b'{"prompt": "one"}\n')
        assert next(ahead).number == 1
        threading.Timer(0.1, cancel.set).start()
        with pytest.raises(Cancelled):
            next(ahead)
