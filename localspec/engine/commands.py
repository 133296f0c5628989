"""What a screen says to the engine, and the values in it. See `protocol`."""

from dataclasses import dataclass, field

from localspec.messages import Message


@dataclass(frozen=True, slots=True)
class Options:
    """How one reply is made: the fields of `ReplyOptions` and `SamplingParams`, which check them."""

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    repeat_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    penalty_last_n: int = 64
    seed: int | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Load:
    """Load a pair in place of the one that is loaded: `Ready`, or `LoadCancelled`.

    What was loaded before is kept until the new files are here and checked; see `Launch` and
    `LoadOptions` for the fields.
    """

    pair: str | None = None
    target: str | None = None
    draft_model: str | None = None
    draft: str = "auto"
    draft_length: int | None = None
    exact: bool = False
    n_ctx: int | None = None
    gpu_layers: int | None = None
    devices: tuple[str, ...] = ()
    threads: int | None = None
    kv_type: str = "f16"
    offline: bool = False
    fit: bool = True


@dataclass(frozen=True, slots=True)
class Ask:
    """Answer the last message: `Started`, then `Prefilling` and `Streamed`, in the end `Finished`.

    Args:
        id: chosen by the client, new for every request.
        messages: the whole conversation, system prompt first. Where it begins like the one before,
            nothing is evaluated twice. If its last message is the assistant's, that one goes on.
        options: how to answer.
        draft: False answers without drafting; the text is the same.
        keep: use so many of the cached tokens at most, so that two runs evaluate the same; None uses what fits.
        aside: this is no part of the conversation: what was said in it before is remembered, and not this.
        drop_oldest: where the conversation is too long, leave out its oldest messages, never the
            system prompt, instead of failing.
    """

    id: int
    messages: tuple[Message, ...]
    options: Options = field(default_factory=Options)
    draft: bool = True
    keep: int | None = None
    aside: bool = False
    drop_oldest: bool = False


@dataclass(frozen=True, slots=True)
class Count:
    """Count the tokens that a conversation takes: `Counted`."""

    id: int
    messages: tuple[Message, ...]


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


Command = Load | Ask | Count | Cancel | SaveState | RestoreState | Bye
