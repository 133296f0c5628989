"""StoreDrafter: copies what followed where the same was said in other conversations, or stands in files that were added."""

from collections.abc import Collection, Iterator, Sequence

from localspec.decoding.drafters.copying import CopySource, Foretold, SaidBefore
from localspec.decoding.drafters.lookup import FIXED_MATCH, PRIOR, LookupDrafter
from localspec.decoding.drafters.register import Material

_LONGEST = 32
_WORTH = 0.9
"""What a match is worth before anything was seen, by what one in the text itself is."""


class SaidSource:
    """Follows a place among what was said before, where that matches longer than the text's own past; see `FollowedText`.

    Args:
        said: is asked where the text does not go on as foretold.

    Attributes:
        disputed: whether other places match about as well and go on differently.
    """

    near = False

    def __init__(self, said: SaidBefore) -> None:
        self._said = said
        self._own = CopySource()
        self._end: list[int] = []
        self._place = self._length = 0
        self.disputed = False

    @property
    def length(self) -> int:
        """Tokens that match; 0 where the text itself knows as much."""
        return self._length if self._length > self._own.length else 0

    def begin(self, tokens: Sequence[int]) -> None:
        """Follow another text from here on."""
        self._own.begin(tokens)
        self._end = list(tokens[-_LONGEST:])
        self._search()

    def follow(self, tokens: Sequence[int]) -> Iterator[Foretold]:
        """Take in the next tokens of the text, yielding what was foretold of each."""
        for token in tokens:
            right = self._said.read(self._place, 1) == [token]
            if self.foretell(1):
                yield Foretold(self.length, self.near, self.disputed, right)
            for _ in self._own.follow([token]):
                pass
            self._end = [*self._end[1 - _LONGEST :], token]
            if right and self._length:
                self._place += 1
                self._length, self.disputed = min(self._length + 1, _LONGEST), False
            else:
                self._search()

    def foretell(self, most: int) -> list[int]:
        """Return up to `most` tokens that follow there."""
        return self._said.read(self._place, most) if self.length else []

    def _search(self) -> None:
        self._length, self.disputed, self._place = self._said.find(self._end) or (0, False, 0)


class StoreDrafter(LookupDrafter):
    """Looks up in what was said before where the text itself knows less.

    It leaves most of the budget: lookup is not to stand still for what the store has lost.

    Args:
        eog: ids that end a generation.
        min_match: tokens that must match.
        said: what was said before.
    """

    name = "store"
    reserve = 12.5

    def __init__(self, eog: Collection[int], min_match: int, said: SaidBefore) -> None:
        prior = [_WORTH * chance for chance in PRIOR]
        super().__init__(eog, min_match, SaidSource(said), prior)


def make(material: Material) -> StoreDrafter:
    """Return the register's drafter."""
    assert material.said is not None, "it needs a store"  # noqa: S101
    return StoreDrafter(material.eog, FIXED_MATCH if material.fixed else 2, material.said)
