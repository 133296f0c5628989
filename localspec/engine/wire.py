"""Frames: one command or notice as one line of JSON, checked field by field when it comes in.

A frame is `{"v": 1, "type": "Ask", ...fields}`. A value in it that may be one of several records has its `type`, too.
Knows no pipe and no process.
"""

import json
import math
import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from localspec.display import printable
from localspec.engine.protocol import VERSION, Command, EngineDied, Notice
from localspec.errors import UsageError

# A context of a million tokens is far below it; what is above is no conversation.
MAX_FRAME_BYTES = 32 << 20
_MOST = 1 << 60

COMMANDS: Mapping[str, type[Command]] = {kind.__name__: kind for kind in get_args(Command)}
NOTICES: Mapping[str, type[Notice]] = {
    kind.__name__: kind for kind in get_args(Notice) if kind is not EngineDied
}

T = TypeVar("T")


class FrameError(Exception):
    """A line is no frame of this protocol; the text says why, on one line."""


def encode(said: Command | Notice) -> bytes:
    """Return a command or a notice as a line, its end included.

    Raises:
        FrameError: it is larger than a frame may be.
    """
    document = {"v": VERSION, "type": type(said).__name__, **_fields(said)}
    # Escapes for all but ASCII: lone surrogates, which a paste may hold, travel as well.
    text = json.dumps(document, separators=(",", ":"))
    if (
        "Infinity" in text or "NaN" in text
    ):  # perhaps in a text: what we would not read, we do not send
        json.loads(text, parse_constant=_constant)
    line = text.encode() + b"\n"
    if len(line) > MAX_FRAME_BYTES:
        name = type(said).__name__
        advice = "send less text" if name in COMMANDS else "ask for less, or read answers faster"
        raise FrameError(f"{name} has {len(line)} bytes, more than {MAX_FRAME_BYTES}: {advice}")
    return line


def decode(line: bytes, kinds: Mapping[str, type[T]]) -> T:
    """Return the command or the notice in a line.

    Args:
        line: a frame.
        kinds: `COMMANDS` or `NOTICES`, whichever may come from that side.

    Raises:
        FrameError: it is malformed, of another version, or of no such kind.
    """
    try:
        document = json.loads(line, parse_constant=_constant)
    except (ValueError, RecursionError) as error:
        raise FrameError(
            f"a frame is not valid JSON: {' '.join(str(error).split())[:120]}"
        ) from None
    if not isinstance(document, dict):
        raise FrameError(f"a frame is a {type(document).__name__}, not an object")
    version = document.pop("v", None)
    if version != VERSION or isinstance(version, bool):
        told = printable(str(version)[:20])
        raise FrameError(
            f"a frame is of protocol {told}, this side speaks {VERSION}: "
            "localspec was changed while it ran, start it again"
        )
    kind = _kind(document, kinds, "a frame")
    built: T = _record(kind, document, kind.__name__)
    return built


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


@cache
def _tagged(hint: Any) -> Mapping[str, type]:
    """Return the records that a value may be one of, by name; nothing where it may be one at most."""
    records = [each for each in get_args(hint) if is_dataclass(each) and isinstance(each, type)]
    union = get_origin(hint) in {Union, types.UnionType} and len(records) > 1
    return {each.__name__: each for each in records} if union else {}


def _fields(record: Any) -> dict[str, Any]:
    hints = _hints(type(record))  # type: ignore[arg-type]  # mypy doubts that a class is hashable
    return {
        each.name: _plain(hints[each.name], getattr(record, each.name)) for each in fields(record)
    }


def _plain(hint: Any, value: Any) -> Any:
    """Return a value as JSON has it; `hint` is what it may be."""
    if hint is Any:
        return value
    if isinstance(value, tuple):
        kinds = (hint, *get_args(hint))
        several = next(each for each in kinds if get_origin(each) is tuple)
        items = _items(several, len(value))
        return [_plain(item, each) for item, each in zip(items, value, strict=True)]
    if isinstance(value, Mapping):
        item = get_args(hint)[1]
        return {name: _plain(item, each) for name, each in value.items()}
    if isinstance(value, Enum):
        return value.value
    if not is_dataclass(value):
        return value
    tag = {"type": type(value).__name__} if _tagged(hint) else {}
    return {**tag, **_fields(value)}


