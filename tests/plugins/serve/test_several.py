"""Several models in one server: each answers by itself, and what happens to one happens to no other."""

import asyncio
import json
import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from localspec.chat.events import Finished
from localspec.chat.request import Request
from localspec.engine.protocol import Load
from localspec.engine.remote_engine import RemoteEngine
from localspec.errors import ModelLoadError
from localspec.messages import Message
from localspec.options import LaunchOptions, LoadOptions
from localspec.plugins.serve import openai
from localspec.plugins.serve.backend import Backend
from localspec.plugins.serve.http import Guard
from localspec.plugins.serve.model_pool import ModelPool, ServedModel
from tests.cli.command import PLAIN, localspec, started, succeed
from tests.llama.tiny_models import write_llama
from tests.plugins.serve.serving import CHAT, GREEDY, Served, served, user
from tests.plugins.serve.test_process import serving, url_of
from tests.support.machines import with_what_is_known
from tests.waiting import PATIENCE_S, until

pytestmark = pytest.mark.slow

STORY = "x" * 300
HELLO: dict[str, Any] = {"otherwise": ["Hello."]}
SLOW = {"otherwise": [STORY], "pass_s": 0.01}


def content(server: Served, model: str) -> str:
    text: str = server.chat("hello", model=model).json()["choices"][0]["message"]["content"]
    return text


def test_each_answers_by_itself_and_its_state_and_figures_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripts = {"a-pair": HELLO, "second": {"otherwise": ["Good day."]}}
    with served({}, scripts=scripts, started=("second",), others=("third",)) as server:
        assert server.states() == {"a-pair": "loaded", "second": "loaded", "third": "unloaded"}
        with ThreadPoolExecutor(8) as threads:
            texts = threads.map(partial(content, server), ("", "a-pair", "second", "second") * 2)
            assert [*texts] == ["Hello.", "Hello.", "Good day.", "Good day."] * 2
        second = server.client.get("/v1/models/second").json()
        assert (second["status"], second["meta"]) == ({"value": "loaded"}, {"n_ctx": 4000})
        # The file of one that is not loaded is read where it alone is asked for.
        monkeypatch.setattr(openai, "file_of", lambda _: write_llama(tmp_path / "third.gguf"))
        *_, third = server.client.get("/v1/models").json()["data"]
        assert "meta" not in third
        third = server.client.get("/v1/models/third").json()
        assert [*third["meta"]] == ["vocabulary"]
        (tmp_path / "third.gguf").write_bytes(b"GGUF")
        monkeypatch.setattr(openai, "file_of", lambda _: tmp_path / "third.gguf")
        damaged = server.client.get("/v1/models/third").json()
        assert (damaged["id"], "meta" in damaged) == ("third", False)
        health = server.client.get("/health").json()
        assert (health["status"], health["model"]) == ("ok", "a-pair")
        figures = {"status": "loaded", "running": 0, "waiting": 0}
        assert health["models"] == {"a-pair": figures, "second": figures}
        text = server.client.get("/metrics").text
        for name in ("a-pair", "second"):
            assert f'localspec_requests_total{{model="{name}",outcome="eog"}} 4.0' in text
            assert f'localspec_requests_running{{model="{name}"}} 0.0' in text
            assert f'localspec_first_token_seconds_count{{model="{name}"}} 4.0' in text
            assert f'localspec_model_loaded{{model="{name}"}} 1.0' in text


def test_an_engine_that_is_killed_ends_its_own_answers_alone_and_comes_back_if_it_may() -> None:
    with served(SLOW, started=("second",)) as server, ThreadPoolExecutor(2) as threads:
        engine = server.engine("second")

        def kill_while_both_answer() -> None:
            models = ("second", "")
            lost, other = (threads.submit(server.chat, "hello", model=each) for each in models)
            assert until(lambda: server.client.get("/health").json()["running"] == 2)
            assert engine.pid is not None
            os.kill(engine.pid, signal.SIGKILL)
            assert (lost.result().status_code, "SIGKILL" in lost.result().text) == (503, True)
            assert other.result().json()["choices"][0]["message"]["content"] == STORY

        kill_while_both_answer()
        assert content(server, "second") == STORY, "it was started again"
        engine._revives = False
        kill_while_both_answer()
        assert until(lambda: engine.lost)
        health = server.client.get("/health")
        assert (health.status_code, health.json()["status"]) == (200, "ok")
        assert "SIGKILL" in health.json()["models"]["second"]["reason"]
        status = server.client.get("/v1/models/second").json()["status"]
        assert status == {"value": "unloaded", "failed": True}


