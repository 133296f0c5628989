"""The chat in a real terminal, from its start to its end: what is typed meanwhile, and how it is left."""

import fcntl
import os
import pty
import signal
import struct
import sys
import termios
import time
from contextlib import AbstractContextManager, closing
from pathlib import Path

import pytest

from localspec.history.archive import History
from tests.cli.command import PLAIN
from tests.cli.test_chat import own_history
from tests.support.processes import alive
from tests.tui.terminal import CHAT, ROOT, Terminal, in_terminal
from tests.waiting import PATIENCE_S, until

__all__ = ["own_history"]
pytestmark = pytest.mark.process

# What Textual writes when it takes the terminal.
TAKEN = b"\x1b[?1003h"
LEFT = b"\x1b[?1049l"
_NO_HANGUP = ("sh", "-c", 'trap "" HUP; exec "$@"', "sh")


def terminal(*command: str, **variables: str) -> AbstractContextManager[Terminal]:
    """Start a program in a terminal behind a slow line, which is waited for longer."""
    given = {"SSH_CONNECTION": "slow", "COLORTERM": "truecolor", "PYTHONPATH": str(ROOT)}
    return in_terminal(*command, **(given | variables))


def assert_untouched(screen: Terminal) -> None:
    """See that a terminal has the modes of one that no program has had."""
    ours, theirs = pty.openpty()
    assert termios.tcgetattr(screen.fd) == termios.tcgetattr(ours)
    os.close(ours)
    os.close(theirs)


