"""The program as it runs in containers: as process 1, with few processes, with arguments of any bytes."""

import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from localspec.cli.main import main
from localspec.cli.servers import _at_port
from localspec.decoding.round import Draft, Round, Verdict
from localspec.errors import UsageError
from localspec.options.recording import Switch
from localspec.telemetry.recorder import Recorder
from localspec.telemetry.reply import Pair
from tests.cli.command import assert_one_complaint, localspec
from tests.waiting import PATIENCE_S

BYTES = [
    *[("run", each) for each in ("\udce4bc", "a\udcff", "日本\udce4")],
    *[("run", flag, "\udce4", "Hi") for flag in ("-s", "-f", "--stop", "--gate", "-m")],
    ("config", "set", "\udce4", "1"),
    ("batch", "\udce4.jsonl"),
    ("history", "search", "\udce4"),
    ("\udce4",),
]
SLEEPS = "import signal, sys, time; {}print('ready', flush=True); time.sleep(600)"


@pytest.mark.parametrize("words", BYTES)
def test_an_argument_that_is_no_text_gets_one_line(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["localspec", *words])
    assert main() == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "is not UTF-8: convert it" in line


def can_unshare() -> bool:
    tool = shutil.which("unshare")
    return (
        tool is not None
        and os.geteuid() == 0
        and not subprocess.run([tool, "-pf", "true"], check=False).returncode
    )


@pytest.mark.skipif(sys.platform != "linux" or not can_unshare(), reason="no right to a namespace")
@pytest.mark.parametrize(
    ("number", "own", "code"),
    [
        (signal.SIGTERM, "", 143),
        (signal.SIGHUP, "", 129),
        (signal.SIGTERM, "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7)); ", 7),
    ],
)
def test_process_1_ends_as_its_program_does(number: int, own: str, code: int) -> None:
    module = "from localspec.cli.first_process import run_as_child_of_process_1 as run; run(); "
    words = ["unshare", "-pf", "--mount-proc", sys.executable, "-c", module + SLEEPS.format(own)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        inside = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(inside[0]), number)
        assert process.wait(PATIENCE_S) == code


def test_a_host_that_is_not_there_is_not_the_port_s_fault() -> None:
    with pytest.raises(UsageError, match="give another --host"):
        _at_port("203.0.113.7", 0)


def test_an_answer_without_a_thread_for_its_record_is_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    recorder = Recorder(tmp_path, Pair("t"), Switch(), lambda _: b"")
    trace = recorder.begin("x", [1], greedy=True)
    trace.note(Round(Draft(), Verdict(0, 7), (7,)))
    trace.end("", 0.1, 0.1)
    recorder.close()
    assert "can't start new thread" in (recorder.trouble or "")
    monkeypatch.setattr(sys, "argv", ["localspec", "list"])
    monkeypatch.setattr("localspec.cli.main._call", lambda _root: refuse(threading.Thread()))
    assert main() == 1


def test_few_processes_are_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    def refuse(_root: object) -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("localspec.cli.main._call", refuse)
    monkeypatch.setattr(sys, "argv", ["localspec", "list"])
    assert main() == 1
    assert "too few processes are allowed (ulimit -u, pids.max)" in capsys.readouterr().err


def test_a_model_may_have_any_name(smollm2_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "m\udce4.gguf"
    path.symlink_to(smollm2_path)
    done = localspec("run", "-m", str(path), "--draft", "off", "-n", "2", "Hi", cold=True)
    assert done.code == 0, done.err
    assert "telemetry is off" not in done.err
    assert_one_complaint(localspec("run", "-m", f"{path}x", "Hi", cold=True), 2, "is not UTF-8")
