"""Fields of bodies in all interfaces: null is absent, what is not supported is refused by name, and limits may be -1 and 0."""

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.serve.serving import CHAT, FIM, INFILL, LIMITS, MESSAGES, RESPONSES, TEXT, Served, bodies

SCRIPT = {"otherwise": ["Hello."], "calls": True, "fim": FIM}
BODIES = bodies("hello", 20)
SET = {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}
SCHEMA = {"type": "object", "properties": {"uniqueItems": SET}, "required": ["uniqueItems"]}
EVERY = pytest.mark.parametrize("path", BODIES)


@EVERY
def test_a_field_that_is_null_is_absent(server: Served, path: str) -> None:
    names = ("stream", "model", "temperature", "stop", "stop_sequences", "tools", "system", "text", "localspec", "grammar", "guided_json", "include")  # fmt: skip
    body = {**BODIES[path], **dict.fromkeys(names), "stream_options": {"include_usage": None}}
    assert server.post(path, **body).status_code == 200


@EVERY
@pytest.mark.parametrize(
    ("name", "value", "nothing"),
    [
        ("guided_json", {"type": "object"}, None),
        ("structured_outputs", {"regex": "x"}, {}),
        ("mirostat", 2, 0),
        ("typical_p", 0.5, 1.0),
        ("min_tokens", 5, 0),
    ],
)
def test_what_is_not_supported_is_refused_by_name_unless_it_changes_nothing(
    server: Served, path: str, name: str, value: object, nothing: object
) -> None:
    server.refuse(path, f"{name} is not supported", **{**BODIES[path], name: value})
    assert server.post(path, **BODIES[path], **{name: nothing}).status_code == 200


@EVERY
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("grammar", 'root ::= "yes"'),
        ("json_schema", {"type": "object"}),
        ("response_format", {"type": "json_object"}),
        ("regex", "yes"),
        ("stop", ["x"]),
        ("logit_bias", {"1": -100}),
        ("samplers", ["top_k", "infill"]),
    ],
)
def test_what_only_some_interfaces_read_is_refused_by_the_others(
    server: Served, path: str, name: str, value: object
) -> None:
    answer = server.post(path, **BODIES[path], **{name: value})
    if answer.status_code == 400:
        assert answer.json()["error"]["message"].startswith(f"{name} is not supported")
        return
    options = server.request.options
    assert server.post(path, **BODIES[path]).status_code == 200
    changed = options != replace(server.request.options, seed=options.seed)
    assert changed or (name, path) == ("samplers", INFILL), "editors send them"


@pytest.mark.parametrize(
    ("path", "more", "think"),
    [
        (CHAT, {}, None),
        (CHAT, {"reasoning_effort": None}, None),
        (CHAT, {"reasoning_effort": "none"}, "off"),
        (CHAT, {"reasoning_effort": "minimal"}, "low"),
        (CHAT, {"reasoning_effort": "xhigh"}, "high"),
        (CHAT, {"reasoning_budget_tokens": 64}, "64"),
        (CHAT, {"reasoning_budget_tokens": -1}, "on"),
        (CHAT, {"chat_template_kwargs": {}}, None),
        (CHAT, {"chat_template_kwargs": {"enable_thinking": True}}, "on"),
        (CHAT, {"chat_template_kwargs": {"enable_thinking": False}}, "off"),
        (CHAT, {"chat_template_kwargs": {"thinking": True, "reasoning_effort": "low"}}, "low"),
        (CHAT, {"chat_template_kwargs": {"thinking": False}, "reasoning_effort": "high"}, "off"),
        (CHAT, {"chat_template_kwargs": {"thinking_budget": 9}}, "9"),
        (RESPONSES, {"reasoning": {}}, None),
        (RESPONSES, {"reasoning": {"effort": "medium", "summary": "auto"}}, "medium"),
        (MESSAGES, {"thinking": {"type": "enabled", "budget_tokens": 2048}}, "2048"),
        (MESSAGES, {"thinking": {"type": "disabled"}}, "off"),
        (MESSAGES, {"thinking": {"type": "adaptive"}}, "on"),
        (MESSAGES, {"thinking": {"type": "adaptive"}, "output_config": {"effort": "max"}}, "high"),
        (MESSAGES, {"output_config": {"effort": "low"}}, None),
    ],
)
def test_how_to_think_is_read_in_each_interfaces_form(
    server: Served, path: str, more: dict[str, Any], think: str | None
) -> None:
    answer = server.post(path, **BODIES[path], **more)
    assert answer.status_code == 200, answer.text
    assert server.request.options.think == think
    notes = answer.json()["localspec"].get("notes", [])
    assert len(notes) == (think is not None), "the script's template knows no thinking"


