"""Rewriting: an output is replaced whole, under its lock, or stays."""

import os
from contextlib import closing
from pathlib import Path

import pytest

from localspec.batch.output import FileOutput, open_output
from localspec.batch.rewriting import drop_records, put_in_order
from localspec.batch.rows import FORMATS, Format
from localspec.errors import LocalspecError, UsageError
from tests.batch.test_finished import found, lines


def resumed(path: Path) -> FileOutput:
    output = open_output(str(path), resume=True)
    assert isinstance(output, FileOutput)
    return output


@pytest.mark.parametrize("form", FORMATS)
def test_records_are_dropped_and_put_in_order_under_the_lock(tmp_path: Path, form: Format) -> None:
    path = tmp_path / "out"
    path.write_bytes(lines(form, 5, 1, 3, 2))
    (tmp_path / ".out.localspec-new").write_bytes(b"of a run that was killed")
    with closing(resumed(path)) as output:
        drop_records(output, form, lambda record: record.number == 3)
        assert path.read_bytes() == lines(form, 5, 1, 2)
        put_in_order(output, form)
        assert path.read_bytes() == lines(form, 1, 2, 5)
        with pytest.raises(UsageError, match="another run"):
            resumed(path)
        output.append(b"more\n")
    assert path.read_bytes().endswith(b"more\n")
    assert list(tmp_path.iterdir()) == [path]


def test_an_empty_output_is_in_order(tmp_path: Path) -> None:
    with closing(resumed(tmp_path / "out")) as output:
        put_in_order(output, "jsonl")
        assert found((tmp_path / "out").read_bytes(), "jsonl") == ([], 0)


def test_what_cannot_be_rewritten_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "out"
    path.write_bytes(lines("jsonl", 2, 1))

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    with closing(resumed(path)) as output:
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(LocalspecError, match=r"No space left on device.*it stays as it was"):
            put_in_order(output, "jsonl")
        output.append(lines("jsonl", 3))
    assert path.read_bytes() == lines("jsonl", 2, 1, 3)
    assert list(tmp_path.iterdir()) == [path]
