"""Policy: which drafter, and how far, round by round. Nothing here can change the text, only the speed."""

from collections.abc import Sequence
from typing import Protocol

from localspec.decoding.choose import Chooser
from localspec.decoding.drafters.drafter import PLAIN, Drafter, Plan
from localspec.decoding.round import Round


class Policy(Protocol):
    """Decides before each round of one sequence, and may learn from every one."""

    @property
    def name(self) -> str:
        """One word for figures and screens: what it may draft with."""
        ...

    def begin(self, tokens: Sequence[int], chooser: Chooser) -> None:
        """Start a reply; what was learnt from earlier ones may be kept.

        Args:
            tokens: the prompt and the reply's first token.
            chooser: fixes every choice of the reply.
        """
        ...

    def plan(self, tokens: Sequence[int], room: int) -> Plan:
        """Plan a round, without side effects.

        Args:
            tokens: confirmed so far, prompt included; within a reply they only grow.
            room: most tokens that the round may confirm.
        """
        ...

    def learn(self, done: Round) -> None:
        """Take in what came of the round that was planned last."""
        ...

    def end(self) -> None:
        """End a reply, however it ended."""
        ...


class FixedPolicy:
    """Always the same drafter and draft length.

    Args:
        drafter: proposes in every round.
        draft_length: how far.
    """

    def __init__(self, drafter: Drafter, draft_length: int) -> None:
        self.drafter = drafter
        self._plan = Plan(drafter, draft_length)

    @property
    def name(self) -> str:
        """The drafter's own name."""
        return self.drafter.name

    def begin(self, tokens: Sequence[int], chooser: Chooser) -> None:
        """Start a reply."""
        self.drafter.begin(tokens, chooser)

    def plan(self, tokens: Sequence[int], room: int) -> Plan:  # noqa: ARG002 - the protocol's signature
        """Plan the fixed length."""
        return self._plan

    def learn(self, done: Round) -> None:
        """Let the drafter follow the text."""
        self.drafter.learn(done, 1.0)

    def end(self) -> None:
        """End a reply: nothing is to be done."""


def plain_policy() -> FixedPolicy:
    """Return a policy that never drafts."""
    return FixedPolicy(PLAIN.drafter, 0)
