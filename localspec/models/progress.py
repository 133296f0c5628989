"""How far a download is, and that a source of one failed."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self


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


def progress_bar_class(report: Callable[[int], None]) -> type[Any]:
    """Return a class to give to huggingface_hub as `tqdm_class`: it draws nothing, and reports.

    Args:
        report: called with the number of bytes that have arrived so far.
    """

    class Bar:
        """What huggingface_hub 2.4 needs of a tqdm bar, for plain and for Xet downloads."""

        def __init__(self, *_: object, initial: int = 0, total: int | None = None, **__: object):
            self.n = initial
            self.total = total

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            """Nothing was drawn, so nothing is tidied up."""

        def update(self, n: int = 1) -> None:
            """Count bytes that were written."""
            self.n += n
            report(self.n)

        def ignore(self, *_: object, **__: object) -> None:
            """Take what would only be drawn."""

        update_transfer = set_postfix_str = set_transfer_postfix_str = refresh = close = ignore

    return Bar
