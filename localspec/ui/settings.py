"""Settings of the chat: the options of a reply that are numbers, as they are typed and kept."""

import json
from collections.abc import Mapping

from localspec.errors import UsageError
from localspec.options import Option, ReplyOptions, changed, options_of, values_of

_SETTINGS: Mapping[str, Option] = {
    each.name: each for each in options_of(ReplyOptions) if each.kind in {"whole", "number"}
}
NAMES = tuple(_SETTINGS)
_OFF = {"", "-", "none", "off"}


def set_option(options: ReplyOptions, name: str, value: str) -> ReplyOptions:
    """Return options with one of them set from its text.

    Raises:
        UsageError: no such setting, or a value that it cannot take.
    """
    setting = _SETTINGS.get(name)
    if setting is None:
        raise UsageError(f"there is no setting {name[:40]!r}: known are {', '.join(NAMES)}")
    return changed(options, {name: _value(setting, value)})


def lines(options: ReplyOptions) -> list[str]:
    """Return the settings as they are told to people."""
    width = max(map(len, NAMES))
    return [f"{name:<{width}}  {text_of(options, name)}" for name in NAMES]


def text_of(options: ReplyOptions, name: str) -> str:
    """Return one setting as it is typed."""
    value = values_of(options)[name]
    if value is None:
        return "off"
    return f"{value:g}" if isinstance(value, float) else str(value)


def as_json(options: ReplyOptions) -> str:
    """Return the settings as they are kept with a conversation; the seed is no setting of it."""
    values = values_of(options)
    return json.dumps({name: values[name] for name in NAMES if name != "seed"})


def from_json(text: str, otherwise: ReplyOptions) -> ReplyOptions:
    """Return kept settings; where they are damaged, or of another version, the others."""
    try:
        values = json.loads(text)
        return changed(otherwise, {name: values[name] for name in NAMES if name in values})
    except (ValueError, TypeError, UsageError):
        return otherwise


def _value(setting: Option, text: str) -> float | int | None:
    if setting.may_be_unset and text.lower() in _OFF:
        return None
    try:
        number: float | int = setting.parse(text)
    except ValueError:
        raise UsageError(f"{setting.name} is {text[:40]!r}: it takes {setting.takes}") from None
    return number
