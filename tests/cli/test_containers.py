"""The program as it runs in containers: as process 1, with few processes, with arguments of any bytes."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from lab.memory_limits import memory_group
from localspec.cli.main import main
from localspec.decoding.round import Draft, Round, Verdict
from localspec.errors import UsageError
from localspec.options.recording import Switch
from localspec.plugins.serve.servers import _at_port
from localspec.telemetry.recorder import Recorder
from localspec.telemetry.reply import Pair
from tests.cli.command import PLAIN, Started, assert_one_complaint, localspec
from tests.plugins.serve.serving import CHAT, user
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


def test_a_model_may_have_any_name(smollm2_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "m\udce4.gguf"
    path.symlink_to(smollm2_path)
    done = localspec("run", "-m", str(path), "--draft", "off", "-n", "2", "Hi", cold=True)
    assert done.code == 0, done.err
    assert "telemetry is off" not in done.err
    assert_one_complaint(localspec("run", "-m", f"{path}x", "Hi", cold=True), 2, "is not UTF-8")


@pytest.mark.usefixtures("smollm2_path")
def test_a_kill_for_want_of_memory_is_reported() -> None:
    with suppress(OSError), memory_group(80, high=False) as group:
        words = group.command("run", "--no-fit", *PLAIN, "smollm2-135m", "Hi")
        done = subprocess.run(words, check=False, capture_output=True, text=True)
        assert done.returncode == -signal.SIGKILL
        assert "localspec: killed (SIGKILL), since memory ran out: try a smaller" in done.stderr
        return
    pytest.skip("no right to a group with a memory limit")


@pytest.mark.parametrize("end", ["pass", "os.kill(os.getpid(), 9)", "sys.exit(3)"])
def test_an_end_that_is_no_want_of_memory_is_silent(end: str) -> None:
    program = (
        f"import os, sys; from localspec.llama.crash_report import report_a_kill as r; r(); {end}"
    )
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True)
    assert (done.stdout, done.stderr) == (b"", b"")


# In a folder, which `$0` is; what it may write of a root that is read-only.
READ_ONLY = 'mount --bind "$0" "$0" && mount -t tmpfs shm /dev/shm && mount -o remount,bind,ro / && exec "$@"'
MOUNTS = {
    "overlay": "mount -t overlay over -o lowerdir=below,upperdir=above,workdir=work place",
    "FUSE": "bindfs -o direct_io,attr_timeout=0,entry_timeout=0 below place",
    "nothing": "mount --bind below place",
}
PLACES = {
    "overlay": (),
    "FUSE": (),
    "read-only root": ("unshare", "-m", "sh", "-c", READ_ONLY),
    "process 1": ("unshare", "-pf", "--mount-proc"),
}


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path, smollm2_path: Path) -> Iterator[tuple[Path, tuple[str, ...]]]:  # fmt: skip
    """A folder whose data directory has a model, and what a command has to be started by to run there."""
    for each in ("below/data/blobs", "above", "work", "place"):
        (tmp_path / each).mkdir(parents=True)
    blob = smollm2_path.resolve()
    shutil.copy(blob, tmp_path / "below/data/blobs" / blob.name)
    mount = MOUNTS.get(request.param, MOUNTS["nothing"])
    done = subprocess.run(["sh", "-c", mount], cwd=tmp_path, check=False, capture_output=True)
    if done.returncode or not can_unshare():
        pytest.skip(f"no right to mount: {done.stderr.decode()}")
    folder, shell = tmp_path / "place", PLACES[request.param]
    try:
        yield folder, (*shell, str(folder)) if "sh" in shell else shell
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="what Linux mounts")
def test_all_commands_work_where_containers_run(place: tuple[Path, tuple[str, ...]]) -> None:
    folder, shell = place
    env = {
        "LOCALSPEC_DATA_DIR": f"{folder}/data",
        "LOCALSPEC_CONFIG_DIR": f"{folder}/config",
        "LOCALSPEC_TELEMETRY": "on",
    }
    (folder / "docs").mkdir()
    (folder / "docs/birds.md").write_text("penguins walk far")
    (folder / "in.jsonl").write_text('{"prompt": "Name a river."}')
    model = ("smollm2-135m", *PLAIN, "--draft", "lookup", "--temperature", "0", "-n", "6")

    def succeed(*words: str, stdin: str = "") -> str:
        done = localspec(*words, env=env, shell=shell, stdin=stdin.encode())
        assert done.code == 0, (words, done)
        for each in ("Traceback", "bug in", "cannot", "telemetry is off"):
            assert each not in done.err, (words, done)
        return done.out

    answer = succeed("run", "--keep", *model, "Name a river.").strip()
    continued = json.loads(succeed("run", "-c", "--json", *model, "Another one."))
    assert continued["usage"]["prompt_tokens"] > 40
    assert answer in succeed("chat", "--plain", *model, stdin="Name a river.\n")
    output = folder / "out.jsonl"
    succeed("batch", str(folder / "in.jsonl"), "-o", str(output), "-m", *model)
    assert json.loads(output.read_text())["text"].strip() == answer
    assert asked(env, shell, *model) == answer
    for words, printed in {
        "config set temperature 0.5": "",
        f"index add {folder}/docs": "",
        "index search penguins": "penguins walk",
        "history search another": "Another one",
        "history rm 1 --yes": "",
        "stats": "tokens",
        "list": "smollm2-135m",
        "doctor --offline": "no problems",
    }.items():
        assert printed in succeed(*words.split())


def asked(env: dict[str, str], shell: tuple[str, ...], *model: str) -> str:
    """Return what a server answers that ends with its stdin."""
    body: dict[str, Any] = {"messages": [user("Name a river.")], "max_tokens": 6}
    words = ("serve", *model[:-2], "--port", "0", "--until-stdin-ends", "--ctx", "512")
    with Started(*words, env=env, shell=shell) as process:
        lines = ""
        while not (found := re.search(r"at (http\S+)/v1", lines)):
            line = process.stderr.readline().decode()
            assert line, lines
            lines += line
        reply = httpx.post(found[1] + CHAT, json=body, timeout=PATIENCE_S).json()
        process.stdin.close()
        assert process.wait(PATIENCE_S) == 0
    return str(reply["choices"][0]["message"]["content"]).strip()
