"""ReplyOptions: how one reply is made."""

from dataclasses import dataclass, field

from localspec.chat.stop_strings import StopStrings
from localspec.decoding.sampling import SamplingParams
from localspec.errors import UsageError


@dataclass(frozen=True, slots=True)
class ReplyOptions:
    """How one reply is made.

    Args:
        sampling: how a row of logits becomes a choice.
        seed: the same seed gives the same text; None draws one, which the reply reports.
        max_tokens: most tokens to generate; None goes on until the model ends or the context is full.
        stop: texts that end the answer and are not part of it.
    """

    sampling: SamplingParams = field(default_factory=SamplingParams)
    seed: int | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.max_tokens is not None and self.max_tokens < 1:
            raise UsageError(f"max_tokens is {self.max_tokens}: it must be 1 or more")
        StopStrings(self.stop)
