"""Policy: which drafter, and how far. Nothing here can change the text, only the speed."""

from dataclasses import dataclass
from typing import Protocol

from localspec.decoding.drafter import Drafter


@dataclass(frozen=True, slots=True)
class Plan:
    """What one round is to try; a draft length of 0 is plain decoding."""

    drafter: Drafter
    draft_length: int


class Policy(Protocol):
    """Decides before each round, and may learn from every one."""

    @property
    def drafter_name(self) -> str:
        """One word for figures and screens: what it may draft with."""
        ...

    @property
    def uses_draft_model(self) -> bool:
        """Whether a round may ask for passes of the draft model."""
        ...

    def plan(self, n_past: int, room: int) -> Plan:
        """Plan a round.

        Args:
            n_past: tokens confirmed so far, prompt included.
            room: most tokens that the round may confirm.
        """
        ...


@dataclass(frozen=True, slots=True)
class FixedPolicy:
    """Always the same drafter and draft length.

    Args:
        drafter: proposes in every round.
        draft_length: how far.
        uses_draft_model: whether the drafter asks for passes of the draft model.
    """

    drafter: Drafter
    draft_length: int
    uses_draft_model: bool = False

    @property
    def drafter_name(self) -> str:
        """The drafter's own name."""
        return self.drafter.name

    def plan(self, n_past: int, room: int) -> Plan:  # noqa: ARG002 - the protocol's signature
        """Plan the fixed length."""
        return Plan(self.drafter, self.draft_length)
