"""`localspec chat` as a process: in lines, and in a terminal that is a pty."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from localspec.history.archive import History
from localspec.messages import Message
from tests.cli.command import COMMAND, PLAIN, environment, localspec

PATIENCE_S = 240.0  # a machine may be busy with something else
CHOSEN = {"LOCALSPEC_PAIR": "smollm2-135m"}  # else a person at a terminal is asked
GREEDY = (*PLAIN, "--temperature", "0", "--max-tokens", "8")


@pytest.fixture
def own_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data directory with the models of the usual one, and a history of its own."""
    usual = Path(os.environ.get("LOCALSPEC_DATA_DIR") or Path.home() / ".local/share/localspec")
    (tmp_path / "data").mkdir()
    if (usual / "blobs").is_dir():
        (tmp_path / "data" / "blobs").symlink_to(usual / "blobs")
    if (usual / "calibration").is_dir():
        (tmp_path / "data" / "calibration").symlink_to(usual / "calibration")
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path / "data"))
    return tmp_path / "data"


class Screen:
    """The other end of a terminal."""

    def __init__(self, process: "subprocess.Popen[bytes]", fd: int) -> None:
        self.process = process
        self.seen = b""
        self._fd = fd

    def until(self, text: str) -> None:
        """Read until a text was written."""
        end_s = time.monotonic() + PATIENCE_S
        while text.encode() not in self.seen:
            assert time.monotonic() < end_s, f"waited in vain for {text!r}: {self.seen[-3000:]!r}"
            assert self.process.poll() is None, f"it ended: {self.seen[-3000:]!r}"
            self._read()

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def end(self) -> int:
        """Read up to the end, and return the exit code."""
        end_s = time.monotonic() + PATIENCE_S
        while self.process.poll() is None:
            assert time.monotonic() < end_s
            self._read()
        while select.select([self._fd], [], [], 0.1)[0]:  # what it wrote last
            before = len(self.seen)
            self._read()
            if len(self.seen) == before:
                break
        return self.process.returncode

    def _read(self) -> None:
        if select.select([self._fd], [], [], 0.1)[0]:
            try:
                self.seen += os.read(self._fd, 65536)
            except OSError:  # the terminal is gone
                time.sleep(0.05)


