"""Tools as the interfaces have them: functions offered, which of them may be called, calls in an answer, and their results.

A tool of another type is one that its service runs itself, such as a search of the web: it is left out, with a note.

Source: the API references of OpenAI and Anthropic.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

from localspec.api import UsageError, printable_line
from localspec.calls import Tool
from localspec.calls.policy import CallPolicy, ToolChoice
from localspec.messages import ToolCall
from localspec.plugins.serve.media_parts import openai_part

_NO_ARGUMENTS: Mapping[str, Any] = {"type": "object", "properties": {}}
_CHOICES: Mapping[Any, ToolChoice] = {each: each for each in get_args(ToolChoice)}


@dataclass(frozen=True, slots=True)
class ToolOffer:
    """What a request lets its model call.

    Args:
        tools: the functions.
        policy: which of them.
        notes: what was left out, a sentence each.
    """

    tools: tuple[Tool, ...] = ()
    policy: CallPolicy = field(default_factory=CallPolicy)
    notes: tuple[str, ...] = ()


def openai_offer(tools: Any, choice: Any, parallel: bool | None) -> ToolOffer:
    """Return the offer in a body of OpenAI's: of chat completions, or of responses, where a function's fields stand outside.

    Raises:
        UsageError: it cannot be read.
    """
    return _offer(tools, choice, "function", "parameters", parallel is not False)


def anthropic_offer(tools: Any, choice: Any) -> ToolOffer:
    """Return the offer in a body of Anthropic's.

    Raises:
        UsageError: it cannot be read.
    """
    parallel = not (isinstance(choice, dict) and choice.get("disable_parallel_tool_use"))
    return _offer(tools, choice, "custom", "input_schema", parallel)


def _offer(value: Any, choice: Any, kind: str, schema: str, parallel: bool) -> ToolOffer:
    """Return an offer.

    Args:
        value: the tools.
        choice: which of them.
        kind: the type of a function; one without a type is one.
        schema: name of the field with a function's schema.
        parallel: whether there may be several calls.
    """
    if value is not None and not isinstance(value, list):
        raise UsageError("tools is not a list: write a list of tools")
    tools, left_out = list[Tool](), list[str]()
    for number, each in enumerate(value or (), 1):
        if not isinstance(each, dict):
            raise UsageError(f"tool {number} is not an object: write its name and its schema")
        if each.get("type") in (None, kind):
            tools.append(_tool(each.get("function", each), schema, f"tool {number}"))
        else:
            left_out.append(printable_line(str(each["type"]))[:40])
    notes = (f"tools left out, only functions are supported: {', '.join(left_out)}",)
    policy = _policy(choice, {each.name for each in tools}, parallel)
    return ToolOffer(tuple(tools), policy, notes if left_out else ())


def _tool(function: Any, schema_key: str, what: str) -> Tool:
    if not isinstance(function, dict):
        raise UsageError(f"{what} has no function: write its name and parameters")
    name, schema = function.get("name"), function.get(schema_key)
    if not isinstance(name, str):
        raise UsageError(f"{what} has no name: write one")
    if schema is None:
        schema = _NO_ARGUMENTS
    if not isinstance(schema, dict):
        raise UsageError(f"{schema_key} of {what} is no schema: write an object")
    description = function.get("description") or ""
    if not isinstance(description, str):
        raise UsageError(f"the description of {what} is not text: write some")
    return Tool(name, schema, description, strict=function.get("strict") is True)


def _choice(value: Any) -> tuple[ToolChoice, list[str] | None]:
    """Return the word of a choice, and the functions that it names; None where it names none."""
    if value is None:
        return "auto", None
    kind, names = value, None
    if isinstance(value, dict):
        kind = value.get("type")
        if kind == "allowed_tools":
            allowed = value.get("allowed_tools", value)
            kind = allowed.get("mode") if isinstance(allowed, dict) else None
            listed = allowed.get("tools") if isinstance(allowed, dict) else None
            names = [_named(each) for each in listed] if isinstance(listed, list) else None
        elif kind in ("function", "tool"):
            kind, names = "required", [_named(value)]
    kind = "required" if kind == "any" else kind
    if not isinstance(kind, str) or kind not in _CHOICES:
        raise UsageError(
            f"tool_choice is {printable_line(str(value))[:60]}: choose auto, none, required or any, or name a function"
        )
    return _CHOICES[kind], names


def _named(value: Any) -> str:
    function = value.get("function", value) if isinstance(value, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(name, str):
        raise UsageError("tool_choice names no function: write its name")
    return name


def _policy(choice: Any, known: Collection[str], parallel: bool) -> CallPolicy:
    kind, names = _choice(choice)
    missing = next((each for each in names or () if each not in known), None)
    if missing is not None:
        raise UsageError(
            f"tool_choice names {printable_line(missing)[:60]!r}, which is none of the tools: add it to them"
        )
    if kind == "required" and not known:
        raise UsageError("tool_choice requires a call, and there are no functions: add some")
    # Patterns are the policy's: a bracket or star in a name would be one, but names have neither.
    return CallPolicy(None if names is None else tuple(names), choice=kind, parallel=parallel)


def anthropic_messages(messages: Sequence[Any], *, sees: bool = False) -> Iterator[Any]:
    """Yield messages of Anthropic's in OpenAI's form: calls, results and thoughts are blocks there, and none here.

    Args:
        messages: in Anthropic's form.
        sees: whether the model does: pictures of results are then part of the user's message behind them.
    """
    for each in messages:
        content = each.get("content") if isinstance(each, dict) else None
        if not isinstance(content, list):
            yield each
            continue
        calls, rest, thoughts = list[Any](), list[Any](), ""
        for block in content:
            if not isinstance(block, dict):
                raise UsageError("a block of a message is not an object: write its type")
            match block.get("type"):
                case "tool_result":
                    yield _result(block, sees=sees)
                    rest += result_pictures(block.get("content"), sees=sees)
                case "thinking":
                    thoughts += str(block.get("thinking", ""))
                case "tool_use":
                    calls.append(_call_of_block(block))
                case "redacted_thinking":
                    pass
                case _:
                    rest.append(openai_part(block))
        if not rest and not calls and not thoughts:
            continue  # it was results alone
        more: dict[str, Any] = {"tool_calls": calls} if calls else {}
        more |= {"reasoning_content": thoughts} if thoughts else {}
        yield {**each, "content": rest or ("" if calls or thoughts else rest), **more}


def _result(block: dict[str, Any], *, sees: bool) -> dict[str, Any]:
    return {
        "role": "tool",
        "tool_call_id": block.get("tool_use_id"),
        "content": result_text(block.get("content", ""), sees=sees),
        "is_error": block.get("is_error") is True,
    }


def result_text(content: Any, *, sees: bool = False) -> Any:
    """Return the result of a function: texts, of which any may be empty. In place of a part that is none stands a note."""
    if not isinstance(content, list):
        return content
    texts = [
        each["text"]
        if isinstance(each, dict) and isinstance(each.get("text"), str)
        else "[a picture: it follows]"
        if sees and _is_picture(each)
        else "[not text: left out]"
        for each in content
    ]
    return "\n".join(texts)


def result_pictures(content: Any, *, sees: bool) -> list[Any]:
    """Return the pictures of a result as parts of a message, as results are texts; none where the model does not see."""
    given = content if sees and isinstance(content, list) else ()
    return [openai_part(each) for each in given if _is_picture(each)]


def _is_picture(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") in ("image", "input_image")


def _call_of_block(block: dict[str, Any]) -> dict[str, Any]:
    arguments = json.dumps(block.get("input") or {}, ensure_ascii=False)
    return {"id": block.get("id"), "function": {"name": block.get("name"), "arguments": arguments}}


def arguments_object(call: ToolCall) -> Any:
    """Return the arguments of a call, which are a JSON object."""
    try:
        return json.loads(call.arguments)
    except ValueError:
        return {}
