"""No socket is opened unasked: commands and their children run with a trap in Python; of other programs the kernel is asked."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests import warm
from tests.cli.command import PLAIN, Done, environment, localspec
from tests.support.machines import with_what_is_known
from tests.support.watched_git import watched_git

pytestmark = pytest.mark.slow

_TRAP = Path(__file__).parent / "trap"
_OFFLINE = ("--offline",)
linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells of sockets")


@pytest.fixture
def trap(tmp_path: Path) -> dict[str, str]:
    """Variables that set the trap, for a user with a data directory and without a network."""
    return {
        "PYTHONPATH": os.pathsep.join([str(_TRAP), os.environ.get("PYTHONPATH", "")]),
        "LOCALSPEC_NETWORK_LOG": str(tmp_path / "network.log"),
        "LOCALSPEC_DATA_DIR": str(tmp_path / "data"),
        "HF_HOME": str(tmp_path / "hub"),
        "HF_HUB_OFFLINE": "0",
        "HF_ENDPOINT": "http://127.0.0.1:9",
    }


def _noted(trap: Mapping[str, str]) -> str:
    log = Path(trap["LOCALSPEC_NETWORK_LOG"])
    return log.read_text() if log.exists() else ""


def _trapped(trap: Mapping[str, str], *arguments: str, stdin: bytes = b"") -> Done:
    ended = warm.run("tests.privacy.trapped", arguments, environment(trap), stdin)
    return Done(ended.returncode, ended.stdout.decode(), ended.stderr.decode())


def _alone(trap: Mapping[str, str], *arguments: str, stdin: bytes = b"") -> Done:
    done = _trapped(trap, *arguments, stdin=stdin)
    assert _noted(trap) == ""
    return done


def test_the_trap_sees_a_command_and_its_children(trap: dict[str, str]) -> None:
    assert _trapped(trap, "pull", "--yes", "someone/something").code != 0
    assert "socket." in _noted(trap)
    Path(trap["LOCALSPEC_NETWORK_LOG"]).unlink()
    assert localspec("pull", "--yes", "someone/something", env=trap).code != 0
    assert "socket." in _noted(trap)


@pytest.mark.first(5)
@pytest.mark.parametrize(
    "command",
    [
        "doctor --offline --json", "run --offline --pair smollm2-135m Hi", "run --offline --target someone/something Hi",
        "pull --offline --yes smollm2-135m", "chat --offline --pair smollm2-135m", "pull --offline --yes someone/something:Q8_0",
        f"batch --offline --pair smollm2-135m {os.devnull}", "doctor --offline", "stats", "stats --json", "telemetry status",
        "list", "config show", "pair list",
    ],
)  # fmt: skip
def test_a_bare_machine_opens_no_connection(trap: dict[str, str], command: str) -> None:
    done = _alone(trap, *command.split())
    assert "bug in localspec" not in done.err
    assert "Traceback" not in done.err


def _watched(trap: Mapping[str, str]) -> tuple[str, ...]:
    """Return what stands before a command that the kernel is to watch."""
    program = Path(__file__).parent / "sockets.py"
    return sys.executable, str(program), trap["LOCALSPEC_NETWORK_LOG"]


@linux
def test_the_kernel_tells_of_any_program(trap: dict[str, str]) -> None:
    started = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"
    code = "import socket; socket.socket(socket.AF_UNIX); socket.socket()"
    subprocess.run([*_watched(trap), sys.executable, "-c", started, code], check=False)
    assert _noted(trap).startswith("socket: python")


@linux
@pytest.mark.first(2)
@pytest.mark.parametrize(
    "command",
    ["index add repository", "run --offline -f repository/new.txt Hi", "doctor --offline"],
)
def test_no_program_connects(trap: dict[str, str], tmp_path: Path, command: str) -> None:
    """And git, which may, is not started where a repository has a remote."""
    subprocess.run(["git", "init", "-q", tmp_path / "repository"], check=True)
    remote = ("remote", "add", "origin", "http://127.0.0.1:9/x.git")
    subprocess.run(["git", *remote], cwd=tmp_path / "repository", check=True)
    (tmp_path / "repository" / "new.txt").write_text("n")
    path, note = watched_git(tmp_path)
    env = {key: value for key, value in trap.items() if key != "PYTHONPATH"} | {"PATH": path}
    done = localspec(*command.split(), env=env, shell=_watched(trap), cwd=tmp_path)
    assert "Traceback" not in done.err
    assert _noted(trap) == ""
    assert not note.exists()


@pytest.mark.slow
@pytest.mark.weights
@pytest.mark.parametrize("network", [_OFFLINE, ()], ids=["offline", "not offline"])
def test_answering_with_a_model_that_is_here_opens_none(
    smollm2_path: Path, trap: dict[str, str], tmp_path: Path, network: tuple[str, ...]
) -> None:
    with_what_is_known(Path(trap["LOCALSPEC_DATA_DIR"]))
    model = (*PLAIN, "--target", str(smollm2_path), *network)
    done = _alone(trap, "run", *model, "--max-tokens", "3", "Hi")
    assert done.code == 0, done.err
    prompts, answers = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    prompts.write_text('{"prompt": "Hi", "max_tokens": 3}\n')
    done = _alone(trap, "batch", *model, str(prompts), "-o", str(answers))
    assert done.code == 0, done.err
    assert json.loads(answers.read_text())["text"]
    # Its engine is a process of its own, with the same trap.
    done = _alone(trap, "chat", *model, "--max-tokens", "3", stdin=b"Hi\n/quit\n")
    assert done.code == 0, done.err
    _alone(trap, "stats", "--json")


_VERBS = (
    "check qwen3-0.6b smollm2-135m", "show someone/some-GGUF", "doctor", "pull --yes someone/x-GGUF", "run --target someone/x-GGUF Hi",
    "pull --yes smollm2-135m", "check someone/a-GGUF:Q8_0 someone/b-GGUF", "show qwen3-4b --json", "doctor --json", "run Hi",
    "chat --target someone/x-GGUF", f"batch --target someone/x-GGUF {os.devnull}", "bench --target someone/x-GGUF", "search qwen",
    "recommend", "list", "import someone/x-GGUF --name mine", "rm mine", "history list", "index add .", "index search x", "stats",
    "tailor smollm2-135m", "setup --for vulkan --yes", "setup", "config show",
    "mcp --target someone/x-GGUF", "launch --print claude smollm2-135m", "ps", "stop", "completion bash",
)  # fmt: skip
# One place obeys all three, which some verbs show; that a verb has the flag, and asks that place, each does.
_SETTING, _VARIABLE = (
    dict.fromkeys(_VERBS[start::8], way) for start, way in ((0, "setting"), (4, "variable"))
)


@linux
@pytest.mark.first(4)
@pytest.mark.parametrize(
    ("verb", "way"),
    [*_SETTING.items(), *_VARIABLE.items(), *((each, "flag") for each in _VERBS)],
)
def test_a_verb_opens_no_socket_where_the_user_is_offline(
    trap: dict[str, str], tmp_path: Path, verb: str, way: str
) -> None:
    """One place obeys the setting, the variable and the flag, for verbs without a flag of their own, too."""
    env = {key: value for key, value in trap.items() if key != "PYTHONPATH"}
    env["LOCALSPEC_CONFIG_DIR"] = str(tmp_path / "config")
    words = verb.split()
    if way == "setting":
        (tmp_path / "config").mkdir()
        (tmp_path / "config" / "config.toml").write_text("offline = true\n")
    elif way == "variable":
        env["LOCALSPEC_OFFLINE"] = "1"
    else:
        words.append("--offline")
    done = localspec(*words, env=env, shell=_watched(trap), cwd=tmp_path)
    assert "Traceback" not in done.err
    assert "there is no option" not in done.err
    assert "bug in localspec" not in done.err
    assert _noted(trap) == ""


@linux
@pytest.mark.parametrize("file", ["offline = true\ntypo = 1\n", "offline = [\n"])
def test_a_damaged_setting_of_offline_closes_the_network(
    trap: dict[str, str], tmp_path: Path, file: str
) -> None:
    env = {key: value for key, value in trap.items() if key != "PYTHONPATH"}
    env["LOCALSPEC_CONFIG_DIR"] = str(tmp_path)
    (tmp_path / "config.toml").write_text(file)
    assert localspec("doctor", env=env, shell=_watched(trap)).code == 1
    assert _noted(trap) == ""


def test_the_variable_overrules_the_setting(trap: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("offline = true\n")
    env = trap | {"LOCALSPEC_CONFIG_DIR": str(tmp_path), "LOCALSPEC_OFFLINE": "false"}
    _trapped(env, "show", "someone/some-GGUF")
    assert "socket." in _noted(trap)
