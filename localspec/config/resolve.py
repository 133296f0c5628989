"""Which value a key has, and who set it."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from localspec.config.files import read_setting, read_settings, user_file
from localspec.config.keys import KEYS, Setting, from_variable
from localspec.display import printable_line
from localspec.errors import UsageError
from localspec.storage.paths import shown

if TYPE_CHECKING:
    from localspec.models.registry import Registry

PREFIX = "LOCALSPEC_"
_OTHER_VARIABLES = ("DATA_DIR", "CONFIG_DIR", "SERVER_KEY", "BUILD")
"""Variables that are no settings, without the prefix."""
_LIKE = 0.75


class Level(IntEnum):
    """Who may set a key; the higher one is heard."""

    DEFAULT = 0
    MODEL = 1
    USER = 2
    ENVIRONMENT = 3
    FLAG = 4


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value came from; `place` is a file, a variable, a flag, or what the registry says of a model."""

    level: Level
    place: str = ""

    def __str__(self) -> str:
        return "default" if self.level is Level.DEFAULT else self.place


@dataclass(frozen=True, slots=True)
class Resolved:
    """A value and its origin."""

    value: Setting
    origin: Origin


def resolve(
    flags: Mapping[str, Setting], environ: Mapping[str, str] | None = None
) -> dict[str, Resolved]:
    """Return what every key is set to.

    A pair and a target cannot be combined, so whichever was set on the higher level puts the other
    aside; and with it a draft model of a lower level, which was meant for another target. A server puts aside all of these of a
    lower level, and `own` a server.

    Args:
        flags: those that were given on the command line.
        environ: the environment; that of this process by default.

    Raises:
        UsageError: a file or a variable sets what is unknown or unusable.
    """
    layers = [
        (Origin(Level.FLAG, f"--{name.replace('_', '-')}"), {name: value})
        for name, value in flags.items()
    ]
    layers += _from_environment(os.environ if environ is None else environ)
    own = user_file()
    layers.append((Origin(Level.USER, shown(own)), read_settings(own)))
    resolved = {name: Resolved(key.default, Origin(Level.DEFAULT)) for name, key in KEYS.items()}
    for origin, values in reversed(layers):
        for name, value in values.items():
            resolved[name] = Resolved(value, origin)
    _put_aside(resolved)
    return resolved


def is_offline() -> bool:
    """Return whether the setting or the variable keeps from the network; so does what cannot be read, since it may say so."""
    text = os.environ.get(f"{PREFIX}OFFLINE")
    try:
        return bool(
            from_variable(KEYS["offline"], text) if text else read_setting(user_file(), "offline")
        )
    except (ValueError, UsageError):  # for the command that needs these settings to say
        return True


def with_recommended(resolved: Mapping[str, Resolved], registry: "Registry") -> dict[str, Resolved]:
    """Return settings with the sampling that the model's makers, or its file, recommend, if none is set.

    Args:
        resolved: what `resolve` returned.
        registry: says what is recommended.
    """
    name = str(resolved["target"].value or resolved["pair"].value or registry.default_pair)
    from localspec.models.sampling import recommended  # noqa: PLC0415 - reads headers, with numpy

    values, by = recommended(name, registry)
    origin = Origin(Level.MODEL, by)
    sampling = {
        key: Resolved(value, origin)
        for key, value in values.items()
        if key in resolved and resolved[key].origin.level is Level.DEFAULT
    }
    return {**resolved, **sampling}


def misspelt_variables(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield a line about each variable that changes nothing, and is nearly the name of one that does."""
    known = [*(name.upper() for name in KEYS), *_OTHER_VARIABLES]
    for variable, text in environ.items():
        name = variable.removeprefix(PREFIX)
        if not text or name == variable or name in known:
            continue
        if name == "MODEL":
            near = [f"{PREFIX}PAIR for a name, or {PREFIX}TARGET for a GGUF file"]
        else:
            import difflib  # noqa: PLC0415 - only for a mistyped word

            begun = [each for each in known if each.startswith(name) and name[2:]]
            names = dict.fromkeys([*begun, *difflib.get_close_matches(name, known, 1, _LIKE)])
            near = [f"{PREFIX}{each}" for each in names][:2]
        if near:
            visible = printable_line(variable)[:60]
            yield f"environment variable {visible} changes nothing: did you mean {' or '.join(near)}?"


def _from_environment(environ: Mapping[str, str]) -> list[tuple[Origin, dict[str, Setting]]]:
    layers = []
    for name, key in KEYS.items():
        variable = PREFIX + name.upper()
        text = environ.get(variable, "")
        if not text:  # as with most programs, set to nothing is not set
            continue
        try:
            value = from_variable(key, text)
        except ValueError as problem:
            raise UsageError(f"environment variable {variable} {problem}") from None
        layers.append((Origin(Level.ENVIRONMENT, variable), {name: value}))
    return layers


def _put_aside(resolved: dict[str, Resolved]) -> None:
    aside = []
    server, own = resolved["server"], resolved["own"]
    if own.value and own.origin.level > server.origin.level:
        aside.append("server")
    elif server.value is not None:  # a model of this machine is none of it
        names = ("pair", "target", "draft_model", "draft_lora", "mmproj")
        aside += [each for each in names if resolved[each].origin.level < server.origin.level]
    pair, target = resolved["pair"].origin.level, resolved["target"].origin.level
    if pair != target:
        aside.append("target" if pair > target else "pair")
    if resolved["draft_model"].origin.level < max(pair, target):
        aside.append("draft_model")
    if resolved["draft_lora"].origin.level < max(
        pair, target, resolved["draft_model"].origin.level
    ):
        aside.append("draft_lora")
    if resolved["mmproj"].value != "off" and resolved["mmproj"].origin.level < max(pair, target):
        aside.append("mmproj")
    for name in aside:
        resolved[name] = Resolved(None, Origin(Level.DEFAULT))
