"""Switch: whether anything is recorded, and what. One small file beside the records; without it, counts and times."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from localspec.errors import UsageError
from localspec.storage.files import private_directory, read_bounded, write_atomic

_MOST_BYTES = 4096
_KINDS = {"on": bool, "text": bool, "megabytes": int, "days": int}
LEAST_MEGABYTES, MOST_MEGABYTES = 16, 1 << 20


@dataclass(frozen=True, slots=True)
class Switch:
    """What the user wants recorded.

    Args:
        on: counts and times.
        text: token ids and their bytes, too: what was said.
        megabytes: most that the records take.
        days: how long they are kept.
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
        values = json.loads(read_bounded(switch_file(directory), _MOST_BYTES))
        if {name: type(value) for name, value in values.items()} != _KINDS:
            return UNREADABLE
        return Switch(**values)
    except FileNotFoundError:
        return Switch()
    except (OSError, ValueError, AttributeError, RecursionError, UsageError):
        return UNREADABLE


def write_switch(directory: Path, switch: Switch) -> None:
    """Set it; readable by its owner only.

    Raises:
        UsageError: the directory does not take it.
    """
    values = asdict(switch)
    del values["readable"]
    try:
        private_directory(directory)
        write_atomic(switch_file(directory), json.dumps(values).encode())
    except OSError as error:
        raise UsageError(
            f"{switch_file(directory)} cannot be written ({error.strerror}): check that folder"
        ) from error
