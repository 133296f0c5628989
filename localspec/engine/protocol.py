"""What a screen and the engine say to each other: values alone, and cheap to import.

One JSON object a line, both ways (`wire.py`). JSON and not msgspec: a dozen small messages a second
need no speed, a person can read them, and nothing has to be installed for it.

Several requests are answered at once, as far as there are sequences for them; all else is done one
after the other, and what changes the models waits until no answer is under way. Whatever the engine is
asked ends in exactly one of the notices that the command names, or in `Failed`; `Cancel` overtakes what
is waiting.
"""

from localspec.engine.commands import (
    Ask,
    Bye,
    Cancel,
    Command,
    Count,
    Detokenize,
    Load,
    Question,
    RestoreState,
    SaveState,
    Tokenize,
)
from localspec.engine.notices import (
    Counted,
    Downloading,
    EngineDied,
    Failed,
    Hello,
    LoadCancelled,
    Loading,
    Measuring,
    Notice,
    Ready,
    StateLeft,
    StateRestored,
    StateSaved,
    Tokens,
)
from localspec.engine.replies import Forecast, ReplyDone, ReplyEvents

__all__ = [
    "VERSION",
    "Ask",
    "Bye",
    "Cancel",
    "Command",
    "Count",
    "Counted",
    "Detokenize",
    "Downloading",
    "EngineDied",
    "Failed",
    "Forecast",
    "Hello",
    "Load",
    "LoadCancelled",
    "Loading",
    "Measuring",
    "Notice",
    "Question",
    "Ready",
    "ReplyDone",
    "ReplyEvents",
    "RestoreState",
    "SaveState",
    "StateLeft",
    "StateRestored",
    "StateSaved",
    "Tokenize",
    "Tokens",
]

VERSION = 6
