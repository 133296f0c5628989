"""Ollama's interface, asked by its makers' own client; what it has in common with the others stands in their tests."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from localspec.calls.policy import CallPolicy
from localspec.messages import ToolCall, ToolResult
from localspec.plugins.serve import ollama_models
from localspec.plugins.serve.http import Guard
from tests.chat.toy_calls import hermes
from tests.plugins.serve.clients import ollama
from tests.plugins.serve.serving import FIM, GENERATE, TALK, Served, served, turn, user
from tests.waiting import until

pytestmark = pytest.mark.slow

RHINE = "It is 1233 km long."
SCRIPT = {
    "answers": {
        "Rhine": RHINE,
        "Peru": f"Wait.\n{hermes('area', of='Peru')}\n{hermes('now')}",
        "1285216": "It is large.",
        "story": "x" * 400,
        "JSON": '{"km": 1233}',
    },
    "otherwise": ["Hello."],
    "calls": True,
    "n_ctx": 6000,
    "fim": FIM,
}
THINKING = {"answers": {"why": "<think>So.</think>It is."}, "thinks": True}


@pytest.fixture(scope="module")
def ask(server: Served) -> Iterator[Any]:
    with ollama.Client(host=server.url) as client:
        yield client


def area(of: str) -> int:
    """Return how large a country is.

    Args:
        of: its name
    """
    return len(of)


def now() -> str:
    """Return the time."""
    return ""


def said(*texts: str) -> list[dict[str, Any]]:
    return [user(text) for text in texts]


def test_a_chat_is_answered_whole_and_as_a_stream(ask: Any, server: Served) -> None:
    done = ask.chat("a-pair", said("Rhine?"))
    assert (done.message.role, done.message.content) == ("assistant", RHINE)
    assert (done.done, done.done_reason) == (True, "stop")
    assert done.eval_count == len(RHINE) + 1
    assert done.prompt_eval_count > 0
    assert done.total_duration >= done.prompt_eval_duration + done.eval_duration > 0
    assert done.load_duration >= 0
    *pieces, last = ask.chat("a-pair:latest", said("Rhine?"), stream=True)
    assert "".join(each.message.content for each in pieces) == RHINE
    assert not any(each.done for each in pieces)
    assert (last.message.content, last.done_reason) == ("", "stop")
    assert last.prompt_eval_count == done.prompt_eval_count
    raw = server.post(TALK, messages=said("Rhine?"), options={"num_predict": 5})
    assert raw.headers["content-type"] == "application/x-ndjson", "a stream unless it is not wanted"
    end = json.loads(raw.text.splitlines()[-1])
    assert end["done_reason"] == "length"
    assert {"seed", "stop_reason"} <= end["localspec"].keys()
    assert end["speculation"]["reason"]


def test_errors_are_the_clients_with_their_status(ask: Any) -> None:
    calls: list[tuple[Callable[[], Any], int, str]] = [
        (lambda: ask.chat("gpt-4", said("hello")), 404, "ask for a-pair"),
        (lambda: list(ask.chat("gpt-4", said("hello"), stream=True)), 404, "ask for a-pair"),
        (lambda: ask.show("gpt-4"), 404, "ask for a-pair"),
        (lambda: ask.chat("a-pair", said("x" * 9000)), 400, "the context holds 6000"),
        (lambda: ask.pull("llama3.2"), 404, "localspec pull llama3.2"),
        (lambda: list(ask.pull("llama3.2", stream=True)), 404, "localspec pull llama3.2"),
        (lambda: ask.delete("a-pair"), 400, "localspec import"),
        (lambda: ask.copy("a-pair", "b"), 400, "localspec import"),
        (lambda: ask.create("b", from_="a-pair"), 400, "localspec import"),
        (lambda: ask.push("a-pair"), 400, "localspec import"),
    ]
    for call, status, word in calls:
        with pytest.raises(ollama.ResponseError) as caught:
            call()
        assert caught.value.status_code == status
        assert word in caught.value.error
        assert "\n" not in caught.value.error
    assert ask.pull("a-pair").status == "success", "it is here"


def test_calls_are_objects_and_results_find_them(ask: Any, server: Served) -> None:
    asked = said("Peru?")
    given = {"model": "a-pair", "tools": [area, now]}
    done = ask.chat(messages=asked, **given)
    calls = [each.function for each in done.message.tool_calls]
    assert [(each.name, dict(each.arguments)) for each in calls] == [("area", {"of": "Peru"}), ("now", {})]  # fmt: skip
    assert done.message.content == "Wait."
    pieces = list(ask.chat(messages=asked, **given, stream=True))
    streamed = [call.function for each in pieces for call in each.message.tool_calls or ()]
    assert streamed == calls
    assert "".join(each.message.content for each in pieces) == "Wait."
    results = [
        {"role": "tool", "tool_name": "now", "content": "1285216"},
        {"role": "tool", "tool_name": "area", "content": "9"},
    ]
    last = ask.chat(messages=[*asked, done.message, *results], **given)
    assert (last.message.content, last.message.tool_calls) == ("It is large.", None)

    def answered() -> list[str]:
        """Return which calls have results, in their order."""
        parts = [part for each in server.request.messages for part in each.parts]
        return [part.call_id for part in parts if isinstance(part, ToolResult)]

    turn = server.request.messages[1]
    ids = {part.id: part.name for part in turn.parts if isinstance(part, ToolCall)}
    assert [ids[each] for each in answered()] == ["now", "area"]
    functions = [{"name": "area", "arguments": {"of": "Peru"}}, {"name": "now", "arguments": {}}]
    named = [{"id": name, "function": each} for name, each in zip("ab", functions, strict=True)]
    said_ = [*asked, {"role": "assistant", "content": "", "tool_calls": named}]
    for ids_, found in (((), ["a", "b"]), (("b", "a"), ["b", "a"])):
        more = [{"tool_call_id": each} for each in ids_] or [{}, {}]
        results = [{"role": "tool", "content": "9", **each} for each in more]
        assert server.post(TALK, messages=[*said_, *results]).status_code == 200
        assert answered() == found


def test_the_servers_rules_hold_here() -> None:
    rules = CallPolicy(deny=("now",))
    with served(SCRIPT, rules=rules) as server, ollama.Client(host=server.url) as ask:
        done = ask.chat("a-pair", said("Peru?"), tools=[area, now])
        assert [each.function.name for each in done.message.tool_calls] == ["area"]


def test_thoughts_have_a_field_of_their_own() -> None:
    with served(THINKING) as server, ollama.Client(host=server.url) as ask:
        done = ask.chat("a-pair", said("why?"), think=True)
        assert (done.message.thinking.strip(), done.message.content) == ("So.", "It is.")
        done = ask.generate("a-pair", "why?", think=True)
        assert (done.thinking.strip(), done.response) == ("So.", "It is.")
        for think, value in [(None, None), (True, "on"), (False, "off"), ("high", "high")]:
            turns = [*said("why?"), {"role": "assistant", "content": "Yes.", "thinking": "Hm."}]
            ask.chat("a-pair", [*turns, *said("why?")], think=think)
            assert server.request.options.think == value
            assert server.request.messages[1].thinking == "Hm."


def test_a_text_is_answered_goes_on_or_has_a_gap_filled(ask: Any, server: Served) -> None:
    done = ask.generate("a-pair", "Rhine?", system="Be brief.", context=[])
    assert (done.response, done.done_reason, done.context) == (RHINE, "stop", None)
    assert [each.text for each in server.request.messages] == ["Be brief.", "Rhine?"]
    pieces = list(ask.generate("a-pair", "Rhine?", stream=True))
    assert "".join(each.response for each in pieces) == RHINE
    assert ask.generate("a-pair", turn("the Rhine"), raw=True).response == RHINE
    assert server.request.raw == turn("the Rhine")
    ask.generate("a-pair", "def f():", suffix="return 1")
    assert server.request.infill is not None
    assert (server.request.infill.prefix, server.request.infill.suffix) == ("def f():", "return 1")


def test_logprobs_are_told_whole_and_in_pieces(ask: Any) -> None:
    given: dict[str, Any] = {"logprobs": True, "top_logprobs": 1}
    whole = ask.chat("a-pair", said("Rhine?"), **given).logprobs
    assert "".join(each.token for each in whole) == RHINE
    assert all(each.logprob <= 0 and len(each.top_logprobs) == 1 for each in whole)
    pieces = ask.generate("a-pair", "Rhine?", **given, stream=True)
    assert "".join(one.token for each in pieces for one in each.logprobs) == RHINE


def test_a_conversation_is_shortened_where_that_is_wanted(server: Served) -> None:
    turns = [*said("x" * 4500), {"role": "assistant", "content": "y" * 1900}, *said("Rhine?")]
    server.refuse(TALK, "the context holds 6000", messages=turns)
    answer = server.post(TALK, messages=turns, truncate=True, stream=False)
    assert answer.json()["message"]["content"] == RHINE


def test_models_are_listed_and_described(
    ask: Any, server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    (listed,), (running,) = ask.list().models, ask.ps().models
    assert listed.model == running.model == "a-pair:latest"
    assert running.context_length == 6000
    known = ask.show("a-pair:latest")
    assert known.capabilities == ["completion"]
    assert "num_ctx                        6000" in known.parameters
    assert known.details.format == "gguf"
    header = SimpleNamespace(tool_template="{{ tools }}", chat_template=None)
    monkeypatch.setattr(ollama_models, "file_of", lambda _: Path(__file__))
    monkeypatch.setattr(ollama_models, "read_model", lambda _: header)
    monkeypatch.setattr(ollama_models, "offers_tools", bool)
    (listed,) = server.client.get("/api/tags").json()["models"]
    assert listed["capabilities"] == ["completion", "tools"], "as `show` has them"
    version = server.client.get("/api/version").json()["version"]
    assert tuple(map(int, version.split("."))) >= (0, 6, 4), "what editors ask for at least"
    for path in ("/", "/api/version", "/api/tags"):
        assert server.client.head(path).status_code == 200
    assert server.client.get("/api/nope").json()["error"].startswith("there is no /api/nope")
    assert server.client.get(TALK).status_code == 405


def seconds_left(ask: Any) -> float | None:
    (model,) = ask.ps().models
    return float((model.expires_at - model.expires_at.now(model.expires_at.tzinfo)).total_seconds())


def test_a_model_stays_as_long_as_a_request_says() -> None:
    served_here = served(SCRIPT, keep_alive_s=600, others=("b",))
    with served_here as server, ollama.Client(host=server.url) as ask:
        assert ask.chat("a-pair").done_reason == "load"
        for given, least, most in [
            (None, 500, 600),
            ("1h30m", 5300, 5400),
            (None, 5300, 5400),
            (20, 10, 20),
            ("1500ms", 0, 2),
            (-1, 1e8, 1e10),
            ("999999999999h", 1e8, 1e10),
            ("-1m", 1e8, 1e10),
            ("2m", 100, 120),
        ]:
            ask.chat("a-pair", said("hello"), keep_alive=given)
            assert least < (seconds_left(ask) or 0) <= most
        server.chat("hello")
        assert 100 < (seconds_left(ask) or 0) <= 120, "requests of others do not change it"
        assert ask.generate("b", keep_alive=0).done_reason == "unload", "it is not loaded for that"
        assert ask.ps().models[0].model == "a-pair:latest"
        assert ask.generate("a-pair", keep_alive=0).done_reason == "unload"
        assert until(lambda: not ask.ps().models)
        assert server.client.get("/health").json()["status"] == "unloaded"
        assert ask.generate("b").done_reason == "load"
        assert 500 < (seconds_left(ask) or 0) <= 600, "the next one stays as long as usual"
        assert ask.chat("b", said("Rhine?"), keep_alive=0).message.content == RHINE
        assert until(lambda: not ask.ps().models)


def test_an_unload_waits_for_those_under_way_and_keys_are_asked_for(tmp_path: Path) -> None:
    script = {**SCRIPT, "pass_s": str(tmp_path / "begin")}
    with served(script, guard=Guard(keys=("sesame",))) as server:
        for headers in ({}, {"Authorization": "Bearer wrong"}):
            with ollama.Client(host=server.url, headers=headers) as ask:
                with pytest.raises(ollama.ResponseError, match="API key is missing") as caught:
                    ask.chat("a-pair", said("hello"))
                assert caught.value.status_code == 401
        server.client.headers["Authorization"] = "Bearer sesame"
        with server.asking({"text": "Rhine?"}) as (answer,):
            server.post(GENERATE, keep_alive=0)
            assert server.client.get("/health").json()["status"] == "ok"
            (tmp_path / "begin").touch()
            assert answer.result().json()["choices"][0]["message"]["content"] == RHINE
            assert until(lambda: server.client.get("/health").json()["status"] == "unloaded")
