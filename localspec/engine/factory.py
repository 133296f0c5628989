"""What the server needs of whoever loads models: it is given a factory, and knows no llama.cpp."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from localspec.chat.assistant import Assistant
from localspec.chat.conversation import Segment
from localspec.decoding.cancel import CancelFlag
from localspec.decoding.costs import PairCosts
from localspec.decoding.policy import Policy
from localspec.engine.protocol import Downloading, Load, Loading, Measuring


class StateLeftError(Exception):
    """A state was not written, or does not fit; the text says why, on one line."""


@dataclass(frozen=True, slots=True)
class SavedState:
    """What a directory holds now."""

    tokens: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class RestoredState:
    """What was put back: so many tokens, and what was remembered of their texts."""

    tokens: int
    remembered: tuple[Segment, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Loaded:
    """Models that answer, and what a server can have done with them.

    Args:
        assistant: answers.
        save: writes the state into a directory, with what is remembered of texts; raises StateLeftError.
        restore: puts it back where it fits; raises StateLeftError, and leaves nothing half restored.
        policy: makes what drafts by a mode, as `--draft` has it, for a sequence; raises UsageError where nothing can.
        costs: what passes take, where that was measured.
    """

    assistant: Assistant
    save: Callable[[Path, tuple[Segment, ...]], SavedState]
    restore: Callable[[Path], RestoredState]
    policy: Callable[[str, int], Policy]
    costs: PairCosts | None = None


class Factory(Protocol):
    """Loads what a client asks for; raises the errors of `localspec.launch`."""

    def fetch(self, load: Load, tell: Callable[[Downloading], None]) -> None:
        """Obtain the files and check that they fit each other. A KeyboardInterrupt may end it anywhere."""
        ...

    def load(
        self,
        load: Load,
        cancel: CancelFlag,
        tell: Callable[[Loading | Measuring], None],
    ) -> Loaded:
        """Load them into the memory that is free now.

        Raises:
            Cancelled: `cancel` was set.
        """
        ...
