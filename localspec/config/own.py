"""Changes the user's own file of settings, a key at a time; comments in it stay."""

from collections.abc import Mapping
from pathlib import Path

from localspec.config.files import GONE, read_settings, user_file
from localspec.config.keys import KEYS, MODELS, Setting, from_variable
from localspec.config.resolve import Level, resolve
from localspec.errors import UsageError, did_you_mean
from localspec.storage.files import private_directory, write_atomic
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
    if name in GONE:
        _write({name: None})
        return True
    if name != MODEL and name not in KEYS:
        raise unknown_key(name)
    names = MODELS if name == MODEL else (name,)
    there = any(each in read_settings(user_file()) for each in names)
    if there:
        _write(dict.fromkeys(names))
    return there


def keep_model(chosen: Mapping[str, str]) -> str:
    """Make a model the one that every start loads; return who overrules it, as `overruled` does.

    Args:
        chosen: its pair, or its target, as `Registry.chosen` says.
    """
    _write({**dict.fromkeys(MODELS), **chosen})
    return next(filter(None, map(overruled, ("pair", "target"))), "")


def overruled(name: str) -> str:
    """Return who sets a key and comes before the user's own file, on one line; empty if nobody does."""
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
    read_settings(file)  # what is wrong already is said of the file as it stands
    write_keys(file, changes)


def write_keys(file: Path, changes: Mapping[str, Setting], table: str = "") -> bool:
    """Give keys of a TOML file their values, None for none; all else stays. Return whether anything changed.

    Args:
        file: made if it is missing.
        changes: values by key.
        table: where the keys are; empty for the outermost.

    Raises:
        UsageError: the file cannot be changed.
    """
    try:
        before = text = file.read_text(encoding="utf-8") if file.exists() else ""
        for name, value in changes.items():
            text = with_key(text, name, value, table)
        if text != before:
            private_directory(file.parent)
            write_atomic(file.resolve(), text.encode())
    except OSError as error:
        raise UsageError(
            f"{shown(file)} cannot be written ({error.strerror}): check its directory"
        ) from error
    return text != before
