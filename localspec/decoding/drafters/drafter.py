"""Drafter: whoever proposes tokens, and says beforehand what that promises. Nothing here can change the text."""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from localspec.decoding.choose import Chooser
from localspec.decoding.drafters.early_stopping import EarlyStopping
from localspec.decoding.model import Logits, Pass
from localspec.decoding.round import OFF, Draft, Round


@dataclass(frozen=True, slots=True)
class Terms:
    """What a drafted round costs now, and what may be lost by it.

    Args:
        verify_s: seconds of verifying a draft, by its tokens, from 0 (a plain round) to the most that may be drafted.
        budget: plain steps that drafting may lose from here on.
        branches: most second choices that a pass may verify beside a draft.
    """

    verify_s: Sequence[float]
    budget: float
    branches: int = 0

    @property
    def most(self) -> int:
        """Most tokens that may be drafted."""
        return len(self.verify_s) - 1

    @property
    def plain_s(self) -> float:
        """Seconds of a plain round."""
        return self.verify_s[0]


class Drafter(Protocol):
    """Proposes tokens for one sequence, and learns from every round of it.

    Making a promise has no side effects: the policy may choose another drafter.
    """

    @property
    def name(self) -> str:
        """One word for figures and screens."""
        ...

    @property
    def shares_passes(self) -> bool:
        """Whether it asks for passes, which several sequences share."""
        ...

    def begin(self, tokens: Sequence[int], chooser: Chooser) -> None:
        """Start a reply; what was learnt from earlier ones may be kept.

        Args:
            tokens: the prompt and the reply's first token.
            chooser: fixes every choice of the reply.
        """
        ...

    def promise(self, tokens: Sequence[int], terms: Terms) -> "Plan | None":
        """Return the plan that promises most, with its rate; None if nothing is worth trying.

        Args:
            tokens: confirmed so far, prompt included.
            terms: what it would cost.
        """
        ...

    def propose(
        self, tokens: Sequence[int], plan: "Plan", chooser: Chooser
    ) -> Generator[Pass, Logits, Draft]:
        """Propose up to `plan.draft_length` tokens to follow `tokens`, asking for passes as needed."""
        ...

    def foreseen_s(self) -> float:
        """Return the seconds that the last proposal should have taken."""
        ...

    def learn(self, done: Round, steps: float) -> None:
        """Take in a round of the sequence, whoever drafted it.

        Args:
            done: the round.
            steps: what it took, in plain rounds.
        """
        ...


@runtime_checkable
class StartsFromRecords(Protocol):
    """A drafter that can start from what drafts earned in earlier conversations."""

    def expect(self, earned: Mapping[int, tuple[float, float]], *, greedy: bool) -> None:
        """Take in what was earned on text of this kind.

        Args:
            earned: by bucket of the gap, see `GAPS`, the share that was accepted, and how many tokens say so.
            greedy: whether that was at temperature 0.
        """
        ...


@runtime_checkable
class BoundsItself(Protocol):
    """A drafter that bounds what it loses over all replies together: others may go on drafting for it."""

    @property
    def may_lose(self) -> float:
        """Plain steps that it may still lose."""
        ...


@dataclass(frozen=True, slots=True)
class Plan:
    """What one round is to try; a draft length of 0 is plain decoding.

    Args:
        drafter: proposes.
        draft_length: most tokens that it may propose, branches included.
        rate: confirmed tokens per second that it promises; 0 if nobody foresees it.
        stopping: says while the draft grows whether to go on; None drafts as far as it may.
    """

    drafter: Drafter
    draft_length: int
    rate: float = 0.0
    stopping: EarlyStopping | None = None


class NoDrafter:
    """Proposes nothing: plain decoding is the round with an empty draft."""

    name = OFF
    shares_passes = False

    def begin(self, tokens: Sequence[int], chooser: Chooser) -> None:
        """Remember nothing."""

    def promise(self, tokens: Sequence[int], terms: Terms) -> None:
        """Promise nothing."""

    def propose(
        self,
        tokens: Sequence[int],  # noqa: ARG002 - the protocol's signature
        plan: Plan,  # noqa: ARG002
        chooser: Chooser,  # noqa: ARG002
    ) -> Generator[Pass, Logits, Draft]:
        """Return an empty draft without asking for a pass."""
        yield from ()
        return Draft()

    def foreseen_s(self) -> float:
        """Return 0."""
        return 0.0

    def learn(self, done: Round, steps: float) -> None:
        """Learn nothing."""


PLAIN = Plan(NoDrafter(), 0)
"""Plain decoding."""
