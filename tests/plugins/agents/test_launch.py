"""`launch`: agents' rows, their server, and what is theirs: words, signals, exit codes; the agents are a program that tells what it got."""

import json
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from localspec.engine.running import Running, announced, runs, servers
from localspec.plugins.agents.agents import AGENTS
from localspec.storage.paths import data_dir
from tests.cli.command import (
    PLAIN,
    Started,
    assert_one_complaint,
    environment,
    localspec,
    started,
    succeed,
)
from tests.plugins.serve.serving import served
from tests.support.machines import with_what_is_known
from tests.waiting import PATIENCE_S, until

pytestmark = pytest.mark.slow

FAKE = """#!/usr/bin/env python3
import json, os, re, signal, sys, time, urllib.request
at = os.environ["FAKE"]
signals = []
note = lambda number, _: signals.append(number)
for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(each, note)
text = " ".join([*sys.argv, *os.environ.values()])
files = {}
for path in re.findall(r"/\\S+\\.json\\b", text):
    files[path] = open(path).read()
url, answer = re.search(r"http://127[.]0[.]0[.]1:\\d+", text), ""
if os.environ.get("FAKE_ASKS"):
    body = json.dumps({"messages": [{"role": "user", "content": "Name a river."}], "max_tokens": 6}).encode()
    answer = urllib.request.urlopen(url[0] + "/v1/chat/completions", body).read().decode()
print("hello from", os.path.basename(sys.argv[0]), flush=True)
def tell():
    seen = {"argv": sys.argv[1:], "env": dict(os.environ), "files": files, "answer": answer, "signals": signals, "pid": os.getpid()}
    open(at + ".new", "w").write(json.dumps(seen))
    os.rename(at + ".new", at)
tell()
if os.environ.get("FAKE_WAITS"):
    end = time.time() + 60
    while not signals and time.time() < end:
        time.sleep(0.02)
    tell()
if os.environ.get("FAKE_DIES"):
    os.kill(os.getpid(), signal.SIGKILL)
sys.exit(int(os.environ.get("FAKE_CODE", "0")))
"""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A machine where every agent is the fake one, with a data directory that is new but for downloads and what was measured."""
    own = with_what_is_known(tmp_path / "data", "blobs")
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(own))
    (tmp_path / "bin").mkdir()
    for agent in AGENTS.values():
        program = tmp_path / "bin" / agent.program
        program.write_text(FAKE)
        program.chmod(0o755)
    for name in ("home", "tmp"):
        (tmp_path / name).mkdir()
    return {
        "PATH": f"{tmp_path}/bin:{os.environ['PATH']}",
        "HOME": str(tmp_path / "home"),
        "TMPDIR": str(tmp_path / "tmp"),
        "FAKE": str(tmp_path / "seen"),
        "LOCALSPEC_OWN": "off",
        "LOCALSPEC_DATA_DIR": str(own),
        "ANTHROPIC_API_KEY": "sk-ant-real",
        "OPENAI_BASE_URL": "http://elsewhere",
    }


@contextmanager
def server_of_the_user(**about: Any) -> Iterator[Running]:
    """A server that others see, and whose answers are scripted."""
    with served({"otherwise": ["The Rhine."]}) as server:
        fields = {"n_ctx": 40960, "model": "a-pair", "keyed": False, **about}
        running = Running(os.getpid(), since=7, addresses=(f"{server.url}/v1",), **fields)
        with announced(running):
            yield running


def seen(machine: Mapping[str, str]) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(Path(machine["FAKE"]).read_text())
    return document


def as_told(agent: dict[str, Any]) -> tuple[list[str], dict[str, str], list[str]]:
    """Return what an agent was given, but for where its files are."""
    names = [each for each in agent["env"] if each.startswith(("AIDER", "OPENAI", "OPENCODE"))]
    words = [each for each in agent["argv"] if not each.endswith(".json")]
    return words, {name: agent["env"][name] for name in names}, [*agent["files"].values()]


def launched(machine: dict[str, str], agent: str, *words: str, **env: str) -> dict[str, Any]:
    succeed("launch", agent, *words, env={**machine, **env}, cold=True)
    return seen(machine)


@pytest.mark.parametrize("name", AGENTS)
def test_what_an_agent_is_given(machine: dict[str, str], tmp_path: Path, name: str) -> None:
    """What a shell is to do is in a snapshot; update with LOCALSPEC_UPDATE_SNAPSHOTS=1."""
    words = ("--", "--print", "a 'quoted' $word", "--")
    with server_of_the_user(model='models/a "pair"') as running:
        agent = launched(machine, name, *words, FAKE_ASKS="1")
        assert agent["argv"][-3:] == [*words[1:]]
        assert "The Rh" in agent["answer"]
        assert servers() == [running]
        assert [path for place in ("home", "tmp") for path in (tmp_path / place).iterdir()] == []
        script = succeed("launch", name, "--print", *words, env=machine, cold=True).out
        subprocess.run(["sh", "-c", script], env=environment(machine), check=True, timeout=60)
        assert as_told(seen(machine)) == as_told(agent)
    server = running.addresses[0].removesuffix("/v1")
    told = script.replace(server, "http://127.0.0.1:PORT").replace(str(tmp_path), "")
    told = "".join(each for each in told.splitlines(True) if "no_proxy" not in each.lower())
    snapshot = Path(__file__).parent / "snapshots" / f"{name}.txt"
    if os.environ.get("LOCALSPEC_UPDATE_SNAPSHOTS"):
        snapshot.write_text(told)
    assert told == snapshot.read_text()


def test_without_a_server_it_prints_the_one_that_it_would_start(machine: dict[str, str]) -> None:
    flags = "--ctx 9000 --draft lookup --exact --temperature 0.5 --gpu-layers auto --no-kv-offload"
    words = ("launch", "aider", "smollm2-135m", "--print", *flags.split())
    first, *_, last = succeed(*words, env=machine).out.splitlines()
    server = shlex.split(first)
    assert server[:2] == ["localspec", "serve"]
    assert server[-3:] == ["--parallel", "2", "--background"]
    assert sorted(server[2:-3]) == sorted(["--model", "smollm2-135m", *flags.split()])
    assert shlex.split(last)[0] == "aider"
    assert "127.0.0.1:8080" in last


def test_what_it_prints_asks_no_more_of_a_model_than_it_can(machine: dict[str, str]) -> None:
    done = succeed("launch", "aider", "smollm2-135m", "--print", env=machine)
    assert done.out.startswith("localspec serve --model smollm2-135m --ctx 8192 ")
    assert "context 8192 is below the 16384 that aider recommends" in done.err
    refused = localspec("launch", "claude", "smollm2-135m", "--print", env=machine)
    assert_one_complaint(refused, 1, "smollm2-135m cannot call tools")
    whole = succeed("launch", "claude", "qwen3-4b", "--print", env=machine).out
    assert " --ctx 32768 " in whole


def test_a_proxy_of_the_user_is_gone_past(machine: dict[str, str]) -> None:
    with server_of_the_user():
        proxied = {"HTTP_PROXY": "http://127.0.0.1:9", "NO_PROXY": "one", "no_proxy": ""}
        env = launched(machine, "codex", FAKE_ASKS="1", **proxied)["env"]
    assert (env["NO_PROXY"], env["no_proxy"]) == ("one,127.0.0.1", "127.0.0.1")


def test_a_server_that_is_not_the_one_that_is_wanted_is_left_alone(machine: dict[str, str]) -> None:
    rows: list[tuple[dict[str, Any], str]] = [
        ({"keyed": True}, ""),
        ({}, "--own"),
        ({}, "smollm2-135m"),
        ({}, "--exact"),
        ({"model": "smollm2-135m"}, "smollm2-135m --draft off"),
    ]
    for about, words in rows:
        with server_of_the_user(**about):
            printed = succeed("launch", "aider", *words.split(), "--print", env=machine).out
        assert printed.startswith("localspec serve ")


def test_a_server_with_too_little_context_is_taken_on_demand(machine: dict[str, str]) -> None:
    with server_of_the_user(n_ctx=4096, model="smollm2-135m"):
        done = localspec("launch", "claude", env=machine)
        assert_one_complaint(done, 1, "4096", "32768", "--ctx 4096", "--own")
        printed = localspec("launch", "claude", "--print", env=machine)
        assert_one_complaint(printed, 1, "4096", "32768", "--ctx 4096", "--own")
        launched(machine, "claude", "smollm2-135m", "--ctx", "4096")


def test_a_server_of_several_models_is_taken_for_each_of_them(machine: dict[str, str]) -> None:
    with server_of_the_user(models={"a-pair": 40960, "smollm2-135m": 32768}):
        for words, model, n_ctx in (
            ((), "a-pair", "40960"),
            (("smollm2-135m",), "smollm2-135m", "32768"),
        ):
            argv = launched(machine, "claude", *words)["argv"]
            told = json.loads(argv[argv.index("--settings") + 1])
            assert (told["model"], told["env"]["CLAUDE_CODE_AUTO_COMPACT_WINDOW"]) == (model, n_ctx)


def test_what_cannot_be_launched_is_one_line(machine: dict[str, str]) -> None:
    for words, code, word in [
        ("clod", 2, "claude"),
        ("claude no-such-model", 3, "no-such-model"),
        ("claude --no-such-flag", 2, "--no-such-flag"),
        ("claude smollm2-135m --ctx x", 2, "--ctx"),
    ]:
        assert_one_complaint(localspec("launch", *words.split(), env=machine), code, word)
    for name, agent in AGENTS.items():
        done = localspec("launch", name, env={**machine, "PATH": "/nowhere"})
        assert_one_complaint(done, 1, agent.install)


def test_a_model_without_tools_is_refused(machine: dict[str, str], smollm2_path: Path) -> None:
    assert smollm2_path.exists()
    done = localspec("launch", "claude", "smollm2-135m", env=machine)
    assert_one_complaint(done, 1, "cannot call tools", "claude")


def test_its_exit_code_is_passed_on(machine: dict[str, str]) -> None:
    with server_of_the_user():
        for env, code in (({"FAKE_CODE": "7"}, 7), ({"FAKE_DIES": "1"}, 128 + signal.SIGKILL)):
            done = localspec("launch", "codex", env={**machine, **env}, cold=True)
            assert (done.code, done.out) == (code, "hello from codex\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_are_the_agents(machine: dict[str, str], number: signal.Signals) -> None:
    env = {**machine, "FAKE_WAITS": "1", "FAKE_CODE": "5"}
    group = ("setsid",) if number is signal.SIGINT else ()
    with server_of_the_user(), Started("launch", "qwen", env=env, shell=group) as process:
        try:
            assert process.stdout.readline() == b"hello from qwen\n"
            if group:  # as a terminal sends it
                os.killpg(os.getpgid(process.pid), number)
            else:
                process.send_signal(number)
            assert process.wait(PATIENCE_S) == 5
        finally:
            process.kill()
    assert seen(machine)["signals"] == [number]


OWN = ("launch", "aider", "smollm2-135m", "--ctx", "512", "--draft", "off", *PLAIN)


@pytest.mark.usefixtures("smollm2_path")
def test_its_own_server_answers_and_ends_with_it(machine: dict[str, str]) -> None:
    env = {**machine, "FAKE_ASKS": "1", "FAKE_CODE": "3"}
    done = localspec(*OWN, env=env, cold=True)
    assert done.code == 3, done.err
    assert "2 x 512 tokens of context, needs RAM: " in done.err
    assert json.loads(seen(machine)["answer"])["choices"][0]["message"]["content"]
    assert list((data_dir() / "servers").iterdir()) == []


@pytest.mark.usefixtures("smollm2_path")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_its_own_server_ends_with_it(machine: dict[str, str], number: signal.Signals) -> None:
    with started(*OWN, env={**machine, "FAKE_WAITS": "1"}) as process:
        assert process.stdout.readline() == b"hello from aider\n"
        (server,) = servers()
        process.send_signal(number)
        assert until(lambda: runs(server.pid) is None)
        process.wait(PATIENCE_S)
    if number is signal.SIGKILL:  # the fake one waits for a signal
        os.kill(seen(machine)["pid"], number)


@pytest.mark.usefixtures("smollm2_path")
def test_a_server_that_dies_is_told(machine: dict[str, str]) -> None:
    with started(*OWN, env={**machine, "FAKE_WAITS": "1"}) as process:
        assert process.stdout.readline() == b"hello from aider\n"
        (server,) = servers()
        os.kill(server.pid, signal.SIGKILL)
        time.sleep(0.5)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
        assert b"the server ended early" in process.stderr.read()
