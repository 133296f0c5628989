"""Bodies as clients of each dialect send them: what the engine is asked then, and what comes back, as recorded.

A row that changes is a change that clients see: LOCALSPEC_UPDATE_SNAPSHOTS=1 writes what is answered now. A new row is a script, a path and a body,
and whose it is. Sources of the editors': llama.vim a1c8e6e, llama.vscode 0.0.63, Continue d0a3c0b, and Zed's crates `open_ai`, `edit_prediction`, `cloud_llm_client`.
"""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import pytest

from localspec.chat.request import Request
from localspec.engine.protocol import Count
from tests.chat.toy_calls import hermes
from tests.plugins.serve.serving import COUNT, FIM, Served, bodies, error_in, served
from tests.support.recorded import changed, changed_fields

CORPUS = sorted(Path(__file__).with_name("corpus").glob("*.jsonl"))
SCRIPTS: dict[str, dict[str, Any]] = {
    "plain": {"otherwise": ["Hello."]},
    "thinks": {
        "answers": {"why": "<think>So.</think>It is."},
        "otherwise": ["Hello."],
        "thinks": True,
        "fim": FIM,
    },
    "calls": {
        "calls": True,
        "answers": {"Peru": f"Wait.\n{hermes('area', of='Peru')}\n{hermes('now')}"},
        "otherwise": ["Hello."],
        "n_ctx": 6000,
        "fim": FIM,
    },
    "edits": {
        "answers": {"Open": hermes("read", path="a.py")},
        "otherwise": ["return x"],
        "calls": True,
        "fim": FIM,
    },
    "sees": {"answers": {"~~~": "A cat."}, "otherwise": ["Hello."], "sees": True, "hears": True},
}
USUAL: dict[str, dict[str, Any]] = {**bodies("hello", 20), "/completion": {"prompt": "a"}}
# What another run has otherwise: names, moments, times, and what the cache had of the requests before.
_VOLATILE = {
    *("id", "item_id", "call_id", "created", "created_at", "completed_at", "system_fingerprint"),
    *("timings", "speculation", "localspec", "seed", "total_duration", "load_duration"),
    *("prompt_eval_duration", "eval_duration", "prompt_tokens_details", "input_tokens_details"),
    *("cache_read_input_tokens", "input_tokens", "prompt_eval_count", "tokens_cached"),
    *("tokens_evaluated", "expires_at", "sequence_number", "generation_settings"),
}


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, Served]]:
    with ExitStack() as stack:
        yield {name: stack.enter_context(served(script)) for name, script in SCRIPTS.items()}


def steady(value: Any) -> Any:
    """Return a value of JSON without what another run has otherwise."""
    if isinstance(value, dict):
        kept = (each for each in value.items() if each[0].partition("/")[0] not in _VOLATILE)
        return {name: steady(each) for name, each in kept}
    return [steady(each) for each in value] if isinstance(value, list) else value


_TEXTS = {
    *("content", "text", "response", "delta", "arguments", "partial_json"),
    *("thinking", "reasoning", "reasoning_content"),
}
"""Fields of events that add up."""


def added(one: Any, other: Any, name: str = "") -> Any:
    """Return an event that has the texts of two; raise ValueError where they differ in anything else."""
    if isinstance(one, str) and isinstance(other, str) and name in _TEXTS:
        return one + other
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        return {each: added(one[each], other[each], each) for each in one}
    if isinstance(one, list) and isinstance(other, list):
        return [added(*both, name) for both in zip(one, other, strict=True)]
    if one != other:
        raise ValueError
    return one


def streamed(text: str) -> list[Any]:
    """Return the events of a stream; those that follow each other and differ in their texts alone are one."""
    lines = (each.removeprefix("data: ") for each in text.split("\n") if each[:1] in {"d", "{"})
    parsed: list[Any] = [each if each == "[DONE]" else json.loads(each) for each in lines]
    assert len({each["id"] for each in parsed if "id" in each}) <= 1, "it is one answer"
    events = list[Any]()
    told = (each for each in parsed if "prompt_tokens" not in each)  # of a ping
    for event in map(steady, told):
        try:
            events[-1] = added(events[-1], event)
        except (ValueError, IndexError):
            events.append(event)
    return events


def asked(server: Served) -> Any:
    """Return what the engine was asked last, without what is as usual."""
    question = server.asked[-1]
    if not isinstance(question, Request | Count):
        return type(question).__name__
    found = changed_fields(question, Count(0, ()) if isinstance(question, Count) else Request(0))
    found.pop("client", None)  # a name that is drawn
    return found


def sent(server: Served, path: str, body: Any) -> httpx.Response:
    return server.client.post(path, content=json.dumps(body))


@cache
def usual(server: Served, path: str) -> Any:
    """Return what comes back of the usual body of a path."""
    return steady(sent(server, path, USUAL[path]).json()) if path in USUAL else None


def recorded(server: Served, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with what comes of its body now."""
    path, body = row["path"], row["body"]
    question = {name: row[name] for name in ("of", "script", "path", "body") if name in row}
    like = usual(server, path)
    before = len(server.asked)
    answer = sent(server, path, body)
    if answer.status_code != 200:
        return {**question, "refused": [answer.status_code, error_in(answer.json())["message"]]}
    found = asked(server) if len(server.asked) > before else None
    if isinstance(found, dict) and '"seed"' not in json.dumps(body):
        found.get("options", {}).pop("seed", None)
    if body.get("stream") or "\n{" in answer.text:
        return {**question, "asked": found, "events": streamed(answer.text)}
    notes = answer.json().get("localspec", {}).get("notes", []) if answer.text[:1] == "{" else []
    said = answer.json() if path == COUNT else changed(steady(answer.json()), like)
    return {**question, "asked": found, "answer": said, **({"notes": notes} if notes else {})}


@pytest.mark.parametrize("file", CORPUS, ids=lambda file: file.stem)
def test_bodies_are_understood_and_answered_as_recorded(
    servers: dict[str, Served], file: Path
) -> None:
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    now = [recorded(servers[row["script"]], row) for row in rows]
    if os.environ.get("LOCALSPEC_UPDATE_SNAPSHOTS"):
        file.write_text("".join(json.dumps(row) + "\n" for row in now))
        return
    for row, new in zip(rows, now, strict=True):
        assert new == row


@pytest.mark.parametrize("file", CORPUS, ids=lambda file: file.stem)
def test_a_stream_asks_the_engine_the_same_and_is_refused_alike(
    servers: dict[str, Served], file: Path
) -> None:
    for line in file.read_text().splitlines():
        row = json.loads(line)
        server, path, body = servers[row["script"]], row["path"], row["body"]
        if path == COUNT or "tokenize" in path or body.get("stream"):
            continue
        answer = sent(server, path, {**body, "stream": True})
        if "refused" in row:
            assert [answer.status_code, error_in(answer.json())["message"]] == row["refused"]
            continue
        assert answer.status_code == 200, (body, answer.text)
        assert '"error":{' not in answer.text, (body, answer.text)
        found = asked(server)
        if isinstance(found, dict) and '"seed"' not in json.dumps(body):
            found.get("options", {}).pop("seed", None)
        assert found == row["asked"], body
