"""A token is for the hub alone: no output, no error, no traceback, no file and no process's arguments have it."""

import os
import time
from pathlib import Path

import pytest

from localspec.engine.protocol import Load, encode
from localspec.engine.remote_engine import RemoteEngine
from localspec.options import LaunchOptions
from tests.cli.command import Done, localspec
from tests.models.loopback_hub import loopback_hub

_TOKEN = "hf_thisIsNobodysBusiness"
_PASSWORD = "swordfish-9"


@pytest.fixture
def env(bare_machine: dict[str, str]) -> dict[str, str]:
    return {
        **bare_machine,
        "HF_TOKEN": _TOKEN,
        "HTTPS_PROXY": f"http://me:{_PASSWORD}@127.0.0.1:9",
        "LOCALSPEC_MIRRORS": f"http://me:{_PASSWORD}@127.0.0.1:9/models",
        "PIP_INDEX_URL": f"http://me:{_PASSWORD}@127.0.0.1:9/simple",
    }


def _keeps_quiet(done: Done) -> Done:
    for text in (done.out, done.err):
        assert _TOKEN not in text
        assert _PASSWORD not in text
    return done


@pytest.mark.first(5)
@pytest.mark.parametrize(
    "command",
    [
        "doctor --json", "doctor --json --offline --debug", "config show", "pull --yes --debug someone/something",
        "run --debug --target someone/something Hi", "config show --json", "doctor --debug", "pull --yes --debug smollm2-135m",
        "chat --debug --pair smollm2-135m", f"batch --debug --target someone/something {os.devnull}", "telemetry status",
    ],
)  # fmt: skip
def test_no_command_prints_a_secret(env: dict[str, str], command: str) -> None:
    _keeps_quiet(localspec(*command.split(), env=env))


@pytest.mark.slow
def test_nothing_that_is_kept_has_a_secret(env: dict[str, str], tmp_path: Path) -> None:
    _keeps_quiet(localspec("pull", "--yes", "someone/something", env=env))
    _keeps_quiet(localspec("chat", "--pair", "smollm2-135m", env=env, stdin=b"Hi\n"))
    for path in tmp_path.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert not any(each.encode() in content for each in (_TOKEN, _PASSWORD)), path


def test_a_refusal_of_the_hub_does_not_quote_the_token(env: dict[str, str]) -> None:
    with loopback_hub() as hub:
        own = {**env, "HF_ENDPOINT": hub.url}
        done = _keeps_quiet(localspec("pull", "--yes", "--debug", "me/nothing", env=own))
        assert done.code != 0


def test_no_process_shows_a_secret(monkeypatch: pytest.MonkeyPatch, env: dict[str, str]) -> None:
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    client = RemoteEngine()
    client.start()
    try:
        assert client.pid is not None
        arguments = Path(f"/proc/{client.pid}/cmdline")
        if arguments.exists():  # Linux's
            for _ in range(1000):  # until it is the program that it was started as
                if "localspec.launch.child" in (text := arguments.read_text()):
                    break
                time.sleep(0.01)
            assert "localspec.launch.child" in text
            assert _TOKEN not in text
            assert _PASSWORD not in text
        # What travels to the engine has no field for a token.
        assert _TOKEN.encode() not in encode(Load(LaunchOptions(pair="smollm2-135m")))
    finally:
        client.close(wait_s=0)
