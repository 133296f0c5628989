"""Source: lines in constant memory, however they come."""

import os
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.batch.source import MOST_LINE_BYTES, Source, split_lines
from localspec.decoding.cancel import CancelFlag, Cancelled
from localspec.errors import UsageError


@given(st.lists(st.binary(max_size=5)), st.integers(0, 4))
def test_lines_do_not_depend_on_how_their_bytes_come(chunks: list[bytes], most: int) -> None:
    whole = b"".join(chunks)
    wanted = whole.split(b"\n")
    if wanted[-1] == b"":
        wanted.pop()
    found = list(split_lines(chunks, most))
    assert [line.number for line in found] == [*range(1, len(wanted) + 1)]
    assert [line.raw for line in found] == [each if len(each) <= most else None for each in wanted]
    assert [line.size_bytes for line in found] == [len(each) for each in wanted]
    assert [line.digest for line in found] == [line.digest for line in split_lines([whole])]


def test_a_long_line_is_passed_over_and_keeps_its_digest() -> None:
    long = b"x" * (MOST_LINE_BYTES + 1)
    first, second = split_lines([long, b"\nshort"])
    (other,) = split_lines([long[:-1] + b"y"])
    assert (first.raw, second.raw, second.number) == (None, b"short", 2)
    assert first.digest != other.digest


def test_a_byte_order_mark_is_no_part_of_the_first_line() -> None:
    assert [line.raw for line in split_lines([b"\xef\xbb\xbfa\n\xef\xbb\xbfb"])] == [
        b"a",
        b"\xef\xbb\xbfb",
    ]


def test_how_much_was_taken_is_known_of_a_file_and_not_of_a_pipe(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"one\ntwo\n")
    with Source(str(tmp_path / "in"), CancelFlag()) as source:
        assert [source.share() for _ in source.lines()] == [0.5, 1.0]
    os.mkfifo(tmp_path / "pipe")
    with (
        (tmp_path / "pipe").open("r+b", buffering=0),
        Source(str(tmp_path / "pipe"), CancelFlag()) as source,
    ):
        assert source.share() is None


def test_a_pipe_that_brings_nothing_can_be_left(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    cancel = CancelFlag()
    with (tmp_path / "pipe").open("r+b", buffering=0) as writer:
        writer.write(b"one\n")
        with Source(str(tmp_path / "pipe"), cancel) as source:
            lines = source.lines()
            assert next(lines).raw == b"one"
            presses = threading.Timer(0.1, cancel.set)
            presses.start()
            with pytest.raises(Cancelled):
                next(lines)
            presses.join()


@pytest.mark.parametrize("name", ["none", ".", "nul\0"])
def test_what_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match=r"check the path|is a directory"):
        Source(f"{tmp_path}/{name}", CancelFlag())
