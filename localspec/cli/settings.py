"""What a verb runs with: its flags, laid over environment, files and defaults."""

import os
import shlex
from collections.abc import Mapping
from typing import Any

import click
from click.core import ParameterSource

from localspec.config.keys import KEYS
from localspec.config.resolve import PREFIX, Level, resolve
from localspec.errors import UsageError


def configured(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return the flags of the verb that is running, with every key as it is set; `model` sets pair or target.

    `unset` are the keys that nobody set.
    `system` stays what the flag says; what holds in `run` and `chat` without one is `usual_system`.

    Mirrors are handed on by their variable, which is where downloads look for them.

    Raises:
        UsageError: a file or a variable sets what is unknown or unusable, or two flags name the model.
    """
    context = click.get_current_context()
    given = {
        name: value
        for name, value in flags.items()
        if name in KEYS and context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    }
    given |= _chosen(flags)
    from localspec.config.own import adopt_switches  # noqa: PLC0415 - not for `--help`

    adopt_switches()
    found = resolve(given)
    resolved = {name: each.value for name, each in found.items()}
    unset = [name for name, each in found.items() if each.origin.level is Level.DEFAULT]
    mirrors = resolved.pop("mirrors")
    if isinstance(mirrors, tuple) and mirrors:
        os.environ[f"{PREFIX}MIRRORS"] = shlex.join(mirrors)
    return {**flags, "usual_system": resolved.pop("system"), "unset": unset, **resolved}


def with_own(flags: Mapping[str, Any], name: str | None = None) -> dict[str, Any]:
    """Return configured flags as they suit a model, where nobody set them: as its makers recommend.

    Args:
        flags: as `configured` returns them.
        name: of a pair or a model; None takes the one that they load.
    """
    from localspec.models.registry import load_registry  # noqa: PLC0415 - few verbs answer

    registry = load_registry()
    own = registry.sampling(name or flags["target"] or flags["pair"] or registry.default_pair)
    return {**flags, **{each: own[each] for each in own if each in flags["unset"]}}


def _chosen(flags: Mapping[str, Any]) -> dict[str, str]:
    """Return the pair or the target that `--model`, or a word, chose."""
    name = flags.get("model")
    if not name:
        return {}
    for other in ("pair", "target"):
        if flags[other]:
            raise UsageError(
                f"model {name} and --{other} {flags[other]} cannot be combined: give one of them"
            )
    from localspec.models.registry import load_registry  # noqa: PLC0415 - few verbs name models

    return load_registry().chosen(name)
