"""EngineState: what is known of the engine, from its messages. No screen, no pipe."""

from dataclasses import dataclass
from enum import Enum, auto

from localspec.display import clean_line
from localspec.engine.protocol import (
    Downloading,
    EngineDied,
    Failed,
    Hello,
    LoadCancelled,
    Loading,
    Measuring,
    Notice,
    Ready,
)
from localspec.storage.files import size_text

STARTING = "loading the model"


class Phase(Enum):
    """What the engine is at."""

    IDLE = auto()
    STARTING = auto()
    LOADING = auto()
    READY = auto()
    DEAD = auto()


@dataclass(slots=True)
class EngineState:
    """What is known of the engine.

    Attributes:
        phase: what it is at; `IDLE` where nothing is loaded and nothing was asked for.
        ready: what is loaded.
        progress: what it is fetching or loading, for people.
        trouble: why it is dead, or why nothing could be loaded.
    """

    phase: Phase = Phase.IDLE
    ready: Ready | None = None
    progress: str = ""
    trouble: str = ""

    def expect_load(self) -> None:
        """Take note that a load was asked for."""
        self.phase, self.progress, self.trouble = Phase.STARTING, "", ""

    def unload(self, reason: str) -> None:
        """Take note that nothing is loaded any more, and why."""
        self.phase, self.ready, self.trouble = Phase.IDLE, None, clean_line(reason)

    def take(self, message: Notice) -> None:
        """Take any message; those about requests change nothing."""
        match message:
            case Hello():
                self.progress = "reading the model's files"
            case Downloading():
                done, total = size_text(message.done_bytes), size_text(message.total_bytes)
                self._at(f"fetching {message.name}: {done} of {total}")
            case Loading():
                self._at(f"loading {message.model}: {message.share:.0%}")
            case Measuring():
                self._at(f"measuring {message.model} on this machine: {message.share:.0%}")
            case Ready():
                self.phase, self.ready, self.trouble = Phase.READY, message, ""
            case LoadCancelled():
                self.phase = Phase.IDLE if message.target is None else Phase.READY
                self.ready = None if message.target is None else self.ready
            case Failed(id=None):
                self.trouble = clean_line(message.reason)
                self.phase = Phase.IDLE if self.ready is None else Phase.READY
            case EngineDied():
                self.phase, self.ready, self.trouble = Phase.DEAD, None, clean_line(message.reason)
            case _:
                pass

    def line(self) -> str:
        """Return the state for people, in a few words."""
        match self.phase:
            case Phase.READY if self.ready is not None:
                return clean_line(self.ready.target)
            case Phase.DEAD:
                return "the model has stopped: /restart"
            case Phase.IDLE:
                return "no model loaded: F8 chooses one"
            case _:
                return self.progress or STARTING

    def _at(self, progress: str) -> None:
        self.phase, self.progress = Phase.LOADING, clean_line(progress)
