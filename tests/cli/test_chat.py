"""`localspec chat` as a process: in lines, and in a terminal that is a pty."""

import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from localspec.history.archive import History
from localspec.messages import Message
from tests.cli.command import COMMAND, PLAIN, localspec
from tests.tui.terminal import Terminal
from tests.waiting import until

PATIENCE_S = 240.0  # a machine may be busy with something else
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


class Screen(Terminal):
    """The chat in a terminal."""

    def end(self) -> int:
        """Read up to the end, and return the exit code."""
        assert until(lambda: self.read() == b"" and self.process.poll() is not None, PATIENCE_S)
        while self.read(0.1):
            pass
        return self.process.returncode


@contextmanager
def terminal(*arguments: str, errors: Path | None = None, **variables: str) -> Iterator[Screen]:
    """Start the chat in a terminal; its stderr is a file if one is given."""
    shell = () if errors is None else ("sh", "-c", f'exec "$@" 2>{errors}', "sh")
    chosen = {"LOCALSPEC_PAIR": "smollm2-135m"}  # otherwise a person at a terminal is asked
    screen = Screen(*shell, *COMMAND, "chat", *arguments, **chosen, **variables)
    try:
        yield screen
    finally:
        screen.process.kill()
        screen.process.wait()
        os.close(screen.fd)


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
        screen.until("something.", PATIENCE_S)
        screen.type("What is the capital of France?\r")
        screen.until("tokens/s", PATIENCE_S)
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
        screen.until("using --plain", PATIENCE_S)
        screen.type("Hello?\n")
        screen.until("tokens/s", PATIENCE_S)
        while not screen.seen.endswith(b"\r\n> "):  # before it reads, nobody sees a key
            screen.read()
        screen.type("\x04")
        assert screen.end() == 0
    assert b"\x1b" not in screen.seen


@pytest.mark.slow
@pytest.mark.weights
@pytest.mark.usefixtures("smollm2_path", "own_history")
def test_with_stderr_in_a_file_nothing_is_drawn_into_it(tmp_path: Path) -> None:
    with terminal(*GREEDY, errors=tmp_path / "err") as screen:
        screen.until("> ", PATIENCE_S)
        screen.type("Hello?\n")
        screen.until("\n> ", PATIENCE_S)
        screen.type("\x04")
        assert screen.end() == 0
    errors = (tmp_path / "err").read_bytes()
    assert b"using --plain" in errors
    assert b"\x1b" not in errors


@pytest.mark.weights
@pytest.mark.usefixtures("smollm2_path", "own_history")
def test_no_colour_where_none_is_wanted() -> None:
    with terminal(*GREEDY, NO_COLOR="1") as screen:
        screen.until("something.", PATIENCE_S)
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
        screen.until("something.", PATIENCE_S)
        screen.until("context 0%", PATIENCE_S)
        screen.process.terminate()
        assert screen.end() == 128 + signal.SIGTERM
    assert b"\x1b[?1049l" in screen.seen  # the screen from before is shown again


@pytest.mark.slow
@pytest.mark.weights
@pytest.mark.usefixtures("smollm2_path", "own_history")
def test_a_terminal_that_goes_away_takes_chat_and_engine_along() -> None:
    with terminal(*GREEDY) as screen:
        screen.until("context 0%", PATIENCE_S)
        engines = children(screen.process.pid)
        os.kill(screen.process.pid, signal.SIGHUP)
        screen.process.wait(PATIENCE_S)
        assert until(lambda: not any(map(alive, engines)), PATIENCE_S)


def children(pid: int) -> list[int]:
    path = Path(f"/proc/{pid}/task/{pid}/children")
    assert until(lambda: path.read_text().strip(), PATIENCE_S)
    return [int(each) for each in path.read_text().split()]


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
