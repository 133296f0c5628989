"""Policy: which drafter, and how far. Nothing here can change the text, only the speed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from localspec.decoding.drafter import Drafter
from localspec.decoding.round import Round, Spent


@dataclass(frozen=True, slots=True)
class Plan:
    """What one round is to try; a draft length of 0 is plain decoding.

    Args:
        drafter: proposes.
        draft_length: most tokens that it may propose.
        draft_prefill: let the draft model evaluate the text first, counted as prefill of its own.
        look_back: how many of the latest tokens that leaves to the draft, beside the last.
    """

    drafter: Drafter
    draft_length: int
    draft_prefill: bool = False
    look_back: int = 0


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

    def begin(self, *, greedy: bool) -> None:
        """Start a reply; what was learnt from earlier ones may be kept.

        Args:
            greedy: whether the temperature is 0.
        """
        ...

    def plan(self, tokens: Sequence[int], room: int, lag: int) -> Plan:
        """Plan a round.

        Args:
            tokens: confirmed so far, prompt included; within a reply they only grow.
            room: most tokens that the round may confirm.
            lag: how many of the tokens the draft model has not evaluated; 0 without one.
        """
        ...

    def learn(self, done: Round, spent: Spent) -> None:
        """Take in what came of the round that was planned last."""
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

    def begin(self, *, greedy: bool) -> None:
        """Remember nothing."""

    def plan(self, tokens: Sequence[int], room: int, lag: int) -> Plan:  # noqa: ARG002 - the protocol's signature
        """Plan the fixed length."""
        # An accepted draft leaves the draft model two tokens behind, no more.
        return Plan(self.drafter, self.draft_length, self.uses_draft_model and lag > 2)

    def learn(self, done: Round, spent: Spent) -> None:
        """Learn nothing."""
