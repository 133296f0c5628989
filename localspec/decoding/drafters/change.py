"""TextKinds: whether the text has lately become one of which less comes true, by Bayes' rule."""

import math

_SHIFTS = (-4.0, -2.0, 0.0, 2.0)
"""Kinds of text that are told apart: by how many log odds more or less than usual comes true."""
_ODDS = tuple(math.exp(-shift) for shift in _SHIFTS)
_USUAL = _SHIFTS.index(0.0)
_NEW = 1 / 1000
"""Chance that the text becomes another kind with a token."""
_NEW_OF_EACH = _NEW / len(_SHIFTS)
_SURE = 0.8


class TextKinds:
    """Follows how likely each kind of text is, from what comes true.

    One wrong token among many says little, and a second one soon after it much: an average, which must not
    move with every wrong token, takes dozens to say the same.

    Source: fixed share, Herbster and Warmuth 1998, Tracking the best expert.
    """

    def __init__(self) -> None:
        self._shares = [float(shift == 0) for shift in _SHIFTS]

    def see(self, usual: float, *, hit: bool) -> None:
        """Take in whether a token came true that usually does with a chance of `usual`, between 0 and 1."""
        wrong, pairs = 1 - usual, zip(self._shares, _ODDS, strict=True)
        if hit:
            seen = [share * usual / (usual + wrong * odds) for share, odds in pairs]
        else:
            seen = [share * wrong * odds / (usual + wrong * odds) for share, odds in pairs]
        kept = (1 - _NEW) / sum(seen)
        self._shares = [each * kept + _NEW_OF_EACH for each in seen]

    @property
    def worse(self) -> bool:
        """Whether it is a kind of which less comes true than usual, as good as surely."""
        return sum(self._shares[:_USUAL]) > _SURE

    def chance(self, usual: float) -> float:
        """Return the chance of a token, as the text is now."""
        pairs = zip(self._shares, _ODDS, strict=True)
        return sum([share * usual / (usual + (1 - usual) * odds) for share, odds in pairs])

    def forget(self) -> None:
        """Take a text that looked worse for the usual one."""
        self._shares[_USUAL] += sum(self._shares[:_USUAL])
        self._shares[:_USUAL] = [0.0] * _USUAL
