"""What is recorded of replies on this machine, and where. Cheap to import, and needs no telemetry."""

from pathlib import Path
from typing import TYPE_CHECKING

from localspec.config.resolve import resolve
from localspec.errors import LocalspecError
from localspec.storage.paths import data_dir

if TYPE_CHECKING:
    from localspec.config.keys import Setting
    from localspec.telemetry.switch import Switch


def telemetry_dir() -> Path:
    """Return where the telemetry is, made or not.

    Raises:
        UsageError: there is no data directory.
    """
    return data_dir() / "telemetry"


def recorded() -> str:
    """Return what is recorded of replies: `text`, `counts`, or nothing, also if the settings are unusable."""
    return {"on": "counts", "text": "text"}.get(str(_settings().get("telemetry")), "")


def recording() -> "Switch | None":
    """Return what is recorded of replies, and how much of it; None if nothing is."""
    found = _settings()
    if found.get("telemetry") not in {"on", "text"}:
        return None
    from localspec.telemetry.switch import Switch  # noqa: PLC0415 - a feature that can be taken away

    megabytes, days = found["telemetry_megabytes"], found["telemetry_days"]
    assert isinstance(megabytes, int)  # noqa: S101 - so they are declared
    assert isinstance(days, int)  # noqa: S101
    return Switch(found["telemetry"] == "text", megabytes, days)


def store_megabytes() -> int | None:
    """Return how large the store of earlier replies is made; None if it is off."""
    found = _settings()
    megabytes = found.get("store_megabytes")
    assert isinstance(megabytes, int | None)  # noqa: S101 - so it is declared
    return megabytes if found.get("store") else None


def _settings() -> "dict[str, Setting]":
    """Return what is set; nothing if the settings are unusable."""
    try:
        return {name: each.value for name, each in resolve({}).items()}
    except LocalspecError:
        return {}
