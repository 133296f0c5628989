"""ReadAhead: who has other work does not wait for a slow row, and who has none does."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from localspec.batch.read_ahead import MOST_HELD, ReadAhead
from localspec.batch.rows import Row, read_rows
from localspec.batch.source import Source
from localspec.decoding.cancel import CancelFlag, Cancelled


def row(number: int) -> Row:
    return Row(number, bytes(8), {})


def test_rows_come_in_order_and_the_end_stays_the_end() -> None:
    ahead = ReadAhead(row(number) for number in range(100))
    assert [each.number for each in ahead] == [*range(100)]
    assert ahead.ready()
    assert next(ahead, None) is None
    ahead.close()


def test_no_more_rows_are_held_than_a_few() -> None:
    taken: list[int] = []

    def rows() -> Iterator[Row]:
        for number in range(1_000):
            taken.append(number)
            yield row(number)

    ahead = ReadAhead(rows())
    for number in range(50):
        next(ahead)
        assert len(taken) <= number + 1 + MOST_HELD
    ahead.close()
    assert len(taken) < 60


def test_what_goes_wrong_is_raised_behind_the_rows_before_it() -> None:
    def rows() -> Iterator[Row]:
        yield row(1)
        raise OSError("gone")

    ahead = ReadAhead(rows())
    assert next(ahead).number == 1
    for _ in range(2):
        with pytest.raises(OSError, match="gone"):
            next(ahead)
    ahead.close()


def test_half_a_row_of_a_pipe_is_not_ready_and_nobody_waits_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with (
        (tmp_path / "pipe").open("r+b", buffering=0) as writer,
        Source(str(tmp_path / "pipe"), CancelFlag()) as source,
    ):
        assert source.waits
        ahead = ReadAhead(read_rows(source.lines(), "csv", "pipe", None))
        writer.write(b'prompt\n"one\n')
        assert not ahead.ready()
        writer.write(b'and more"\n')
        assert next(ahead).fields == {"prompt": "one\nand more"}
        assert not ahead.ready()
        source.stop()
        ahead.close()
        with pytest.raises(Cancelled):
            next(ahead)


def test_ctrl_c_ends_the_wait_for_a_row(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    cancel = CancelFlag()
    with (
        (tmp_path / "pipe").open("r+b", buffering=0),
        Source(str(tmp_path / "pipe"), cancel) as source,
    ):
        ahead = ReadAhead(read_rows(source.lines(), "jsonl", "pipe", None))
        presses = threading.Timer(0.1, cancel.set)
        presses.start()
        with pytest.raises(Cancelled):
            next(ahead)
        presses.join()
        ahead.close()
