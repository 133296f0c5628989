"""CopyProspect: what copying from the text promises, learnt from every confirmed token for free."""

from bisect import bisect
from collections.abc import Collection, Sequence

from localspec.decoding.copying import CopySource
from localspec.decoding.drafter import Draft
from localspec.decoding.hit_rates import HitRates

_LENGTHS = (2, 3, 4, 5, 6, 8, 11, 16, 24, 32)
_SOLE = (0.48, 0.58, 0.67, 0.69, 0.80, 0.88, 0.91, 0.935, 0.955, 0.985)
_NEAR = (0.72, 0.68, 0.85, 0.84)
"""Of the first lengths: where a copy broke off shortly before, a short match says more."""
_DISPUTED = (0.25, 0.38)
"""Of length 2, and of more."""
_PRIOR = dict(enumerate((*_SOLE, *_NEAR, *_DISPUTED)))
_SHORT, _TELLING = 4, 11
"""Tokens of a match from which on it tells a little, and all, of whether a text copies."""
_PRIOR_WEIGHT, _MEMORY, _DRIFT = 30.0, 100.0, 0.1


def _bucket(length: int, *, near: bool, disputed: bool) -> int:
    if disputed:
        return len(_SOLE) + len(_NEAR) + (length > 2)
    at = bisect(_LENGTHS, length) - 1
    return len(_SOLE) + at if near and at < len(_NEAR) else at


class CopyProspect:
    """Follows the text, and knows how often its source was right at each length of match.

    The prior was counted over 100 answers of a real pair (`docs/measurements/drafting-policy.md`).

    Args:
        eog: ids that end a generation; nothing useful follows them.
    """

    name = "lookup"

    def __init__(self, eog: Collection[int]) -> None:
        self._eog = eog
        self._source = CopySource()
        self._rates = HitRates(_PRIOR, _PRIOR_WEIGHT, _MEMORY, _DRIFT)

    def begin(self) -> None:
        """Expect another text: what follows next was not foretold."""
        self._source.forget()

    def follow(self, tokens: Sequence[int], short: float = 1.0) -> tuple[float, float]:
        """Take in the text; return how often matches of some length were right, and wrong.

        Args:
            tokens: the text so far.
            short: what a short match counts, where a long one counts 1: they are what code and
                JSON are made of, and say less of whether the text copies.
        """
        right = wrong = 0.0
        for foretold in self._source.follow(tokens):
            bucket = _bucket(foretold.length, near=foretold.near, disputed=foretold.disputed)
            self._rates.add(bucket, hit=foretold.right)
            if foretold.length >= _SHORT:
                weight = 1.0 if foretold.length >= _TELLING else short
                right += weight * foretold.right
                wrong += weight * (not foretold.right)
        return right, wrong

    def chances(self, most: int) -> list[float]:
        """Return the chance of each of the next tokens, to be right when those before it were."""
        source, chance = self._source, self._rates.chance
        if source.length == 0:
            return []
        # Each token that comes true makes the match longer, and settles a dispute.
        return [
            chance(
                _bucket(source.length + i, near=source.near, disputed=source.disputed and i == 0)
            )
            for i in range(most)
        ]

    def draft(self, most: int) -> Draft:
        """Return the draft of up to `most` tokens."""
        tokens = self._source.foretell(most)
        ends = [i + 1 for i, token in enumerate(tokens) if token in self._eog]
        kept = tokens[: ends[0]] if ends else tokens
        return Draft(tuple(kept), tuple(self.chances(len(kept))), self.name)
