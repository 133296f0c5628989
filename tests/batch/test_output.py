"""Output: whole records or none, never over what is there, and one run at a time.

What a file holds is read again, a torn record is cut off, and a file of others is left alone.
"""

import io
import json
import os
import resource
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from localspec.batch.output import FinishedLines, Output, open_output, whole_records
from localspec.batch.record import Receipt, encoded, error_fields, record_of
from localspec.batch.source import Line
from localspec.errors import LocalspecError, UsageError
from tests.batch.toy import RECEIPT, run


def opened(path: Path, *, resume: bool = False) -> Output:
    return open_output(str(path), resume=resume)


def lines(*numbers: int, receipt: Receipt = RECEIPT) -> bytes:
    """Return the records of these lines; those of even ones are errors."""
    error = error_fields(UsageError("x"))
    return b"".join(
        encoded(
            record_of(
                Line(number, f"{number:016x}", {}),
                'a\n"',
                receipt,
                **(error if number % 2 == 0 else {"text": "x"}),
            )
        )
        for number in numbers
    )


def found(content: bytes) -> tuple[list[int], int]:
    records = list(whole_records(io.BytesIO(content), "out"))
    return [record.line for _, record in records], sum(len(raw) for raw, _ in records)


def test_a_file_that_is_there_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "out").write_bytes(b"mine")
    with pytest.raises(UsageError, match="exists; use --resume"):
        opened(tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == b"mine"


def test_two_runs_do_not_write_one_file(tmp_path: Path) -> None:
    with closing(opened(tmp_path / "out")) as output:
        output.append(1, b"one\n")
        with pytest.raises(UsageError, match="another run is writing"):
            opened(tmp_path / "out", resume=True)
    opened(tmp_path / "out", resume=True).close()


def test_a_run_without_a_record_leaves_no_file_behind(tmp_path: Path) -> None:
    opened(tmp_path / "new").close()
    opened(tmp_path / "new", resume=True).close()
    (tmp_path / "empty").touch()
    opened(tmp_path / "empty", resume=True).close()
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "out").touch()
    (tmp_path / "link").symlink_to("out")
    with closing(opened(tmp_path / "link", resume=True)) as output:
        assert output.path == (tmp_path / "out").resolve()
        assert output.name == str(tmp_path / "link")


@pytest.mark.parametrize("name", ["no/folder/out", ".", "nul\0", "x" * 300])
@pytest.mark.parametrize("resume", [False, True])
def test_where_no_file_can_be_it_says_so(tmp_path: Path, name: str, resume: bool) -> None:
    with pytest.raises(LocalspecError, match="cannot be"):
        open_output(f"{tmp_path}/{name}", resume=resume)


def test_streams_cannot_be_resumed() -> None:
    for name in ("-", "/dev/null"):
        with pytest.raises(UsageError, match="resume"):
            open_output(name, resume=True)


def test_a_full_device_is_said_in_one_sentence() -> None:
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


def test_a_full_disk_leaves_whole_records(tmp_path: Path) -> None:
    source, output = tmp_path / "in.jsonl", tmp_path / "out.jsonl"

    def small_disk() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))

    done = subprocess.run(
        [sys.executable, "-c", FILL, str(source), str(output)],
        preexec_fn=small_disk,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert "out.jsonl cannot be written (File too large): its lines are complete" in done.stdout
    content = output.read_text()
    assert 0 < len(content) <= 10_000
    assert [json.loads(line)["line"] for line in content.splitlines()] == [
        *range(1, content.count("\n") + 1)
    ]
    assert content.endswith("\n")


def test_cut_at_any_byte_what_is_whole_before_it_counts() -> None:
    content = lines(1, 2, 3)
    ends = [len(lines(*range(1, count + 1))) for count in range(4)]
    for size in range(len(content) + 1):
        whole = max(count for count, end in enumerate(ends) if end <= size)
        assert found(content[:size]) == ([*range(1, whole + 1)], ends[whole])


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
def test_a_file_of_others_is_refused_and_stays(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "in").write_bytes(b'{"prompt": "Hi"}\n')
    (tmp_path / "out").write_bytes(content)
    with pytest.raises(UsageError, match="out is not an output of batch, or is damaged: record 1"):
        run(tmp_path / "in", tmp_path / "out", resume=True)
    assert (tmp_path / "out").read_bytes() == content


def test_a_damaged_record_is_named_and_nothing_is_cut() -> None:
    with pytest.raises(UsageError, match="record 2 is not valid"):
        found(lines(1) + b"\n" + lines(2))


def test_lines_are_found_whatever_their_order(tmp_path: Path) -> None:
    (tmp_path / "out").write_bytes(lines(9, 2, 5))
    with closing(opened(tmp_path / "out", resume=True)) as output:
        finished = output.finished(retry_failed=False)
    assert finished.digests == {each: f"{each:016x}" for each in (9, 2, 5)}
    assert (finished.failed, finished.seed, finished.dropped) == (1, RECEIPT.seed, False)
    with closing(opened(tmp_path / "out", resume=True)) as output:
        again = output.finished(retry_failed=True)
    assert ([*again.digests], again.failed, again.dropped) == ([9, 5], 0, True)


def test_nothing_is_finished_in_an_empty_output(tmp_path: Path) -> None:
    with closing(opened(tmp_path / "out", resume=True)) as output:
        assert output.finished(retry_failed=True) == FinishedLines()
        output.put_in_order()
    assert not (tmp_path / "out").exists()


def test_records_are_dropped_and_put_in_order_under_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(lines(5, 1, 4, 3) + lines(7)[:9])
    (tmp_path / ".out.localspec-new").write_bytes(b"of a run that was killed")
    with closing(opened(path, resume=True)) as output:
        output.take_up(output.finished(retry_failed=True))
        assert path.read_bytes() == lines(1, 3, 5)
        output.append(4, lines(4))
        assert path.read_bytes() == lines(1, 3, 5, 4)
        output.put_in_order()
        assert path.read_bytes() == lines(1, 3, 4, 5)
        with pytest.raises(UsageError, match="another run"):
            opened(path, resume=True)
        output.append(6, lines(6))
    assert path.read_bytes() == lines(1, 3, 4, 5, 6)
    assert list(tmp_path.iterdir()) == [path]


def test_what_cannot_be_rewritten_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "out"
    path.write_bytes(lines(2, 1))

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    with closing(opened(path, resume=True)) as output:
        output.take_up(output.finished(retry_failed=False))
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(LocalspecError, match=r"No space left on device.*it stays as it was"):
            output.put_in_order()
        output.append(3, lines(3))
    assert path.read_bytes() == lines(2, 1, 3)
    assert list(tmp_path.iterdir()) == [path]
