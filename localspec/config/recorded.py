"""What is recorded of replies on this machine, and where. Cheap to import: loads nothing that answers."""

from pathlib import Path

from localspec.config.keys import Setting
from localspec.config.resolve import resolve
from localspec.errors import LocalspecError
from localspec.options.recording import Switch
from localspec.storage.paths import data_dir


def telemetry_dir() -> Path:
    """Return where the telemetry is, made or not.

    Raises:
        UsageError: there is no data directory.
    """
    return data_dir() / "telemetry"


def recorded() -> str:
    """Return what is recorded of replies: `text`, `counts`, or nothing."""
    switch = recording()
    return "" if switch is None else "text" if switch.text else "counts"


def recording() -> Switch | None:
    """Return what is recorded of replies, and how much of it; None if nothing is, or if the settings are unusable."""
    settings = _settings()
    if settings.get("telemetry") not in {"on", "text"}:
        return None
    megabytes, days = settings["telemetry_megabytes"], settings["telemetry_days"]
    assert isinstance(megabytes, int)  # noqa: S101 - so they are declared
    assert isinstance(days, int)  # noqa: S101
    return Switch(settings["telemetry"] == "text", megabytes, days)


def kept_megabytes(setting: str) -> int | None:
    """Return how much a drafter may keep that a setting switches on; None if it is off."""
    settings = _settings()
    megabytes = settings.get(f"{setting}_megabytes")
    assert isinstance(megabytes, int | None)  # noqa: S101 - so it is declared
    return megabytes if settings.get(setting) else None


def why_not_recorded() -> str | None:
    """Return a sentence if replies are not recorded because the settings are unusable; they may be, behind the start of a program."""
    try:
        resolve({})
    except LocalspecError as error:
        return f"replies are not recorded, since the settings cannot be used: {error}"
    return None


def _settings() -> dict[str, Setting]:
    """Return what is set; nothing if the settings are unusable."""
    try:
        return {name: each.value for name, each in resolve({}).items()}
    except LocalspecError:
        return {}