@contextmanager
def terminal(*arguments: str, stderr: int | None = None, **variables: str) -> Iterator[Screen]:
    """Start the chat in a terminal of 80 columns; `stderr` is a file instead of it."""
    ours, theirs = pty.openpty()
    try:
        process = subprocess.Popen(
            [*COMMAND, "chat", *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs if stderr is None else stderr,
            env=environment(
                {**CHOSEN, "TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24", **variables}
            ),
            start_new_session=True,
        )
        os.close(theirs)
        try:
            yield Screen(process, ours)
        finally:
            process.kill()
            process.wait()
    finally:
        os.close(ours)


def test_a_model_that_cannot_be_had_is_the_exit_code(bare_machine: dict[str, str]) -> None:
    done = localspec("chat", "--plain", "--offline", stdin=b"hello?\n", env=bare_machine)
    assert done.code == 3, done.err
    assert done.out == ""
    assert "could not be downloaded" in done.err
    assert "Traceback" not in done.err


def test_commands_need_no_model(bare_machine: dict[str, str]) -> None:
    done = localspec(
        "chat", "--plain", "--offline", stdin=b"/help\n/quit\nnever\n", env=bare_machine
    )
    assert done.code == 0, done.err
    assert "/regenerate [SEED]" in done.err
    assert "could not be downloaded" not in done.err


def test_screens_are_painted_before_numpy_is_imported() -> None:
    script = "import sys, localspec.cli.conversing, localspec.tui.app; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    imported = {name.partition(".")[0] for name in done.stdout.split()}
    assert "textual" in imported
    slow = {"numpy", "llama_cpp", "jinja2", "huggingface_hub", "markdown_it", "pygments"}
    assert imported & slow == set()


def test_plain_imports_no_screens() -> None:
    script = (
        "import sys; sys.argv = ['localspec', 'chat', '--plain', '--help'];"
        "from localspec.__main__ import main\n"
        "try: main()\n"
        "finally: print(*{name.partition('.')[0] for name in sys.modules}, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert {"textual", "rich.console", "numpy", "llama_cpp"} & set(done.stderr.split()) == set()
    assert "--continue" in done.stdout


@pytest.mark.weights
@pytest.mark.usefixtures("smollm2_path", "own_history")
def test_a_whole_conversation_in_lines(tmp_path: Path) -> None:
    questions = (
        b"What is the capital of France?\n/regenerate\nAnd of\\\nItaly?\n/lens\n/export md a.md\n"
    )
    done = localspec("chat", "--plain", *GREEDY, stdin=questions, cwd=tmp_path)
    assert done.code == 0, done.err
    first, again, *_ = done.out.splitlines()
    assert first
    assert again == first
    assert done.err.count(" tokens/s") >= 3
    assert "written to " in done.err
    assert "And of\nItaly?" in (tmp_path / "a.md").read_text()
    # What was said is there again.
    later = localspec("chat", "--plain", "--continue", *GREEDY, stdin=b"/copy all\n")
    assert "And of\nItaly?" in later.out


@pytest.mark.slow
@pytest.mark.weights
@pytest.mark.usefixtures("smollm2_path", "own_history")
def test_a_pipe_gets_the_answer_alone() -> None:
    done = localspec("chat", "--quiet", *GREEDY, stdin=b"Hello?\n")
    assert (done.code, done.err) == (0, "")
    assert done.out.strip()


@pytest.mark.slow
@pytest.mark.weights
@pytest.mark.usefixtures("smollm2_path")
def test_a_conversation_on_a_screen(own_history: Path) -> None:
    with terminal(*GREEDY) as screen:
        screen.until("something.")
        screen.type("What is the capital of France?\r")
        screen.until("tokens/s")
        screen.type("\x11")  # Ctrl+Q
        assert screen.end() == 0
    last = screen.seen.rpartition(b"\x1b[?1049l")[2]  # on the screen from before
    assert b"continue with: localspec chat --continue 1" in last
    assert (own_history / "history" / "history.db").stat().st_mode & 0o777 == 0o600


@pytest.mark.slow
@pytest.mark.weights
@pytest.mark.usefixtures("smollm2_path", "own_history")
def test_a_dumb_terminal_gets_lines() -> None:
    with terminal(*GREEDY, TERM="dumb") as screen:
        screen.until("using --plain")
        screen.type("Hello?\n")
        screen.until("tokens/s")
        while not screen.seen.endswith(b"\r\n> "):  # before it reads, nobody sees a key
            screen.until("tokens/s")
            screen._read()
        screen.type("\x04")
        assert screen.end() == 0
    assert b"\x1b" not in screen.seen


@pytest.mark.slow
@pytest.mark.weights
@pytest.mark.usefixtures("smollm2_path", "own_history")
def test_with_stderr_in_a_file_nothing_is_drawn_into_it(tmp_path: Path) -> None:
    with (tmp_path / "err").open("w+b") as file:
        with terminal(*GREEDY, stderr=file.fileno()) as screen:
            screen.until("> ")
            screen.type("Hello?\n")
            screen.until("\n> ")
            screen.type("\x04")
            assert screen.end() == 0
        file.seek(0)
        told = file.read()
    assert b"using --plain" in told
    assert b"\x1b" not in told


@pytest.mark.weights
@pytest.mark.usefixtures("smollm2_path", "own_history")
def test_no_colour_where_none_is_wanted() -> None:
    with terminal(*GREEDY, NO_COLOR="1") as screen:
        screen.until("something.")
        screen.type("\x11")
        assert screen.end() == 0
    styles = re.findall(rb"\x1b\[([0-9;]*)m", screen.seen)
    assert styles
    assert not [
        each for each in styles if re.search(rb"(^|;)([34][0-8]|9[0-7]|10[0-7])(;|$)", each)
    ]


@pytest.mark.weights
@pytest.mark.usefixtures("smollm2_path", "own_history")
def test_a_chat_that_is_told_to_end_gives_the_terminal_back() -> None:
    with terminal(*GREEDY) as screen:
        screen.until("something.")
        screen.until("context 0%")
        screen.process.terminate()
        assert screen.end() == 128 + signal.SIGTERM
    assert b"\x1b[?1049l" in screen.seen  # the screen from before is shown again


@pytest.mark.slow
@pytest.mark.weights
@pytest.mark.usefixtures("smollm2_path", "own_history")
def test_a_terminal_that_goes_away_takes_chat_and_engine_along() -> None:
    with terminal(*GREEDY) as screen:
        screen.until("context 0%")
        engines = children(screen.process.pid)
        assert engines
        os.kill(screen.process.pid, signal.SIGHUP)
        screen.process.wait(PATIENCE_S)
        end_s = time.monotonic() + PATIENCE_S
        while any(map(alive, engines)):
            assert time.monotonic() < end_s
            time.sleep(0.05)


def children(pid: int) -> list[int]:
    end_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < end_s:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
        if text.strip():
            return [int(each) for each in text.split()]
        time.sleep(0.05)
    return []


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.slow
def test_a_conversation_goes_on_with_its_own_pair_and_not_with_what_is_configured(
    bare_machine: dict[str, str], stored: Path
) -> None:
    history = History(stored / "history")
    conversation = history.create(pair="smollm2-1.7b")
    history.add_user(conversation, None, Message.user("hello?"))
    history.close()
    configured = {**bare_machine, "LOCALSPEC_PAIR": "qwen2.5-coder-1.5b"}
    arguments = ("chat", "--plain", "--continue", "--offline")
    own = localspec(*arguments, stdin=b"hello?\n", env=configured)
    assert "smollm2-1.7b" in own.err
    chosen = localspec(*arguments, "--pair", "gemma3-4b", stdin=b"hello?\n", env=configured)
    assert "gemma3-4b" in chosen.err
    assert "smollm2-1.7b" not in chosen.err