@pytest.mark.parametrize(
    ("fault", "code", "word"),
    [
        ({"too_large": {"other": ["ModelLoadError", "it needs 9 GB and RAM has 1 GB"]}}, 400, "9 GB"),
        ({"refuses": {"other": ["ModelFileError", "it is no GGUF"]}}, 400, "no GGUF"),
        ({"deadly": "other"}, 503, "SIGKILL"),
    ],
    ids=["does not fit", "is damaged", "dies of it"],
)  # fmt: skip
def test_a_load_that_fails_is_one_line_and_costs_nothing(
    fault: dict[str, Any], code: int, word: str
) -> None:
    with served(HELLO, scripts={"other": HELLO | fault}, others=("other",)) as server:
        pid = server.engine("a-pair").pid
        server.refuse(CHAT, word, code, messages=[user("hello")], model="other")
        assert server.states() == {"a-pair": "loaded", "other": "unloaded"}
        assert content(server, "") == "Hello."
        assert server.engine("a-pair").pid == pid


def test_a_request_that_its_client_left_is_counted_no_more_once_its_model_is_unloaded() -> None:
    with served(SLOW) as server:
        pid = server.engine("a-pair").pid
        assert pid is not None

        def running() -> int:
            count: int = server.client.get("/health").json()["running"]
            return count

        body = {"messages": [user("hello")], "stream": True}
        with httpx.stream("POST", server.url + CHAT, json=body, timeout=PATIENCE_S):
            assert until(lambda: running() == 1)
            os.kill(pid, signal.SIGSTOP)
        server.wait_until(0)
        assert running() == 1, "the engine has not heard yet that the client is gone"
        server.post("/api/generate", keep_alive=0)
        assert until(lambda: server.states() == {"a-pair": "unloaded"})
        assert running() == 0
        os.kill(pid, signal.SIGCONT)


def test_a_load_that_takes_long_holds_up_no_other_model(tmp_path: Path) -> None:
    go_on = tmp_path / "go on"
    scripts = {"other": {**HELLO, "load_s": str(go_on)}}
    with served(HELLO, scripts=scripts, others=("other",), most=3) as server:
        asking = server.asking({"text": "hello", "model": "other"})
        with asking as (waiting,):
            for _ in range(3):
                assert content(server, "") == "Hello."
            assert server.states()["other"] == "loading"
            health = server.client.get("/health").json()
            assert (health["status"], health["waiting"]) == ("ok", 1)
            assert health["models"]["other"] == {"status": "loading", "running": 0, "waiting": 1}
            with ThreadPoolExecutor(2) as threads:  # the queue is one for all models
                more = [threads.submit(server.chat, "hello", model="other") for _ in range(2)]
                server.wait_until(3)
                assert server.chat("hello").status_code == 429
                go_on.touch()
                assert {each.result().status_code for each in (*more, waiting)} == {200}


def test_a_server_that_is_stopped_while_it_loads_ends_at_once(tmp_path: Path) -> None:
    scripts = {"other": {**HELLO, "load_s": str(tmp_path / "never")}}
    with ThreadPoolExecutor(1) as threads:
        with served(HELLO, scripts=scripts, others=("other",)) as server:
            body = {"messages": [user("hello")], "model": "other"}
            ask = partial(httpx.post, server.url + CHAT, json=body, timeout=PATIENCE_S)
            waiting = threads.submit(ask)
            server.wait_until(1)
            pid = server.engine("other").pid
        assert pid is not None
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
        with pytest.raises(httpx.HTTPError):
            waiting.result().raise_for_status()


def test_keys_and_gates_hold_for_every_model() -> None:
    secret = {"otherwise": ["Mail ann@example.com now."]}
    guard = Guard(keys=("sesame",), gate="usual")
    with served(secret, started=("second",), guard=guard) as server:
        assert server.chat("hello", model="second").status_code == 401
        server.client.headers["x-api-key"] = "sesame"
        for model in ("", "second"):
            assert "ann@" not in content(server, model)


QUESTIONS = ("Name a river.", "Why is the sky blue?", "What is tea?")


