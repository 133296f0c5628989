"""Changes the user's own file of settings, a key at a time; comments in it stay."""

from collections.abc import Mapping
from pathlib import Path

from localspec.config.files import read_settings, user_file, written_keys
from localspec.config.keys import KEYS, MODELS, Setting, from_variable
from localspec.config.resolve import Level, resolve
from localspec.display import notice
from localspec.errors import UsageError, did_you_mean
from localspec.storage.files import private_directory, write_atomic
from localspec.storage.locks import locked
from localspec.storage.paths import shown
from localspec.storage.toml import with_key

MODEL = "model"


def set_own(name: str, text: str) -> Setting:
    """Set a key to what a text means, and return that.

    Raises:
        UsageError: no such key, a value that it cannot take, or a file that cannot be changed.
    """
    key = KEYS.get(name)
    if key is None:
        raise unknown_key(name)
    try:
        value = from_variable(key, text)
    except ValueError as problem:
        raise UsageError(f"{name} {problem}") from None
    others = [each for each in ("pair", "target") if name in {"pair", "target"} and each != name]
    _write({**dict.fromkeys(others), name: value})
    return value


def unset_own(name: str) -> bool:
    """Take a key out of the file, all that choose a model for `model`; return whether it was there.

    Raises:
        UsageError: no such key, or a file that cannot be changed.
    """
    present = written_keys(user_file())
    if name != MODEL and name not in KEYS and name not in present:
        raise unknown_key(name)
    names = MODELS if name == MODEL else (name,)
    there = any(each in present for each in names)
    if there:
        _write(dict.fromkeys(names))
    return there


def keep_model(chosen: Mapping[str, str]) -> str:
    """Make a model the one that every start loads; return what overrules it, as `overruled` does.

    Args:
        chosen: its pair, or its target, as `Registry.chosen` says.
    """
    _write({**dict.fromkeys(MODELS), **chosen})
    return next(filter(None, map(overruled, ("pair", "target"))), "")


def overruled(name: str) -> str:
    """Return what sets a key and comes before the user's own file, on one line; empty if nothing does."""
    origin = resolve({})[name].origin
    if origin.level <= Level.USER:
        return ""
    return f"{origin} sets {name}, too, and comes before {shown(user_file())}"


def unknown_key(name: str) -> UsageError:
    """Return the error for a key that there is not."""
    names = [MODEL, *KEYS]
    hint = did_you_mean(name, names) or f"use one of {', '.join(names)}"
    return UsageError(f"there is no setting {name[:40]!r}: {hint}")


def _write(changes: Mapping[str, Setting]) -> None:
    file = user_file()
    written_keys(file)  # a file that is no TOML stays as it is
    write_keys(file, changes)
    try:
        read_settings(file)
    except UsageError as error:  # of another key, which is no reason to leave this one as it was
        notice(str(error))


def write_keys(file: Path, changes: Mapping[str, Setting], table: str = "") -> bool:
    """Give keys of a TOML file their values, None for none; all else stays. Return whether anything changed.

    Two at once wait for each other, so neither is lost.

    Args:
        file: made if it is missing.
        changes: values by key.
        table: where the keys are; empty for the outermost.

    Raises:
        UsageError: the file cannot be changed.
    """
    if not file.exists() and all(value is None for value in changes.values()):
        return False
    try:
        private_directory(file.parent)
        place = file.resolve()  # it may be a link
        with locked(place.parent):
            before = text = place.read_text(encoding="utf-8") if place.exists() else ""
            for name, value in changes.items():
                text = with_key(text, name, value, table)
            if text != before:
                write_atomic(place, text.encode())
    except OSError as error:
        raise UsageError(
            f"{shown(file)} cannot be written ({error.strerror}): check its directory"
        ) from error
    return text != before
