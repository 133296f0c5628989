"""What is counted and seen of a reply while its rounds go by."""

from collections.abc import Callable
from dataclasses import dataclass, field

from localspec.decoding.generate import Confirmed
from localspec.decoding.stats import AcceptanceStats
from localspec.decoding.timings import Timings

Watch = Callable[[Confirmed, Timings], None]
"""Called with what a round confirmed, and the times so far."""


@dataclass(slots=True)
class ReplyProgress:
    """Figures of a reply that is being made."""

    acceptance: AcceptanceStats = field(default_factory=AcceptanceStats)
    completion_tokens: int = 0
    first_token_at: float | None = None

    def count(self, confirmed: Confirmed) -> None:
        """Count what a round did; the first token comes without one."""
        if confirmed.round is None:
            return
        draft, handed_out = confirmed.round.draft, len(confirmed.tokens)
        self.acceptance.add(
            draft.drafter,
            drafted=len(draft.tokens),
            accepted=min(confirmed.round.verdict.accepted, handed_out),
            confirmed=handed_out,
        )
