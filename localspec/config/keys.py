"""The keys that can be set, what each takes, and which of them a project's file may set."""

import math
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["text", "choice", "whole", "number", "switch", "list", "layers"]
Setting = str | int | float | bool | list[str] | None

_TRUE, _FALSE = {"1", "true", "yes", "on"}, {"0", "false", "no", "off"}
_LIST = "a list of texts"


@dataclass(frozen=True, slots=True)
class Key:
    """One thing that can be set.

    Args:
        kind: what values it takes.
        default: the value where nobody sets it; None leaves it to the program.
        choices: of a choice.
        in_project: whether a project's file may set it. Such a file comes with a checkout and is
            whatever its author wanted: it may choose among known models and how they answer, not
            paths, addresses or what is due to the machine.
    """

    kind: Kind
    default: Setting = None
    choices: tuple[str, ...] = ()
    in_project: bool = False


KEYS: Mapping[str, Key] = {
    "pair": Key("text", in_project=True),
    "target": Key("text", in_project=True),
    "draft_model": Key("text", in_project=True),
    "draft": Key("choice", "auto", ("auto", "off", "lookup", "model"), in_project=True),
    "draft_length": Key("whole", in_project=True),
    "exact": Key("switch", False),
    "temperature": Key("number", 0.8, in_project=True),
    "top_k": Key("whole", 40, in_project=True),
    "top_p": Key("number", 0.95, in_project=True),
    "min_p": Key("number", 0.05, in_project=True),
    "repeat_penalty": Key("number", 1.0, in_project=True),
    "max_tokens": Key("whole", in_project=True),
    "ctx": Key("whole", in_project=True),
    "kv_type": Key("choice", "f16", ("f16", "bf16", "f32", "q8_0"), in_project=True),
    "threads": Key("whole"),
    "gpu_layers": Key("layers", "auto"),
    "device": Key("list", []),
    "offline": Key("switch", False),
    "fit": Key("switch", True),
    "mirrors": Key("list", []),
    "telemetry": Key("switch", True),
}

MODEL_KEYS = ("pair", "target", "draft_model")
_CREDENTIALS = re.compile(r"//[^/@\s]*@")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]*")


def problem_with(key: Key, value: object) -> str | None:
    """Return what is wrong with a value from a file, as the rest of a sentence; None if nothing."""
    wanted, fits = _WANTED[key.kind]
    if key.kind == "choice":
        wanted = f"one of {', '.join(key.choices)}"
        good = value in key.choices if isinstance(value, str) else False
    else:
        good = fits(value)
    return None if good else f"is {_cut(value)}, but takes {wanted}"


def from_text(key: Key, text: str) -> Setting:
    """Return the value that the text of an environment variable means.

    Raises:
        ValueError: it means none; the text is the rest of a sentence.
    """
    value: Any = text
    lower = text.strip().lower()
    try:
        if key.kind == "switch":
            value = True if lower in _TRUE else False if lower in _FALSE else text
        elif key.kind == "list":
            value = shlex.split(text)
        elif key.kind == "number":
            value = float(text)
        elif key.kind == "whole" or (key.kind == "layers" and lower != "auto"):
            value = int(text)
    except ValueError:
        value = text
    problem = problem_with(key, value)
    if problem:
        raise ValueError(problem)
    return value  # type: ignore[no-any-return]


def is_plain_name(value: str) -> bool:
    """Return whether a reference is a name that only a registry knows: no path, no address."""
    return bool(_NAME.fullmatch(value)) and not value.lower().endswith(".gguf")


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63


def _number(value: object) -> bool:
    return _whole(value) or (isinstance(value, float) and math.isfinite(value))


def _text(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _texts(value: object) -> bool:
    return isinstance(value, list) and all(map(_text, value))


def _layers(value: object) -> bool:
    return value == "auto" or (_whole(value) and value >= 0)  # type: ignore[operator]


_WANTED: Mapping[str, tuple[str, Callable[[object], bool]]] = {
    "text": ("a text", _text),
    "choice": ("", _text),
    "whole": ("a whole number", _whole),
    "number": ("a number", _number),
    "switch": ("true or false", lambda value: isinstance(value, bool)),
    "list": (_LIST, _texts),
    "layers": ("a number of layers or 'auto'", _layers),
}


def _cut(value: object) -> str:
    try:
        shown = repr(value)
    except ValueError:  # hexadecimal numbers may be longer than Python prints
        return "a number of thousands of digits"
    return shown if len(shown) <= 60 else f"{shown[:60]}…"


def redacted(value: Setting) -> Setting:
    """Return a setting as it may be shown: without the names and passwords of addresses."""
    if isinstance(value, list):
        return [_CREDENTIALS.sub("//***@", each) for each in value]
    return value
