"""Reads the user's file of settings."""

import re
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from localspec.config.keys import KEYS, Setting, from_file
from localspec.errors import UsageError, did_you_mean
from localspec.storage.files import read_bounded
from localspec.storage.paths import config_dir, shown

USER_FILE = "config.toml"
_MOST_BYTES = 64 << 10


def user_file() -> Path:
    """Return where the user's own file is, or would be."""
    return config_dir() / USER_FILE


def read_settings(file: Path) -> dict[str, Setting]:
    """Return the keys that a file sets; none where it does not exist.

    Args:
        file: TOML, a key a line.

    Raises:
        UsageError: it is no TOML, or a key of it is unknown or has a value that it cannot take.
    """
    values, text = _parsed(file)
    return _checked(values, file, text)


def written_keys(file: Path) -> Collection[str]:
    """Return the keys that a file sets, whatever their values; raises UsageError where it is no TOML."""
    return _parsed(file)[0].keys()


def read_setting(file: Path, name: str) -> Setting:
    """Return what a file sets one key to, whatever else it says; the default where it sets none; raises as `read_settings`."""
    values, text = _parsed(file)
    key = KEYS[name]
    own = {name: values[name]} if name in values else {}
    return _checked(own, file, text).get(name, key.default)


def _parsed(file: Path) -> tuple[Mapping[str, Any], str]:
    """Return the values of a file, and its text."""
    try:
        if not file.exists():
            return {}, ""
        raw = read_bounded(file, _MOST_BYTES)
    except OSError as error:
        raise UsageError(f"{shown(file)} cannot be read ({error.strerror}): fix it") from error
    try:
        text = raw.decode()
        return tomllib.loads(text), text
    except (ValueError, RecursionError) as error:  # ValueError: also numbers of 5,000 digits
        reason = "too deeply nested" if isinstance(error, RecursionError) else str(error)[:200]
        raise UsageError(f"{shown(file)} is not TOML ({reason}): fix it") from error


def _checked(values: Mapping[str, Any], file: Path, text: str) -> dict[str, Setting]:
    settings: dict[str, Setting] = {}
    for name, value in values.items():
        where = f"{shown(file)}{_line(text, name)}: {name[:60]!r}"
        key = KEYS.get(name)
        if key is None:
            hint = did_you_mean(name, KEYS) or f"use one of {', '.join(KEYS)}"
            if name == "model":  # `config set` knows which of the two it is
                hint = "write `pair` for a name, `target` for a .gguf file"
            raise UsageError(f"{where} is not a known setting: {hint}")
        try:
            settings[name] = from_file(key, value)
        except ValueError as problem:
            raise UsageError(f"{where} {problem}") from None
    return settings


def _line(text: str, name: str) -> str:
    """Return on which line a key stands, as messages say it; empty where that is not plain."""
    pattern = re.compile(rf"\s*\[?[\"']?{re.escape(name)}[\"']?\s*[].=]")
    numbers = (at for at, line in enumerate(text.split("\n"), 1) if pattern.match(line))
    return next((f", line {number}" for number in numbers), "")
