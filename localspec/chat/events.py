"""Events: what a reply is made of while it arrives, and the reply that they add up to."""

from dataclasses import dataclass

from localspec.decoding.generate import StopReason
from localspec.decoding.stats import AcceptanceStats
from localspec.decoding.timings import Timings


@dataclass(frozen=True, slots=True)
class TextChunk:
    """Confirmed text, ready to be shown: it will never be taken back.

    Args:
        text: never empty, never a part of a character.
        thinking: whether it belongs to a thinking block instead of the answer.
    """

    text: str
    thinking: bool = False


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
        cached_tokens: how many of them were known from an earlier turn.
        completion_tokens: tokens that were generated, the one that ended it included.
        first_token_s: seconds from the request to the first confirmed token; None without one.
        timings: where the time went.
        drafter: what drafted: off, lookup or model.
        acceptance: how drafting went.
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
    timings: Timings
    drafter: str
    acceptance: AcceptanceStats

    @property
    def tokens_per_s(self) -> float | None:
        """Tokens after the first, which prefill gives, per second of decoding; None without any."""
        if self.completion_tokens < 2 or self.timings.decode_s <= 0:
            return None
        return (self.completion_tokens - 1) / self.timings.decode_s


@dataclass(frozen=True, slots=True)
class Finished:
    """The last event of a reply."""

    reply: Reply


Event = TextChunk | Finished
