"""Round: one propose and verify cycle, and what it cost."""

from dataclasses import dataclass

from localspec.decoding.drafter import Draft
from localspec.decoding.verify import Verdict


@dataclass(frozen=True, slots=True)
class Round:
    """One propose and verify cycle."""

    draft: Draft
    verdict: Verdict

    @property
    def confirmed(self) -> tuple[int, ...]:
        """The accepted tokens and the target's next one: never empty."""
        return (*self.draft.tokens[: self.verdict.accepted], self.verdict.next_token)

    @property
    def correction_rank(self) -> int | None:
        """The correction's place among what the drafter might have proposed, the proposal being 1.

        None without a correction, and where it did not come near the proposal.
        """
        accepted = self.verdict.accepted
        if accepted == len(self.draft.tokens) or accepted >= len(self.draft.rankings):
            return None
        return self.draft.rankings[accepted].rank(self.verdict.next_token)


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds that one round took, by stage.

    Args:
        draft_prefill_s: what the draft model had not evaluated yet, before it could propose.
        draft_s: its passes for the draft, and lookups.
        verify_s: the target's pass.
        sample_s: choosing, for the draft and for the verdict.
    """

    draft_prefill_s: float
    draft_s: float
    verify_s: float
    sample_s: float

    @property
    def total_s(self) -> float:
        """All of it."""
        return self.draft_prefill_s + self.draft_s + self.verify_s + self.sample_s
