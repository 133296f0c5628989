"""Frames: one message as one line of JSON, checked field by field when it comes in.

A frame is `{"v": 1, "type": "Ask", ...fields}`. Knows no pipe and no process.
"""

import json
import math
import types
from collections.abc import Mapping
from dataclasses import asdict, fields, is_dataclass
from functools import cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from localspec.engine.protocol import VERSION, Command, EngineDied, Message
from localspec.errors import UsageError

# A context of a million tokens is far below it; what is above is no conversation.
MAX_FRAME_BYTES = 32 << 20
_MOST = 1 << 60

COMMANDS: Mapping[str, type[Command]] = {kind.__name__: kind for kind in get_args(Command)}
MESSAGES: Mapping[str, type[Message]] = {
    kind.__name__: kind for kind in get_args(Message) if kind is not EngineDied
}

T = TypeVar("T")


class FrameError(Exception):
    """A line is no frame of this protocol; the text says why, on one line."""


def encode(message: Command | Message) -> bytes:
    """Return a message as a line, its end included.

    Raises:
        FrameError: it is larger than a frame may be.
    """
    document = {"v": VERSION, "type": type(message).__name__, **asdict(message)}
    # Escapes for all but ASCII: lone surrogates, which a paste may hold, travel as well.
    text = json.dumps(document, separators=(",", ":"))
    if (
        "Infinity" in text or "NaN" in text
    ):  # perhaps in a text: what we would not read, we do not send
        json.loads(text, parse_constant=_constant)
    line = text.encode() + b"\n"
    if len(line) > MAX_FRAME_BYTES:
        raise FrameError(
            f"{type(message).__name__} has {len(line)} bytes, more than {MAX_FRAME_BYTES}: send less text"
        )
    return line


def decode(line: bytes, kinds: Mapping[str, type[T]]) -> T:
    """Return the message in a line.

    Args:
        line: a frame.
        kinds: `COMMANDS` or `MESSAGES`, whichever may come from that side.

    Raises:
        FrameError: it is malformed, of another version, or of no such kind.
    """
    try:
        document = json.loads(line, parse_constant=_constant)
    except (ValueError, RecursionError) as error:
        raise FrameError(f"a frame is no JSON: {' '.join(str(error).split())[:120]}") from None
    if not isinstance(document, dict):
        raise FrameError(f"a frame is a {type(document).__name__}, not an object")
    version = document.pop("v", None)
    if version != VERSION or isinstance(version, bool):
        told = "".join(each if each.isprintable() else "?" for each in str(version)[:20])
        raise FrameError(
            f"a frame is of protocol {told}, this side speaks {VERSION}: "
            "localspec was changed while it ran, start it again"
        )
    name = document.pop("type", None)
    kind = kinds.get(name) if isinstance(name, str) else None
    if kind is None:
        raise FrameError(f"a frame is of unknown type {str(name)[:40]!r}")
    built: T = _record(kind, document, kind.__name__)
    return built


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


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
        # Of several types the first is how the value is kept, and so how it travels.
        hint = next(each for each in get_args(hint) if each is not types.NoneType)
        return _value(hint, value, where)
    if origin is tuple:
        if not isinstance(value, list):
            raise FrameError(f"{where} is a {type(value).__name__}, not a list")
        items = get_args(hint)
        if items[-1] is Ellipsis:
            items = items[:1] * len(value)
        if len(items) != len(value):
            raise FrameError(f"{where} has {len(value)} items, not {len(items)}")
        pairs = enumerate(zip(items, value, strict=True))
        return tuple(_value(item, each, f"{where}[{index}]") for index, (item, each) in pairs)
    if is_dataclass(hint):
        return _record(hint, value, where)  # type: ignore[arg-type]  # a class, never an instance
    # A bool is no int here, and an int is as good as a float.
    allowed = value in get_args(hint) if origin is Literal else type(value) is hint
    if not allowed and not (hint is float and type(value) is int and abs(value) < _MOST):
        raise FrameError(f"{where} cannot be {json.dumps(value)[:40]}")
    return float(value) if hint is float else value  # type: ignore[arg-type]


def _constant(name: str) -> float:
    if name == "-Infinity":  # the bias of a token that is forbidden
        return -math.inf
    raise ValueError(f"{name} is no number")
