"""What a screen says to the engine, and the values in it. See `protocol`."""

from dataclasses import dataclass, field

from localspec.chat.infill import Infill
from localspec.messages import Message
from localspec.options import LaunchOptions, ReplyOptions


@dataclass(frozen=True, slots=True)
class Load:
    """Load a pair in place of the one that is loaded: `Ready`, or `LoadCancelled`.

    What was loaded before is kept until the new files are here and checked.
    """

    options: LaunchOptions = field(default_factory=LaunchOptions)


@dataclass(frozen=True, slots=True)
class Ask:
    """Answer the last message: `ReplyEvents`, as they happen, and in the end `ReplyDone`.

    Args:
        id: chosen by the client, new for every request.
        messages: the whole conversation, system prompt first. Where it begins like the one before,
            nothing is evaluated twice. If its last message is the assistant's, that one goes on.
        options: how to answer.
        draft: what drafts for this reply alone, as `--draft` has it; None takes what was loaded to. The text is the same.
        keep: use so many of the cached tokens at most, so that two runs evaluate the same; None uses what fits.
        aside: this is no part of the conversation: what was said in it before is remembered, and not this.
        drop_oldest: where the conversation is too long, leave out its oldest messages, never the
            system prompt, instead of failing.
        raw: a text that goes to the model as it is, without the chat template; then there are no messages.
        infill: a gap to fill in, where the model can; then there are no messages.
        logprobs: tell how likely every token was, and so many of the likeliest beside it; None tells nothing.
    """

    id: int
    messages: tuple[Message, ...]
    options: ReplyOptions = field(default_factory=ReplyOptions)
    draft: str | None = None
    keep: int | None = None
    aside: bool = False
    drop_oldest: bool = False
    raw: str | None = None
    infill: Infill | None = None
    logprobs: int | None = None


@dataclass(frozen=True, slots=True)
class Count:
    """Count the tokens that a conversation takes: `Counted`."""

    id: int
    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Tokenize:
    """Return the ids of a text: `Tokens`.

    Args:
        id: as for `Ask`.
        text: any text; what spells a control token becomes that token.
        add_special: add what the model's file wants around a text (a BOS, mostly).
    """

    id: int
    text: str
    add_special: bool = False


@dataclass(frozen=True, slots=True)
class Detokenize:
    """Return what ids stand for: `Tokens`."""

    id: int
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Cancel:
    """Stop a request, running or waiting; None stops a load. Nothing answers but the request itself."""

    id: int | None = None


@dataclass(frozen=True, slots=True)
class SaveState:
    """Write what the models have evaluated into a directory: `StateSaved`, or `StateLeft`."""

    directory: str


@dataclass(frozen=True, slots=True)
class RestoreState:
    """Put back what `SaveState` wrote, where it fits: `StateRestored`, or `StateLeft`."""

    directory: str


@dataclass(frozen=True, slots=True)
class Bye:
    """Stop everything and end; the end of the pipe says the same."""


Question = Ask | Count | Tokenize | Detokenize
"""What bears an id, and can be answered beside others."""
Command = Load | Question | Cancel | SaveState | RestoreState | Bye
