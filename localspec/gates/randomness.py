"""Randomness: whether a text was drawn and not written, as keys without a known beginning are."""

import math
from collections import Counter
from itertools import pairwise

_LEAST_BITS, _MANY_BITS = 3.6, 4.1
"""Of entropy a character: drawn texts of 32 characters have 4.4 ± 0.15, names of functions below 4 and few changes of kind."""
_COMMON_PAIRS = (  # noqa: SIM905 - it is read as a list of words
    "th he in er an re on at en nd ti es or te of ed is it al ar st to nt ng se ha as ou io le ve co me de hi ri ro ic ne ea "
    "ra ce li ch ll be ma si om ur ca el ta la ns di fo ho pe ec pr no ct us ac ot il tr ly nc et ut ss so rs un lo wa ge ie "
    "wh ee wi em ad ol rt po we na ul ni ts mo ow pa im mi ai sh ir su id os iv ia am fi ci vi pl ig tu ev ld ry mp fe bl ab "
    "gh ty op wo sa ay ex ke fr oo av ag if ap gr od bo sp rd do uc bu ei"
).split()
_COMMON = frozenset(_COMMON_PAIRS)
"""Letters that often follow each other in words: four in five pairs of names of functions, one in four of drawn texts."""
_WRITTEN, _DRAWN = 0.6, 0.4


def bits_of(text: str) -> float:
    """Return the entropy of a text's characters, in bits for each of them; 0 for none."""
    counts, size = Counter(text).values(), len(text)
    return -sum(each / size * math.log2(each / size) for each in counts)


def kinds_of(text: str) -> str:
    """Return a text's characters as `0`, `A`, `a` or `-`."""
    return "".join(
        "0" if c.isdigit() else "A" if c.isupper() else "a" if c.islower() else "-" for c in text
    )


def is_random(text: str) -> bool:
    """Return whether a text was drawn and not written: letters of both cases, one after the other without order.

    One with digits and many changes of kind is, unless it has the letters of words; one of few is where it has none of them.
    Of drawn texts of 40 characters less than one in a thousand is missed.
    """
    kinds, bits = kinds_of(text), bits_of(text)
    if not {"A", "a"} <= set(kinds) or bits < _LEAST_BITS:
        return False
    changes = sum(one != other for one, other in pairwise(kinds)) / len(kinds)
    signs, written = kinds.count("-") / len(kinds), _share_of_words(text)
    usual = kinds.count("0") >= 2 and signs <= 1 / 8 and changes >= 2 / 5 and written <= _WRITTEN
    return usual or (bits >= _MANY_BITS and signs <= 1 / 6 and changes >= 3 / 10 and written <= _DRAWN)  # fmt: skip


def _share_of_words(text: str) -> float:
    """Return which share of the letters that stand together do so in words."""
    pairs = [f"{one}{other}".lower() for one, other in pairwise(text) if one.isalpha() and other.isalpha()]  # fmt: skip
    return sum(each in _COMMON for each in pairs) / len(pairs) if pairs else 0.0
