"""Sampling settings of the chat: names, values as they are typed, checked by those who know their ranges."""

import dataclasses
import json
from typing import Any

from localspec.engine.protocol import Options
from localspec.errors import UsageError

_WHOLE = {"top_k", "penalty_last_n", "seed", "max_tokens"}
NAMES = tuple(each.name for each in dataclasses.fields(Options) if each.name != "stop")
_MAY_BE_OFF = {"seed", "max_tokens"}
_OFF = {"", "-", "none", "off"}


def changed(options: Options, name: str, value: str) -> Options:
    """Return options with one of them set from its text.

    Raises:
        UsageError: no such setting, or a value that it cannot take.
    """
    if name not in NAMES:
        raise UsageError(f"there is no setting {name[:40]!r}: known are {', '.join(NAMES)}")
    change: dict[str, Any] = {name: _value(name, value)}
    return checked(dataclasses.replace(options, **change))


def checked(options: Options) -> Options:
    """Return the options, if an answer can be made with them.

    Raises:
        UsageError: a value is out of its range.
    """
    # Imported late: numpy comes with them, and the first frame does not wait for it.
    from localspec.decoding.sampling import SamplingParams  # noqa: PLC0415

    names = {each.name for each in dataclasses.fields(SamplingParams)} & set(NAMES)
    SamplingParams(**{name: getattr(options, name) for name in names})
    if options.max_tokens is not None and options.max_tokens < 1:
        raise UsageError(f"max_tokens is {options.max_tokens}: it must be 1 or more, or off")
    return options


def lines(options: Options) -> list[str]:
    """Return the settings as they are told to people."""
    width = max(map(len, NAMES))
    return [f"{name:<{width}}  {text_of(options, name)}" for name in NAMES]


def text_of(options: Options, name: str) -> str:
    """Return one setting as it is typed."""
    value = getattr(options, name)
    return "off" if value is None else f"{value:g}"


def as_json(options: Options) -> str:
    """Return the settings as they are kept with a conversation; the seed is no setting of it."""
    values = dataclasses.asdict(options)
    return json.dumps({name: values[name] for name in NAMES if name != "seed"})


def from_json(text: str, otherwise: Options) -> Options:
    """Return kept settings; where they are damaged, or of another version, the others."""
    try:
        values = json.loads(text)
        known: dict[str, Any] = {name: values[name] for name in NAMES if name in values}
        return checked(dataclasses.replace(otherwise, **known))
    except (ValueError, TypeError, UsageError):
        return otherwise


def _value(name: str, text: str) -> float | int | None:
    if name in _MAY_BE_OFF and text.lower() in _OFF:
        return None
    try:
        return int(text) if name in _WHOLE else float(text)
    except ValueError:
        kind = "a whole number" if name in _WHOLE else "a number"
        raise UsageError(f"{name} is {text[:40]!r}: it takes {kind}") from None
