"""Events: what a reply is made of while it arrives, and the reply that they add up to. Cheap to import.

Screen, lens, telemetry, bench and the engine's client consume them.
"""

from dataclasses import dataclass, field, replace

from localspec.decoding.gain import Gain
from localspec.decoding.round import Round, Spent, StopReason
from localspec.decoding.stats import AcceptanceStats
from localspec.messages import Message, Tagged, ToolCall


class Started(Tagged, frozen=True):
    """A prompt is about to be evaluated.

    Args:
        prompt_tokens: tokens of the prompt.
        cached_tokens: how many of them need no evaluation.
        tokens: their ids, where the client proposes tokens; see `Request.drafts`.
    """

    prompt_tokens: int
    cached_tokens: int
    tokens: tuple[int, ...] = ()


class Prefilling(Tagged, frozen=True):
    """So many of the prompt's tokens that were not cached are evaluated; where a prompt takes several passes."""

    done_tokens: int
    total_tokens: int


class RoundDone(Tagged, frozen=True):
    """A round of the reply.

    Args:
        round: what was drafted, what became of it, and what it cost.
        texts: what each confirmed token adds to all that is written, tags of thoughts included; empty
            if it is only a part of a character, which then comes with the token that completes it.
            What ends the reply, and what follows a stop string, has none.
    """

    round: Round
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """How likely the target held a token of the text to be, see `decoding.sampling.logprobs`.

    Args:
        piece: the token's bytes, as text in Latin-1.
        logprob: natural logarithm of its probability; None of a prompt's first.
        top: the likeliest tokens in its place, the best first.
    """

    piece: str
    logprob: float | None
    top: tuple[tuple[str, float], ...] = ()


class Text(Tagged, frozen=True):
    """Confirmed text, ready to be shown: it will never be taken back.

    Args:
        text: never a part of a character, and empty only where it brings the logprob of what ends an echoed text.
        thinking: whether it belongs to a thinking block instead of the answer.
        logprobs: of the tokens that it completes, where they were asked for.
    """

    text: str
    thinking: bool = False
    logprobs: tuple[TokenLogprob, ...] = ()


class Echo(Tagged, frozen=True):
    """The prompt itself, before the answer, and its tokens where logprobs were asked for."""

    text: str
    logprobs: tuple[TokenLogprob, ...] = ()


class CallBegun(Tagged, frozen=True):
    """A call of a function whose name is known."""

    id: str
    name: str


class CallDelta(Tagged, frozen=True):
    """More of the arguments of a call that has begun; all of them together are a JSON object."""

    id: str
    text: str


class CallDone(Tagged, frozen=True):
    """A call whose arguments are whole."""

    call: ToolCall


class Withheld(Tagged, frozen=True):
    """Text hidden by an `ask` rule of a gate in the next text or arguments, to show to the local user only.

    Args:
        rule: what found it.
        text: as the model wrote it; never to be kept anywhere.
        mask: what stands in its place.
        in_call: whether that is in the arguments of a call.
    """

    rule: str
    text: str
    mask: str
    in_call: bool = False


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole answer, and the figures of how it came about.

    Args:
        text: the answer.
        thinking: what the model wrote in thinking blocks; empty for most models.
        tokens: ids of the answer and its thoughts, without what ended it.
        stop_reason: why it ended.
        seed: gives the same text again, with or without drafting.
        prompt_tokens: tokens of the prompt.
        cached_tokens: how many of them were known from an earlier turn, or from another reply.
        completion_tokens: tokens that were generated, the one that ended it included.
        first_token_s: seconds from the request to the first confirmed token; None without one.
        prefill_s: evaluating the prompt with the target, and choosing the first token.
        decode_s: from the end of prefill to the last confirmed token.
        spent: where the rounds' time went, all of them together.
        drafter: what was to draft: off, auto, or the name of a drafter.
        acceptance: how drafting went.
        gain: what drafting gained; None where nothing was drafted, or that is not known.
        no_gain: why the gain of what was drafted is not known, in about five words.
        calls: of functions, in order; they are in no other field.
        note: what the model's template does not know of how it was to think, and that there are only thoughts, in
            sentences; empty for most replies.
        prediction: tokens of the text that it was expected to be like, and how many of them it has; None without one.
    """

    text: str
    thinking: str
    tokens: tuple[int, ...]
    stop_reason: StopReason
    seed: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    first_token_s: float | None
    prefill_s: float
    decode_s: float
    spent: Spent
    drafter: str
    acceptance: AcceptanceStats = field(default_factory=AcceptanceStats)
    gain: Gain | None = None
    no_gain: str = ""
    calls: tuple[ToolCall, ...] = ()
    note: str = ""
    prediction: tuple[int, int] | None = None

    @property
    def tokens_per_s(self) -> float | None:
        """Tokens after the first, which prefill gives, per second of decoding; None without any."""
        if self.completion_tokens < 2 or self.decode_s <= 0:
            return None
        return (self.completion_tokens - 1) / self.decode_s

    @property
    def only_thoughts(self) -> bool:
        """Whether it ended within its thoughts: it has neither an answer nor a call."""
        return bool(self.thinking) and not self.text.strip() and not self.calls

    def noted(self) -> "Reply":
        """Return it with a note that it has only thoughts, if that is so and nobody stopped it."""
        if not self.only_thoughts or self.stop_reason in {StopReason.CANCELLED, StopReason.GATED}:
            return self
        cut = self.stop_reason is StopReason.LENGTH
        more = "allow more tokens, or leave thoughts out with" if cut else "leave thoughts out with"
        note = f"the reply has only thoughts and no answer: {more} think off"
        return replace(self, note=f"{self.note}; {note}" if self.note else note)

    @property
    def gain_ratio(self) -> float | None:
        """How many times as fast drafting made it; None where nothing was drafted, or that is not known."""
        return None if self.gain is None else self.gain.ratio

    @property
    def message(self) -> Message:
        """What it says, as a message; the calls of a reply that was cancelled are left out."""
        turn = Message.assistant(self.text, self.thinking)
        calls = () if self.stop_reason is StopReason.CANCELLED else self.calls
        return replace(turn, parts=(*turn.parts, *calls))


class Finished(Tagged, frozen=True):
    """The last event of a reply, complete or stopped. What follows `findings` is an engine's, and not an assistant's.

    Args:
        reply: what is new, and its figures.
        message: the assistant's whole turn, the part that a continued one had before included. Sent back
            unchanged in the next `Request`, its tokens are known.
        masked: whether a gate masked anything of it.
        findings: how often each rule of a gate matched, and its action: rule, action, count.
        id: of the request.
        dropped_turns: how many of the oldest turns were left out.
        draft_note: what the draft model would cost where it is off; empty where it is on, or there is none.
        reason: why it was drafted as it was, a sentence.
        no_drafting: why nothing was drafted, in about five words; empty where something was.
        widths: how many passes of the target were made since the last reply was done, for all requests, by the
            tokens that they evaluated.
    """

    reply: Reply
    message: Message
    masked: bool = False
    findings: tuple[tuple[str, str, int], ...] = ()
    id: int = 0
    dropped_turns: int = 0
    draft_note: str = ""
    reason: str = ""
    no_drafting: str = ""
    widths: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class RequestFailed:
    """The last event of a request that has no reply.

    Args:
        error: what was wrong with it alone; anything but a `LocalspecError` is a fault of ours.
    """

    error: Exception


Delta = Text | Echo | CallBegun | CallDelta | CallDone
"""More of a reply, as it becomes certain."""
StreamEvent = Started | Prefilling | RoundDone | Withheld | Delta
Event = StreamEvent | Finished