def _kind(document: object, kinds: Mapping[str, type[T]], where: str) -> type[T]:
    """Take its type out of a tagged record and return it."""
    if not isinstance(document, dict):
        raise FrameError(f"{where} is a {type(document).__name__}, not an object")
    name = document.pop("type", None)
    kind = kinds.get(name) if isinstance(name, str) else None
    if kind is None:
        raise FrameError(f"{where} is of unknown type {str(name)[:40]!r}")
    return kind


def _record(kind: type, value: object, where: str) -> Any:
    if not isinstance(value, dict):
        raise FrameError(f"{where} is a {type(value).__name__}, not an object")
    hints = _hints(kind)
    unknown = value.keys() - hints.keys()
    if unknown:
        raise FrameError(f"{where} has no field {str(min(unknown))[:40]!r}")
    built = {name: _value(hints[name], each, f"{where}.{name}") for name, each in value.items()}
    try:
        return kind(**built)
    except UsageError as error:
        reason = " ".join(str(error).split())[:200]
        raise FrameError(f"{where} cannot be: {reason}") from None
    except TypeError:
        missing = [each.name for each in fields(kind) if each.name not in built]
        raise FrameError(f"{where} lacks one of {', '.join(missing)}") from None


def _value(hint: Any, value: object, where: str) -> Any:
    """Return `value` as what `hint` says, or raise."""
    origin = get_origin(hint)
    if origin in {Union, types.UnionType}:
        if value is None and types.NoneType in get_args(hint):
            return None
        if kinds := _tagged(hint):
            return _record(_kind(value, kinds, where), value, where)
        # Of several types the first is how the value is kept, and so how it travels.
        hint = next(each for each in get_args(hint) if each is not types.NoneType)
        return _value(hint, value, where)
    if origin in {tuple, dict, Mapping}:
        return _several(hint, value, where)
    if is_dataclass(hint):
        return _record(hint, value, where)  # type: ignore[arg-type]  # a class, never an instance
    return _single(hint, value, where)


def _several(hint: Any, value: object, where: str) -> Any:
    """Return a tuple, or a mapping by names."""
    if get_origin(hint) in {dict, Mapping}:
        item, named = get_args(hint)[1], _instance(dict, value, where, "an object")
        return {name: _value(item, each, f"{where}.{name}") for name, each in named.items()}
    listed = _instance(list, value, where, "a list")
    items = _items(hint, len(listed))
    if len(items) != len(listed):
        raise FrameError(f"{where} has {len(listed)} items, not {len(items)}")
    pairs = enumerate(zip(items, listed, strict=True))
    return tuple(_value(item, each, f"{where}[{index}]") for index, (item, each) in pairs)


def _items(hint: Any, length: int) -> tuple[Any, ...]:
    """Return what each item of a tuple may be; one of any length has `length` of them."""
    items = get_args(hint)
    return items[:1] * length if items[-1] is Ellipsis else items


def _single(hint: Any, value: object, where: str) -> Any:
    """Return a text, a number, a switch, one of a few values, or whatever JSON holds."""
    if hint is Any:
        return value
    if isinstance(hint, type) and issubclass(hint, Enum):
        if value in [each.value for each in hint]:
            return hint(value)
        raise FrameError(f"{where} cannot be {json.dumps(value)[:40]}")
    # A bool is no int here, and an int is as good as a float.
    allowed = value in get_args(hint) if get_origin(hint) is Literal else type(value) is hint
    if not allowed and not (hint is float and type(value) is int and abs(value) < _MOST):
        raise FrameError(f"{where} cannot be {json.dumps(value)[:40]}")
    return float(value) if hint is float else value  # type: ignore[arg-type]


def _instance(kind: type[T], value: object, where: str, wanted: str) -> T:
    if not isinstance(value, kind):
        raise FrameError(f"{where} is a {type(value).__name__}, not {wanted}")
    return value


def _constant(name: str) -> float:
    if name == "-Infinity":  # the bias of a token that is forbidden
        return -math.inf
    raise ValueError(f"{name} is not a number")
