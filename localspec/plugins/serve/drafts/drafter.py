"""ClientDrafter: proposes what the client of an answer proposes, which may be anything, late, or nothing."""

from bisect import bisect
from collections.abc import Collection, Generator, Sequence
from itertools import takewhile
from math import inf

from localspec.api import Draft, DrafterContext, DraftForecast, Round
from localspec.decoding.choose import Chooser
from localspec.decoding.drafters.draft_length import Estimator, best_length
from localspec.decoding.drafters.drafter import Plan
from localspec.decoding.model import Logits, Pass
from localspec.decoding.policy import LONGEST_DRAFT
from localspec.decoding.proposals import Proposals

_SURE = (50, 70, 85, 93, 98)
"""Bounds of what a client says of a token, in percent."""
_SAID = (0.35, 0.6, 0.75, 0.87, 0.94, 0.97)
_STREAK = (2, 3, 4, 6, 9, 16)
"""Bounds of how many tokens came true in a row, by which it is judged where the client says nothing."""
_UNSAID = (0.7, 0.74, 0.78, 0.82, 0.86, 0.9, 0.95)
_EXPECTED = 0.8
"""Of tokens that are expected and not yet there."""
_WEIGHT, _MEMORY, _DRIFT = 20.0, 100.0, 0.1
_PATIENCE, _LEAST_PATIENCE_S = 1.5, 0.002
"""How many times as long as proposals took of late they are waited for, and how much longer."""


class ClientDrafter:
    """Weighs a client's proposals by what came true of others of which it was as sure, or where it does not say, of a row of them.

    A round may wait for proposals, as long as these took of late, and as far as the policy finds that it pays; one
    that waited in vain waits no more for a while.

    Args:
        eog: ids that end a generation; nothing useful follows them.
    """

    name = "client"
    reserve = 5.0

    def __init__(self, eog: Collection[int]) -> None:
        self._eog = eog
        self._proposals: Proposals | None = None
        prior = (*_SAID, *_UNSAID, _EXPECTED)
        self._estimator = Estimator(prior, _WEIGHT, _MEMORY, _DRIFT)
        self._right, self._comes = 0, 1.0

    def begin(self, tokens: Sequence[int], chooser: Chooser) -> None:
        """Follow another text; see `Drafter`."""
        self._proposals = chooser.proposals
        if self._proposals is not None:
            self._proposals.begin(tokens)
        self._right, self._comes = 0, 1.0

    def forecast(self, tokens: Sequence[int]) -> DraftForecast | None:  # noqa: ARG002 - the protocol's signature
        """Return how likely what was proposed is, and what is still expected, and when; see `Drafter`."""
        proposals = self._proposals
        if proposals is None:
            return None
        proposals.take()
        due_s = map(proposals.due_s, range(1, LONGEST_DRAFT + 1))
        late_s = [*takewhile(lambda each: each < inf, due_s)]
        chances = self._chances(len(late_s))
        if not chances:
            return None
        if not proposals.chain:
            chances[0] *= self._comes
        return DraftForecast(chances, late_s=late_s if late_s[-1] else ())

    def propose(
        self, tokens: Sequence[int], plan: Plan, chooser: Chooser
    ) -> Generator[Pass, Logits, Draft]:
        """Propose what is proposed by now, or within the time that was planned for; see `Drafter`."""
        yield from ()
        proposals = self._proposals
        if proposals is None:
            return Draft(drafter=self.name)
        most, late_s = plan.draft_length, plan.forecast.late_s if plan.forecast else ()
        if late_s:
            proposals.wait(_PATIENCE * late_s[-1] + _LEAST_PATIENCE_S, len(late_s))
            self._comes *= 1.0 if proposals.chain else 0.5
        chain = proposals.take()[:most]
        end = next((at + 1 for at, token in enumerate(chain) if token in self._eog), len(chain))
        chances = self._chances(end)
        if plan.verify_s:
            end, _ = best_length(chances, plan.verify_s[: most + 1])
        drafted = tuple(chain[: chooser.admitted(tokens, chain[:end])])
        return Draft(drafted, tuple(chances[: len(drafted)]), self.name)

    def learn(self, done: Round) -> None:
        """Take in the text, and what it shows of proposals, whether or not they were drafted; see `Drafter`."""
        proposals = self._proposals
        if proposals is None:
            return
        if proposals.take():
            self._comes += (1 - self._comes) / 4
        for token in done.confirmed:
            bucket = self._bucket(0)
            right = proposals.follow(token)
            if right is not None:
                self._estimator.add(bucket, hit=right)
                self._estimator.add(len(_SAID) + len(_UNSAID), hit=right)
                self._right = self._right + 1 if right else 0

    def _chances(self, count: int) -> list[float]:
        """Return the chance of each of the next tokens, to be right when those before it were."""
        return [self._estimator.chance(self._bucket(at)) for at in range(count)]

    def _bucket(self, at: int) -> int:
        """Return what a proposed token has in common with others, by its place in the chain."""
        sure = self._proposals.sure if self._proposals is not None else []
        if at >= len(sure):
            return len(_SAID) + len(_UNSAID)
        if sure[at] >= 0:
            return bisect(_SURE, sure[at])
        return len(_SAID) + bisect(_STREAK, self._right + at)


def make(material: DrafterContext) -> ClientDrafter:
    """Return the register's drafter."""
    return ClientDrafter(material.eog)
