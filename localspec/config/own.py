"""Changes the user's own file of settings, a key at a time; comments in it stay."""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import msgspec

from localspec.config.files import GONE, read_settings, user_file, written_keys
from localspec.config.keys import KEYS, MODELS, Setting, from_variable
from localspec.config.resolve import PREFIX, Level, resolve
from localspec.display import notice
from localspec.errors import UsageError, did_you_mean
from localspec.storage.files import private_directory, read_bounded, write_atomic
from localspec.storage.locks import locked
from localspec.storage.paths import data_dir, shown
from localspec.storage.toml import with_key

MODEL = "model"
_MOST_SWITCH_BYTES = 4096


class _EarlierSwitch(msgspec.Struct):
    """What earlier versions kept beside the telemetry."""

    on: bool
    text: bool
    megabytes: Annotated[int, msgspec.Meta(ge=16, le=1 << 20)]
    days: Annotated[int, msgspec.Meta(ge=1, le=36500)]


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


def adopt_switches() -> None:
    """Take over what files of earlier versions say of telemetry and the store, and remove these files.

    One that cannot be understood may have said no, so it switches telemetry off. Where the settings cannot be written, variables
    say it for this process and those that it starts.

    Raises:
        UsageError: the user's file is unusable.
    """
    telemetry, store = data_dir() / "telemetry" / "switch.json", data_dir() / "store" / "on"
    switches: dict[str, Setting] = {}
    if telemetry.exists():
        try:
            switch = msgspec.json.decode(
                read_bounded(telemetry, _MOST_SWITCH_BYTES), type=_EarlierSwitch
            )
            switches = {"telemetry_megabytes": switch.megabytes, "telemetry_days": switch.days}
            switches["telemetry"] = ("text" if switch.text else "on") if switch.on else "off"
        except (OSError, msgspec.MsgspecError, RecursionError):
            switches = {"telemetry": "off"}
    if store.exists():
        switches["store"] = True
        with suppress(OSError, ValueError):
            size = KEYS["store_megabytes"].parse(read_bounded(store, 16).decode())
            switches["store_megabytes"] = min(max(size, 1), 4096)
    if not switches:
        return
    present = read_settings(user_file())
    if present.get("telemetry") == "off":
        switches.pop("telemetry", None)
    changes = {name: value for name, value in switches.items() if value != KEYS[name].default}
    try:
        _write(changes)
        telemetry.unlink(missing_ok=True)
        store.unlink(missing_ok=True)
    except (UsageError, OSError):
        for name, value in changes.items():
            os.environ.setdefault(f"{PREFIX}{name.upper()}", str(value))


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
