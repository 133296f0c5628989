"""`localspec serve` on real weights, over a real port: the texts of run, conversations, workers, and servers that others can find."""

import asyncio
import json
import os
import re
import signal
import socket
import stat
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

from localspec.cli.main import localspec as cli
from localspec.engine.running import Running, announced, directory, runs, servers
from localspec.errors import UsageError
from localspec.plugins.serve import command as serve
from localspec.plugins.serve import servers as commands
from localspec.plugins.serve.servers import listening
from tests.cli.command import PLAIN, Done, Started, answer, assert_one_complaint, localspec, started
from tests.plugins.serve.serving import CHAT, user
from tests.plugins.workers.workers import free_address, working
from tests.waiting import PATIENCE_S, until

pytestmark = pytest.mark.slow

LONG = (
    f"Sum this up in a few words: {'the river rises in the hills, and runs down to the sea. ' * 14}"
)
REPEAT = "Repeat: pear, fig, plum, pear, fig, plum, pear."
QUESTIONS = ("Name a river.", "Why is the sky blue?", REPEAT, LONG, f"{LONG}Why?")
_LIMIT = 16


def url_of(process: Started) -> str:
    text = ""
    for line in process.stderr:
        text += line.decode()
        if match := re.search(r"http://127\.0\.0\.1:\d+", text):
            return match[0]
    raise AssertionError(text)


@contextmanager
def serving(
    *words: str, env: Mapping[str, str] | None = None, where: Sequence[str] = PLAIN
) -> Iterator[httpx.Client]:
    with started("serve", *words, "--port", "0", *where, env=env) as process:
        with httpx.Client(base_url=url_of(process), timeout=600) as client:
            yield client
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0


def test_one_that_stops_with_stdin_takes_any_stdin_and_needs_one() -> None:
    words = ("serve", "smollm2-135m", "--port", "0", "--until-stdin-ends", "--ctx", "512")
    with started(*words, *PLAIN) as process:
        assert process.wait(PATIENCE_S) == 0, "/dev/null has ended"
    closed = localspec(*words, *PLAIN, shell=("sh", "-c", 'exec "$@" <&-', "sh"))
    assert closed.code == 0, closed.err
    assert_one_complaint(localspec(*words, "--background"), 2, "there is no stdin")


def by_run(model: str, question: str, temperature: float, seed: int) -> str:
    done = answer(
        *("--json", "--exact", "--draft", "off", "--ctx", "1024", "-n", str(_LIMIT)),
        *("--temperature", str(temperature), "--seed", str(seed), "--target", model, question),
    )
    text: str = json.loads(done.out)["text"]
    return text


def test_answers_are_those_of_run_alone_and_beside_four_others(six_layers_path: Path) -> None:
    model = str(six_layers_path)
    asked = {question: (0.8 * (number % 2), number) for number, question in enumerate(QUESTIONS)}
    wanted = {question: by_run(model, question, *how) for question, how in asked.items()}
    assert len({*wanted.values()}) > 2, "they say something"
    models = (model, "--draft-model", model, "--exact", "--parallel", "5", "--keep-alive", "2s")
    with serving(*models, "--ctx", "1024") as client:

        def ask(question: str, **own: Any) -> str:
            temperature, seed = asked[question]
            how = {"temperature": temperature, "seed": seed, "max_completion_tokens": _LIMIT}
            body = {"messages": [user(question)], **how, "localspec": own}
            content: str = client.post(CHAT, json=body).json()["choices"][0]["message"]["content"]
            return content

        assert ask(QUESTIONS[0]) == wanted[QUESTIONS[0]]
        assert ask(LONG, draft="off") == wanted[LONG]
        for own in ({}, {"draft": "off"}, {"draft": "lookup"}):
            with ThreadPoolExecutor(len(QUESTIONS)) as threads:
                texts = threads.map(partial(ask, **own), QUESTIONS)
                assert dict(zip(QUESTIONS, texts, strict=True)) == wanted, own
        metrics = client.get("/metrics").text
        assert re.search(r'localspec_tokens_total\{kind="completion"\} [1-9]', metrics)
        assert until(lambda: client.get("/health").json()["status"] == "unloaded")
        assert ask(QUESTIONS[0]) == wanted[QUESTIONS[0]], "it is loaded again"


