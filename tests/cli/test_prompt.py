import io
import os
import pty
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from localspec.cli import prompt as prompt_module
from localspec.cli.prompt import read_prompt
from localspec.errors import LocalspecError, UsageError


@pytest.fixture
def opened() -> Iterator[list[IO[str]]]:
    """Streams to close when the test is over."""
    streams: list[IO[str]] = []
    yield streams
    for stream in streams:
        stream.close()


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch, opened: list[IO[str]]) -> None:
    """A terminal on stdin, at which somebody types a line and ends it with Ctrl-D."""
    keyboard, line = pty.openpty()
    os.write(keyboard, b"a tree\n\x04")
    opened += [os.fdopen(keyboard), os.fdopen(line)]
    monkeypatch.setattr(sys, "stdin", opened[-1])


def bring(
    kind: str, content: bytes, path: Path, monkeypatch: pytest.MonkeyPatch, opened: list[IO[str]]
) -> None:
    """Put content on stdin, by a pipe or by a file."""
    if kind == "pipe":
        reader, writer = os.pipe()
        os.write(writer, content)
        os.close(writer)
        opened.append(os.fdopen(reader))
    else:
        path.write_bytes(content)
        opened.append(path.open())
    monkeypatch.setattr(sys, "stdin", opened[-1])


@pytest.mark.parametrize("kind", ["pipe", "file"])
@pytest.mark.parametrize(
    ("content", "prompt"),
    [
        (b"a tree\n", "What is it?\n\na tree"),
        (b"\xef\xbb\xbf\xc3\xa9\r\n \n\n", "What is it?\n\né\r\n "),
        (b"", "What is it?"),
        (b" \n\n", "What is it?"),
    ],
)
def test_material_follows_the_prompt_and_a_blank_line(
    kind: str,
    content: bytes,
    prompt: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    opened: list[IO[str]],
) -> None:
    bring(kind, content, tmp_path / "stdin", monkeypatch, opened)
    assert read_prompt("What is it?") == prompt


@pytest.mark.parametrize("argument", [None, "-"])
def test_without_a_prompt_stdin_is_the_prompt(
    argument: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: list[IO[str]]
) -> None:
    bring("pipe", b"  Who?\n\n", tmp_path, monkeypatch, opened)
    assert read_prompt(argument) == "  Who?"


@pytest.mark.usefixtures("terminal")
def test_with_a_prompt_a_terminal_is_not_read() -> None:
    assert read_prompt("What is it?") == "What is it?"


@pytest.mark.usefixtures("terminal")
def test_without_a_prompt_a_terminal_is_told_how_to_end_one(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert read_prompt(None) == "a tree"
    assert "press Ctrl-D" in capfd.readouterr().err


def test_the_null_device_brings_no_material(monkeypatch: pytest.MonkeyPatch) -> None:
    with Path(os.devnull).open() as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        assert read_prompt("What is it?") == "What is it?"
        with pytest.raises(UsageError, match="stdin is empty"):
            read_prompt(None)


def test_a_stdin_that_is_no_stream_of_the_system_brings_no_material(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("a tree"))
    assert read_prompt("What is it?") == "What is it?"


def test_stdin_without_end_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: list[IO[str]]
) -> None:
    monkeypatch.setattr(prompt_module, "_MOST_BYTES", 1 << 20)
    bring("file", b"y" * (1 << 20), tmp_path / "stdin", monkeypatch, opened)
    assert len(read_prompt(None)) == 1 << 20
    bring("file", b"y" * ((1 << 20) + 1), tmp_path / "stdin", monkeypatch, opened)
    with pytest.raises(LocalspecError, match="more than 1 MB"):
        read_prompt(None)


def test_stdin_that_cannot_be_read_says_so(
    monkeypatch: pytest.MonkeyPatch, opened: list[IO[str]]
) -> None:
    opened.append(io.TextIOWrapper(io.BufferedReader(Unreadable())))
    monkeypatch.setattr(sys, "stdin", opened[-1])
    with pytest.raises(LocalspecError, match="stdin cannot be read \\(Input/output error\\)"):
        read_prompt(None)


class Unreadable(io.RawIOBase):
    """A stream of a terminal that went away."""

    def readable(self) -> bool:
        return True

    def readinto(self, _buffer: object) -> int:
        raise OSError(5, "Input/output error")
