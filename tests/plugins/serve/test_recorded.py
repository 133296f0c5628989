"""Requests as libraries of others make them: Zod's by OpenAI's client and the AI SDK, pydantic's, and smolagents'."""

import json
from typing import Any

import pytest

from tests.chat.toy_calls import hermes
from tests.plugins.serve.serving import CHAT, RESPONSES, Served, user

SCRIPT = {
    "calls": True,
    "otherwise": ['{"name": "Ann", "tags": {"a": "b"}}'],
    "answers": {"Peru": hermes("final_answer", answer="Lima")},
}
DRAFT = "http://json-schema.org/draft-07/schema#"
_ZOD: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1},
        "email": {
            "type": "string",
            "format": "email",
            "pattern": "^(?!\\.)(?!.*\\.\\.)([A-Za-z0-9_'+\\-\\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\\-]*\\.)+[A-Za-z]{2,}$",
        },
        "tags": {
            "type": "object",
            "propertyNames": {"type": "string"},
            "additionalProperties": {"type": "string"},
        },
        "age": {"type": "integer", "minimum": -9007199254740991, "maximum": 9007199254740991},
        "role": {"type": "string", "enum": ["admin", "user"]},
        "at": {"anyOf": [{"type": "string", "format": "date-time"}, {"type": "null"}]},
    },
    "required": ["name", "tags"],
    "additionalProperties": False,
}
_PYDANTIC: dict[str, Any] = {
    "$defs": {
        "Level": {"enum": ["low", "high"], "title": "Level", "type": "string"},
        "Step": {
            "properties": {
                "text": {"title": "Text", "type": "string"},
                "level": {"$ref": "#/$defs/Level", "default": "low"},
                "cost": {"anyOf": [{"type": "number"}, {"type": "null"}], "default": None},
            },
            "required": ["text"],
            "title": "Step",
            "type": "object",
        },
    },
    "properties": {
        "name": {"title": "Name", "type": "string"},
        "steps": {"items": {"$ref": "#/$defs/Step"}, "title": "Steps", "type": "array"},
        "pair": {"maxItems": 2, "minItems": 2, "prefixItems": [{"type": "integer"}, {"type": "string"}], "type": "array"},
        "labels": {"items": {"type": "string"}, "type": "array", "uniqueItems": True},
        "by_level": {"additionalProperties": {"type": "integer"}, "propertyNames": {"enum": ["low", "high"]}, "type": "object"},
    },
    "required": ["name"],
    "title": "Plan",
    "type": "object",
}  # fmt: skip
_SMOLAGENTS_TOOL = {
    "type": "function",
    "function": {
        "name": "final_answer",
        "description": "Provides a final answer to the given problem.",
        "parameters": {
            "type": "object",
            "properties": {"answer": {"type": "any", "description": "The final answer"}},
            "required": ["answer"],
        },
    },
}
_SMOLAGENTS_CODE = {
    "type": "json_schema",
    "json_schema": {
        "schema": {
            "additionalProperties": False,
            "properties": {
                "thought": {
                    "description": "A free form text.",
                    "title": "Thought",
                    "type": "string",
                },
                "code": {"description": "Valid Python code.", "title": "Code", "type": "string"},
            },
            "required": ["thought", "code"],
            "title": "ThoughtAndCodeAnswer",
            "type": "object",
        },
        "name": "ThoughtAndCodeAnswer",
        "strict": True,
    },
}
_STOPS = ["Observation:", "Calling tools:"]
_TEXT = [{"type": "text", "text": "hello"}]
_SYSTEM = {"role": "system", "content": [{"type": "text", "text": "You are an expert."}]}


def _format(schema: Any, *, strict: bool) -> dict[str, Any]:
    described = {"name": "answer", "schema": schema, "strict": strict}
    return {"type": "json_schema", "json_schema": described}


BODIES: dict[str, tuple[str, dict[str, Any]]] = {
    "Zod 4 by the AI SDK's generateObject": (
        CHAT,
        {"messages": [user("hello")], "response_format": _format(_ZOD, strict=False)},
    ),
    "Zod 4 by the AI SDK's responses": (
        RESPONSES,
        {
            "input": [user([{"type": "input_text", "text": "hello"}])],
            "text": {
                "format": {"type": "json_schema", "strict": False, "name": "answer", "schema": _ZOD}
            },
        },
    ),
    "Zod 3 as a tool": (
        CHAT,
        {
            "messages": [user("hello")],
            "tools": [
                {
                    "type": "function",
                    "function": {"name": "save", "parameters": {**_ZOD, "$schema": DRAFT}},
                }
            ],
        },
    ),
    "pydantic as a schema": (
        CHAT,
        {"messages": [user("hello")], "response_format": _format(_PYDANTIC, strict=False)},
    ),
    "pydantic as a tool": (
        CHAT,
        {
            "messages": [user("hello")],
            "tools": [
                {
                    "type": "function",
                    "function": {"name": "Plan", "description": "Plan", "parameters": _PYDANTIC},
                }
            ],
        },
    ),
    "smolagents' code agent": (
        CHAT,
        {"messages": [_SYSTEM, user(_TEXT)], "stop": _STOPS, "response_format": _SMOLAGENTS_CODE},
    ),
    "smolagents' agent that calls tools": (
        CHAT,
        {
            "messages": [_SYSTEM, user([{"type": "text", "text": "Peru?"}])],
            "stop": _STOPS,
            "tools": [_SMOLAGENTS_TOOL],
            "tool_choice": "required",
        },
    ),
}


@pytest.mark.parametrize("name", BODIES)
def test_what_a_library_sends_is_answered(server: Served, name: str) -> None:
    path, body = BODIES[name]
    limit = "max_output_tokens" if path == RESPONSES else "max_tokens"
    for stream in (False, True):
        answer = server.post(path, **body, **{limit: 60, "stream": stream})
        assert answer.status_code == 200, (name, answer.text)
        assert '"error":{' not in answer.text, answer.text
    request = server.request
    assert bool(request.tools) == ("tools" in body)
    if "response_format" in body:
        schema = json.loads(str(request.options.json_schema))
        wanted = body["response_format"]["json_schema"]["schema"]
        assert schema["properties"].keys() == wanted["properties"].keys()
        assert schema["required"] == wanted["required"]
