"""How far a download is, and that a source of one failed."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """A moment of a download. Bytes count from 0 again when the next source is tried."""

    name: str
    done_bytes: int
    total_bytes: int
    source: str


Report = Callable[[Progress], None]


class SourceFailedError(Exception):
    """One source could not deliver; the text is a short reason, without a full stop."""
