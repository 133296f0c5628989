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

    def plan(self, n_past: int, room: int) -> Plan:
        """Plan a round.

        Args:
            n_past: tokens confirmed so far, prompt included.
            room: most tokens that the round may confirm.
        """
        ...


@dataclass(frozen=True, slots=True)
class FixedPolicy:
    """Always the same drafter and draft length."""

    drafter: Drafter
    draft_length: int

    def plan(self, n_past: int, room: int) -> Plan:  # noqa: ARG002 - the protocol's signature
        """Plan the fixed length."""
        return Plan(self.drafter, self.draft_length)
