"""Who is let in, and what becomes of the others when a client, or the engine, goes away."""

import asyncio
import threading

import httpx
import pytest
from starlette.responses import JSONResponse

from localspec.engine.engine import EngineGone, RemoteEngine
from localspec.options import LaunchOptions
from localspec.serve import http
from localspec.serve.backend import Backend
from localspec.serve.http import Guard, guarded
from tests.engine.double import command
from tests.serve.serving import served
from tests.waiting import PATIENCE_S, until

STORY = "x" * 400
SLOW = {"answers": {"story": STORY}, "otherwise": ["Hello."], "pass_s": 0.03, "parallel": 2}


def test_a_client_that_goes_away_ends_its_request() -> None:
    with served(SLOW) as server:
        body = {"messages": [{"role": "user", "content": "a story"}], "stream": True}
        with server.client.stream("POST", "/v1/chat/completions", json=body) as answer:
            lines = answer.iter_lines()
            next(lines)
            assert server.under_way() == 1
        server.wait_until(0)
        whole = httpx.Client(base_url=server.url, timeout=0.5)
        with pytest.raises(httpx.ReadTimeout):
            whole.post("/v1/chat/completions", json={**body, "stream": False})
        whole.close()
        server.wait_until(0)
        ended = 'localspec_requests_total{outcome="cancelled"} 2.0'
        # The engine was told, and did not go on to the end.
        assert until(lambda: ended in server.client.get("/metrics").text)
        assert server.chat("hello").json()["choices"][0]["message"]["content"] == "Hello."


def test_more_than_may_wait_are_told_to_try_later() -> None:
    with served(SLOW, most=1) as server:
        body = {"messages": [{"role": "user", "content": "a story"}], "stream": True}
        with server.client.stream("POST", "/v1/chat/completions", json=body) as answer:
            lines = answer.iter_lines()
            next(lines)
            refused = server.chat("hello")
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) > 0
        assert refused.json()["error"]["type"] == "rate_limit_error"
        server.wait_until(0)
        assert server.chat("hello").status_code == 200


def test_several_are_answered_at_once_each_its_own() -> None:
    answers = {f"number {n}": f"This is answer {n}." for n in range(6)}
    with served({"answers": answers, "pass_s": 0.001, "parallel": 3}) as server:
        found: dict[int, str] = {}

        def ask(number: int) -> None:
            done = server.chat(f"say number {number}").json()
            found[number] = done["choices"][0]["message"]["content"]

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == {number: f"This is answer {number}." for number in range(6)}
        text = server.client.get("/metrics").text
        assert 'localspec_requests_total{outcome="eog"} 6.0' in text


def test_a_request_says_what_drafts_for_it() -> None:
    with served({"answers": {"story": STORY}, "drafts": 4, "parallel": 2}) as server:

        def drafted(**own: object) -> int:
            answer = server.chat("a story", localspec=own).json()
            assert answer["choices"][0]["message"]["content"] == STORY
            count: int = answer["speculation"]["drafted"]
            return count

        assert drafted() == drafted(draft="auto", exact=False) > 0
        assert drafted(draft="off") == 0
        assert drafted(draft="model") > 0


def test_an_engine_that_dies_costs_what_it_was_answering_and_no_more() -> None:
    script = {**SLOW, "death": {"on": "token", "at": 50}}
    with served(script) as server:
        lost = server.chat("a story")
        assert lost.status_code == 503
        assert lost.json()["error"]["type"] == "overloaded_error"
        body = {"messages": [{"role": "user", "content": "a story"}], "stream": True}
        with server.client.stream("POST", "/v1/chat/completions", json=body) as answer:
            lines = [line for line in answer.iter_lines() if line]
        assert '"overloaded_error"' in lines[-1]
        assert "[DONE]" not in lines[-1]
        assert server.chat("hello").json()["choices"][0]["message"]["content"] == "Hello."


@pytest.mark.first(2)
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Authorization": "Bearer sesame"}, 200),
        ({"x-api-key": "second"}, 200),
        ({"x-api-key": "sesame", "Origin": "https://evil.example"}, 403),
        ({"x-api-key": "sesame", "Origin": "https://good.example"}, 200),
    ],
)
def test_a_key_lets_in(headers: dict[str, str], status: int) -> None:
    guard = Guard(keys=("sesame", "second"), origins=("https://good.example",))
    with served({}, guard=guard) as server:
        answer = server.client.get("/v1/models", headers=headers)
    assert answer.status_code == status
    assert "sesame" not in answer.text
    allowed = answer.headers.get("access-control-allow-origin")
    assert (allowed is not None) == (status == 200 and "Origin" in headers)


@pytest.mark.first(2)
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 400),
        ({"Host": "localhost:8080"}, 200),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "http://localhost:3000"}, 200),
        ({"Origin": "null"}, 403),
    ],
)
def test_pages_of_others_do_not_reach_a_server_of_this_machine(
    headers: dict[str, str], status: int
) -> None:
    with served({}) as server:
        assert server.client.get("/v1/models", headers=headers).status_code == status


