"""Who is let in, and what becomes of the others when a client, or the engine, goes away."""

import asyncio

import httpx
import pytest
from starlette.responses import JSONResponse

from localspec.plugins.serve import bodies
from localspec.plugins.serve.http import Guard, guarded
from localspec.storage.paths import data_dir
from tests.plugins.serve.serving import CHAT, TEXT, Served, served, turn, user
from tests.waiting import until

pytestmark = pytest.mark.slow

STORY = "x" * 400
SLOW = {"answers": {"story": STORY}, "otherwise": ["Hello."], "pass_s": 0.03, "parallel": 2}
TELL = {"messages": [user("a story")], "stream": True}


def counted(server: Served, name: str, count: int) -> bool:
    line = f"localspec_{name} {count}.0"
    return until(lambda: line in server.client.get("/metrics").text)


def test_one_too_many_is_told_to_try_later_and_who_goes_away_is_waited_for_no_more() -> None:
    with served(SLOW, most=1) as server:
        with server.client.stream("POST", CHAT, json=TELL) as answer:
            lines = answer.iter_lines()
            next(lines)
            assert server.under_way() == 1
            refused = server.chat("hello")
            assert (refused.status_code, int(refused.headers["retry-after"]) > 0) == (429, True)
            assert refused.json()["error"]["type"] == "rate_limit_error"
        server.wait_until(0)
        with httpx.Client(base_url=server.url, timeout=0.5) as whole, pytest.raises(httpx.ReadTimeout):  # fmt: skip
            whole.post(CHAT, json={**TELL, "stream": False})
        server.wait_until(0)
        # The engine was told, and did not go on to the end.
        assert counted(server, 'requests_total{outcome="cancelled"}', 2)
        # A stream that had begun was not refused afterwards.
        assert counted(server, 'refused_total{status="499"}', 1)
        assert server.chat("hello").json()["choices"][0]["message"]["content"] == "Hello."


def test_a_request_says_what_drafts_for_it() -> None:
    with served({"answers": {"story": STORY}, "drafts": 4, "parallel": 2}) as server:

        def drafted(**own: object) -> int:
            answer = server.chat("a story", localspec=own).json()
            assert answer["choices"][0]["message"]["content"] == STORY
            return int(answer["speculation"]["drafted"])

        assert drafted() == drafted(draft="auto", exact=False) > 0
        assert drafted(draft="off") == 0
        assert drafted(draft="model") > 0


def test_an_engine_that_dies_costs_its_answers_and_no_more() -> None:
    with served({**SLOW, "death": {"on": "token", "at": 10}}) as server:
        lost = server.chat("a story")
        assert lost.status_code == 503
        assert lost.json()["error"]["type"] == "overloaded_error"
        with server.client.stream("POST", CHAT, json=TELL) as answer:
            last = [line for line in answer.iter_lines() if line][-1]
        assert '"overloaded_error"' in last
        assert "[DONE]" not in last
        assert server.chat("hello").json()["choices"][0]["message"]["content"] == "Hello."


KEYED = Guard(keys=("sesame", "second"), origins=("https://good.example",))
LOCAL = Guard(hosts={"127.0.0.1", "localhost", "[::1]"})


def answer_to(guard: Guard, method: str, headers: dict[str, str]) -> httpx.Response:
    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(guarded(JSONResponse({}), guard, lambda _status: None))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.request(method, "/v1/messages", headers=headers)

    return asyncio.run(send())


