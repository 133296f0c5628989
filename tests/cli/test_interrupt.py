"""Ctrl-C, wherever it strikes: code 130, soon, and what was answered so far stays."""

import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.command import PLAIN, answer, started
from tests.models.loopback_hub import loopback_hub
from tests.waiting import until

# Within a second it ends on a machine that has time for it.
SOON_S = 60.0


def interrupt(
    process: "subprocess.Popen[bytes]", number: signal.Signals = signal.SIGINT, code: int = 130
) -> tuple[str, str]:
    """Send a signal, see the program end soon with its code, and return what it wrote meanwhile."""
    process.send_signal(number)
    out, err = process.communicate(timeout=SOON_S)
    assert process.returncode == code
    text = (err or b"").decode()
    assert "Traceback" not in text
    assert "Exception" not in text
    return out.decode(), text


@pytest.mark.weights
@pytest.mark.usefixtures("smollm2_path")
def test_ctrl_c_in_decode_keeps_the_text_so_far() -> None:
    with started("run", *PLAIN, "--raw", "Once upon a time", "--temperature", "0") as process:
        assert process.stdout is not None
        before = process.stdout.read(8)
        rest, figures = interrupt(process)
    assert len(before) == 8
    assert rest.endswith("\n")
    assert " · interrupted · seed " in figures


@pytest.mark.slow
@pytest.mark.weights
@pytest.mark.usefixtures("smollm2_path")
def test_ctrl_c_in_prefill_ends_it_before_a_token_is_out() -> None:
    answer("--ctx", "8192", "--raw", "-n", "1", "Hi")  # what a first start measures is known then
    prompt = "All work and no play makes Jack a dull boy. " * 700
    figures = ""
    for patience_s in (1, 2, 4, 8, 16, 32):  # until loading is over: then there are figures
        with started("run", *PLAIN, "--ctx", "8192", "--raw", prompt) as process:
            _wait_for_python(process.pid)
            time.sleep(patience_s)
            out, figures = interrupt(process)
        assert out == ""
        if " tokens · " in figures:
            break
    assert " · 0 tokens · " in figures
    assert " · interrupted · seed " in figures


@pytest.mark.weights
@pytest.mark.usefixtures("smollm2_path")
def test_ctrl_c_while_loading_wipes_the_progress_line() -> None:
    prompt = (
        "All work and no play makes Jack a dull boy. " * 150
    )  # long enough for no token to be out
    for _ in range(5):
        screen, terminal = pty.openpty()
        try:
            with started("run", *PLAIN, "--raw", prompt, stderr=terminal) as process:
                drawn = b""
                while b"loading smollm2-135m" not in drawn:
                    drawn += os.read(screen, 1000)
                out, _ = interrupt(process)
            os.set_blocking(screen, False)
            drawn += os.read(screen, 10_000)
        finally:
            os.close(screen)
            os.close(terminal)
        assert out == ""
        assert b"Traceback" not in drawn
        if b" tokens " not in drawn.rpartition(b"loading")[2]:
            break  # it struck before loading was over, else there are figures
    assert drawn.endswith(b"\r\x1b[K")


@pytest.mark.first(1)
@pytest.mark.parametrize(
    ("source", "number", "code"),
    [("hub", signal.SIGINT, 130), ("index", signal.SIGINT, 130), ("index", signal.SIGTERM, 143)],
)
def test_a_download_that_is_stopped_leaves_nothing_in_the_store(
    bare_machine: dict[str, str], stored: Path, source: str, number: signal.Signals, code: int
) -> None:
    with loopback_hub() as server:
        server.silent.set()
        if source == "hub":
            env = {**bare_machine, "HF_ENDPOINT": server.url}
        else:
            env = {**bare_machine, "PIP_INDEX_URL": f"{server.url}/simple", "PIP_NO_INDEX": "0"}
        with started("pull", "smollm2-135m", env=env) as process:
            assert until(lambda: server.requests)
            out, _ = interrupt(process, number, code)
    assert out == ""
    assert [path for path in stored.rglob("*") if not path.is_dir()] == []
    assert list((stored / "partial").glob("*")) == []


SLOW_IMPORT = """
import os, runpy, signal, sys, time

class Interrupted:
    def find_spec(self, name, path=None, target=None):
        if name == "click":
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(10)

sys.meta_path.insert(0, Interrupted())
sys.argv = ["localspec", "--version"]
runpy.run_module("localspec", run_name="__main__")
"""


def test_ctrl_c_while_the_command_line_is_imported_is_as_silent() -> None:
    done = subprocess.run([sys.executable, "-c", SLOW_IMPORT], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


def _wait_for_python(pid: int) -> None:
    """Wait until a process handles Ctrl-C itself; on a busy machine that may take a while."""
    status = Path(f"/proc/{pid}/status")

    def catches() -> bool:
        caught = next(line for line in status.read_text().splitlines() if "SigCgt" in line)
        return bool(int(caught.split()[1], 16) >> (signal.SIGINT - 1) & 1)

    assert not status.exists() or until(catches)
