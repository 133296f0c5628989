"""Options of a reply as JSON fields: lines of a batch and bodies of all HTTP interfaces are read here, and nowhere else."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from localspec.errors import UsageError
from localspec.options.option import Option, changed, cut, options_of
from localspec.options.reply import (
    FORBIDDEN,
    GRAMMARS,
    THINK_VARIABLES,
    ReplyOptions,
    SamplingParams,
)

_OPTIONS = {each.name: each for each in options_of(ReplyOptions)}
SAMPLING = tuple(each.name for each in options_of(SamplingParams))
"""Names of the options by which tokens are drawn."""
FORMAT = "response_format"
FIELDS = (*_OPTIONS, FORMAT)
OTHER_NAMES = {"repetition_penalty": "repeat_penalty"}
"""Names that other servers have for options."""
_KINDS = {bool: "true or false", str: "a text", int: "a whole number"}
_STRUCTURE = (*GRAMMARS, FORMAT)
_EFFORTS = {
    "none": "off",
    **dict.fromkeys(("minimal", "low"), "low"),
    "medium": "medium",
    **dict.fromkeys(("high", "xhigh", "max"), "high"),
}
_EFFORT, _BUDGET, _SWITCHES = "reasoning_effort", "thinking_budget", ("enable_thinking", "thinking")
KWARGS = "template_kwargs"
THINKING = (_EFFORT, "chat_template_kwargs", "reasoning_budget_tokens")
"""What OpenAI's form has in place of `think`."""
_BAN = -100
"""The bias that OpenAI calls a ban."""


def instead_of(name: str) -> str:
    """Return what to do with a field that is not read."""
    return f"write {OTHER_NAMES[name]}" if name in OTHER_NAMES else "remove it"


def with_fields(options: ReplyOptions, fields: Mapping[str, Any]) -> ReplyOptions:
    """Return options with what `FIELDS` among some fields say instead; null says nothing.

    A schema, a grammar, an expression or a format replaces whatever the answer had to look like.

    Raises:
        UsageError: a value is of the wrong kind, or out of its range, or two cannot be combined.
    """
    given = {
        name: _value(option, fields[name])
        for name, option in _OPTIONS.items()
        if fields.get(name) is not None and name not in GRAMMARS
    }
    if isinstance(fields.get(KWARGS), Mapping):  # beside those that are set
        both = {**options.template_variables, **fields[KWARGS]}
        given[KWARGS] = _value(_OPTIONS[KWARGS], both)
    given |= _structure(fields)
    return changed(options, given) if given else options


def think_of(
    effort: str | None = None,
    variables: Mapping[str, Any] | None = None,
    budget: int | None = None,
    names: Sequence[str] = THINKING,
) -> str | int | None:
    """Return what `think` is by fields of other interfaces; None where they do not say.

    Args:
        effort: OpenAI's `reasoning_effort`.
        variables: `chat_template_kwargs`; of these, a switch or an effort that is off counts first, then a budget, then an
            effort. The others are the template's, see `kwargs_of`.
        budget: most tokens of thoughts; less than none is no limit.
        names: what the user calls these three.

    Raises:
        UsageError: a variable is of the wrong kind, or out of its range.
    """
    effort_name, variables_name, budget_name = names
    known = {name: each for name, each in (variables or {}).items() if name in THINK_VARIABLES}
    given = {name: each for name, each in known.items() if each is not None}
    for name, value in given.items():
        kind = bool if name in _SWITCHES else str if name == _EFFORT else int
        if type(value) is not kind:
            raise UsageError(f"{variables_name}.{name} is {cut(value)}: it takes {_KINDS[kind]}")
    switches = [given[each] for each in _SWITCHES if each in given]
    if False in switches:
        return "off"
    most: int | None = given.get(_BUDGET, budget)
    if most is not None and most >= 0 and _OPTIONS["think"].problem(str(most)) is not None:
        name = f"{variables_name}.{_BUDGET}" if _BUDGET in given else budget_name
        raise UsageError(f"{name} is {cut(most)}: it takes a number of tokens below a billion")
    effort = str(given[_EFFORT]) if _EFFORT in given else effort
    if effort is not None and effort not in _EFFORTS:
        name = f"{variables_name}.{_EFFORT}" if _EFFORT in given else effort_name
        raise UsageError(f"{name} is {cut(effort)}: choose one of {', '.join(_EFFORTS)}")
    level: str | None = None if effort is None else _EFFORTS[effort]
    if level != "off" and most is not None and most >= 0:
        return most
    return level or ("on" if switches or most is not None else None)


def kwargs_of(variables: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return those of `chat_template_kwargs` that only the template knows; None where there are none."""
    own = {n: e for n, e in (variables or {}).items() if n not in THINK_VARIABLES and e is not None}
    return own or None


def schema_of(wanted: Any) -> tuple[Any, bool]:
    """Return the schema that a `response_format` stands for, None for text, and whether it must be enforced to the letter.

    The description of a `json_schema` may also stand in the format itself, as in OpenAI's responses.
    """
    kind = wanted.get("type") if isinstance(wanted, dict) else None
    if kind == "text":
        return None, False
    if kind == "json_object" and wanted.get("schema") is None:
        return {"type": "object"}, True
    described = wanted.get("json_schema", wanted) if kind == "json_schema" else None
    if kind == "json_object":  # as llama-server and others have it
        described = wanted
    if isinstance(described, dict) and isinstance(described.get("schema"), dict | bool):
        return described["schema"], described.get("strict") is True
    raise UsageError(
        f"{FORMAT} is {cut(wanted)}: its type is text, json_object, or json_schema with a schema"
    )


def from_text(fields: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of a CSV: numbers where an option takes one, nothing where its cell is empty."""
    return {
        name: _number(_OPTIONS.get(name), text)
        for name, text in fields.items()
        if text or name not in FIELDS
    }


def _number(option: Option | None, text: str) -> Any:
    if option is None or option.kind not in {"whole", "number"}:
        return text
    try:
        return option.parse(text)
    except ValueError:
        return text


_MEANT: Mapping[tuple[str, float], float | None] = {
    ("top_k", -1): 0,
    ("top_p", 0): math.ulp(0.0),
    ("seed", -1): None,
}
"""Numbers beyond the range of an option that are usual elsewhere, and what they are here: off, the likeliest token, a random seed."""


def _value(option: Option, value: Any) -> Any:
    if type(value) in (int, float):
        value = _MEANT.get((option.name, value), value)
        if value is None:
            return None
        if option.kind == "whole" and isinstance(value, float) and value.is_integer():
            value = int(value)
    if option.kind == "texts" and isinstance(value, str):
        value = [value]
    try:
        if option.name == "logit_bias":
            biases = ((int(token), float(bias)) for token, bias in value.items())
            return tuple((token, FORBIDDEN if bias <= _BAN else bias) for token, bias in biases)
        return option.read(value)
    except (AttributeError, TypeError, ValueError, OverflowError):
        raise UsageError(f"{option.name} is {cut(value)}: it takes {option.takes}") from None


def _structure(fields: Mapping[str, Any]) -> dict[str, Any]:
    given = {name: fields[name] for name in _STRUCTURE if fields.get(name) is not None}
    if not given:
        return {}
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} cannot be combined: give one of them")
    ((name, value),) = given.items()
    if name == FORMAT:
        name, value = "json_schema", schema_of(value)[0]
    elif not isinstance(value, dict | str | bool if name == "json_schema" else str):
        wanted = "an object" if name == "json_schema" else "a text"
        raise UsageError(f"{name} is {cut(value)}: it takes {wanted}")
    return {**dict.fromkeys(GRAMMARS), name: value}