@pytest.mark.slow
def test_two_models_say_what_each_says_alone(six_layers_path: Path, tmp_path: Path) -> None:
    tiny = write_llama(tmp_path / "tiny.gguf")
    own = with_what_is_known(tmp_path / "data")
    env = {"LOCALSPEC_DATA_DIR": str(own), "LOCALSPEC_OWN": "off"}
    for path, name in ((six_layers_path, "smol"), (tiny, "tiny")):
        succeed("import", str(path), "--name", name, env=env)
    usual = ("--ctx", "512", "--parallel", "2", "--exact")

    def ask(client: Any, asked: tuple[str, str]) -> str:
        model, question = asked
        body = {"messages": [user(question)], "max_tokens": 16, "temperature": 0, "model": model}
        text: str = client.post(CHAT, json=body).json()["choices"][0]["message"]["content"]
        return text

    both = [(model, question) for question in QUESTIONS for model in ("smol", "tiny")]
    alone = dict[tuple[str, str], str]()
    for name in ("smol", "tiny"):
        with serving(name, *usual, "--pin", "--draft", "off", env=env) as client:
            alone |= {each: ask(client, each) for each in both if each[0] == name}
    words = ("--models", "smol,tiny", *usual, "--port", "0", *PLAIN)
    with started("serve", *words, env=env) as process:
        url = url_of(process)
        with httpx.Client(base_url=url, timeout=600) as client, ThreadPoolExecutor() as threads:
            texts = threads.map(partial(ask, client), both)
            assert dict(zip(both, texts, strict=True)) == alone
        rows = [each.split() for each in localspec("ps", env=env).out.splitlines()]
        assert rows[1][3:5] == ["smol,", "tiny"]
        (listed,) = json.loads(localspec("ps", "--json", env=env).out)
        assert listed["models"] == {"smol": "loaded", "tiny": "loaded"}
        for name in ("smol", "tiny"):
            few = (name, "-n", "4", "--ctx", "512", "--exact", *PLAIN)
            done = localspec("run", *few, "Hello", env=env)
            assert f"process {process.pid};" in done.err
        assert localspec("stop", "smol", env=env).code == 0
        assert process.wait(PATIENCE_S) == 0


NARROW = """
import os, runpy
from pathlib import Path
from localspec import resources

def bytes_of(pid):
    # Return what another engine of the server holds; 0 of what is none.
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return 0
    status = dict(line.split(":", 1) for line in lines)
    is_engine = b"free_ram_bytes" in command and int(status["PPid"]) == os.getppid()
    return 1024 * int(status.get("VmRSS", "0").split()[0]) if is_engine else 0

def free():
    others = {*filter(str.isdecimal, os.listdir("/proc"))} - {str(os.getpid())}
    return %d - sum(map(bytes_of, others))

resources.free_ram_bytes = free
runpy.run_module("localspec.launch.child", run_name="__main__")
"""
"""An engine on a machine with so many bytes, less those of other engines of its server."""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="/proc says what engines hold")
def test_real_engines_are_let_go_when_memory_is_short(smollm2_path: Path, tmp_path: Path) -> None:
    room = smollm2_path.stat().st_size + (360 << 20)  # RAM that is kept free, and Python twice
    line = (sys.executable, "-P", "-c", NARROW % room)
    usual = {"load": LoadOptions(n_ctx=512, gpu_layers=0, threads=1), "draft": "off"}
    large = str(write_llama(tmp_path / "tiny.gguf"))
    first, again, tiny = (
        ServedModel(name, LaunchOptions(target=path, **usual), GREEDY)  # type: ignore[arg-type]
        for name, path in (("a", str(smollm2_path)), ("b", str(smollm2_path)), ("tiny", large))
    )
    too_large = replace(first, name="c", launch=replace(first.launch, load=LoadOptions(n_ctx=8192, gpu_layers=0)))  # fmt: skip

    def backend_of(model: ServedModel) -> Backend:
        engine = RemoteEngine(line, settings=Load(parallel=2), revives=True)
        return Backend(engine, model.launch)

    async def ask(pool: ModelPool, model: ServedModel) -> str:
        request = Request(0, (Message.user("Name a river."),), replace(GREEDY, max_tokens=9))
        async with pool.use(model) as backend:
            async for notice in backend.notices(request):
                if isinstance(notice, Finished):
                    return notice.reply.text
        raise AssertionError("it ends")

    async def run() -> None:
        pool = ModelPool(backend_of, None, 8)
        try:
            await pool.start([first])
            ready = pool.ready(first)
            assert ready is not None
            assert ready.held.places["RAM"] > smollm2_path.stat().st_size
            text = await ask(pool, first)
            await ask(pool, tiny)
            assert pool.states == {"a": "loaded", "tiny": "loaded"}
            with pytest.raises(ModelLoadError, match="fit"):
                await ask(pool, too_large)
            assert pool.states == {"a": "loaded", "tiny": "loaded"}
            assert await ask(pool, again) == text
            assert pool.states == {"tiny": "loaded", "b": "loaded"}
        finally:
            await pool.close()

    asyncio.run(run())