@pytest.mark.parametrize(
    ("words", "word"),
    [
        (("--cors", "*"), "name each origin"),
        (("--host", "0.0.0.0"), "--api-key-file"),
        (("--api-key-file", "empty.txt"), "has no keys"),
        (("--port", "TAKEN"), "give another --port"),
        (("--keep-alive", "soon"), "soon"),
        (("--max-wait", "nan"), "--max-wait"),
        (("--host", "no.such.host.invalid", "--api-key-file", "keys.txt"), "no.such.host.invalid"),
        (("--gate", "none.toml"), "none.toml"),
        (("--api-key-file", "gated.txt"), "none.toml"),
        (("--api-key-file", "short.txt"), "line 2"),
    ],
)
def test_what_it_cannot_start_with_is_one_line(
    bare_machine: dict[str, str], tmp_path: Path, words: tuple[str, ...], word: str
) -> None:
    gated = "sesame-open-thyself gate=usual\nopen-sesame-open-now gate=none.toml\n"
    files = {"empty": "\n", "keys": "sesame-open-thyself\n", "short": "# ours\nann sesame\n"}
    for name, text in {**files, "gated": gated}.items():
        (tmp_path / f"{name}.txt").write_text(text)
        (tmp_path / f"{name}.txt").chmod(0o600)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        given = [port if each == "TAKEN" else each for each in words]
        done = localspec("serve", *given, env=bare_machine, cwd=tmp_path)
    assert_one_complaint(done, 2, word)
    assert "sesame" not in done.err


def test_what_keeps_it_from_starting_is_one_line(bare_machine: dict[str, str]) -> None:
    words = ("--port", "0", "--offline")
    alone = localspec("serve", "smollm2-135m", *words, env=bare_machine)
    for done in (alone, background(*words, env=bare_machine)):
        assert (done.code, done.out) == (3, "")
        assert done.err.startswith("localspec: ")
        assert "Traceback" not in done.err
    for models in ("nope", "smollm2-135m,nope"):
        assert_one_complaint(localspec("serve", "--models", models, env=bare_machine), 3, "nope")
    listed = localspec("ps", env=bare_machine)
    assert (listed.code, listed.out) == (0, "")
    assert "no server is running" in listed.err
    done = localspec("stop", env=bare_machine)
    assert (done.code, done.err) == (1, "localspec: no server is running\n")
    done = localspec("stop", "smollm2-135m", env=bare_machine)
    assert_one_complaint(done, 1, "localspec ps")


def test_a_server_is_stopped_by_model_process_and_port(monkeypatch: pytest.MonkeyPatch) -> None:
    running = [
        Running(10 + n, f"m{n}", (f"http://127.0.0.1:808{n}/v1", f"/run/{n}.sock"), 0)
        for n in range(3)
    ]
    stopped: list[Running] = []
    monkeypatch.setattr(commands, "servers", lambda: running)
    monkeypatch.setattr(commands, "_stop", stopped.append)
    for name in ("m1", "11", "8081"):
        assert CliRunner().invoke(commands.stop, [name]).exit_code == 0
    assert stopped == [running[1]] * 3
    for name in ("808", "8083", "m", "/run/1.sock"):
        assert CliRunner().invoke(commands.stop, [name]).exit_code == 1
    assert len(stopped) == 3


def evaluated(client: httpx.Client, talk: list[dict[str, str]]) -> int:
    """Take a turn in a conversation; return how many tokens of its prompt were evaluated."""
    body: dict[str, Any] = {"messages": talk, "max_tokens": 12, "temperature": 0.8, "seed": 1}
    answer = client.post(CHAT, json=body).json()
    talk.append({"role": "assistant", "content": answer["choices"][0]["message"]["content"]})
    talk.append(user("And then?"))
    cached: int = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
    return int(answer["usage"]["prompt_tokens"]) - cached


