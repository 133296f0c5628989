"""ForcedDrafter: drafts what a grammar leaves no choice about; no model is asked, and nothing of it is ever rejected."""

from collections.abc import Generator, Sequence

from localspec.decoding.choose import Chooser
from localspec.decoding.drafters.drafter import DraftForecast, Plan
from localspec.decoding.drafters.register import DrafterContext
from localspec.decoding.model import Logits, Pass
from localspec.decoding.round import Draft, Round


class ForcedDrafter:
    """Knows from the reply's constraint which tokens must follow; without a constraint, none."""

    name = "forced"
    reserve = 0.0

    def __init__(self) -> None:
        self._chooser: Chooser | None = None

    def begin(self, tokens: Sequence[int], chooser: Chooser) -> None:  # noqa: ARG002 - the protocol's signature
        """Take in the constraint of another reply; see `Drafter`."""
        self._chooser = chooser

    def forecast(self, tokens: Sequence[int]) -> DraftForecast | None:
        """Return that the tokens that must follow are certain; see `Drafter`."""
        certain = () if self._chooser is None else self._chooser.forced(tokens)
        return DraftForecast((1.0,) * len(certain)) if certain else None

    def propose(
        self, tokens: Sequence[int], plan: Plan, chooser: Chooser
    ) -> Generator[Pass, Logits, Draft]:
        """Propose what must follow; see `Drafter`."""
        yield from ()
        certain = chooser.forced(tokens)[: plan.draft_length]
        return Draft(certain, (1.0,) * len(certain), self.name)

    def learn(self, done: Round) -> None:
        """Learn nothing: what is certain needs no record."""


def make(_: DrafterContext) -> ForcedDrafter:
    """Return the register's drafter."""
    return ForcedDrafter()
