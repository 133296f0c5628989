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
    """

    on: bool = True
    text: bool = False
    megabytes: int = 128
    days: int = 365

    def __post_init__(self) -> None:
        if not LEAST_MEGABYTES <= self.megabytes <= MOST_MEGABYTES:
            raise UsageError(
                f"megabytes is {self.megabytes}: give {LEAST_MEGABYTES} to {MOST_MEGABYTES}"
            )
        if not 1 <= self.days <= 36500:
            raise UsageError(f"days is {self.days}: give 1 to 36500")


def switch_file(directory: Path) -> Path:
    """Return where the switch is."""
    return directory / "switch.json"


def read_switch(directory: Path) -> Switch | None:
    """Return how it is set; None where that cannot be understood: it may have said no, so nothing is recorded."""
    try:
        values = json.loads(read_bounded(switch_file(directory), _MOST_BYTES))
        understood = {name: type(value) for name, value in values.items()} == _KINDS
        return Switch(**values) if understood else None
    except FileNotFoundError:
        return Switch()
    except (OSError, ValueError, AttributeError, RecursionError, UsageError):
        return None


def write_switch(directory: Path, switch: Switch) -> None:
    """Set it; readable by its owner only.

    Raises:
        UsageError: the directory does not take it.
    """
    try:
        private_directory(directory)
        write_atomic(switch_file(directory), json.dumps(asdict(switch)).encode())
    except OSError as error:
        raise UsageError(
            f"{switch_file(directory)} cannot be written ({error.strerror}): check that folder"
        ) from error
