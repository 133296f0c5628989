"""What a screen and the engine say to each other: values alone, and cheap to import.

One JSON object a line, both ways (`wire.py`). JSON and not msgspec: a dozen small messages a second
need no speed, a person can read them, and nothing has to be installed for it. The messages repeat a
few fields of `Launch`, `LoadOptions` and `ReplyOptions` because those know numpy and llama.cpp, which
a screen must not wait for; tests hold them together.

The engine does one thing after the other. Whatever it is asked ends in exactly one of the messages
that the command names, or in `Failed`; `Cancel` overtakes what is waiting.
"""

from dataclasses import dataclass, field
from typing import Literal

VERSION = 1

Role = Literal["system", "user", "assistant"]


@dataclass(frozen=True, slots=True)
class Turn:
    """One message of a conversation; a reply's thoughts are kept apart from its content."""

    role: Role
    content: str
    thinking: str = ""


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


# What the screen says.


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
    """Answer the last turn: `Started`, then `Prefilling` and `Streamed`, in the end `Finished`.

    Args:
        id: chosen by the client, new for every request.
        turns: the whole conversation, system prompt first. Where it begins like the one before,
            nothing is evaluated twice. If its last turn is the assistant's, that turn goes on.
        options: how to answer.
        draft: False answers without drafting; the text is the same.
        afresh: forget what is cached first, so that two runs evaluate the same.
        drop_oldest: where the conversation is too long, leave out its oldest turns, never the
            system prompt, instead of failing.
    """

    id: int
    turns: tuple[Turn, ...]
    options: Options = field(default_factory=Options)
    draft: bool = True
    afresh: bool = False
    drop_oldest: bool = False


@dataclass(frozen=True, slots=True)
class Count:
    """Count the tokens that a conversation takes: `Counted`."""

    id: int
    turns: tuple[Turn, ...]


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

# What the engine says.


@dataclass(frozen=True, slots=True)
class Hello:
    """The process is there and reads; nothing is loaded."""

    version: str
    pid: int


@dataclass(frozen=True, slots=True)
class Downloading:
    """A model is being fetched; bytes count from 0 again when another source is tried."""

    name: str
    done_bytes: int
    total_bytes: int
    source: str


@dataclass(frozen=True, slots=True)
class Loading:
    """A model is being loaded; `share` is 0 to 1."""

    model: str
    share: float


@dataclass(frozen=True, slots=True)
class Measuring:
    """A loaded model's passes are measured, once on every machine; `share` is 0 to 1."""

    model: str
    share: float


