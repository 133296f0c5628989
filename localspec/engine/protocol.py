"""What a screen and the engine say to each other: values alone, and cheap to import.

One JSON object a line, both ways (`wire.py`).

Several requests are answered at once, as far as there are sequences for them; all else is done one
after the other, and what changes the models waits until no answer is under way. Whatever the engine is
asked ends in exactly one of the notices that the command names, or in `Failed`; `Cancel` overtakes what
is waiting.
"""

from dataclasses import dataclass

from localspec.calls import Tool
from localspec.chat.events import Reply, StreamEvent
from localspec.chat.request import Request
from localspec.messages import Message, Tagged
from localspec.options import LaunchOptions

VERSION = 16

# What a screen says to the engine.


class Load(Tagged, frozen=True):
    """Load a pair in place of the one that is loaded: `Ready`, or `LoadCancelled`.

    What was loaded before is kept until the new files are here and checked.

    Args:
        options: what.
        parallel: how many requests are answered at once; None takes what pays and the memory holds.
        keep: whether what is evaluated is kept from run to run.
        workload: what kind of text all of it is, for the telemetry; None guesses.
    """

    options: LaunchOptions = LaunchOptions()
    parallel: int | None = 1
    keep: bool = False
    workload: str | None = None


class Count(Tagged, frozen=True):
    """Count the tokens that a conversation takes, with the functions that its model may call: `Counted`."""

    id: int
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()


class Tokenize(Tagged, frozen=True):
    """Return the ids of a text: `Tokens`.

    Args:
        id: as for `Request`.
        text: any text; what spells a control token becomes that token.
        add_special: add what the model's file wants around a text (a BOS, mostly).
    """

    id: int
    text: str
    add_special: bool = False


class Detokenize(Tagged, frozen=True):
    """Return what ids stand for: `Tokens`."""

    id: int
    tokens: tuple[int, ...]


class Cancel(Tagged, frozen=True):
    """Stop a request, running or waiting; None stops a load. Nothing answers but the request itself."""

    id: int | None = None


class SaveState(Tagged, frozen=True):
    """Write what the models have evaluated into a directory: `StateSaved`, or `StateLeft`."""

    directory: str


class RestoreState(Tagged, frozen=True):
    """Put back what `SaveState` wrote, where it fits: `StateRestored`, or `StateLeft`."""

    directory: str


class Bye(Tagged, frozen=True):
    """Stop everything and end; the end of the pipe says the same."""


Question = Request | Count | Tokenize | Detokenize
"""What bears an id, and can be answered beside others."""
Command = Load | Question | Cancel | SaveState | RestoreState | Bye


# What the engine says of a reply: while it is made, and when it is done.


@dataclass(frozen=True, slots=True)
class Forecast:
    """Speed-ups over plain decoding, 1 is nothing; None where nothing was drafted.

    Args:
        predicted: by the costs of this machine and the acceptance of this reply.
        measured: by costs and the clock.
        note: what the draft model would cost where it is off; empty where it is on, or there is none.
    """

    predicted: float | None
    measured: float | None
    note: str = ""


class ReplyEvents(Tagged, frozen=True):
    """What happened of a reply since the last one; the last comes before `ReplyDone`.

    Args:
        id: of the request.
        events: in their order; texts that waited for the reader are joined.
    """

    id: int
    events: tuple[StreamEvent, ...]


class ReplyDone(Tagged, frozen=True):
    """A reply is complete, or was stopped.

    Args:
        id: of the request.
        reply: what is new, and its figures.
        message: the assistant's whole turn, the part that a continued one had before included. Sent back
            unchanged in the next `Request`, its tokens are known.
        dropped_turns: how many of the oldest turns were left out.
        forecast: what drafting was to gain, and what it came to; None if costs are not known.
        reason: why it was drafted as it was, a sentence.
        no_drafting: why nothing was drafted, in about five words; empty where something was.
        widths: how many passes of the target were made since the last reply was done, for whomever, by the
            tokens that they evaluated.
    """

    id: int
    reply: Reply
    message: Message
    dropped_turns: int = 0
    forecast: Forecast | None = None
    reason: str = ""
    no_drafting: str = ""
    widths: tuple[tuple[int, int], ...] = ()


# What else it says to a screen.


class Hello(Tagged, frozen=True):
    """The process is there and reads; nothing is loaded."""

    version: str
    pid: int


class Downloading(Tagged, frozen=True):
    """A model is being fetched; bytes count from 0 again when another source is tried, for a `reason`."""

    name: str
    done_bytes: int
    total_bytes: int
    source: str
    reason: str = ""


class Loading(Tagged, frozen=True):
    """A model is being loaded; `share` is 0 to 1."""

    model: str
    share: float


class Measuring(Tagged, frozen=True):
    """A loaded model's passes are measured, once on every machine; `share` is 0 to 1."""

    model: str
    share: float


class Ready(Tagged, frozen=True):
    """The models are loaded.

    Args:
        target: the target's name.
        draft_model: the draft model's, where one is loaded.
        drafter: what drafts: off, lookup, model, or what a policy calls itself.
        n_ctx: tokens of context.
        notes: what the user should know of how it was set up, a sentence each.
        load_s: seconds that loading took.
        thinks: whether the target's template knows thinking blocks.
        break_even: from which chance of acceptance on the draft model pays, 0 to 1; None where it never does, or is
            not there, or was not measured.
    """

    target: str
    draft_model: str | None
    drafter: str
    n_ctx: int
    notes: tuple[str, ...]
    load_s: float
    thinks: bool
    break_even: float | None = None


class LoadCancelled(Tagged, frozen=True):
    """A load was stopped; `target` is what is still loaded, None if nothing is."""

    target: str | None


class Counted(Tagged, frozen=True):
    """A conversation takes so many tokens of a context of `n_ctx`."""

    id: int
    tokens: int
    n_ctx: int


class Tokens(Tagged, frozen=True):
    """Ids, and the bytes of each as text in Latin-1, control tokens as their file writes them."""

    id: int
    tokens: tuple[int, ...]
    pieces: tuple[str, ...]


class StateSaved(Tagged, frozen=True):
    """The directory now holds what was evaluated."""

    directory: str
    tokens: int
    size_bytes: int


class StateRestored(Tagged, frozen=True):
    """So many tokens need not be evaluated again."""

    directory: str
    tokens: int


class StateLeft(Tagged, frozen=True):
    """A state was not written, or does not fit and was left alone; the text is evaluated as usual."""

    directory: str
    reason: str


class Failed(Tagged, frozen=True):
    """A request could not be done; the engine goes on.

    Args:
        id: of the request; None for a load, a state, or a frame that nobody understood.
        kind: name of the error's class in `localspec.errors`, or `FrameError`.
        reason: one line: what, which value, and what to do.
    """

    id: int | None
    kind: str
    reason: str


class EngineDied(Tagged, frozen=True):
    """The process is gone, and nobody had asked it to. Made by the client: it never travels.

    Args:
        reason: one line: by which signal or code, in words, and what to do.
    """

    reason: str


Notice = (
    Hello
    | Downloading
    | Loading
    | Measuring
    | Ready
    | LoadCancelled
    | ReplyEvents
    | ReplyDone
    | Counted
    | Tokens
    | StateSaved
    | StateRestored
    | StateLeft
    | Failed
    | EngineDied
)
