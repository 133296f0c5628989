"""Fields of bodies in all interfaces: null is absent, what is not supported is refused by name, and limits may be -1 and 0."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from localspec.chat.request import Request
from localspec.options import ReplyOptions
from tests.serve.clients import Package
from tests.serve.serving import FIM, Served, served

if TYPE_CHECKING:
    import anthropic
    import openai
else:
    anthropic, openai = Package("anthropic"), Package("openai")

SCRIPT = {"otherwise": ["Hello."], "calls": True, "fim": FIM}
USER = {"role": "user", "content": "hello"}
TEXT = "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [USER]},
    "/v1/completions": {"prompt": TEXT},
    "/v1/responses": {"input": "hello"},
    "/v1/messages": {"messages": [USER], "max_tokens": 20},
    "/infill": {"input_prefix": "a", "input_suffix": "b"},
}
LIMITS = {
    "/v1/chat/completions": "max_tokens",
    "/v1/completions": "max_tokens",
    "/v1/responses": "max_output_tokens",
    "/v1/messages": "max_tokens",
    "/infill": "n_predict",
}
SET = {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}
SCHEMA = {"type": "object", "properties": {"uniqueItems": SET}, "required": ["uniqueItems"]}


def options_of(server: Served) -> ReplyOptions:
    asked = server.asked[-1]
    assert isinstance(asked, Request)
    return asked.options


@pytest.mark.parametrize("path", BODIES)
def test_a_field_that_is_null_is_absent(server: Served, path: str) -> None:
    names = ("stream", "model", "temperature", "stop", "stop_sequences", "tools", "system", "text", "localspec", "grammar", "guided_json")  # fmt: skip
    body = {**BODIES[path], **dict.fromkeys(names), "stream_options": {"include_usage": None}}
    answer = server.client.post(path, json=body)
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize(
    ("name", "value", "nothing"),
    [
        ("guided_json", {"type": "object"}, None),
        ("structured_outputs", {"regex": "x"}, {}),
        ("mirostat", 2, 0),
        ("typical_p", 0.5, 1.0),
        ("xtc_probability", 0.5, 0),
        ("dry_multiplier", 0.8, 0),
        ("ignore_eos", True, False),
        ("min_tokens", 5, 0),
        ("chat_template_kwargs", {"enable_thinking": False}, {"enable_thinking": True}),
    ],
)
def test_what_is_not_supported_is_refused_by_name_unless_it_changes_nothing(
    server: Served, path: str, name: str, value: object, nothing: object
) -> None:
    refused = server.client.post(path, json={**BODIES[path], name: value})
    assert refused.status_code == 400
    assert refused.json()["error"]["message"].startswith(f"{name} is not supported")
    assert server.client.post(path, json={**BODIES[path], name: nothing}).status_code == 200


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("grammar", 'root ::= "yes"'),
        ("json_schema", {"type": "object"}),
        ("response_format", {"type": "json_object"}),
        ("regex", "yes"),
        ("stop", ["x"]),
        ("logit_bias", {"1": -100}),
    ],
)
def test_what_only_some_interfaces_read_is_refused_by_the_others(
    server: Served, path: str, name: str, value: object
) -> None:
    asked = len(server.asked)
    answer = server.client.post(path, json={**BODIES[path], name: value})
    if answer.status_code == 400:
        assert answer.json()["error"]["message"].startswith(f"{name} is not supported")
        return
    request = server.asked[asked]
    plain = server.client.post(path, json=BODIES[path])
    assert plain.status_code == 200
    assert isinstance(request, Request)
    assert request.options != replace(options_of(server), seed=request.options.seed)


@pytest.mark.parametrize("path", BODIES)
def test_all_interfaces_read_the_same_sampling_fields(server: Served, path: str) -> None:
    given = {"temperature": 0.3, "top_p": 0.7, "top_k": 9, "min_p": 0.2, "repeat_penalty": 1.1}
    answer = server.client.post(path, json={**BODIES[path], **given, "seed": 7})
    assert answer.status_code == 200, answer.text
    options = options_of(server)
    assert {name: getattr(options.sampling, name) for name in given} == given
    assert options.seed == 7


def test_samplers_are_refused_but_by_a_gap_whose_editors_send_them(server: Served) -> None:
    for path, body in BODIES.items():
        answer = server.client.post(path, json={**body, "samplers": ["top_k", "infill"]})
        assert answer.status_code == (200 if path == "/infill" else 400)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", BODIES)
def test_a_limit_of_minus_one_is_none_and_of_zero_gives_no_text(
    server: Served, path: str, stream: bool
) -> None:
    body = {**BODIES[path], "stream": stream}
    whole = server.client.post(path, json={**body, LIMITS[path]: -1})
    assert whole.status_code == 200
    assert options_of(server).max_tokens is None
    none = server.client.post(path, json={**body, LIMITS[path]: 0})
    assert none.status_code == 200, none.text
    assert options_of(server).max_tokens == 1
    assert not any(f'"{each}"' in none.text for each in ("H", "He", "Hello."))


def test_an_assistants_content_may_be_null(client: openai.OpenAI) -> None:
    said: Any = [USER, {"role": "assistant", "content": None}, USER]
    done = client.chat.completions.create(model="", messages=said)
    assert done.choices[0].message.content == "Hello."
    assert (done.system_fingerprint or "").startswith("localspec-")


def test_a_schema_that_is_not_strict_is_loosened(server: Served) -> None:
    def asked(schema: object, strict: bool | None) -> int:
        described = {"name": "answer", "schema": schema, "strict": strict}
        form = {"type": "json_schema", "json_schema": described}
        flat = {"format": {"type": "json_schema", **described}}
        forms: dict[str, dict[str, Any]] = {
            "/v1/chat/completions": {"response_format": form},
            "/v1/responses": {"text": flat},
        }
        for path, more in forms.items():
            answer = server.client.post(path, json={**BODIES[path], **more, LIMITS[path]: 1})
        return answer.status_code

    assert asked(SCHEMA, True) == 400
    assert asked(SCHEMA, None) == 200
    plain = {name: each for name, each in SET.items() if name != "uniqueItems"}
    kept = json.loads(str(options_of(server).json_schema))
    assert kept == {**SCHEMA, "properties": {"uniqueItems": plain}}
    assert asked({**SCHEMA, "not": {"type": "null"}, "if": True}, False) == 200
    assert json.loads(str(options_of(server).json_schema))["required"] == ["uniqueItems"]


def test_grammars_reach_the_engine(server: Served) -> None:
    for path in ("/v1/chat/completions", "/v1/completions", "/infill"):
        wrong = server.client.post(path, json={**BODIES[path], "grammar": "root ::= ("})
        assert wrong.status_code == 400
        assert "grammar" in wrong.json()["error"]["message"]
        body = {**BODIES[path], "grammar": 'root ::= "yes"', LIMITS[path]: 1}
        server.client.post(path, json=body)
        assert options_of(server).grammar == 'root ::= "yes"'
        server.client.post(path, json={**BODIES[path], "json_schema": {}, LIMITS[path]: 1})
        assert options_of(server).json_schema == "{}"
    form = {"type": "json_schema", "schema": {"type": "object"}}
    for more in ({"output_config": {"format": form}}, {"output_format": form}):
        server.client.post("/v1/messages", json={**BODIES["/v1/messages"], **more})
        assert json.loads(str(options_of(server).json_schema)) == {"type": "object"}
    wrong = server.client.post(
        "/v1/messages", json={**BODIES["/v1/messages"], "output_config": {"format": {"type": "x"}}}
    )
    assert wrong.status_code == 400


def test_a_model_is_described_by_its_name(
    server: Served, client: openai.OpenAI, claude: anthropic.Anthropic
) -> None:
    assert client.models.retrieve("a-pair").id == "a-pair"
    assert claude.models.retrieve("a-pair").display_name == "a-pair"
    assert [each.id for each in claude.models.list()] == ["a-pair"]
    with pytest.raises(openai.NotFoundError, match="ask for a-pair"):
        client.models.retrieve("org/other")
    with pytest.raises(anthropic.NotFoundError) as caught:
        claude.models.retrieve("other")
    assert caught.value.body["type"] == "error"  # type: ignore[index]
    assert server.client.get("/models").json() == server.client.get("/v1/models").json()


def test_an_encoded_body_is_refused_in_one_line() -> None:
    with served({}) as server:
        headers = {"Content-Encoding": "gzip"}
        answer = server.client.post("/v1/chat/completions", content=b"\x1f\x8b", headers=headers)
    assert answer.status_code == 400
    assert "'gzip'" in answer.json()["error"]["message"]
