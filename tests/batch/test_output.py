"""Output: whole records or none, never over what is there, and one run at a time."""

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
from localspec.batch.record import encoded, error_fields, record_of
from localspec.batch.source import Line
from localspec.errors import LocalspecError, UsageError
from tests.batch.toy import RECEIPT, run


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "out"


def opened(path: Path, *, resume: bool = False) -> Output:
    return open_output(str(path), resume=resume)


def lines(*numbers: int) -> bytes:
    """Return the records of these lines; those of even ones are errors."""
    outcomes = (error_fields(UsageError("x")), {"text": "x"})
    return b"".join(
        encoded(record_of(Line(n, f"{n:016x}", {}), 'a\n"', RECEIPT, **outcomes[n % 2]))
        for n in numbers
    )


def read(content: bytes) -> tuple[list[int], int]:
    records = list(whole_records(io.BytesIO(content), "out"))
    return [record.line for _, record in records], sum(len(raw) for raw, _ in records)


def test_a_file_that_is_there_is_not_touched(path: Path) -> None:
    path.write_bytes(b"mine")
    with pytest.raises(UsageError, match="exists; use --resume"):
        opened(path)
    assert path.read_bytes() == b"mine"


def test_two_runs_do_not_write_one_file(path: Path) -> None:
    with closing(opened(path)) as output:
        output.append(1, b"one\n")
        with pytest.raises(UsageError, match="another run is writing"):
            opened(path, resume=True)
    opened(path, resume=True).close()


def test_a_run_without_a_record_leaves_no_file_behind(path: Path) -> None:
    opened(path).close()
    with closing(opened(path, resume=True)) as output:
        assert output.finished(retry_failed=True) == FinishedLines()
        output.put_in_order()
    assert not path.exists()
    path.touch()
    opened(path, resume=True).close()
    assert path.exists()


def test_a_link_stays_a_link(path: Path, tmp_path: Path) -> None:
    path.touch()
    (tmp_path / "link").symlink_to("out")
    with closing(opened(tmp_path / "link", resume=True)) as output:
        assert output.path == path.resolve()
        assert output.name == str(tmp_path / "link")


@pytest.mark.parametrize("name", ["no/folder/out", ".", "nul\0", "x" * 300])
@pytest.mark.parametrize("resume", [False, True])
def test_where_no_file_can_be_it_says_so(tmp_path: Path, name: str, resume: bool) -> None:
    with pytest.raises(LocalspecError, match="cannot be"):
        open_output(f"{tmp_path}/{name}", resume=resume)


def test_streams_cannot_be_resumed_and_say_when_they_are_full() -> None:
    for name in ("-", "/dev/null"):
        with pytest.raises(UsageError, match="resume"):
            open_output(name, resume=True)
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


def test_a_full_disk_leaves_whole_records(tmp_path: Path, path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FILL, str(tmp_path / "in"), str(path)],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000)),
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert "out cannot be written (File too large): its lines are complete" in done.stdout
    content = path.read_text()
    assert 0 < len(content) <= 10_000
    assert content.endswith("\n")
    numbers = [json.loads(line)["line"] for line in content.splitlines()]
    assert numbers == [*range(1, len(numbers) + 1)]


def test_cut_at_any_byte_what_is_whole_before_it_counts() -> None:
    content = lines(1, 2, 3)
    ends = [len(lines(*range(1, count + 1))) for count in range(4)]
    for size in range(len(content) + 1):
        whole = max(count for count, end in enumerate(ends) if end <= size)
        assert read(content[:size]) == ([*range(1, whole + 1)], ends[whole])


@pytest.mark.parametrize(
    ("content", "record"),
    [
        (b"my notes", 1),
        (b"my notes\n", 1),
        (b'{"prompt": "Hi"}', 1),
        (b'{"prompt": "Hi"}\n', 1),
        (b"\0", 1),
        (lines(1) + b"\n" + lines(2), 2),
    ],
)
def test_a_file_of_others_or_a_damaged_one_is_refused_and_stays(
    tmp_path: Path, path: Path, content: bytes, record: int
) -> None:
    (tmp_path / "in").write_bytes(b'{"prompt": "Hi"}\n')
    path.write_bytes(content)
    with pytest.raises(UsageError, match=f"or is damaged: record {record} is not valid"):
        run(tmp_path / "in", path, resume=True)
    assert path.read_bytes() == content


@pytest.mark.parametrize(("retry", "numbers", "failed"), [(False, [9, 2, 5], 1), (True, [9, 5], 0)])
def test_lines_are_known_whatever_their_order(
    path: Path, retry: bool, numbers: list[int], failed: int
) -> None:
    path.write_bytes(lines(9, 2, 5))
    with closing(opened(path, resume=True)) as output:
        finished = output.finished(retry_failed=retry)
    assert finished.digests == {each: f"{each:016x}" for each in numbers}
    assert (finished.failed, finished.seed, finished.dropped) == (failed, RECEIPT.seed, retry)


def test_records_are_dropped_and_put_in_order_under_the_lock(tmp_path: Path, path: Path) -> None:
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


def test_what_cannot_be_rewritten_stays(
    tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
