"""An answer of `run` and of `chat` is in the history, or beside it, or its loss is said with a code."""

import os
import signal
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from localspec.history.archive import History
from tests.cli.command import COMMAND, PLAIN, Done, environment, localspec
from tests.history.test_archive import ids, texts
from tests.history.test_unsaved import writer
from tests.storage.test_disks import disk, fill
from tests.support.machines import with_what_is_known

__all__ = ["disk"]
pytestmark = [pytest.mark.slow, pytest.mark.weights]


def ask(data: Path, model: Path, *words: str, stdin: bytes = b"", verb: str = "run") -> Done:
    env = {"LOCALSPEC_DATA_DIR": str(data)}
    flags = (*PLAIN, "--target", str(model), "--max-tokens", "4")
    return localspec(verb, *flags, *words, env=env, stdin=stdin)


def said(data: Path) -> list[list[str]]:
    with closing(History(data / "history")) as history:
        return [texts(history, each)[::2] for each in sorted(ids(history))]


def test_run_beside_a_long_writer_keeps_its_exchange(six_layers_path: Path, tmp_path: Path) -> None:
    with_what_is_known(tmp_path)
    assert ask(tmp_path, six_layers_path, "--keep", "one").code == 0
    with writer(tmp_path / "history"):
        done = ask(tmp_path, six_layers_path, "-c", "1", "two")
        assert done.code == 0
        assert "the next localspec saves it" in done.err
        chat = ask(tmp_path, six_layers_path, verb="chat", stdin=b"three\n")
        assert chat.code == 0
        assert "the next localspec saves it" in chat.err
    done = ask(tmp_path, six_layers_path, "-c", "1", "four")
    assert "saved 4 messages" in done.err
    assert said(tmp_path) == [["one", "two", "four"], ["three"]]


def test_a_full_disk_loses_an_exchange_with_a_code(
    six_layers_path: Path, disk: Path, tmp_path: Path
) -> None:
    with_what_is_known(disk)
    assert ask(disk, six_layers_path, "--keep", "one").code == 0
    fill(disk)
    for verb, words, stdin in (
        ("run", ("-c", "1", "two " * 3000), b""),
        ("run", ("-q", "--keep", "three " * 3000), b""),
        ("chat", (), b"four " * 3000 + b"\n"),
    ):
        done = ask(disk, six_layers_path, *words, verb=verb, stdin=stdin)
        assert "lost when this ends" in done.err, (verb, done)
        assert done.code == 7, (verb, done)
    (disk / "filling").unlink()
    assert said(disk) == [["one"]]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_an_answer_is_saved_while_it_comes(
    six_layers_path: Path, tmp_path: Path, number: int
) -> None:
    with_what_is_known(tmp_path)
    command = [*COMMAND, "run", *PLAIN, "--target", str(six_layers_path), "--keep", "--max-tokens"]
    process = subprocess.Popen(
        [*command, "4000", "--ctx", "6000", "Count to a million."],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment({"LOCALSPEC_DATA_DIR": str(tmp_path)}),
    )
    assert process.stdout is not None
    shown = b""
    while len(shown) < 400:
        shown += os.read(process.stdout.fileno(), 4096)
    process.send_signal(number)
    assert process.wait() != 0
    process.stdout.close()
    with closing(History(tmp_path / "history")) as history:
        _, reply = history.branch(ids(history)[0])
        assert reply.state == "cut"
        assert shown.decode(errors="ignore")[:100].strip() in reply.message.text
