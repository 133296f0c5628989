"""Formats of templates that describe calls in words, or not at all, and how a call looks in a format."""

import json
from collections.abc import Sequence

from localspec.calls import CallFormat, TaggedArguments, ValueForm
from localspec.messages import ToolCall

_VALUE = ValueForm("=", "")
_PYTHON = CallFormat(
    "<|tool_call_start|>[",
    "(",
    ")]<|tool_call_end|>",
    "), ",
    "<|tool_call_start|>",
    TaggedArguments("(", _VALUE, _VALUE, ", ", "(", quoted=True),
)
_GRANITE = CallFormat(
    '<|tool_call|>[{"name": "', '", "arguments": ', "}]", '}, {"name": "', "<|tool_call|>"
)
_KNOWN = {
    "List of tools: ": _PYTHON,  # LFM2
    "respond only with <|tool_call|> followed by a JSON list": _GRANITE,  # Granite 3
}
"""By a text that only these templates have."""


def written_also(source: str) -> tuple[str, ...]:
    """Return what a model writes between a name and its arguments that its template does not."""
    is_gpt_oss = "<|start|>assistant to=" in source
    return (" <|constrain|>json<|message|>",) if is_gpt_oss else ()


def known_format(source: str) -> CallFormat | None:
    """Return the format of a template that writes no calls itself; None where it is not known."""
    return next((each for text, each in _KNOWN.items() if text in source), None)


def written(calls: Sequence[ToolCall], form: CallFormat) -> str:
    """Return calls, at least one, as a model writes them.

    Args:
        calls: with arguments that are a JSON object.
        form: without slots.
    """
    each = [f"{call.name}{_arguments(call.arguments, form)}" for call in calls]
    return f"{form.begin}{(form.next or form.end + form.begin).join(each)}{form.end}"


def _arguments(arguments: str, form: CallFormat) -> str:
    tagged = form.tagged
    if tagged is None:
        return form.then + arguments
    pairs = json.loads(arguments)
    if not pairs:
        return tagged.none or tagged.first
    return tagged.first + tagged.next.join(
        f"{key}{_value(value, tagged)}" for key, value in pairs.items()
    )


def _value(value: object, tagged: TaggedArguments) -> str:
    if isinstance(value, str) and not tagged.quoted:
        return f"{tagged.string.open}{value}{tagged.string.close}"
    text = repr(value) if tagged.quoted else json.dumps(value, ensure_ascii=False)
    return f"{tagged.other.open}{text}{tagged.other.close}"
