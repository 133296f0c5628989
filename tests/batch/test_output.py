"""Output: whole records or none, never over what is there, and one run at a time."""

import json
import os
import resource
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from localspec.batch.output import FileOutput, StreamOutput, open_output
from localspec.errors import LocalspecError, UsageError


def opened(path: Path, *, resume: bool = False) -> FileOutput:
    output = open_output(str(path), resume=resume)
    assert isinstance(output, FileOutput)
    return output


def test_a_file_that_is_there_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "out").write_bytes(b"mine")
    with pytest.raises(UsageError, match="exists; use --resume"):
        opened(tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == b"mine"


def test_two_runs_do_not_write_one_file(tmp_path: Path) -> None:
    with closing(opened(tmp_path / "out")) as output:
        output.append(b"one\n")
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
    assert isinstance(output, StreamOutput)
    with closing(output), pytest.raises(LocalspecError, match="/dev/full cannot be written"):
        output.append(b"one\n")


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
