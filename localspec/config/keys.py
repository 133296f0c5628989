"""The keys that can be set: the options that are, the system prompt of `run` and `chat`, and those of the program itself."""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from localspec.decoding.drafters.register import DRAFTERS
from localspec.options import LaunchOptions, Option, ReplyOptions, cut, options_of

T = TypeVar("T")
Setting = str | int | float | bool | tuple[str, ...] | None


def offered(option: Option) -> Option:
    """Return an option with all that users may write for it: of drafting, the drafters that there are."""
    if option.name != "draft":
        return option
    choices = (*option.choices, *DRAFTERS)
    return replace(option, choices=choices, takes=f"one of {', '.join(choices)}")


def _bounded(name: str, default: int, least: int, most: int) -> Option:
    range_text = f"from {least} to {most}"
    return Option(
        name=name,
        field=name,
        kind="whole",
        default=default,
        least=least,
        most=most,
        takes=f"a whole number {range_text}",
        range_text=range_text,
    )


KEYS: Mapping[str, Option] = {
    **{
        each.name: offered(each)
        for kind in (LaunchOptions, ReplyOptions)
        for each in options_of(kind)
        if each.key
    },
    "system": Option(
        name="system",
        field="system",
        kind="text",
        may_be_unset=True,
        takes="a text",
    ),
    "mirrors": Option(
        name="mirrors", field="mirrors", kind="texts", default=(), takes="a list of texts"
    ),
    "telemetry": Option(
        name="telemetry",
        field="telemetry",
        kind="choice",
        choices=("off", "on", "text"),
        default="on",
        takes="off, on or text",
    ),
    "telemetry_megabytes": _bounded("telemetry_megabytes", 128, 16, 1 << 20),
    "telemetry_days": _bounded("telemetry_days", 365, 1, 36500),
    "store": Option(
        name="store", field="store", kind="switch", default=False, takes="true or false"
    ),
    "store_megabytes": _bounded("store_megabytes", 64, 1, 4096),
    "gate": Option(
        name="gate",
        field="gate",
        kind="text",
        default="off",
        takes="usual, off or the path of a file",
    ),
    "vectors": Option(
        name="vectors",
        field="vectors",
        kind="text",
        default="off",
        takes="off or the name of a model that makes vectors",
    ),
    "own": Option(name="own", field="own", kind="switch", default=False, takes="true or false"),
}
_CREDENTIALS = re.compile(r"//[^/@\s]*@")
# What chooses a model: a pair or a target, and with it a draft model.
MODELS = ("pair", "target", "draft_model")


def from_file(key: Option, value: object) -> Setting:
    """Return the setting that a value of a TOML file means.

    Raises:
        ValueError: it means none, or one that cannot be used; the text is the rest of a sentence.
    """
    return _usable(key, value, key.read)


def from_variable(key: Option, text: str) -> Setting:
    """Return the setting that the text of an environment variable means.

    Raises:
        ValueError: it means none, or one that cannot be used; the text is the rest of a sentence.
    """
    return _usable(key, text, key.parse)


def as_written(key: Option, value: Setting) -> object:
    """Return a setting as people write it, without the names and passwords of addresses."""
    if value is None:
        return key.unset or None
    if isinstance(value, tuple):
        return [_CREDENTIALS.sub("//***@", each) for each in value]
    return value


def _usable(key: Option, given: T, read: Callable[[T], Any]) -> Setting:
    try:
        value = read(given)
    except ValueError:
        value = ""
    if value == "" or (isinstance(value, tuple) and "" in value):
        raise ValueError(f"is {cut(given)}, but takes {key.takes}")
    problem = key.problem(value)
    if problem is not None:
        raise ValueError(f"cannot be used: {problem}")
    return value  # type: ignore[no-any-return]  # options with a key take no other values
