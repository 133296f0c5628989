"""CopyProspect: what copying from the text promises, learnt from every confirmed token for free."""

from collections.abc import Collection, Sequence

from localspec.decoding.copying import CopySource
from localspec.decoding.drafter import Draft
from localspec.decoding.hit_rates import HitRates

_LENGTHS = (3, 4, 5, 6, 8, 11, 16, 24, 32)
_SOLE = (0.62, 0.70, 0.73, 0.84, 0.89, 0.92, 0.925, 0.96, 0.98)
_DISPUTED = 0.5
"""Factor on a chance that another source disputes."""
_PRIOR_WEIGHT = 20.0
_MEMORY = 100.0


def _bucket(length: int, *, disputed: bool) -> int:
    at = sum(length >= least for least in _LENGTHS) - 1
    return at + len(_LENGTHS) * disputed


_BUCKETS = {
    disputed: [_bucket(max(length, 3), disputed=disputed) for length in range(33)]
    for disputed in (False, True)
}
_PRIOR = {
    **dict(enumerate(_SOLE)),
    **{len(_SOLE) + i: _DISPUTED * chance for i, chance in enumerate(_SOLE)},
}


class CopyProspect:
    """Follows the text, and knows how often its source was right at each length of match.

    The prior comes from answers to the bundled prompts; `docs/decisions.md` has the counts.

    Args:
        eog: ids that end a generation; nothing useful follows them.
    """

    name = "lookup"

    def __init__(self, eog: Collection[int]) -> None:
        self._eog = eog
        self._source = CopySource()
        self._rates = HitRates(_PRIOR, _PRIOR_WEIGHT, _MEMORY)

    def begin(self) -> None:
        """Expect another text: what follows next was not foretold."""
        self._source.forget()

    def follow(self, tokens: Sequence[int]) -> None:
        """Take in the text, and what it says of the source."""
        for foretold in self._source.follow(tokens):
            bucket = _BUCKETS[foretold.disputed][foretold.length]
            self._rates.add(bucket, hit=foretold.right)

    def chances(self, most: int) -> list[float]:
        """Return the chance of each of the next tokens, to be right when those before it were."""
        length = self._source.length
        if length == 0:
            return []
        disputed, chance = _BUCKETS[self._source.disputed], self._rates.chance
        first = chance(disputed[length])
        # Each token that comes true makes the match longer, and settles a dispute.
        later = (chance(_BUCKETS[False][min(length + i, 32)]) for i in range(1, most))
        return [first, *later][:most]

    def draft(self, most: int) -> Draft:
        """Return the draft of up to `most` tokens."""
        tokens = self._source.foretell(most)
        ends = [i + 1 for i, token in enumerate(tokens) if token in self._eog]
        kept = tokens[: ends[0]] if ends else tokens
        return Draft(tuple(kept), tuple(self.chances(len(kept))), self.name)
