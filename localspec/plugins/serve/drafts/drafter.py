"""ClientDrafter: proposes what the client of an answer proposes, which may be anything, late, or nothing."""

from collections.abc import Collection, Generator, Sequence

from localspec.api import Draft, DrafterContext, DraftForecast, Round
from localspec.decoding.choose import Chooser
from localspec.decoding.drafters.drafter import Plan
from localspec.decoding.drafters.lookup import LookupDrafter
from localspec.decoding.model import Logits, Pass
from localspec.decoding.proposals import Proposals

_CHANCES = (0.7, 0.74, 0.78, 0.8, 0.82, 0.85, 0.88, 0.9, 0.93, 0.96, *(0.5,) * 6)
"""Of a token, by how many before it came true in a row; the last are of places that a client's have not."""
_FIRST, _MOST = 2, 32
_PATIENCE = 1.5
"""How many times as long as proposals took of late they are waited for."""
_LEAST_PATIENCE_S = 0.002


class _ClientSource:
    """Follows a text and what is proposed for it; see `TextSource`. Its length is how many proposed tokens came true in a row, and two."""

    near = disputed = False

    def __init__(self) -> None:
        self.proposals: Proposals | None = None
        self._right = _FIRST

    @property
    def length(self) -> int:
        return self._right if self.proposals is not None and self.proposals.chain else 0

    def begin(self, tokens: Sequence[int]) -> None:
        """Follow another text from here on."""
        self._right = _FIRST
        if self.proposals is not None:
            self.proposals.begin(tokens)

    def follow(self, token: int) -> bool | None:
        """Take in the next token of the text; return whether it was predicted, None where nothing was."""
        right = None if self.proposals is None else self.proposals.follow(token)
        if right is not None:
            self._right = min(self._right + 1, _MOST) if right else _FIRST
        return right

    def predict(self, most: int) -> list[int]:
        """Return up to `most` tokens that are proposed."""
        return [] if self.proposals is None else self.proposals.chain[:most]


class ClientDrafter(LookupDrafter):
    """Weighs a client's proposals as lookup weighs copies: by what came true of late.

    Where they came soon behind the text before, a round may wait for them, as far as the policy finds that it pays; one
    that waited in vain waits no more for a while.

    Args:
        eog: ids that end a generation.
    """

    name = "client"

    def __init__(self, eog: Collection[int]) -> None:
        self._client = _ClientSource()
        super().__init__(eog, 1, self._client, _CHANCES)
        self._usual, self._comes = 0, 1.0

    def begin(self, tokens: Sequence[int], chooser: Chooser) -> None:
        """Follow another text; see `Drafter`."""
        self._client.proposals = chooser.proposals
        self._client.begin(tokens)
        self._usual, self._comes = 0, 1.0

    def forecast(self, tokens: Sequence[int]) -> DraftForecast | None:
        """Return how likely what was proposed is, or what is still expected; see `Drafter`."""
        proposals = self._client.proposals
        if proposals is None:
            return None
        if proposals.take():
            return super().forecast(tokens)
        if not self._usual or proposals.late_s is None:
            return None
        first, *others = (self._estimator.chance(0),) * self._usual
        left_s = max(0.0, proposals.late_s - proposals.waited_s) + _LEAST_PATIENCE_S
        return DraftForecast((self._comes * first, *others), start_s=left_s)

    def propose(
        self, tokens: Sequence[int], plan: Plan, chooser: Chooser
    ) -> Generator[Pass, Logits, Draft]:
        """Propose what is proposed by now, or within the time that was planned for; see `Drafter`."""
        proposals, forecast = self._client.proposals, plan.forecast
        if proposals is not None and not proposals.take() and forecast and forecast.start_s:
            proposals.wait(_PATIENCE * forecast.start_s)
            self._comes *= 1.0 if proposals.chain else 0.5
        return (yield from super().propose(tokens, plan, chooser))

    def learn(self, done: Round) -> None:
        """Take in the text; see `Drafter`."""
        if self._client.proposals is not None and self._client.proposals.take():
            self._usual = max(len(self._client.proposals.chain), self._usual // 2)
            self._comes += (1 - self._comes) / 4
        super().learn(done)


def make(material: DrafterContext) -> ClientDrafter:
    """Return the register's drafter."""
    return ClientDrafter(material.eog)
