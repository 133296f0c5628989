"""FinishedLines: what an output holds is read again, a cut record is cut off, and a file of others is left alone."""

import io
from pathlib import Path

import pytest

from localspec.batch.finished import FinishedLines, whole_records
from localspec.batch.record import Written, encoded, error_record, header
from localspec.batch.resumed import Resumption
from localspec.batch.rows import FORMATS, Format, Row
from localspec.errors import UsageError
from tests.batch.toy import RECEIPT, run


def lines(form: Format, *numbers: int) -> bytes:
    errors = (
        error_record(Row(number, bytes(7) + bytes([number]), {}), 'a\n"', UsageError("x"), RECEIPT)
        for number in numbers
    )
    return header(form) + b"".join(encoded(each, form) for each in errors)


def found(content: bytes, form: Format) -> tuple[list[int], int]:
    file = io.BytesIO(content)
    records = [record for _, record in whole_records(file, form, "out")]
    return [each.number for each in records if each is not None], file.tell()


@pytest.mark.parametrize("form", FORMATS)
def test_cut_at_any_byte_what_is_whole_before_it_counts(form: Format) -> None:
    content = lines(form, 1, 2, 3)
    ends = [len(lines(form, *range(1, count + 1))) for count in range(4)]
    for size in range(len(content) + 1):
        whole = max((count for count, end in enumerate(ends) if end <= size), default=0)
        kept = ends[whole] if ends[whole] <= size else 0
        assert found(content[:size], form) == ([*range(1, whole + 1)], kept)


@pytest.mark.parametrize(
    "content",
    [
        b"my notes",
        b"my notes\n",
        b'{"prompt": "Hi"}',
        b'{"prompt": "Hi"}\n',
        b"line,text\n1,2\n",
        b"\0",
    ],
)
@pytest.mark.parametrize("form", FORMATS)
def test_a_file_of_others_is_refused_and_stays(
    tmp_path: Path, content: bytes, form: Format
) -> None:
    (tmp_path / "in").write_bytes(b'{"prompt": "Hi"}\n')
    (tmp_path / "out").write_bytes(content)
    with pytest.raises(UsageError, match="out is not an output of batch, or is damaged: record 1"):
        run(tmp_path / "in", tmp_path / "out", out_form=form, resumption=Resumption())
    assert (tmp_path / "out").read_bytes() == content


@pytest.mark.parametrize("form", FORMATS)
def test_a_damaged_record_is_named_and_nothing_is_cut(form: Format) -> None:
    content = lines(form, 1) + b"\n" + lines(form, 2).removeprefix(header(form))
    with pytest.raises(UsageError, match=r"record [23] is not valid"):
        found(content, form)


def test_lines_are_found_whatever_their_order() -> None:
    written = [
        Written(number, bytes(7) + bytes([number]), RECEIPT, failed=number == 5)
        for number in (9, 2, 5)
    ]
    finished = FinishedLines(written)
    assert [finished.digest_of(number) for number in (1, 2, 9, 10)] == [
        None,
        bytes(7) + b"\2",
        bytes(7) + b"\x09",
        None,
    ]
    assert (len(finished), finished.failed, finished.last, finished.in_order) == (3, 1, 9, False)
    again = FinishedLines(written, retry_failed=True)
    assert (again.digest_of(5), len(again), again.failed, again.dropped) == (None, 2, 0, 1)
    assert again.seed == RECEIPT.seed


def test_nothing_is_finished_in_an_empty_output() -> None:
    assert (FinishedLines().digest_of(1), FinishedLines().last, FinishedLines().seed) == (
        None,
        0,
        None,
    )