def sized(screen: Terminal, columns: int, rows: int) -> None:
    fcntl.ioctl(screen.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    screen.process.send_signal(signal.SIGWINCH)  # it is not the terminal of the program's session


def waiting(screen: Terminal) -> None:
    """Wait until keys are kept for the screens: the terminal echoes none any more."""
    assert until(lambda: not termios.tcgetattr(screen.fd)[3] & termios.ECHO)


def localspec(*words: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "localspec", *words)


# Textual is not there before a file is.
_HELD = """
import sys, time
from pathlib import Path
class Held:
    def find_spec(self, name, path=None, target=None):
        while name == "textual" and not Path({go_on!r}).exists():
            time.sleep(0.01)
sys.meta_path.insert(0, Held())
"""
CHAT_VERB = localspec("chat", "smollm2-135m", "--offline")


def held(folder: Path) -> dict[str, str]:
    """Return variables with which Textual waits for a file `go on`."""
    (folder / "held").mkdir()
    (folder / "held/sitecustomize.py").write_text(_HELD.format(go_on=str(folder / "go on")))
    path = f"{folder / 'held'}{os.pathsep}{ROOT}"
    return {"PYTHONPATH": path, "LOCALSPEC_DATA_DIR": str(folder)}


def test_keys_that_come_before_textual_are_not_lost(tmp_path: Path) -> None:
    with terminal(*CHAT_VERB, **held(tmp_path)) as screen:
        waiting(screen)
        screen.type("first secondX\x7f third")
        assert screen.read(0.3) == b""
        # A terminal that becomes smaller before Textual is there has all of it drawn in the new size, later ones again.
        sized(screen, 100, 30)
        (tmp_path / "go on").touch()
        screen.until(TAKEN.decode())
        screen.until("\x1b[30;1H")  # the last row of a smaller terminal
        screen.read(1.0)
        sized(screen, 90, 30)
        screen.until("first second third")
        assert screen.seen.count(b"\x1b[?1049h") == 1
        screen.type("\x11")
        assert (screen.end(), screen.seen.count(LEFT)) == (0, 1)
        assert_untouched(screen)


@pytest.mark.first(1)
@pytest.mark.parametrize("keys", ["\x04", "/quit\r"])
def test_keys_that_leave_may_come_before_textual_too(keys: str, tmp_path: Path) -> None:
    with terminal(*CHAT_VERB, LOCALSPEC_DATA_DIR=str(tmp_path)) as screen:
        waiting(screen)
        screen.type(keys)
        assert (screen.end(), screen.seen.count(LEFT)) == (0, 1)


def test_ctrl_c_before_textual_interrupts(tmp_path: Path) -> None:
    with terminal("setsid", "--ctty", "--wait", *CHAT_VERB, **held(tmp_path)) as screen:
        waiting(screen)
        screen.type("\x03")
        assert screen.end() == 130
        assert LEFT not in screen.seen


@pytest.mark.first(1)
@pytest.mark.parametrize("seen", ["", TAKEN.decode(), "not be downloaded"])
def test_a_signal_leaves_the_terminal_as_it_was(seen: str, tmp_path: Path) -> None:
    with terminal(*CHAT_VERB, LOCALSPEC_DATA_DIR=str(tmp_path)) as screen:
        waiting(screen)
        screen.until(seen)
        screen.process.send_signal(signal.SIGTERM)
        assert screen.end() == 128 + signal.SIGTERM
        assert screen.seen.count(LEFT) == screen.seen.count(b"\x1b[?1049h")
        assert screen.seen.count(b"\x1b[?1000h") == screen.seen.count(b"\x1b[?1000l")
        assert_untouched(screen)


def test_behind_ctrl_z_and_fg_all_is_drawn_again(tmp_path: Path) -> None:
    code = CHAT.format(root=str(ROOT), folder=str(tmp_path), script={})
    with terminal(sys.executable, "-c", code) as screen:
        screen.until("sk something")
        screen.type("one?\r")
        screen.until("tokens/s")
        screen.type("\x1a")
        stat = Path(f"/proc/{screen.process.pid}/stat")
        assert until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", PATIENCE_S)
        while screen.read(0.2):
            pass
        screen.seen = b""
        screen.process.send_signal(signal.SIGCONT)
        for text in ("one?", "world", "sk something"):
            screen.until(text)


def test_behind_an_editor_that_fails_the_chat_is_there_with_what_was_typed(tmp_path: Path) -> None:
    code = CHAT.format(root=str(ROOT), folder=str(tmp_path), script={})
    with terminal(sys.executable, "-c", code, VISUAL="sh -c 'kill -INT $$'") as screen:
        screen.until("sk something")
        screen.type("my question")
        screen.until("my question")
        screen.seen = b""
        screen.type("\x07")
        for text in ("the editor failed (", "my question"):  # drawn again
            screen.until(text)
        screen.type(" goes on\r")
        screen.until("tokens/s")
        screen.type("\x11")
        assert screen.end() == 0
        assert_untouched(screen)
    stored = History(tmp_path)
    assert stored.questions(9) == ["my question goes on"]
    stored.close()


@pytest.mark.parametrize("word", ["no-such-model", "--temperature=warm"])
def test_an_error_before_textual_leaves_the_terminal_as_it_was(word: str, tmp_path: Path) -> None:
    with terminal(*localspec("chat", word), LOCALSPEC_DATA_DIR=str(tmp_path)) as screen:
        assert screen.end() != 0
        assert word[-4:].encode() in screen.seen
        assert LEFT not in screen.seen
        assert_untouched(screen)


@pytest.mark.parametrize(("words", "variables"), [([], {"TERM": "dumb"}), (["--plain"], {})])
def test_lines_are_no_screen(words: list[str], variables: dict[str, str], tmp_path: Path) -> None:
    with terminal(*CHAT_VERB, *words, LOCALSPEC_DATA_DIR=str(tmp_path), **variables) as screen:
        screen.until("> ")
        screen.type("/quit\r")
        assert screen.end() == 0
        assert b"\x1b[?1049h" not in screen.seen


@pytest.mark.slow
@pytest.mark.usefixtures("smollm2_path")
def test_a_real_conversation_ends_with_how_to_continue_it(own_history: Path) -> None:
    greedy = (*PLAIN, "--temperature", "0", "--max-tokens", "8", "-m", "smollm2-135m")
    with terminal(*localspec("chat", *greedy)) as screen:
        screen.until("something.")
        screen.type("What is the capital of France?\r")
        screen.until("tokens/s", PATIENCE_S)
        screen.type("\x11")
        assert screen.end() == 0
    assert b"continue with: localspec chat --continue 1" in screen.seen.rpartition(LEFT)[2]
    assert (own_history / "history" / "history.db").stat().st_mode & 0o777 == 0o600


@pytest.mark.skipif(sys.platform != "linux", reason="children are read from /proc")
@pytest.mark.first(1)
@pytest.mark.parametrize(
    ("streaming", "signalled", "stuck"),
    [(True, False, True), (False, False, False), (True, False, False), (True, True, False)],
)
def test_a_terminal_vanishes_with_all(
    streaming: bool, signalled: bool, stuck: bool, tmp_path: Path
) -> None:
    script = {"otherwise": ["word " * 400], "pass_s": 0.005 if streaming else 0.0}
    code = CHAT.format(root=str(ROOT), folder=str(tmp_path), script=script)
    with terminal(*_NO_HANGUP[: 4 * (not signalled)], sys.executable, "-c", code) as screen:
        screen.until("context 0%")
        screen.type("one?\r")
        screen.until("word word")
        if not streaming:
            screen.until(" tokens/s")
        children = Path(f"/proc/{screen.process.pid}/task/{screen.process.pid}/children")
        engine = int(children.read_text().split()[0])
        if stuck:  # until nothing that is drawn finds room any more
            for columns in range(60, 140):
                sized(screen, columns, 50)
                time.sleep(0.05)
        if signalled:
            screen.process.send_signal(signal.SIGHUP)
        else:
            os.close(screen.fd)
            screen.fd = os.open(os.devnull, os.O_RDONLY)
        screen.process.wait(PATIENCE_S)
    assert until(lambda: not alive(engine))
    with closing(History(tmp_path)) as history:
        question, answer = history.branch(history.latest() or 0)
    assert question.message.text == "one?"
    assert answer.message.text.startswith("word word")