@pytest.mark.parametrize(
    ("path", "more", "word"),
    [
        (CHAT, {"reasoning_effort": "hard"}, "reasoning_effort is 'hard': choose one of none"),
        (CHAT, {"reasoning_effort": 3}, "reasoning_effort"),
        (CHAT, {"chat_template_kwargs": {"style": "x"}}, "chat_template_kwargs has 'style': only"),
        (CHAT, {"chat_template_kwargs": {"thinking": "no"}}, "takes true or false"),
        (CHAT, {"chat_template_kwargs": {"thinking_budget": True}}, "takes a whole number"),
        (CHAT, {"chat_template_kwargs": [1]}, "chat_template_kwargs"),
        (CHAT, {"reasoning_budget_tokens": 1 << 40}, "think is"),
        (RESPONSES, {"reasoning": {"effort": "hard"}}, "reasoning_effort is 'hard'"),
        (MESSAGES, {"thinking": {"type": "always"}}, "always"),
        (TEXT, {"chat_template_kwargs": {"enable_thinking": False}}, "not supported"),
    ],
)
def test_how_to_think_is_refused_where_it_is_wrong(
    server: Served, path: str, more: dict[str, Any], word: str
) -> None:
    server.refuse(path, word, **BODIES[path], **more)


@EVERY
def test_all_interfaces_read_the_same_sampling_fields(server: Served, path: str) -> None:
    given = {"temperature": 0.3, "top_p": 0.7, "top_k": 9, "min_p": 0.2, "repeat_penalty": 1.1}
    assert server.post(path, **BODIES[path], **given, seed=7).status_code == 200
    options = server.request.options
    assert {name: getattr(options.sampling, name) for name in given} == given
    assert options.seed == 7


@pytest.mark.parametrize("stream", [False, True])
@EVERY
def test_a_limit_of_minus_one_is_none_and_of_zero_gives_no_text(
    server: Served, path: str, stream: bool
) -> None:
    body = {**BODIES[path], "stream": stream}
    assert server.post(path, **{**body, LIMITS[path]: -1}).status_code == 200
    assert server.request.options.max_tokens is None
    none = server.post(path, **{**body, LIMITS[path]: 0})
    assert none.status_code == 200, none.text
    assert server.request.options.max_tokens == 1
    assert not any(f'"{each}"' in none.text for each in ("H", "He", "Hello."))


def test_an_assistants_content_may_be_null(server: Served) -> None:
    (said,) = BODIES[CHAT]["messages"]
    answer = server.post(CHAT, messages=[said, {"role": "assistant", "content": None}, said])
    assert answer.json()["choices"][0]["message"]["content"] == "Hello."


def test_a_schema_that_is_not_strict_is_loosened(server: Served) -> None:
    def status(schema: object, strict: bool | None) -> int:
        described = {"name": "answer", "schema": schema, "strict": strict}
        form = {"type": "json_schema", "json_schema": described}
        flat = {"format": {"type": "json_schema", **described}}
        forms: dict[str, dict[str, Any]] = {CHAT: {"response_format": form}, RESPONSES: {"text": flat}}  # fmt: skip
        for path, more in forms.items():
            answer = server.post(path, **{**BODIES[path], **more, LIMITS[path]: 1})
        return answer.status_code

    assert status(SCHEMA, True) == 400
    assert status(SCHEMA, None) == 200
    plain = {name: each for name, each in SET.items() if name != "uniqueItems"}
    schema = json.loads(str(server.request.options.json_schema))
    assert schema == {**SCHEMA, "properties": {"uniqueItems": plain}}
    assert status({**SCHEMA, "not": {"type": "null"}, "if": True}, False) == 200
    assert json.loads(str(server.request.options.json_schema))["required"] == ["uniqueItems"]


@pytest.mark.parametrize("path", [CHAT, TEXT, INFILL])
def test_grammars_reach_the_engine(server: Served, path: str) -> None:
    server.refuse(path, "grammar", **BODIES[path], grammar="root ::= (")
    body = {**BODIES[path], LIMITS[path]: 1}
    server.post(path, **body, grammar='root ::= "yes"')
    assert server.request.options.grammar == 'root ::= "yes"'
    server.post(path, **body, json_schema={})
    assert server.request.options.json_schema == "{}"


def test_a_schema_of_messages_is_strict(server: Served) -> None:
    form = {"type": "json_schema", "schema": {"type": "object"}}
    for more in ({"output_config": {"format": form}}, {"output_format": form}):
        server.post(MESSAGES, **BODIES[MESSAGES], **more)
        assert json.loads(str(server.request.options.json_schema)) == {"type": "object"}
    for wrong in ({"type": "x"}, {"type": "json_schema", "schema": SCHEMA}):
        server.refuse(MESSAGES, "", **BODIES[MESSAGES], output_config={"format": wrong})


def test_an_encoded_body_is_refused(server: Served) -> None:
    headers = {"Content-Encoding": "gzip"}
    answer = server.client.post(CHAT, content=b"\x1f\x8b", headers=headers)
    assert answer.status_code == 400
    assert "'gzip'" in answer.json()["error"]["message"]
