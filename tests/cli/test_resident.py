"""`run`, `chat` and `batch` beside a server that has the model in memory: the same answers, and no load of their own."""

import json
import os
import re
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from localspec.engine.running import Running, announced, engine_socket
from tests.cli.command import PLAIN, Done, assert_one_complaint, localspec, started, succeed
from tests.support.machines import with_what_is_known
from tests.waiting import PATIENCE_S, until

Function = Callable[..., None]
SHARED = {"LOCALSPEC_OWN": "off"}
PLACE = "LOCALSPEC_DATA_DIR"
MODEL = ("-m", "smollm2-135m", "--draft", "off", "--ctx", "700")
BY_SERVER = "answered by your server, process"
STORY = ("--temperature", "0", "-n", "400", "Tell a long story about a river.")
SCHEMA = '{"type": "object", "properties": {"name": {"enum": ["a", "b"]}}}'
HELLO = ("-n", "2", "--temperature", "0", "Hello")


def real(test: Function) -> Function:
    """Mark a test that needs SmolLM2."""
    return pytest.mark.slow(pytest.mark.usefixtures("smollm2_path")(test))


@pytest.fixture(scope="module", autouse=True)
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A data directory that is new but for downloads and what was measured: no other test's server is seen in it."""
    own = with_what_is_known(tmp_path_factory.mktemp("data"), "blobs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(PLACE, str(own))
        yield


@contextmanager
def serving(*words: str) -> Iterator[subprocess.Popen[bytes]]:
    """Serve SmolLM2, and wait until other programs can see it."""
    flags = (*MODEL, "--port", "0", "--parallel", "2", *words, *PLAIN)
    with started("serve", *flags) as process:
        assert any(b"serving" in line for line in process.stderr), "it ended"
        listed = re.compile(rf"^ *{process.pid} ", re.MULTILINE)
        assert until(lambda: listed.search(localspec("ps").out)), "it is not listed"
        yield process
        process.send_signal(signal.SIGINT)
        process.wait(PATIENCE_S)


@pytest.fixture(scope="module")
def exact_server(smollm2_path: object) -> Iterator[int]:
    with serving("--exact") as process:
        yield process.pid


def run(*words: str, env: dict[str, str] | None = None) -> Done:
    return localspec("run", *MODEL, *PLAIN, *words, env={**SHARED, **(env or {})})


def without_figures(text: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(text)
    document["usage"].pop("cached_tokens", None)
    assert set(document.pop("timings")) >= {"load_s", "first_token_s", "decode_s"}
    return document


@real
@pytest.mark.parametrize(
    "words",
    [
        ("--temperature", "0", "--system", "Be brief.", "Why is the sky blue?"),
        ("--json-schema", SCHEMA, "A name?"),
    ],
)
def test_the_same_answer_without_a_server(exact_server: int, words: tuple[str, ...]) -> None:
    flags = ("--exact", "--json", "--seed", "7", "-n", "24", *words)
    alone = run("--own", *flags)
    for _ in range(2):  # the second time the server knows the prompt
        beside = run(*flags)
        assert (alone.code, beside.code) == (0, 0), beside.err
        assert BY_SERVER not in alone.err
        assert f"{BY_SERVER} {exact_server};" in beside.err
        assert without_figures(beside.out) == without_figures(alone.out)
        assert json.loads(beside.out)["timings"]["load_s"] == 0


@real
def test_a_model_that_the_server_does_not_have_is_loaded_without_a_word(exact_server: int) -> None:
    for words in (("--ctx", "701", "--exact"), (), ("--exact", "--workload", "chat")):
        done = run(*words, *HELLO)
        assert done.code == 0
        assert BY_SERVER not in done.err
    refused = run("--exact", "x " * 2000)
    note, complaint = refused.err.splitlines()
    assert (refused.code, refused.out) == (1, "")
    assert BY_SERVER in note
    assert "raise --ctx" in complaint


@real
def test_a_batch_and_a_chat_are_answered_by_it(exact_server: int, tmp_path: Path) -> None:
    lines = [{"prompt": f"Count from {n} to {n + 3}."} for n in range(5)]
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps(each) + "\n" for each in lines))
    flags = (*MODEL, "--exact", "-n", "8", *PLAIN)
    batch = ("batch", str(source), "--seed", "3", "--parallel", "3", *flags)
    chat = ("chat", "--temperature", "0", "--plain", *flags)
    questions = b"Name a river.\nAnd another one?\n"
    for words, stdin in ((batch, b""), (chat, questions)):
        texts: list[Any] = []
        for own in ("off", "on"):
            done = succeed(*words, stdin=stdin, env={"LOCALSPEC_OWN": own})
            assert (BY_SERVER in done.err) is (own == "off")
            texts.append(done.out)
        if words is batch:
            records = [[json.loads(line) for line in text.splitlines()] for text in texts]
            texts = [[(r["line"], r["text"], r["receipt"]) for r in each] for each in records]
        assert texts[0] == texts[1]


@real
def test_a_server_that_dies_in_mid_answer_is_one_line_and_then_this_process_loads() -> None:
    with serving() as server:
        with started("run", *MODEL, *PLAIN, *STORY, env=SHARED) as process:
            assert process.stdout.read(8)
            server.kill()
            assert process.wait(PATIENCE_S) == 1
            first, last = process.stderr.read().decode().splitlines()
            assert BY_SERVER in first
            assert "in the middle of the answer" in last
        assert engine_socket(server.pid).exists()
        done = run(*HELLO)
        assert done.code == 0
        assert BY_SERVER not in done.err
        assert not engine_socket(server.pid).exists()


@real
def test_ctrl_c_keeps_the_text_so_far_and_ends_it_at_the_server() -> None:
    with serving():
        with started("run", *MODEL, *PLAIN, *STORY, env=SHARED) as process:
            begun = process.stdout.read(8)
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE_S) == 130
            assert len(begun) == 8
            assert " · interrupted · seed " in process.stderr.read().decode()
        done = run(*HELLO)
        assert (done.code, BY_SERVER in done.err) == (0, True)


def test_a_silent_server(bare_machine: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PLACE, bare_machine[PLACE])
    path = engine_socket(os.getpid())
    running = Running(os.getpid(), "smollm2-135m", (), 7, engine=str(path))
    with announced(running), socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        assert_one_complaint(run("--offline", "Hello", env=bare_machine), 3)  # refused
        listener.listen()
        assert_one_complaint(run("--offline", "Hello", env=bare_machine), 3)  # silent
