"""Messages and tools as the values that a template reads: the form of calls, the name of thoughts, contents as text or parts."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from localspec.calls import Tool
from localspec.chat.turns import arguments_of
from localspec.messages import to_json

THOUGHTS = re.compile(r"\bmessage(?:\.|\[.)(thinking|reasoning)\b")
_RESPONSES = re.compile(r"\bmessage(?:\.|\[.|\.get\(.)tool_responses\b")
_THOUGHTS_AS_PART = re.compile(r"\btype\b\W+thinking\b")


def with_thoughts(message: dict[str, Any], source: str, *, joined: bool) -> dict[str, Any]:
    """Return a message with its thoughts where a template reads them that knows no `reasoning_content`.

    Args:
        message: as `to_json` has it.
        source: of the template.
        joined: whether words beside a call are part of the thoughts, as in gpt-oss, which takes one of both.
    """
    thoughts, content = message.get("reasoning_content"), message["content"]
    if not thoughts:
        return message
    if name := THOUGHTS.search(source):
        if joined and content and "tool_calls" in message:
            return {**message, name[1]: f"{thoughts}\n\n{content}", "content": ""}
        return {**message, name[1]: thoughts}
    if _THOUGHTS_AS_PART.search(source):
        parts = [{"type": "thinking", "thinking": thoughts}, {"type": "text", "text": content}]
        return {**message, "content": parts if content else parts[:1]}
    return message


def in_parts(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message whose content is a list of parts; a picture is its marker in the text, as in llama-server."""
    content = message["content"]
    if not isinstance(content, str):
        return message
    return {**message, "content": [{"type": "text", "text": content}]}


def called(message: dict[str, Any], objects: bool, content: str | None) -> dict[str, Any]:
    """Return a message with its calls in the form that a template reads.

    Args:
        message: as `to_json` has it.
        objects: whether arguments are objects, and not texts.
        content: of a message that only calls.
    """
    if "tool_calls" not in message:
        return message
    calls = message["tool_calls"]
    if objects:
        functions = [
            {**each["function"], "arguments": arguments_of(each["function"]["arguments"])}
            for each in calls
        ]
        calls = [{**call, "function": f} for call, f in zip(calls, functions, strict=True)]
    return {**message, "content": message["content"] or content, "tool_calls": calls}


def reads_responses(source: str) -> bool:
    """Return whether a template reads results as a field of their call's message alone, see `with_responses`."""
    return bool(_RESPONSES.search(source)) and "tool_call_id" not in source


def with_responses(values: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return messages in which results are a field of their call's message, as Gemma 4's first templates read them.

    An answer behind results is the content of the same message.

    Source: llama.cpp's `convert_tool_responses_gemma4`.
    """
    done = list[dict[str, Any]]()
    for each in values:
        last = done[-1] if done else {}
        calls = last.get("tool_calls", ())
        responses = last.get("tool_responses", [])
        if each["role"] == "tool" and len(responses) < len(calls):
            name = calls[len(responses)]["function"]["name"]
            response = {"name": name, "response": _json(each["content"])}
            done[-1] = {**last, "tool_responses": [*responses, response]}
        elif each["role"] == "assistant" and responses and _may_follow(last, each):
            done[-1] = {**last, "content": each["content"]}
        else:
            done.append(each)
    return done


def _may_follow(calling: Mapping[str, Any], answer: Mapping[str, Any]) -> bool:
    return bool(answer["content"]) and not calling["content"] and "tool_calls" not in answer


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def tool_values(tools: Sequence[Tool]) -> dict[str, object]:
    """Return the variables for tools; without any `tools` stays undefined, as in llama.cpp: templates iterate over them without a look."""
    values = [each.to_json() for each in tools]
    # Firefunction has a name of its own for them, as a text, whether there are some or not.
    functions: dict[str, object] = {"functions": json.dumps(values, ensure_ascii=False)}
    return functions | {"tools": values} if tools else functions


def filled(tools: Sequence[Tool]) -> list[Tool]:
    """Return tools whose schemas have all the fields that some templates read without a look."""
    return [
        Tool(each.name, _filled({"type": "object", **each.parameters}), each.description)
        for each in tools
    ]


def _filled(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_filled(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    schema = {
        name: {key: _described(each) for key, each in value.items()}
        if name == "properties" and isinstance(value, Mapping)
        else _filled(value)
        for name, value in schema.items()
    }
    if isinstance(kinds := schema.get("type"), list):
        # Hermes knows no null, and looks for its name without an end.
        known = [each for each in kinds if each != "null"] or ["string"]
        schema["type"] = known[0] if len(known) == 1 else known
    if schema.get("type") == "object" or not schema:
        more: dict[str, Any] = (
            {} if schema.get("additionalProperties") is False else {"additionalProperties": {}}
        )
        schema = {"type": "object", "properties": {}, "required": [], **more, **schema}
    return schema


def _described(schema: Any) -> Any:
    schema = _filled({} if isinstance(schema, bool) else schema)
    return {"description": "", **schema} if isinstance(schema, dict) else schema


def values_of(
    messages: Sequence[Any], form: tuple[bool, str | None] | None
) -> list[dict[str, Any]]:
    """Return messages as a template of this form of calls reads them."""
    values = [to_json(each) for each in messages]
    return values if form is None else [called(each, *form) for each in values]
