"""What a screen and the engine say to each other: values alone, and cheap to import.

One JSON object a line, both ways (`wire.py`). JSON and not msgspec: a dozen small messages a second
need no speed, a person can read them, and nothing has to be installed for it.

The engine does one thing after the other. Whatever it is asked ends in exactly one of the messages
that the command names, or in `Failed`; `Cancel` overtakes what is waiting.
"""

from localspec.engine.commands import (
    Ask,
    Bye,
    Cancel,
    Command,
    Count,
    Load,
    RestoreState,
    Role,
    SaveState,
    Turn,
)
from localspec.engine.messages import (
    Counted,
    Downloading,
    EngineDied,
    Failed,
    Hello,
    LoadCancelled,
    Loading,
    Measuring,
    Message,
    Ready,
    StateLeft,
    StateRestored,
    StateSaved,
)
from localspec.engine.replies import (
    DrafterFigures,
    Finished,
    LensToken,
    Prefilling,
    RoundFigures,
    Span,
    Started,
    Streamed,
)

__all__ = [
    "VERSION",
    "Ask",
    "Bye",
    "Cancel",
    "Command",
    "Count",
    "Counted",
    "Downloading",
    "DrafterFigures",
    "EngineDied",
    "Failed",
    "Finished",
    "Hello",
    "LensToken",
    "Load",
    "LoadCancelled",
    "Loading",
    "Measuring",
    "Message",
    "Prefilling",
    "Ready",
    "RestoreState",
    "Role",
    "RoundFigures",
    "SaveState",
    "Span",
    "Started",
    "StateLeft",
    "StateRestored",
    "StateSaved",
    "Streamed",
    "Turn",
]

VERSION = 3
