"""`run`, `chat` and `batch` beside a server that has the model in memory: the same answers, and no load of their own."""

import json
import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from localspec.engine.running import Running, announced, engine_socket
from localspec.storage.paths import data_dir
from tests.cli.command import PLAIN, Done, assert_one_complaint, localspec, started
from tests.waiting import PATIENCE_S, until

SHARED = {"LOCALSPEC_OWN": "off"}
PLACE = "LOCALSPEC_DATA_DIR"
MODEL = ("-m", "smollm2-135m", "--draft", "off", "--ctx", "700")
BY_SERVER = "answered by your server, process"
STORY = ("--temperature", "0", "-n", "400", "Tell a long story about a river.")


@pytest.fixture(scope="module", autouse=True)
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A data directory that is new but for what was downloaded: no other test's server is seen in it."""
    usual, own = data_dir(), tmp_path_factory.mktemp("data")
    (usual / "blobs").mkdir(parents=True, exist_ok=True)
    (own / "blobs").symlink_to(usual / "blobs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(PLACE, str(own))
        yield


@contextmanager
def serving(*words: str) -> Iterator[subprocess.Popen[bytes]]:
    """Serve SmolLM2, and wait until other programs can see it."""
    flags = (*MODEL, "--port", "0", "--parallel", "2", *words, *PLAIN)
    with started("serve", *flags) as process:
        assert process.stderr is not None
        told = b""
        for line in process.stderr:
            told += line
            if b"serving" in line:
                break
        else:
            raise AssertionError(told)
        listed = re.compile(rf"^ *{process.pid} ", re.MULTILINE)
        assert until(lambda: listed.search(localspec("ps").out)), "it is not listed"
        yield process
        process.send_signal(signal.SIGINT)
        process.wait(PATIENCE_S)


@pytest.fixture(scope="module")
def exact_server(smollm2_path: object) -> Iterator[int]:
    with serving("--exact") as process:
        yield process.pid


def run(*words: str, env: dict[str, str] | None = None, stdin: bytes = b"") -> Done:
    return localspec("run", *MODEL, *PLAIN, *words, env={**SHARED, **(env or {})}, stdin=stdin)


def figures_left_out(text: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(text)
    document["usage"].pop("cached_tokens", None)
    assert set(document.pop("timings")) >= {"load_s", "first_token_s", "decode_s"}
    return document


@pytest.mark.slow
@pytest.mark.weights
@pytest.mark.parametrize(
    "words",
    [
        ("Name a river.",),
        ("--temperature", "0", "--system", "Be brief.", "Why is the sky blue?"),
        ("--raw", "Once upon a time"),
        (
            "--json-schema",
            '{"type": "object", "properties": {"name": {"enum": ["a", "b"]}}}',
            "A name?",
        ),
        ("--stop", "a", "Count to five."),
    ],
)
def test_the_same_is_answered_as_without_a_server(
    exact_server: int, words: tuple[str, ...]
) -> None:
    asked = ("--exact", "--json", "--seed", "7", "-n", "24", *words)
    alone = run("--own", *asked)
    for _ in range(2):  # the second time the server knows the prompt
        beside = run(*asked)
        assert (alone.code, beside.code) == (0, 0), beside.err
        assert BY_SERVER not in alone.err
        assert f"{BY_SERVER} {exact_server};" in beside.err
        assert figures_left_out(beside.out) == figures_left_out(alone.out)
        assert json.loads(beside.out)["timings"]["load_s"] == 0


@pytest.mark.slow
@pytest.mark.weights
def test_what_the_server_has_not_is_loaded_without_a_word(exact_server: int) -> None:
    for words in (("--ctx", "701", "--exact"), (), ("--exact", "--workload", "chat")):
        done = run(*words, "-n", "2", "--temperature", "0", "Hello")
        assert done.code == 0
        assert BY_SERVER not in done.err
    refused = run("--exact", "x " * 2000)
    assert_one_complaint_after_note(refused, "raise --ctx")


def assert_one_complaint_after_note(done: Done, told: str) -> None:
    note, complaint = done.err.splitlines()
    assert BY_SERVER in note
    assert done.code == 1
    assert told in complaint
    assert done.out == ""


@pytest.mark.slow
@pytest.mark.weights
def test_a_batch_and_a_chat_are_answered_by_it(exact_server: int, tmp_path: Path) -> None:
    lines = [{"prompt": f"Count from {n} to {n + 3}."} for n in range(5)]
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps(each) + "\n" for each in lines))
    found = []
    for own in ("off", "on"):
        words = ("batch", str(source), *MODEL, "--exact", "--seed", "3", "-n", "8", *PLAIN)
        done = localspec(*words, "--parallel", "3", env={"LOCALSPEC_OWN": own})
        assert done.code == 0, done.err
        assert (BY_SERVER in done.err) is (own == "off")
        records = [json.loads(line) for line in done.out.splitlines()]
        found.append([(each["line"], each["text"], each["receipt"]) for each in records])
    assert found[0] == found[1]
    for own in ("off", "on"):
        words = ("chat", *MODEL, "--exact", "--temperature", "0", "-n", "8", "--plain", *PLAIN)
        env = {"LOCALSPEC_OWN": own}
        done = localspec(*words, stdin=b"Name a river.\nAnd another one?\n", env=env)
        assert done.code == 0, done.err
        assert (BY_SERVER in done.err) is (own == "off")
        found.append([(0, done.out, None)])
    assert found[2] == found[3]


@pytest.mark.slow
@pytest.mark.weights
def test_a_server_that_dies_in_mid_answer_is_one_line_and_then_one_loads_oneself(
    smollm2_path: Path,
) -> None:
    assert smollm2_path.exists()
    with serving() as server:
        with started("run", *MODEL, *PLAIN, *STORY, env=SHARED) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.stdout.read(8)
            server.kill()
            assert process.wait(PATIENCE_S) == 1
            told = process.stderr.read().decode().splitlines()
            assert BY_SERVER in told[0]
            assert "in the middle of the answer" in told[-1]
            assert len(told) == 2
        assert engine_socket(server.pid).exists()
        done = run("-n", "2", "--temperature", "0", "Hello")
        assert done.code == 0
        assert BY_SERVER not in done.err
        assert not engine_socket(server.pid).exists()


@pytest.mark.slow
@pytest.mark.weights
def test_ctrl_c_keeps_what_there_is_and_ends_it_at_the_server(smollm2_path: Path) -> None:
    assert smollm2_path.exists()
    with serving():
        with started("run", *MODEL, *PLAIN, *STORY, env=SHARED) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            begun = process.stdout.read(8)
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE_S) == 130
            assert len(begun) == 8
            assert " · interrupted · seed " in process.stderr.read().decode()
        done = run("-n", "2", "--temperature", "0", "Hello")
        assert (done.code, BY_SERVER in done.err) == (0, True)


def test_a_server_that_does_not_answer_is_left_alone(
    bare_machine: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PLACE, bare_machine[PLACE])
    path = engine_socket(os.getpid())
    running = Running(os.getpid(), "smollm2-135m", (), 7, engine=str(path))
    with announced(running), socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        done = run("--offline", "Hello", env=bare_machine)  # nobody listens
        assert_one_complaint(done, 3)
        listener.listen()
        done = run("--offline", "Hello", env=bare_machine)  # somebody does, and says nothing
        assert_one_complaint(done, 3)
