"""A stream is not silent while its request waits and its prompt is read; what is wrong by then still has its status."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from localspec.serve import answering
from tests.serve.clients import Package
from tests.serve.serving import FIM, Served, served

if TYPE_CHECKING:
    import anthropic
    import openai
else:
    anthropic, openai = Package("anthropic"), Package("openai")

QUESTION = "How long is the Rhine? " + "word " * 60
USER = {"role": "user", "content": QUESTION}
STREAMS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [USER]},
    "/v1/completions": {"prompt": f"<|im_start|>user\n{QUESTION}<|im_end|>\n<|im_start|>assistant\n"},
    "/v1/responses": {"input": QUESTION},
    "/v1/messages": {"messages": [USER], "max_tokens": 99},
    "/infill": {"input_prefix": QUESTION, "input_suffix": "x"},
}  # fmt: skip


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answering, "HEADERS_WITHIN_S", 0.1, raising=False)
    monkeypatch.setattr(answering, "PING_EVERY_S", 0.1, raising=False)


@contextmanager
def resting(at: int, go_on: Path, **more: Any) -> Iterator[Served]:
    """Serve answers that do not go on before a file is there."""
    rests = {"at": at, "until": str(go_on)}
    answers = {"Rhine": "It is 1233 km long."}
    with served({"answers": answers, "otherwise": ["Hello."], "rests": rests, "fim": FIM}, **more) as server:  # fmt: skip
        try:
            yield server
        finally:
            go_on.touch()


@pytest.mark.parametrize("path", STREAMS)
def test_while_a_prompt_is_read_a_line_says_how_far(path: str, tmp_path: Path) -> None:
    with resting(128, tmp_path / "go on") as server:
        body = {**STREAMS[path], "stream": True}
        with server.client.stream("POST", path, json=body) as answer:
            assert answer.status_code == 200
            lines = answer.iter_lines()
            told = next(line for line in lines if line.startswith(": reading"))
            assert (found := re.fullmatch(r": reading (\d+) of (\d+) tokens", told))
            assert 0 <= int(found[1]) < int(found[2])
            if path == "/v1/messages":
                assert [next(lines), next(lines)] == ["event: ping", 'data: {"type": "ping"}']
            (tmp_path / "go on").touch()
            rest = [line for line in lines if line and not line.startswith(":")]
        assert "_error" not in "".join(rest)
        assert rest[-1].startswith("data: ")


def test_the_makers_clients_read_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answering, "_DELTA_EVERY", 2)
    with resting(128, tmp_path / "go on") as server:
        with anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0) as claude:
            asked: Any = {"model": "a-pair", "max_tokens": 99, "messages": [USER]}
            with claude.messages.stream(**asked) as stream:
                events: list[Any] = []
                for event in stream:
                    events.append(event)
                    if event.type == "message_delta":
                        (tmp_path / "go on").touch()
        assert events[0].type == "message_start"
        assert events[0].message.usage.input_tokens > 300
        # Their client leaves pings out, and Claude Code counts the seconds without an event.
        assert [events[1].type, events[1].delta.stop_reason] == ["message_delta", None]
        assert events[-1].message.stop_reason == "end_turn"
        assert events[-1].message.content[0].text == "It is 1233 km long."
    again = tmp_path / "go on again"
    with resting(128, again) as server:
        threading.Timer(0.5, again.touch).start()
        with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
            said: Any = {"model": "", "messages": [USER]}
            chunks: Any = list(client.chat.completions.create(**said, stream=True))
            texts = [each.choices[0].delta.content or "" for each in chunks]
            assert "".join(texts) == "It is 1233 km long."
            with client.responses.stream(model="", input=QUESTION) as stream:
                assert stream.get_final_response().output_text == "It is 1233 km long."


def test_who_waits_hears_it_and_what_is_wrong_with_a_prompt_has_its_status() -> None:
    with served({"answers": {"story": "x" * 900}, "pass_s": 0.02, "fim": FIM}) as server:
        story = {"messages": [{"role": "user", "content": "a story"}], "stream": True}
        with server.client.stream("POST", "/v1/chat/completions", json=story):
            for path, body in STREAMS.items():
                with server.client.stream("POST", path, json={**body, "stream": True}) as answer:
                    assert answer.status_code == 200
                    assert ": waiting for a slot" in answer.iter_lines()
                server.wait_until(1)  # it went away
            long = "x" * 5000
            said = [{"role": "user", "content": long}]
            bodies: dict[str, dict[str, Any]] = {
                "/v1/chat/completions": {"messages": said},
                "/v1/completions": {"prompt": long},
                "/v1/responses": {"input": long},
                "/v1/messages": {"messages": said, "max_tokens": 9},
            }
            for path, body in bodies.items():
                refused = server.client.post(path, json={**body, "stream": True})
                assert refused.status_code == 400, path
                message = refused.json()["error"]["message"]
                assert re.search(r"has 5\d\d\d tokens and the context holds 4000", message)


def test_where_the_engine_does_not_hear_headers_are_sent_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answering, "_CHECKED_WITHIN_S", 0.1, raising=False)
    with resting(0, tmp_path / "go on", most=2) as server:
        first = threading.Thread(target=server.chat, args=("hello",))
        first.start()
        server.wait_until(1)
        body = {**STREAMS["/v1/messages"], "stream": True}
        with server.client.stream("POST", "/v1/messages", json=body) as answer:
            assert answer.status_code == 200
            refused = server.chat("hello", stream=True)
            assert refused.status_code == 429
        (tmp_path / "go on").touch()
        first.join()


def test_what_goes_wrong_later_is_an_event(tmp_path: Path) -> None:
    rests = {"at": 128, "until": str(tmp_path / "go on")}
    for path in ("/v1/chat/completions", "/v1/messages"):
        with served({"rests": rests, "fails": {"Rhine": ["model", 0]}}) as server:
            body = {**STREAMS[path], "stream": True}
            with server.client.stream("POST", path, json=body) as answer:
                lines = answer.iter_lines()
                next(line for line in lines if line.startswith(": reading"))
                (tmp_path / "go on").touch()
                rest = [line for line in lines if line and not line.startswith(":")]
        assert '"api_error"' in rest[-1]
        assert "[DONE]" not in rest[-1]
        (tmp_path / "go on").unlink()


def test_an_error_in_a_stream_has_the_code_of_one_with_a_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answering, "_CHECKED_WITHIN_S", 0.1)
    with resting(0, tmp_path / "go on", most=2) as server:
        first = threading.Thread(target=server.chat, args=("hello",))
        first.start()
        server.wait_until(1)
        long = {"messages": [{"role": "user", "content": "x" * 5000}], "stream": True}
        with server.client.stream("POST", "/v1/chat/completions", json=long) as answer:
            assert answer.status_code == 200
            (tmp_path / "go on").touch()
            last = [line for line in answer.iter_lines() if line.startswith("data: ")][-1]
        assert json.loads(last[6:])["error"]["code"] == "context_length_exceeded"
        first.join()