def test_only_keys_hosts_and_pages_that_are_named_are_let_in() -> None:
    with served({}, guard=KEYED) as server:
        assert server.client.get("/v1/models").status_code == 401
        assert server.client.get("/v1/models", headers={"x-api-key": "second"}).status_code == 200
        for path in ("/health", "/v1/health"):
            for key in ("", "wrong"):
                health = server.client.get(path, headers={"x-api-key": key})
                assert (health.status_code, health.json()) == (200, {"status": "ok"}), path
            assert "models" in server.client.get(path, headers={"x-api-key": "second"}).json()
    with served({}) as server:
        assert server.client.get("/v1/models", headers={"Host": "evil.example"}).status_code == 400
    evil = ("evil.example", "localhost.evil.example", "evil.localhost", "localhost:80.evil")
    ours = ("localhost", "localhost:8080", "[::1]:8080")
    wrong = ("", "ses", "sesame-and-more", "SESAME", "sesame second")
    for guard, headers, status in [
        (KEYED, {}, 401),
        *((KEYED, {"Authorization": f"Bearer {key}"}, 200) for key in KEYED.keys),
        *((KEYED, {"Authorization": f"Bearer {key}"}, 401) for key in wrong),
        (KEYED, {"x-api-key": "second"}, 200),
        (KEYED, {"x-api-key": "sesame", "Origin": "https://evil.example"}, 403),
        (KEYED, {"x-api-key": "sesame", "Origin": "https://good.example"}, 200),
        *((LOCAL, {"Host": name, "Origin": f"http://{name}"}, 200) for name in ours),
        *((LOCAL, {"Host": name}, 400) for name in evil),
        *((LOCAL, {"Origin": f"http://{name}"}, 403) for name in evil),
        (LOCAL, {"Origin": "http://localhost:3000"}, 200),
        (LOCAL, {"Origin": "null"}, 403),
    ]:
        answer = answer_to(guard, "POST", headers)
        assert answer.status_code == status, headers
        assert "sesame" not in answer.text
        allowed = answer.headers.get("access-control-allow-origin")
        assert (allowed is not None) == (status == 200 and "Origin" in headers)


def test_a_browser_learns_which_pages_may_send() -> None:
    asked = {  # without the key: may one be sent?
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type",
        "Access-Control-Request-Private-Network": "true",
    }
    for guard, origin, may in [
        (KEYED, "https://good.example", True),
        (KEYED, "https://evil.example", False),
        (Guard(keys=("sesame",)), "http://localhost:3000", False),
        (LOCAL, "http://localhost:3000", True),
        (LOCAL, "http://localhost.evil.example", False),
    ]:
        answer = answer_to(guard, "OPTIONS", {**asked, "Origin": origin})
        assert answer.status_code == (200 if may else 403)
        assert answer.headers.get("access-control-allow-origin") == (origin if may else None)
        # `*` does not stand for it.
        assert not may or "authorization" in answer.headers["access-control-allow-headers"]


def test_a_body_that_is_too_large_and_wrong_addresses_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bodies, "MOST_BODY_BYTES", 1 << 20)
    with served({}) as server:
        server.refuse(CHAT, "1 MB", 413, messages=[user("x" * (1 << 20))])
        assert server.chat("x" * 100).status_code == 200
        assert server.client.get(CHAT).status_code == 405
        nowhere = server.client.get("/nope")
        assert (nowhere.status_code, "/nope" in nowhere.json()["error"]["message"]) == (404, True)


def test_a_fault_of_the_engine_is_not_the_clients_and_ends_other_answers() -> None:
    for stream in [False, True]:
        script = {"answers": {"story": STORY}, "fails": {"story": ["model", 0]}, "parallel": 2}
        with served(script) as server:
            error = server.refuse(CHAT, "this is a bug", 500, **{**TELL, "stream": stream}, n=2)
            assert error["type"] == "api_error"
            assert server.under_way() == 0
            assert server.chat("hello").status_code == 200
    script = {**SLOW, "answers": {"one": "xxx", "story": STORY}, "fails": {"one": ["pass", 2]}}
    with served(script) as server:
        failed = server.post(TEXT, prompt=[turn("one"), turn("story")], max_tokens=400)
        assert failed.status_code == 500
        server.wait_until(0)
        assert counted(server, 'requests_total{outcome="cancelled"}', 1)


def test_errors_do_not_name_the_places_of_the_servers_own_files() -> None:
    blob = f"{data_dir()}/blobs/{'a' * 64}"
    reason = f"llama.cpp cannot load {blob}: it is damaged ({blob})"
    with served({"refuses": {"another": ["ModelLoadError", reason]}}, others=["another"]) as server:
        for stream in (False, True):
            message = server.chat("x", model="another", stream=stream).json()["error"]["message"]
            assert message == "llama.cpp cannot load its file: it is damaged (its file)"
