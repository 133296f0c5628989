"""A stream is not silent while its request waits and its prompt is read; an error by then still has its status."""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from localspec.serve import answering
from localspec.serve import anthropic as messages
from tests.serve.clients import anthropic, openai
from tests.serve.serving import CHAT, FIM, INFILL, MESSAGES, Served, bodies, served, user

QUESTION = "How long is the Rhine? " + "word " * 60
STREAMS = bodies(QUESTION)
EVERY = pytest.mark.parametrize("path", STREAMS)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answering, "HEADERS_WITHIN_S", 0.1)
    monkeypatch.setattr(answering, "PING_EVERY_S", 0.1)


@contextmanager
def resting(at: int, go_on: Path, **more: Any) -> Iterator[Served]:
    """Serve answers that do not go on before a file is there."""
    script = {"answers": {"Rhine": "It is 1233 km long."}, "otherwise": ["Hello."], "fim": FIM}
    with served({**script, "rests": {"at": at, "until": str(go_on)}}, **more) as server:
        try:
            yield server
        finally:
            go_on.touch()


@EVERY
def test_while_a_prompt_is_read_a_line_says_how_far(path: str, tmp_path: Path) -> None:
    with resting(128, tmp_path / "go on") as server:
        with server.client.stream("POST", path, json={**STREAMS[path], "stream": True}) as answer:
            assert answer.status_code == 200
            lines = answer.iter_lines()
            ping = next(line for line in lines if line.startswith(": reading"))
            assert (found := re.fullmatch(r": reading (\d+) of (\d+) tokens", ping))
            assert 0 <= int(found[1]) < int(found[2])
            if path == MESSAGES:
                assert [next(lines), next(lines)] == ["event: ping", 'data: {"type":"ping"}']
            (tmp_path / "go on").touch()
            rest = [line for line in lines if line and not line.startswith(":")]
        assert "_error" not in "".join(rest)
        assert rest[-1].startswith("data: ")


def test_anthropics_client_reads_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "_DELTA_EVERY", 2)
    given = {"model": "a-pair", "max_tokens": 99, "messages": [user(QUESTION)]}
    with (
        resting(128, tmp_path / "go on") as server,
        anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0) as claude,
        claude.messages.stream(**given) as stream,
    ):
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


def test_openais_client_reads_on(tmp_path: Path) -> None:
    with (
        resting(128, tmp_path / "go on") as server,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client,
    ):
        threading.Timer(0.5, (tmp_path / "go on").touch).start()
        chunks = client.chat.completions.create(model="", messages=[user(QUESTION)], stream=True)
        assert "".join(each.choices[0].delta.content or "" for each in chunks) == "It is 1233 km long."  # fmt: skip
        with client.responses.stream(model="", input=QUESTION) as stream:
            assert stream.get_final_response().output_text == "It is 1233 km long."


def test_who_waits_hears_it_and_an_error_of_a_prompt_has_its_status() -> None:
    with served({"answers": {"story": "x" * 900}, "pass_s": 0.02, "fim": FIM}) as server:
        story = {**bodies("a story", 999)[CHAT], "stream": True}
        with server.client.stream("POST", CHAT, json=story):
            for path, body in STREAMS.items():
                with server.client.stream("POST", path, json={**body, "stream": True}) as answer:
                    assert answer.status_code == 200
                    assert ": waiting for a slot" in answer.iter_lines()
                server.wait_until(1)  # it went away
            for path, body in bodies("x" * 5000).items():
                if path != INFILL:  # which takes what fits
                    server.refuse(path, "and the context holds 4000", **body, stream=True)


def test_where_the_engine_does_not_hear_headers_are_sent_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answering, "CHECKED_WITHIN_S", 0.1)
    with resting(0, tmp_path / "go on", most=2) as server:
        first = threading.Thread(target=server.chat, args=("hello",))
        first.start()
        server.wait_until(1)
        long = {**bodies("x" * 5000)[CHAT], "stream": True}
        with server.client.stream("POST", CHAT, json=long) as answer:
            assert answer.status_code == 200
            assert server.chat("hello", stream=True).status_code == 429
            (tmp_path / "go on").touch()
            last = [line for line in answer.iter_lines() if line.startswith("data: ")][-1]
        # An error in a stream has the code of one with a status.
        assert json.loads(last[6:])["error"]["code"] == "context_length_exceeded"
        first.join()


@pytest.mark.parametrize("path", [CHAT, MESSAGES])
def test_what_goes_wrong_later_is_an_event(path: str, tmp_path: Path) -> None:
    rests = {"at": 128, "until": str(tmp_path / "go on")}
    with (
        served({"rests": rests, "fails": {"Rhine": ["model", 0]}}) as server,
        server.client.stream("POST", path, json={**STREAMS[path], "stream": True}) as answer,
    ):
        lines = answer.iter_lines()
        next(line for line in lines if line.startswith(": reading"))
        (tmp_path / "go on").touch()
        rest = [line for line in lines if line and not line.startswith(":")]
    assert '"api_error"' in rest[-1]
    assert ("event: error" in rest) is (path == MESSAGES)
    assert "[DONE]" not in rest[-1]
