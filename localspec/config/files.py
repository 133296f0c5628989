"""Reads the user's file of settings."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from localspec.config.keys import KEYS, Setting, from_file
from localspec.display import notice
from localspec.errors import UsageError, did_you_mean
from localspec.models.toml import KeyPath, key_lines
from localspec.storage.files import read_bounded
from localspec.storage.paths import config_dir, shown

USER_FILE = "config.toml"
GONE = frozenset({"power"})
"""Settings of earlier versions, which a file may still have."""
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
    try:
        if not file.exists():
            return {}
        raw = read_bounded(file, _MOST_BYTES)
    except OSError as error:
        raise UsageError(f"{shown(file)} cannot be read ({error.strerror}): fix it") from error
    try:
        text = raw.decode()
        values = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError: also numbers of 5,000 digits
        reason = "too deeply nested" if isinstance(error, RecursionError) else str(error)[:200]
        raise UsageError(f"{shown(file)} is not TOML ({reason}): fix it") from error
    return _checked(values, file, key_lines(text))


def _checked(
    values: Mapping[str, Any], file: Path, lines: Mapping[KeyPath, int]
) -> dict[str, Setting]:
    found: dict[str, Setting] = {}
    for name, value in values.items():
        line = f", line {lines[(name,)]}" if (name,) in lines else ""
        where = f"{shown(file)}{line}: {name[:60]!r}"
        if name in GONE:
            notice(f"{where} is gone: remove it with `localspec config unset {name}`")
            continue
        key = KEYS.get(name)
        if key is None:
            hint = did_you_mean(name, KEYS) or f"use one of {', '.join(KEYS)}"
            raise UsageError(f"{where} is not a known setting: {hint}")
        try:
            found[name] = from_file(key, value)
        except ValueError as problem:
            raise UsageError(f"{where} {problem}") from None
    return found
