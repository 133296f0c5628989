"""What an engine and its clients send each other, and how: one JSON object a line, both ways. Cheap to import.

Several requests are answered at once, as far as there are sequences for them; all else is done one
after the other, and what changes the models waits until no answer is under way. Every command but `Cancel`, `Propose` and `Bye`
ends in exactly one of the notices that it names, or in `Failed`; these overtake what is waiting.
"""

import json
from typing import Generic, TypeVar

import msgspec

from localspec.calls import Tool
from localspec.chat.events import Finished, StreamEvent
from localspec.chat.request import Request
from localspec.display import printable
from localspec.engine.drafts import DraftProposal
from localspec.errors import UsageError
from localspec.messages import Held, Message, Tagged
from localspec.options import LaunchOptions, ReplyOptions

VERSION = 24
# Thirty photographs in base64. A context of a million tokens is far below it.
MAX_FRAME_BYTES = 128 << 20
_HEAD = b'{"v":%d,' % VERSION


# What a client sends.


class Load(Tagged, frozen=True):
    """Load a pair in place of the one that is loaded: `Ready`, or `LoadCancelled`.

    What was loaded before stays until the new files are here and checked.

    Args:
        options: what.
        parallel: how many requests are answered at once; None takes what pays and the memory holds.
        at_most: whether fewer will do where memory is short.
        calls: whether functions are offered, whose descriptions and results need room.
        workload: the kind of all texts, for the telemetry; None guesses.
        text_every_s: seconds between two parts of a text that streams, at least; see `Outbox.pace`.
        given: sampling options that the user set explicitly; a server has its own values of the others.
        others: what others hold that could be let go; with it, `NoRoom` comes where the pair would fit better without them.
            None takes what is free, whatever has to be given up for it.
        embeds: load the target as one that answers `Embed`, and nothing else.
        own: load here also what a server of the user has in memory.
    """

    options: LaunchOptions = LaunchOptions()
    parallel: int | None = 1
    at_most: bool = False
    calls: bool = False
    workload: str | None = None
    text_every_s: float = 0.0
    given: tuple[str, ...] = ()
    others: Held | None = None
    embeds: bool = False
    own: bool = False


class Count(Tagged, frozen=True):
    """Count the tokens that a conversation takes, with the functions that its model may call: `Counted`. `options` and `owner` are those of the reply."""

    id: int
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    options: ReplyOptions = ReplyOptions()
    owner: str = ""


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


class Embed(Tagged, frozen=True):
    """Return vectors of texts, or scores: `Vectors`.

    Args:
        id: as for `Request`.
        texts: each a text, or its ids.
        query: what the texts may answer: a model that ranks gives a score to each; without it, one that does not a vector.
        cut: cut what is longer than the model takes.
    """

    id: int
    texts: tuple[str | tuple[int, ...], ...]
    query: str | None = None
    cut: bool = False


class Cancel(Tagged, frozen=True):
    """Stop a request, running or waiting; None stops a load. The notice of its end comes from the request itself."""

    id: int | None = None


class Propose(Tagged, frozen=True):
    """What a client proposes for the reply to a request with `drafts`; without an answer, and overtaking what waits."""

    id: int
    proposal: DraftProposal


class Bye(Tagged, frozen=True):
    """Stop everything and end; the end of the pipe means the same."""


Question = Request | Count | Tokenize | Detokenize | Embed
"""What bears an id, and can be answered beside others."""
Command = Load | Question | Cancel | Propose | Bye


# What an engine sends.


class ReplyEvents(Tagged, frozen=True):
    """What happened of a reply since the last notice of it; `Finished` comes behind the last one.

    Args:
        id: of the request.
        events: in their order; texts that waited for the reader are joined.
    """

    id: int
    events: tuple[StreamEvent, ...]