def test_conversations_in_turns_evaluate_what_is_new_also_after_a_restart(
    six_layers_path: Path, tmp_path: Path
) -> None:
    about = "You are guide number {} of a museum of clocks. Answer in one sentence. "
    systems = [{"role": "system", "content": about.format(number) * 16} for number in "123"]
    talks = [[system, user("What is the oldest?")] for system in systems]
    words = (str(six_layers_path), "--draft", "off", "--parallel", "2", "--ctx", "1024")
    env = {"LOCALSPEC_DATA_DIR": str(tmp_path)}
    with serving(*words, env=env) as client:
        assert min(evaluated(client, talk) for talk in talks) > 200
        # There are two sequences for three conversations: what one loses is on the disk, but for what is read at once.
        assert max(evaluated(client, talk) for talk in talks) < 88
        assert "localspec_pass_tokens_count" in client.get("/metrics").text
    with serving(*words[:-3], "3", *words[-2:], env=env) as client:  # also with another --parallel
        assert max(evaluated(client, talk) for talk in reversed(talks)) < 88
    with serving(*words, "--forget", env={"LOCALSPEC_DATA_DIR": f"{tmp_path}/empty"}) as client:
        assert evaluated(client, talks[0]) > 200
    assert not (tmp_path / "empty" / "reads").exists()


@pytest.mark.usefixtures("smollm2_path")
def test_a_server_names_the_worker_that_died_and_answers_when_it_is_back() -> None:
    address, body = free_address(), {"messages": [user("Tell a long story about a river.")]}
    words = ("smollm2-135m", "--draft", "off", "--ctx", "512", "--parallel", "1")
    there = ("--threads", "1", "--workers", address)
    with working(at=address) as worker, serving(*words, where=there) as client:
        told = list[str]()
        with client.stream("POST", CHAT, json={**body, "stream": True}) as answer:
            for line in answer.iter_lines():
                if '"content"' in line:  # at the first text
                    worker.kill()
                told += [line.removeprefix("data: ")] * ("{" in line)
        assert any(json.loads(each).get("choices") for each in told)
        assert f"worker {address} is gone" in told[-1]
        refused = client.post(CHAT, json=body)
        assert refused.status_code >= 500
        assert f"worker {address}" in refused.text
        with working(at=address):
            assert until(lambda: client.post(CHAT, json={**body, "max_tokens": 4}).is_success)


ME = Running(os.getpid(), "a-pair", ("http://127.0.0.1:8080/v1",), 7)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path))
    return directory()


def refuse(*_: object) -> None:
    raise OSError(24, "Too many open files")


