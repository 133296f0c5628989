"""What is recorded of replies on this machine, and where. Cheap to import: loads nothing that answers."""

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from localspec.config.keys import KEYS
from localspec.config.resolve import PREFIX
from localspec.errors import LocalspecError
from localspec.storage.paths import data_dir
from localspec.telemetry.switch import Switch, read_switch

_KEY = "telemetry"


def telemetry_dir() -> Path:
    """Return where the telemetry is, made or not.

    Raises:
        UsageError: there is no data directory.
    """
    return data_dir() / "telemetry"


def is_allowed(environ: Mapping[str, str] | None = None) -> bool:
    """Return whether the setting `telemetry` allows it; one that nobody understands does not.

    Verbs hand what their files say on by its variable, so that an engine's process knows it, too.
    """
    text = (os.environ if environ is None else environ).get(f"{PREFIX}{_KEY.upper()}", "")
    try:
        return not text or KEYS[_KEY].parse(text) is True
    except ValueError:
        return False


def recording() -> Switch | None:
    """Return what is recorded of replies; None where nothing is, or may be."""
    try:
        switch = read_switch(telemetry_dir())
    except LocalspecError:
        return None
    return switch if switch is not None and switch.on and is_allowed() else None


def note(counts: Mapping[tuple[str, str], int]) -> None:
    """Count what the rules of gates found, each with what was done about it, where anything is recorded; nothing of it fails."""
    switch = recording()
    if switch is None or not counts:
        return
    from localspec.telemetry.log import add_findings  # noqa: PLC0415 - mostly nothing is found

    with suppress(LocalspecError, OSError):
        add_findings(telemetry_dir(), counts, switch, time.time())
