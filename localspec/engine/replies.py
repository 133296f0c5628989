"""What the engine says of a reply: while it is made, and when it is done. See `protocol`."""

from dataclasses import dataclass
from typing import Literal

from localspec.messages import Message


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
    """What was confirmed since the last one; at most ten a second, and the last comes before `Finished`.

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
        message: the assistant's, the part that a continued one had before included. Sent back unchanged in the next
            `Ask`, its tokens are known.
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
        note: what the draft model would have cost, where it was not asked; empty without one.
    """

    id: int
    message: Message
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
