"""Switch: whether anything is recorded, and what. One small file beside the database; without it, counts and times."""

import json
import os
import tempfile
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from localspec.errors import UsageError

_MOST_BYTES = 4096
LEAST_MEGABYTES, MOST_MEGABYTES = 16, 1 << 20


@dataclass(frozen=True, slots=True)
class Switch:
    """What the user wants recorded.

    Args:
        on: counts and times.
        text: token ids and their bytes, too: what was said.
        megabytes: most that the database and its log take.
        days: how long rounds are kept.
        readable: whether the file makes sense; where it does not, nothing is recorded.
    """

    on: bool = True
    text: bool = False
    megabytes: int = 128
    days: int = 365
    readable: bool = True

    def __post_init__(self) -> None:
        if not LEAST_MEGABYTES <= self.megabytes <= MOST_MEGABYTES:
            raise UsageError(
                f"megabytes is {self.megabytes}: give {LEAST_MEGABYTES} to {MOST_MEGABYTES}"
            )
        if not 1 <= self.days <= 36500:
            raise UsageError(f"days is {self.days}: give 1 to 36500")


UNREADABLE = Switch(on=False, readable=False)


def switch_file(directory: Path) -> Path:
    """Return where the switch is."""
    return directory / "switch.json"


def read_switch(directory: Path) -> Switch:
    """Return how it is set. What cannot be understood records nothing: it may have said no."""
    try:
        raw = switch_file(directory).read_bytes()[:_MOST_BYTES]
    except FileNotFoundError:
        return Switch()
    except OSError:
        return UNREADABLE
    try:
        values = json.loads(raw)
        wanted = {"on": bool, "text": bool, "megabytes": int, "days": int}
        if values.keys() != wanted.keys():
            return UNREADABLE
        if any(type(values[name]) is not kind for name, kind in wanted.items()):
            return UNREADABLE
        return Switch(**values)
    except (ValueError, AttributeError, RecursionError, UsageError):
        return UNREADABLE


def write_switch(directory: Path, switch: Switch) -> None:
    """Set it; readable by its owner only.

    Raises:
        UsageError: the directory does not take it.
    """
    values = asdict(switch)
    del values["readable"]
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, beside = tempfile.mkstemp(prefix=".", suffix=".new", dir=directory)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
                json.dump(values, stream)
            Path(beside).replace(switch_file(directory))
        except BaseException:
            with suppress(OSError):
                Path(beside).unlink()
            raise
    except OSError as error:
        raise UsageError(
            f"{switch_file(directory)} cannot be written ({error.strerror}): see to that folder"
        ) from error
