"""A token is for the hub alone: no output, no error, no traceback, no file and no process's arguments have it."""

import os
from pathlib import Path

import pytest

from tests.engine.client import EngineClient
from localspec.engine.protocol import Load, encode
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
    "arguments",
    [
        ("doctor", "--json"),
        ("doctor", "--json", "--offline", "--debug"),
        ("doctor", "--debug"),
        ("config", "show", "--json"),
        ("config", "show"),
        ("pull", "--yes", "--debug", "smollm2-135m"),
        ("pull", "--yes", "--debug", "someone/something"),
        ("run", "--debug", "--target", "someone/something", "Hi"),
        ("chat", "--debug", "--pair", "smollm2-135m"),
        ("batch", "--debug", "--target", "someone/something", os.devnull),
        ("telemetry", "status"),
    ],
    ids=" ".join,
)
def test_no_command_tells_a_secret(env: dict[str, str], arguments: tuple[str, ...]) -> None:
    _keeps_quiet(localspec(*arguments, env=env))


@pytest.mark.slow
def test_nothing_that_is_kept_has_a_secret(env: dict[str, str], tmp_path: Path) -> None:
    _keeps_quiet(localspec("pull", "--yes", "someone/something", env=env))
    _keeps_quiet(localspec("chat", "--pair", "smollm2-135m", env=env, stdin=b"Hi\n"))
    for path in tmp_path.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert _TOKEN.encode() not in content, path
            assert _PASSWORD.encode() not in content, path


def test_a_refusal_of_the_hub_does_not_quote_the_token(env: dict[str, str]) -> None:
    with loopback_hub() as hub:
        done = localspec(
            "pull", "--yes", "--debug", "me/nothing", env={**env, "HF_ENDPOINT": hub.url}
        )
        assert done.code != 0
        _keeps_quiet(done)


def test_no_process_has_a_secret_among_its_arguments(
    monkeypatch: pytest.MonkeyPatch, env: dict[str, str]
) -> None:
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    client = EngineClient()
    client.start()
    try:
        assert client.pid is not None
        arguments = Path(f"/proc/{client.pid}/cmdline")
        if arguments.exists():  # Linux's
            told = arguments.read_text()
            assert "localspec.launch.child" in told
            assert _TOKEN not in told
            assert _PASSWORD not in told
        # What travels to the engine has no field for a token.
        assert _TOKEN.encode() not in encode(Load(LaunchOptions(pair="smollm2-135m")))
    finally:
        client.close(wait_s=0)
