"""Results: what the stages of a campaign found, in one JSON file that is written after each of them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from localspec.errors import LocalspecError
from localspec.storage.files import write_atomic
from localspec.storage.paths import shown

DONE, FAILED, CUT_SHORT = "done", "failed", "cut short"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one stage.

    Args:
        kind: which section of the page it belongs to.
        subject: what was measured.
        status: `done`, `cut short` where its time was over and it said what it had, or `failed`.
        seconds: that it took.
        found: what it printed as JSON, one object or several.
        complaint: its last words where it failed.
    """

    kind: str
    subject: str
    status: str
    seconds: float
    found: Sequence[Mapping[str, Any]] = ()
    complaint: str = ""


class Results:
    """Outcomes by the names of stages, kept in a file.

    Args:
        path: of the file; what it holds already is read.

    Raises:
        LocalspecError: the file is there, and is none of these.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.outcomes: dict[str, Outcome] = {}
        if not path.exists():
            return
        try:
            kept = json.loads(path.read_text(encoding="utf-8"))["stages"]
            self.outcomes = {name: Outcome(**each) for name, each in kept.items()}
        except (ValueError, KeyError, TypeError, AttributeError):
            raise LocalspecError(
                f"{shown(path)} is no campaign's: give another --out, or remove it"
            ) from None

    @property
    def spent_s(self) -> float:
        """Seconds of all stages."""
        return sum(each.seconds for each in self.outcomes.values())

    def is_settled(self, name: str) -> bool:
        """Return whether a stage is done: what failed may have been mended since, what was cut short may get more time."""
        return name in self.outcomes and self.outcomes[name].status == DONE

    def cut_short_after_s(self, name: str) -> float:
        """Return the seconds that a stage had, of which more would tell more; 0 where it was not cut short."""
        outcome = self.outcomes.get(name)
        return outcome.seconds if outcome is not None and outcome.status == CUT_SHORT else 0.0

    def add(self, name: str, outcome: Outcome) -> None:
        """Keep what came of a stage, and write the file."""
        self.outcomes[name] = outcome
        document = {"stages": {key: asdict(each) for key, each in self.outcomes.items()}}
        write_atomic(self._path, (json.dumps(document, indent=1) + "\n").encode())