def test_only_whole_keys_and_names_are_let_in() -> None:
    def status(guard: Guard, **headers: str) -> int:
        async def found() -> int:
            app = guarded(JSONResponse({}), guard, lambda _status: None)
            transport = httpx.ASGITransport(app)
            async with httpx.AsyncClient(
                transport=transport, base_url="http://localhost"
            ) as client:
                return (await client.post("/v1/messages", headers=headers)).status_code

        return asyncio.run(found())

    keyed = Guard(keys=("sesame", "second"))
    for key in ("sesame", "second"):
        assert status(keyed, authorization=f"Bearer {key}") == 200
    for key in ("", "ses", "sesame-and-more", "SESAME", "sesame second"):
        assert status(keyed, authorization=f"Bearer {key}") == 401, key
    local = Guard(hosts={"localhost", "[::1]"})
    for name in ("localhost", "localhost:8080", "[::1]:8080"):
        assert status(local, host=name, origin=f"http://{name}") == 200
    for name in (
        "",
        "evil.example",
        "localhost.evil.example",
        "evil.localhost",
        "localhost:80.evil",
    ):
        assert status(local, host=name) == 400, name
        assert status(local, host="localhost", origin=f"http://{name}") == 403, name


@pytest.mark.parametrize(
    ("guard", "origin", "status"),
    [
        (Guard(keys=("sesame",), origins=("https://good.example",)), "https://good.example", 200),
        (Guard(keys=("sesame",), origins=("https://good.example",)), "https://evil.example", 403),
        (Guard(keys=("sesame",)), "http://localhost:3000", 403),
        (None, "http://localhost:3000", 200),
        (None, "http://localhost.evil.example", 403),
    ],
)
def test_only_pages_that_were_named_are_told_that_they_may_ask(
    guard: Guard | None, origin: str, status: int
) -> None:
    with served({}, guard=guard) as server:
        # A browser asks without the key whether it may send one.
        asked = {
            "Origin": origin,
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization,content-type",
            "Access-Control-Request-Private-Network": "true",
        }
        answer = server.client.options("/v1/messages", headers=asked)
        assert answer.status_code == status
        allowed = answer.headers.get("access-control-allow-origin")
        assert allowed == (origin if status == 200 else None)
        if allowed:  # `*` does not stand for it
            assert "authorization" in answer.headers["access-control-allow-headers"]


def test_a_body_that_is_too_large_is_refused_before_it_is_all_in_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http, "MOST_BODY_BYTES", 1 << 20)
    with served({}) as server:
        refused = server.chat("x" * (1 << 20))
        assert refused.status_code == 413
        assert "1 MB" in refused.json()["error"]["message"]
        assert server.chat("x" * 100).status_code == 200


@pytest.mark.parametrize("stream", [False, True])
def test_a_fault_of_the_engine_is_not_the_clients(stream: bool) -> None:
    script = {"answers": {"story": STORY}, "fails": {"story": ["model", 0]}, "parallel": 2}
    with served(script) as server:
        failed = server.chat("a story", stream=stream, n=2)
        assert failed.status_code == 500
        assert failed.json()["error"]["type"] == "api_error"
        assert "this is a bug" in failed.json()["error"]["message"]
        assert server.under_way() == 0
        assert server.chat("hello").status_code == 200


def test_where_one_of_several_answers_fails_the_others_end() -> None:
    script = {
        "answers": {"one": "x" * 3, "story": STORY},
        "fails": {"one": ["pass", 2]},
        "pass_s": 0.03,
        "parallel": 2,
    }
    with served(script) as server:
        body = {"prompt": [f"<|im_start|>user\n{each}<|im_end|>\n<|im_start|>assistant\n" for each in ("one", "story")]}  # fmt: skip
        failed = server.client.post("/v1/completions", json={**body, "max_tokens": 400})
        assert failed.status_code == 500
        server.wait_until(0)
        ended = 'localspec_requests_total{outcome="cancelled"} 1.0'
        assert until(lambda: ended in server.client.get("/metrics").text)


def test_wrong_addresses_are_told() -> None:
    with served({}) as server:
        assert server.client.get("/nope").status_code == 404
        assert server.client.get("/v1/chat/completions").status_code == 405
        assert server.client.get("/nope").json()["error"]["message"].startswith("there is no /nope")


def test_an_engine_that_dies_while_it_loads_ends_the_server() -> None:
    async def start() -> str:
        engine = RemoteEngine(command({"death": {"on": "load"}}))
        backend = Backend(engine, LaunchOptions(pair="a-pair"), 8)
        with pytest.raises(EngineGone):
            await backend.start()
        lost = backend.lost
        await backend.close()
        return lost

    assert "SIGKILL" in asyncio.run(start())
    for thread in threading.enumerate():
        if thread.name == "localspec-notices":
            thread.join(PATIENCE_S)
            assert not thread.is_alive(), "whoever listens ends with the server"
