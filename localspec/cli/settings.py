"""What a verb runs with: its flags, laid over environment, files and defaults."""

import os
import shlex
from collections.abc import Mapping
from typing import Any

import click
from click.core import ParameterSource

from localspec.config.keys import KEYS
from localspec.config.resolve import PREFIX, Level, Resolved, resolve, with_recommended
from localspec.models.registry import load_registry
from localspec.options import SamplingParams, options_of

_SAMPLING = frozenset(each.name for each in options_of(SamplingParams) if each.key)


def configured(flags: Mapping[str, Any], *, recommended: bool = True) -> dict[str, Any]:
    """Return the flags of the verb that is running, with every key as it is set.

    Mirrors and telemetry are handed on by their variables, which is where downloads, and an engine's
    process, look for them.

    Args:
        flags: as they were parsed.
        recommended: sample as the model's makers recommend where nobody set anything, in a verb that samples.

    Raises:
        UsageError: a file or a variable, or the registry, sets what is unknown or unusable.
    """
    found = _found(flags)
    if recommended and flags.keys() >= _SAMPLING:
        found = with_recommended(found, load_registry())
    resolved = {name: each.value for name, each in found.items()}
    mirrors = resolved.pop("mirrors")
    if isinstance(mirrors, tuple) and mirrors:
        os.environ[f"{PREFIX}MIRRORS"] = shlex.join(mirrors)
    os.environ[f"{PREFIX}TELEMETRY"] = "on" if resolved.pop("telemetry") else "off"
    return {**flags, **resolved}


def unset_sampling(flags: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of what nobody set of how to sample: the model's makers may say it."""
    found = _found(flags)
    return frozenset(name for name in _SAMPLING if found[name].origin.level is Level.DEFAULT)


def _found(flags: Mapping[str, Any]) -> dict[str, Resolved]:
    context = click.get_current_context()
    given = {
        name: value
        for name, value in flags.items()
        if name in KEYS and context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    }
    return resolve(given)