class Hello(Tagged, frozen=True):
    """The process runs and reads.

    Args:
        version: of localspec.
        pid: the process.
        models: of a server, the state of each model that it has or had in memory, by name.
    """

    version: str
    pid: int
    models: dict[str, str] = msgspec.field(default_factory=dict)


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
        notes: notes on how it was set up, for the user, a sentence each.
        load_s: seconds that loading took.
        thinks: whether the target's template knows thinking blocks.
        held: the memory that they hold.
        sees: whether the target takes pictures.
        hears: whether it takes sounds.
        longest: tokens of context that the target was trained for; 0 where that is not known.
        pass_s: seconds of the target's passes by their width, from one token on; empty where they were not measured.
    """

    target: str
    draft_model: str | None
    drafter: str
    n_ctx: int
    notes: tuple[str, ...]
    load_s: float
    thinks: bool
    held: Held = Held()
    sees: bool = False
    hears: bool = False
    longest: int = 0
    pass_s: tuple[float, ...] = ()


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


class Vectors(Tagged, frozen=True):
    """Rows of texts, as their model has them, in 32-bit floats one behind the other; a score is a row of one.

    Args:
        id: of the question.
        rows: the floats.
        width: how many a row has.
        tokens: of all texts.
    """

    id: int
    rows: bytes
    width: int
    tokens: int


class Failed(Tagged, frozen=True):
    """A request could not be done; the engine goes on.

    Args:
        id: of the request; None for a load, or a line that is no frame.
        kind: name of the error's class in `localspec.errors`, or `FrameError`.
        reason: one line: what, which value, and what to do.
        again_s: see `Busy`.
        sizes: see `ContextOverflow`.
    """

    id: int | None
    kind: str
    reason: str
    again_s: float | None = None
    sizes: tuple[int, int, int] | None = None

    @classmethod
    def of(cls, number: int | None, error: Exception) -> "Failed":
        """Return the notice of an error of ours, with all that its class has to say."""
        again_s, sizes = (getattr(error, name, None) for name in ("again_s", "sizes"))
        return cls(number, type(error).__name__, str(error), again_s, sizes)


class EngineDied(Tagged, frozen=True):
    """The process ended unasked. Made by the client: it is never sent.

    Args:
        reason: one line: by which signal or code, in words, and what to do.
    """

    reason: str


Progress = Downloading | Loading | Measuring
Response = ReplyEvents | Finished | Counted | Tokens | Vectors
"""What answers a question, unless something is wrong with it."""
Notice = Hello | Progress | Ready | LoadCancelled | Response | Failed | EngineDied
T = TypeVar("T")


class FrameError(Exception):
    """A line is no frame of this protocol; the text is one line with the reason."""


class _Version(msgspec.Struct):
    v: object = None


_VERSION = msgspec.json.Decoder(_Version)


class Frames(Generic[T]):
    """Reads the frames that one side sends.

    Args:
        kind: what a frame may hold.
    """

    def __init__(self, kind: type[T]) -> None:
        self._decoder = msgspec.json.Decoder(kind)

    def decode(self, line: bytes) -> T:
        """Return the command or the notice in a line.

        Raises:
            FrameError: it is malformed, of another version, or of no such kind.
        """
        try:
            if not line.startswith(_HEAD) and (version := _VERSION.decode(line).v) != VERSION:
                raise FrameError(
                    f"a frame is of protocol {printable(str(version)[:20])}, this side speaks {VERSION}: "
                    "localspec was changed while it ran, start it again"
                )
            return self._decoder.decode(line)
        except (msgspec.MsgspecError, UsageError, UnicodeDecodeError, RecursionError) as error:
            reason = printable(" ".join(str(error).split()))[:200]
            raise FrameError(f"a frame is wrong: {reason}") from None


COMMANDS: Frames[Command] = Frames(Command)  # type: ignore[arg-type]  # a union is no class
NOTICES: Frames[Notice] = Frames(Notice)  # type: ignore[arg-type]


def encode(message: Command | Notice) -> bytes:
    """Return a command or a notice as a line, its end included.

    Raises:
        FrameError: it is larger than a frame may be.
    """
    try:
        body = msgspec.json.encode(message)
    except UnicodeEncodeError:
        # Half of a character, which a paste may hold, and no tokenizer takes.
        text = json.dumps(msgspec.to_builtins(message), ensure_ascii=False)
        body = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()
    line = b"%s%s\n" % (_HEAD, body[1:])
    if len(line) > MAX_FRAME_BYTES:
        advice = "ask for less, or read answers faster"
        if isinstance(message, Command):
            advice = "send less text, or fewer and smaller pictures"
        name = type(message).__name__
        raise FrameError(f"{name} has {len(line)} bytes, more than {MAX_FRAME_BYTES}: {advice}")
    return line
