"""The keys that can be set: the options that are, the system prompt of `run` and `chat`, and those of the program itself."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from localspec.decoding.drafters.register import drafter_names, drafters
from localspec.options import LaunchOptions, Option, ReplyOptions, cut, option, options_of

T = TypeVar("T")
Setting = str | int | float | bool | tuple[str, ...] | None


def offered(option: Option) -> Option:
    """Return an option with all that users may write for it: of drafting, the drafters that there are."""
    if option.name != "draft":
        return option
    choices = ("auto", "off", *drafter_names())
    takes = f"one of {', '.join(choices)}"
    return replace(option, kind="choice", choices=choices, others=drafters, takes=takes)


@dataclass(frozen=True, slots=True)
class ProgramSettings:
    """Settings that no flag of `LaunchOptions` and `ReplyOptions` is."""

    system: str | None = option(None)
    mirrors: tuple[str, ...] = option(())
    telemetry: str = option("on", choices=("off", "on", "text"))
    telemetry_megabytes: int = option(128, least=16, most=1 << 20)
    telemetry_days: int = option(365, least=1, most=36500)
    history_days: int = option(0, least=0, most=36500)
    store: bool = option(False)
    store_megabytes: int = option(64, least=1, most=4096)
    gate: str = option("off", takes="usual, off or the path of a file")
    vectors: str = option("off", takes="off or the name of a model that makes vectors")
    own: bool = option(False)


KEYS: Mapping[str, Option] = {
    **{
        each.name: offered(each)
        for kind in (LaunchOptions, ReplyOptions)
        for each in options_of(kind)
        if each.key
    },
    **{each.name: each for each in options_of(ProgramSettings)},
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
        is_long = key.name == "draft" and ":" in str(given)
        length = "; a length is the setting draft_length" if is_long else ""
        raise ValueError(f"is {cut(given)}, but takes {key.takes}{length}")
    problem = key.problem(value)
    if problem is not None:
        raise ValueError(problem.removeprefix(f"{key.name} "))
    return value  # type: ignore[no-any-return]  # options with a key take no other values
