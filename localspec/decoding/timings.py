"""Timings: where the time of one reply went, in seconds."""

from collections.abc import Callable
from dataclasses import dataclass, field

from localspec.decoding.model import Role


@dataclass(slots=True)
class Timings:
    """Stage times of one generation; every stage is timed by the same clock.

    Args:
        clock: seconds from any fixed moment on, monotonic.

    Attributes:
        prefill_s: evaluating the prompt with the target, and choosing the first token.
        prefill_tokens: how many tokens of it were not cached from before.
        decode_s: from the end of prefill to the last confirmed token.
        draft_prefill_s: evaluating with the draft model what it had not followed, within `decode_s`.
        draft_s: draft model passes and lookups, within `decode_s`.
        verify_s: target passes, within `decode_s`.
        sample_s: every choice from logits, the target's and the draft's, within `decode_s`.
    """

    clock: Callable[[], float]
    prefill_s: float = 0.0
    prefill_tokens: int = 0
    decode_s: float = 0.0
    draft_prefill_s: float = 0.0
    draft_s: float = 0.0
    verify_s: float = 0.0
    sample_s: float = 0.0
    _lap_start: float = field(default=0.0, repr=False)
    _decode_start: float = field(default=0.0, repr=False)
    _confirmed: tuple[float, float, float, float] = field(default=(0.0,) * 4, repr=False)

    @property
    def other_s(self) -> float:
        """What of `decode_s` is in no stage: this program's own loop, and its consumer."""
        return self.decode_s - sum(self.stages())

    def stages(self) -> tuple[float, float, float, float]:
        """Return the seconds of draft prefill, draft, verify and sample so far."""
        return self.draft_prefill_s, self.draft_s, self.verify_s, self.sample_s

    def lap(self) -> float:
        """Return the seconds since the lap before, and start the next."""
        start, self._lap_start = self._lap_start, self.clock()
        return self._lap_start - start

    def add_prefill(self, role: Role, n_tokens: int) -> None:
        """Count a prefill that ends now and evaluated `n_tokens`."""
        if role is Role.TARGET:
            self.prefill_s += self.lap()
            self.prefill_tokens += n_tokens
        else:
            self.draft_prefill_s += self.lap()

    def add_pass(self, role: Role, seconds: float) -> None:
        """Count a pass of a round."""
        if role is Role.TARGET:
            self.verify_s += seconds
        else:
            self.draft_s += seconds

    def start_decode(self) -> None:
        """Mark the end of prefill."""
        self._decode_start = self.clock()

    def mark_confirmed(self) -> None:
        """Mark the moment at which a round's tokens are confirmed."""
        self.decode_s = self.clock() - self._decode_start
        self._confirmed = self.stages()

    def drop_unconfirmed(self) -> None:
        """Forget the stages of a round that was cancelled: `decode_s` does not hold it either."""
        self.draft_prefill_s, self.draft_s, self.verify_s, self.sample_s = self._confirmed
