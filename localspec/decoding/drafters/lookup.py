"""LookupDrafter: copies from the text what followed where it said the same before; costs no pass of any model."""

from bisect import bisect
from collections.abc import Collection, Generator, Sequence
from dataclasses import dataclass, field

from localspec.decoding.choose import Chooser
from localspec.decoding.drafters.copying import CopySource, TextSource, with_prediction
from localspec.decoding.drafters.draft_length import Estimator
from localspec.decoding.drafters.drafter import DraftForecast, Plan
from localspec.decoding.drafters.register import DrafterContext
from localspec.decoding.model import Logits, Pass
from localspec.decoding.round import Draft, Round

_LENGTHS = (2, 3, 4, 5, 6, 8, 11, 16, 24, 32)
_SOLE = (0.48, 0.58, 0.67, 0.69, 0.80, 0.88, 0.91, 0.935, 0.955, 0.985)
_NEAR = (0.72, 0.68, 0.85, 0.84)
"""Of the first lengths: where a copy broke off shortly before, a short match says more."""
_DISPUTED = (0.25, 0.38)
"""Of length 2, and of more."""
_OWN = (0.48, 0.46, 0.53, 0.54, 0.71, 0.82)
"""Of the first lengths, in what the reply itself has said: it says the same again for a few tokens, a source for many."""
PRIOR = (*_SOLE, *_NEAR, *_DISPUTED, *_OWN)
_PRIOR_WEIGHT, _MEMORY, _DRIFT = 30.0, 100.0, 0.1
_DOUBT = -0.2
"""By how many log odds a text is expected to copy less than the prior's did: looking on costs nothing, and a failed draft a pass."""
_LEFT, _LEFT_BY_SURE, _SURE = 10.5, 5.0, 12
"""Plain steps of the budget that it leaves, and that matches in the prompt of so many tokens leave."""
LONGEST = 31
"""Most tokens that are copied at once."""


@dataclass(eq=False)
class LookupDrafter:
    """Follows the text, and knows how often its source was right at each length of match.

    The prior was counted over 100 answers of a real pair (`docs/measurements/drafting-policy.md`).
    Until it has gained something in a reply, it leaves most of the budget: a short reply that copies nothing loses little. A
    long match in the prompt may take more of it.

    Args:
        eog: ids that end a generation; nothing useful follows them.
        min_match: tokens at the end of the text that must have occurred before, 2 or more.
        source: what may be copied from: the text itself, or others.
        prior: the chance of a token by bucket, as it is before anything was seen.

    Source: prompt lookup decoding, Saxena 2023.
    """

    eog: Collection[int]
    min_match: int = 2
    source: TextSource = field(default_factory=CopySource)
    prior: Sequence[float] = PRIOR
    name = "lookup"

    def __post_init__(self) -> None:
        self._estimator = Estimator(self.prior, _PRIOR_WEIGHT, _MEMORY, _DRIFT, _DOUBT)

    @property
    def reserve(self) -> float:
        """Plain steps that it leaves of the budget; see `Drafter`."""
        source = self.source
        return _LEFT_BY_SURE if source.length >= _SURE and not source.own else _LEFT

    def begin(self, tokens: Sequence[int], chooser: Chooser) -> None:
        """Follow another text, and what it is expected to be like; see `Drafter`."""
        self.source.begin([*with_prediction(tokens[:-1], chooser.prediction), *tokens[-1:]])

    def forecast(self, tokens: Sequence[int]) -> DraftForecast | None:  # noqa: ARG002 - the protocol's signature
        """Return how likely what follows in the source is; see `Drafter`."""
        chances = self._chances(LONGEST)
        return DraftForecast(chances) if chances else None

    def propose(
        self, tokens: Sequence[int], plan: Plan, chooser: Chooser
    ) -> Generator[Pass, Logits, Draft]:
        """Propose what follows in the source, as far as a constraint lets it; see `Drafter`."""
        yield from ()
        if self.source.length < self.min_match:
            return Draft(drafter=self.name)
        copied = self.source.predict(plan.draft_length)
        end = next((at + 1 for at, token in enumerate(copied) if token in self.eog), len(copied))
        drafted = tuple(copied[: chooser.admitted(tokens, copied[:end])])
        return Draft(drafted, tuple(self._chances(len(drafted))), self.name)

    def learn(self, done: Round) -> None:
        """Take in the text, and what it shows of copying: nothing of it has to be drafted for that."""
        source = self.source
        for token in done.confirmed:
            bucket = _bucket(source)
            right = source.follow(token)
            if right is not None:
                self._estimator.add(bucket, hit=right)

    def _chances(self, most: int) -> list[float]:
        """Return the chance of each of the next tokens, to be right when those before it were."""
        source, length = self.source, self.source.length
        if length == 0:
            return []
        most = len(source.predict(most))
        # Each token that comes true makes the match longer, and settles a dispute.
        buckets = _BUCKETS[_kind(source)][length : length + most]
        buckets += [len(_SOLE) - 1] * (most - len(buckets))
        buckets[:1] = [_bucket(source)][:most]
        chances = {bucket: self._estimator.chance(bucket) for bucket in set(buckets)}
        return [chances[bucket] for bucket in buckets]


def _bucket(source: TextSource) -> int:
    if source.disputed:
        return len(_SOLE) + len(_NEAR) + (source.length > 2)
    return _BUCKETS[_kind(source)][source.length]


def _kind(source: TextSource) -> int:
    return 1 if source.near else 2 * source.own


_BY_LENGTH = [bisect(_LENGTHS, length) - 1 for length in range(_LENGTHS[-1] + 1)]
_BUCKETS = (
    _BY_LENGTH,
    [at + len(_SOLE) if 0 <= at < len(_NEAR) else at for at in _BY_LENGTH],
    [at + len(PRIOR) - len(_OWN) if 0 <= at < len(_OWN) else at for at in _BY_LENGTH],
)
"""By whether the source is near, or the reply's own, and by length; longer matches are in the last bucket of a sole source."""


FIXED_MATCH = 5
"""Tokens that must match where it always drafts: shorter matches are worth a policy's weighing only."""


def make(material: DrafterContext) -> LookupDrafter:
    """Return the register's drafter."""
    return LookupDrafter(material.eog, FIXED_MATCH if material.fixed else 2)