def test_a_server_is_seen_while_it_runs(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with announced(ME):
        assert servers() == [ME]
        assert runs(ME.pid) == ME
        assert stat.S_IMODE((place / f"{ME.pid}.json").stat().st_mode) == 0o600
        heading, row = CliRunner().invoke(cli, ["ps"], standalone_mode=False).stdout.splitlines()
        assert heading.split() == ["PID", "SINCE", "MODEL", "ADDRESS"]
        assert row.split()[0] == str(ME.pid)
        for column, text in (("MODEL", ME.model), ("ADDRESS", ME.addresses[0])):
            assert row[heading.index(column) :].startswith(text)
        with monkeypatch.context() as broken:  # a file that cannot be read now stays
            broken.setattr(Path, "open", refuse)
            assert servers() == []
            assert runs(ME.pid) is None
        assert servers() == [ME]
    assert servers() == []
    assert list(place.iterdir()) == []
    for text in ["", "{", "[]", '{"pid": 1}', json.dumps({"pid": 1, "more": 2})]:
        # The process is there: it is another one, which has got the number since.
        (place / f"{os.getpid()}.json").write_text(text)
        assert runs(os.getpid()) is None
        assert servers() == []
        assert list(place.iterdir()) == []
    odd = Running(os.getpid(), "a-pair", ("/tmp/\udcff.sock",), 7)
    with announced(odd):
        assert servers() == [odd]


def test_a_socket_is_of_one_user_and_goes_with_the_server(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with listening(None, None, str(path)) as listeners:
        assert [each.family for each in listeners] == [socket.AF_UNIX]
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with pytest.raises(UsageError, match="give another path"), listening(None, 0, str(path)):
            pass
        assert path.exists()
    assert not path.exists()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with listening(None, 0, str(path)) as listeners:
        assert [each.family for each in listeners] == [socket.AF_INET, socket.AF_UNIX]
    path.write_text("mine")
    for wrong in (path, tmp_path / ("x" * 300)):
        with pytest.raises(UsageError, match="give another"), listening(None, None, str(wrong)):
            pass
    assert path.read_text() == "mine", "a file is no socket"


def background(*words: str, env: dict[str, str] | None = None) -> Done:
    return localspec("serve", "smollm2-135m", *words, "--background", *PLAIN, env=env, cold=True)


def test_a_server_in_the_background_is_listed_asked_and_stopped(
    smollm2_path: Path, tmp_path: Path
) -> None:
    assert smollm2_path.exists()
    path = tmp_path / "socket"
    done = background("--draft", "off", "--ctx", "512", "--parallel", "1", "--socket", str(path))
    assert done.code == 0, done.err
    found = re.search(r"`localspec stop (\d+)`", done.err)
    assert found is not None, done.err
    try:
        listed = [line for line in localspec("ps").out.splitlines() if line.split()[0] == found[1]]
        assert [(str(path) in each, "smollm2-135m" in each) for each in listed] == [(True, True)]
        transport = httpx.HTTPTransport(uds=str(path))
        with httpx.Client(transport=transport, base_url="http://localhost", timeout=60) as client:
            answer = client.post(CHAT, json={"messages": [user("hello")], "max_tokens": 4})
        assert answer.status_code == 200
        assert answer.json()["usage"]["completion_tokens"] == 4
    finally:
        stopped = localspec("stop", found[1])
    assert stopped.code == 0, stopped.err
    assert not path.exists()
    assert runs(int(found[1])) is None


def test_a_quiet_start_in_the_background_prints_nothing(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    there = SimpleNamespace(addresses=("here",), model="toy")
    process = SimpleNamespace(pid=7)
    monkeypatch.setattr(commands, "start_server", lambda *_: (process, Path("log")))
    monkeypatch.setattr(commands, "await_server", lambda *_: there)
    commands.start_in_background([])
    assert capfd.readouterr().err.startswith("localspec: serving toy at here; ")
    commands.start_in_background([], quiet=True)
    assert capfd.readouterr().err == ""


def server_of(process: Started) -> Running:
    assert until(lambda: runs(process.pid) is not None)
    running = runs(process.pid)
    assert running is not None
    return running


@pytest.fixture
def first_load(smollm2_path: Path) -> Iterator[tuple[Started, Running, int]]:
    """A server whose engine is stopped while it loads the first model, and that engine's process."""
    assert smollm2_path.exists()
    words = ("smollm2-135m", "--draft", "off", "--ctx", "512", "--parallel", "1", "--port", "0")
    with started("serve", *words, *PLAIN) as process:
        running = server_of(process)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        assert until(lambda: bool(children.read_text()))
        engine = int(children.read_text().split()[0])
        # Before its program is replaced it is a vfork: whoever stops it stops the server with it.
        line = Path(f"/proc/{engine}/cmdline")
        assert until(lambda: b"localspec.launch.child" in line.read_bytes())
        os.kill(engine, signal.SIGSTOP)
        try:
            yield process, running, engine
        finally:
            with suppress(ProcessLookupError):
                os.kill(engine, signal.SIGCONT)


def test_a_server_that_loads_says_so_and_requests_wait(
    first_load: tuple[Started, Running, int],
) -> None:
    process, running, engine = first_load
    url = running.addresses[0].removesuffix("/v1")
    health = httpx.get(f"{url}/health", timeout=PATIENCE_S)
    assert (health.status_code, health.json()["status"]) == (200, "loading")
    listed = httpx.get(f"{url}/v1/models", timeout=PATIENCE_S).json()["data"]
    states = {each["id"]: each["status"]["value"] for each in listed}
    assert states["smollm2-135m"] == "loading"
    assert (running.loading, running.n_ctx) == (True, 0)
    assert "smollm2-135m (loading)" in localspec("ps").out
    body = {"messages": [user("Name a river.")], "max_tokens": 4}
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(httpx.post, f"{url}{CHAT}", json=body, timeout=PATIENCE_S)
        assert until(lambda: httpx.get(f"{url}/health").json()["under_way"] == 1)
        os.kill(engine, signal.SIGCONT)
        assert asked.result().status_code == 200
    assert httpx.get(f"{url}/health").json()["status"] == "ok"
    loaded = server_of(process)
    assert (loaded.loading, loaded.n_ctx, loaded.since) == (False, 512, running.since)


def test_a_server_that_loads_is_stopped_and_who_waits_is_told(
    first_load: tuple[Started, Running, int],
) -> None:
    process, running, engine = first_load
    url = running.addresses[0].removesuffix("/v1")
    body = {"messages": [user("Name a river.")], "max_tokens": 4}
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(httpx.post, f"{url}{CHAT}", json=body, timeout=PATIENCE_S)
        assert until(lambda: httpx.get(f"{url}/health").json()["under_way"] == 1)
        os.kill(engine, signal.SIGCONT)
        stopped = localspec("stop", str(running.pid))
        assert asked.result().status_code in {200, 503}, "it may be there just before"
    assert stopped.code == 0, stopped.err
    assert process.wait(PATIENCE_S) == 0
    assert runs(running.pid) is None


def test_a_model_that_cannot_be_loaded_ends_the_server_with_one_line(tmp_path: Path) -> None:
    (tmp_path / "text.gguf").write_text("no model")
    words = ("serve", "--target", str(tmp_path / "text.gguf"), "--port", "0", *PLAIN)
    assert_one_complaint(localspec(*words), 1, "is not a GGUF file")


def test_who_waits_for_a_server_that_stops_gets_an_error_of_its_interface(
    six_layers_path: Path,
) -> None:
    asked = {"messages": [user("Count from one to nine thousand, in words.")], "max_tokens": 4000}
    options = ("--target", str(six_layers_path), "--draft", "off", "--port", "0", *PLAIN)
    with started("serve", *options) as process, ThreadPoolExecutor(3) as threads:
        url = url_of(process)

        def ask(path: str, **more: Any) -> httpx.Response:
            return httpx.post(f"{url}{path}", json={**asked, **more}, timeout=PATIENCE_S)

        paths = ((CHAT, False), (CHAT, True), ("/v1/messages", False))
        answers = [threads.submit(ask, path, stream=stream) for path, stream in paths]
        running = lambda: "localspec_requests_running 3" in httpx.get(f"{url}/metrics").text  # noqa: E731
        assert until(running)
        process.send_signal(signal.SIGTERM)
        whole, stream, message = (each.result() for each in answers)
        assert process.wait(PATIENCE_S) == 0
        assert b"stopped with 3 answers under way" in process.stderr.read()
    assert [whole.status_code, stream.status_code, message.status_code] == [503, 200, 503]
    assert all("the server stops" in each.text for each in (whole, stream, message))
    assert "error" in whole.json()
    assert message.json()["type"] == "error"


def test_engines_save_although_the_server_is_interrupted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = []

    async def save() -> None:
        await asyncio.sleep(0.1)
        saved.append("state")

    async def server() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await serve.to_the_end(save())

    monkeypatch.setattr(serve, "_SILENT_S", 0.01)
    asyncio.run(server())
    assert saved == ["state"]
    assert "saving" in capsys.readouterr().err
