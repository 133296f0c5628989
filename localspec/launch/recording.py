"""What is recorded of replies on this machine, and where. Cheap to import: loads nothing that answers."""

from pathlib import Path

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


def recording() -> Switch | None:
    """Return what is recorded of replies; None where nothing is, or where nobody understands the settings."""
    try:
        found = {name: each.value for name, each in resolve({}).items()}
    except LocalspecError:
        return None
    telemetry, megabytes, days = (
        found[name] for name in ("telemetry", "telemetry_megabytes", "telemetry_days")
    )
    assert isinstance(megabytes, int)  # noqa: S101 - so they are declared
    assert isinstance(days, int)  # noqa: S101
    return None if telemetry == "off" else Switch(telemetry == "text", megabytes, days)


def store_megabytes() -> int | None:
    """Return how large the store of what was said is made; None where it is off."""
    try:
        found = resolve({})
    except LocalspecError:
        return None
    megabytes = found["store_megabytes"].value
    assert isinstance(megabytes, int)  # noqa: S101 - so it is declared
    return megabytes if found["store"].value else None
