"""Reads the files in which keys are set: the user's own, and a project's, which is not trusted."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from localspec.config.keys import KEYS, Setting, from_file, is_plain_name
from localspec.errors import UsageError
from localspec.models.toml import KeyPath, key_lines
from localspec.storage.files import read_bounded
from localspec.storage.paths import config_dir, shown

USER_FILE = "config.toml"
PROJECT_FILE = "localspec.toml"
_MOST_BYTES = 64 << 10


def user_file() -> Path:
    """Return where the user's own file is, or would be."""
    return config_dir() / USER_FILE


def project_file(start: Path, home: Path) -> Path | None:
    """Return the nearest project file, in `start` or a directory above it.

    Looked through are the directories up to the root of the repository, or else up to `home`;
    outside of both, `start` alone: anybody could have put a file into what is above it.
    """
    folders = [start, *start.parents]
    repository = next((folder for folder in folders if (folder / ".git").exists()), None)
    top = repository or (home if start.is_relative_to(home) else start)
    for folder in folders:
        file = folder / PROJECT_FILE
        if file.is_file():
            return file
        if folder == top:
            break
    return None


def read_settings(file: Path, *, trusted: bool) -> dict[str, Setting]:
    """Return the keys that a file sets; none where it does not exist.

    Args:
        file: TOML, a key a line.
        trusted: False for a project's file, which may not set every key.

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
    return _checked(values, file, key_lines(text), trusted)


def _checked(
    values: Mapping[str, Any], file: Path, lines: Mapping[KeyPath, int], trusted: bool
) -> dict[str, Setting]:
    found: dict[str, Setting] = {}
    for name, value in values.items():
        line = f", line {lines[(name,)]}" if (name,) in lines else ""
        where = f"{shown(file)}{line}: {name[:60]!r}"
        key = KEYS.get(name)
        if key is None:
            raise UsageError(f"{where} is not a known setting: use one of {', '.join(KEYS)}")
        try:
            found[name] = from_file(key, value)
        except ValueError as problem:
            raise UsageError(f"{where} {problem}") from None
        if trusted:
            continue
        if key.by_project == "no":
            raise UsageError(f"{where} cannot be set by a project: set it in {shown(user_file())}")
        if key.by_project == "known names" and not _known_name_only(str(value), file):
            raise UsageError(
                f"{where} is {str(value)[:60]!r}: a project may give the name of a known model, "
                "no path and no address"
            )
    return found


def _known_name_only(value: str, file: Path) -> bool:
    # A bare name also means a file of that name in the working directory, which a checkout could
    # bring along, too.
    places = (Path(value), file.parent / value)
    return is_plain_name(value) and not any(place.exists() for place in places)
