"""Drafter: proposes tokens, and forecasts beforehand what they are worth. Nothing here can change the text."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from localspec.decoding.choose import Chooser
from localspec.decoding.drafters.draft_length import Worth
from localspec.decoding.model import Logits, Pass
from localspec.decoding.round import OFF, Draft, Round


@dataclass(frozen=True, slots=True)
class DraftForecast:
    """What a drafter expects of the next tokens.

    Args:
        chances: of each token to be accepted when those before it were; as many as it would draft at most.
        step_s: seconds of the pass that each token takes; 0 asks for no pass. A draft of passes grows token by
            token, and ends where the next is not worth its pass.
        start_s: seconds before the first token.
        in_one_pass: whether one such pass gives the whole draft, however long.
        late_s: where tokens come from outside, in how many seconds so many of them will be there; empty where all are.
    """

    chances: Sequence[float]
    step_s: float = 0.0
    start_s: float = 0.0
    in_one_pass: bool = False
    late_s: Sequence[float] = ()

    def passes(self, length: int) -> int:
        """Return how many passes a draft of so many tokens takes."""
        return min(length, 1) if self.in_one_pass else length


class Drafter(Protocol):
    """Proposes tokens for one sequence, and learns from every round of it."""

    @property
    def name(self) -> str:
        """One word for figures and screens."""

    @property
    def reserve(self) -> float:
        """Plain steps of the common budget that it leaves to others, less what it has gained lately."""

    def begin(self, tokens: Sequence[int], chooser: Chooser) -> None:
        """Start a reply; what was learnt from earlier ones may be kept.

        Args:
            tokens: the prompt and the reply's first token.
            chooser: fixes every choice of the reply.
        """

    def forecast(self, tokens: Sequence[int]) -> DraftForecast | None:
        """Return what it expects, without side effects; None if it has nothing to propose.

        Args:
            tokens: confirmed so far, prompt included.
        """

    def propose(
        self, tokens: Sequence[int], plan: "Plan", chooser: Chooser
    ) -> Generator[Pass, Logits, Draft]:
        """Propose up to `plan.draft_length` tokens to follow `tokens`, asking for passes as needed."""

    def learn(self, done: Round) -> None:
        """Take in a round of the sequence, by any drafter."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What one round is to try; a draft length of 0 is plain decoding.

    Args:
        drafter: proposes.
        draft_length: most tokens that it may propose, branches included.
        rate: confirmed tokens per second that it promises; 0 if that is not known.
        forecast: what the drafter expected.
        verify_s: seconds of a target pass by the number of drafted tokens, from 0 to `draft_length`; empty drafts
            as far as it may.
        branches: most second choices that may be verified beside the draft.
    """

    drafter: Drafter
    draft_length: int
    rate: float = 0.0
    forecast: DraftForecast | None = None
    verify_s: Sequence[float] = ()
    branches: int = 0

    def worth(self) -> Worth | None:
        """Return what judges a draft while it grows; None where it is as long as planned."""
        if self.forecast is None or not self.verify_s:
            return None
        verify_s = self.verify_s[: self.draft_length + 1]  # there may be less room than planned
        # Once the pass is made that gives all of them, a further token costs none.
        step_s = 0.0 if self.forecast.in_one_pass else self.forecast.step_s
        return Worth(self.forecast.chances[0], step_s, verify_s, self.rate)


class NoDrafter:
    """Proposes nothing: plain decoding is the round with an empty draft."""

    name = OFF
    reserve = 0.0

    def begin(self, tokens: Sequence[int], chooser: Chooser) -> None:
        """Remember nothing."""

    def forecast(self, tokens: Sequence[int]) -> None:
        """Expect nothing."""

    def learn(self, done: Round) -> None:
        """Learn nothing."""

    def propose(self, *_: Any, **__: Any) -> Generator[Pass, Logits, Draft]:
        """Return an empty draft without asking for a pass."""
        yield from ()
        return Draft()


PLAIN = Plan(NoDrafter(), 0)
"""Plain decoding."""