@dataclass(frozen=True, slots=True)
class Ready:
    """The models are loaded.

    Args:
        target: the target's name.
        draft_model: the draft model's, where one is loaded.
        drafter: what drafts: off, lookup, model, or what a policy calls itself.
        n_ctx: tokens of context.
        notes: what the user should know of how it was set up, a sentence each.
        load_s: seconds that loading took.
        thinks: whether the target's template knows thinking blocks.
        plain_round_s: what a round without a draft takes here, in a short text; None where that was not measured.
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
    plain_round_s: float | None = None
    break_even: float | None = None


@dataclass(frozen=True, slots=True)
class LoadCancelled:
    """A load was stopped; `target` is what is still loaded, None if nothing is."""

    target: str | None


@dataclass(frozen=True, slots=True)
class Started:
    """A request is being worked on.

    Args:
        id: of the request.
        prompt_tokens: tokens of the conversation.
        cached_tokens: how many of them need no evaluation.
        dropped_turns: how many of the oldest turns were left out.
    """

    id: int
    prompt_tokens: int
    cached_tokens: int
    dropped_turns: int = 0


@dataclass(frozen=True, slots=True)
class Prefilling:
    """So many of the tokens that were not cached are evaluated."""

    id: int
    done_tokens: int
    total_tokens: int


@dataclass(frozen=True, slots=True)
class Span:
    """Confirmed text, answer or thoughts: never taken back, never a part of a character."""

    text: str
    thinking: bool = False


@dataclass(frozen=True, slots=True)
class LensToken:
    """One confirmed token.

    Args:
        text: what it adds to all that is written, tags of thoughts included; empty where it is only a part of a
            character, which then comes with the token that completes it.
        origin: `first` (the prompt's own evaluation gave it), `plain` (a round without a draft), `correction` or
            `bonus` (the target's, after a rejected or a wholly accepted draft), else the name of the drafter
            that proposed it: `model` or `lookup`.
    """

    text: str
    origin: str


@dataclass(frozen=True, slots=True)
class RoundFigures:
    """One round: what was drafted, accepted and confirmed, and where its seconds went.

    `draft_s` and `verify_s` are the models' passes, what the draft model had to catch up with included; `other_s` is
    all else since the round before: choosing, text, and whoever reads it.
    """

    drafter: str
    drafted: int
    accepted: int
    confirmed: int
    draft_s: float
    verify_s: float
    other_s: float


@dataclass(frozen=True, slots=True)
class Streamed:
    """What was confirmed since the last one; at most 15 a second, and the last comes before `Finished`.

    Spans and tokens need not end at the same place: text that may begin a stop string or a tag waits.
    """

    id: int
    spans: tuple[Span, ...] = ()
    tokens: tuple[LensToken, ...] = ()
    rounds: tuple[RoundFigures, ...] = ()


@dataclass(frozen=True, slots=True)
class DrafterFigures:
    """How often one drafter was used, and with what success."""

    name: str
    rounds: int
    drafted: int
    accepted: int
    confirmed: int


@dataclass(frozen=True, slots=True)
class Finished:
    """A reply is complete, or was stopped.

    Args:
        id: of the request.
        turn: the assistant's whole turn, the part that a continued one had before included. Sent back unchanged in
            the next `Ask`, its tokens are known.
        stop_reason: eog, length, stop_string, cancelled or context_full.
        seed: gives the same text again.
        prompt_tokens: tokens of the prompt.
        cached_tokens: how many of them were known from before.
        completion_tokens: tokens that were generated, the one that ended the reply included.
        first_token_s: seconds from the request to the first token; None without one.
        prefill_s: evaluating the prompt with the target.
        decode_s: from the end of prefill to the last token; the next four lie within it.
        draft_prefill_s: evaluating with the draft model what it had not followed.
        draft_s: draft passes and lookups.
        verify_s: target passes.
        other_s: all else.
        tokens_per_s: tokens after the first, per second of decoding; None without any.
        drafter: what drafted.
        drafters: by drafter; their sums are the whole reply's.
        predicted_speed_up: over plain decoding, by the costs of this machine and the acceptance of this reply, 1 is
            nothing; None where nothing was drafted, or costs are not known.
        measured_speed_up: what it came to, by the same cost of a plain round.
        note: why nothing was drafted, and what drafting would cost; empty without a reason.
    """

    id: int
    turn: Turn
    stop_reason: Literal["eog", "length", "stop_string", "cancelled", "context_full"]
    seed: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    first_token_s: float | None
    prefill_s: float
    decode_s: float
    draft_prefill_s: float
    draft_s: float
    verify_s: float
    other_s: float
    tokens_per_s: float | None
    drafter: str
    drafters: tuple[DrafterFigures, ...]
    predicted_speed_up: float | None = None
    measured_speed_up: float | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Counted:
    """A conversation takes so many tokens of a context of `n_ctx`."""

    id: int
    tokens: int
    n_ctx: int


@dataclass(frozen=True, slots=True)
class StateSaved:
    """The directory now holds what was evaluated."""

    directory: str
    tokens: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class StateRestored:
    """So many tokens need not be evaluated again."""

    directory: str
    tokens: int


@dataclass(frozen=True, slots=True)
class StateLeft:
    """A state was not written, or does not fit and was left alone; the text is evaluated as usual."""

    directory: str
    reason: str


@dataclass(frozen=True, slots=True)
class Failed:
    """A request could not be done; the engine goes on.

    Args:
        id: of the request; None for a load, a state, or a frame that nobody understood.
        kind: name of the error's class in `localspec.errors`, or `FrameError`.
        reason: one line: what, which value, and what to do.
    """

    id: int | None
    kind: str
    reason: str


@dataclass(frozen=True, slots=True)
class EngineDied:
    """The process is gone, and nobody had asked it to. Made by the client: it never travels.

    Args:
        reason: one line: by which signal or code, in words, and what to do.
    """

    reason: str


Message = (
    Hello
    | Downloading
    | Loading
    | Measuring
    | Ready
    | LoadCancelled
    | Started
    | Prefilling
    | Streamed
    | Finished
    | Counted
    | StateSaved
    | StateRestored
    | StateLeft
    | Failed
    | EngineDied
)
