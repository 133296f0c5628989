"""StoreDrafter: copies what followed where the same was said in other conversations, or stands in files that were added."""

from collections.abc import Collection, Sequence
from typing import Protocol

from localspec.api import DrafterContext
from localspec.decoding.drafters.copying import LONGEST, CopySource
from localspec.decoding.drafters.lookup import FIXED_MATCH, PRIOR, LookupDrafter

_WORTH = 0.9
"""What a match is worth before anything was seen, by what one in the text itself is."""


class Past(Protocol):
    """Texts of other conversations, wherever they are stored."""

    def find(self, text: Sequence[int]) -> tuple[int, bool, int] | None:
        """Return the best match of a text's end: its tokens, whether other tokens followed elsewhere, its place."""

    def read(self, place: int, most: int) -> list[int]:
        """Return up to so many tokens that follow a place; at any time fewer, or others."""


class PastSource:
    """Follows a place in texts of the past, where that matches longer than the text's own; see `CopySource`.

    Args:
        past: is searched where the text does not go on as predicted.

    Attributes:
        disputed: whether other places match about as well and go on differently.
    """

    near = own = False

    def __init__(self, past: Past) -> None:
        self._past = past
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
        self._end = list(tokens[-LONGEST:])
        self._search()

    def follow(self, token: int) -> bool | None:
        """Take in the next token of the text; return whether it was predicted, None where nothing was."""
        predicted, right = bool(self.predict(1)), self._past.read(self._place, 1) == [token]
        self._own.follow(token)
        self._end = [*self._end[1 - LONGEST :], token]
        if right and self._length:
            self._place += 1
            self._length, self.disputed = min(self._length + 1, LONGEST), False
        else:
            self._search()
        return right if predicted else None

    def predict(self, most: int) -> list[int]:
        """Return up to `most` tokens that follow there."""
        return self._past.read(self._place, most) if self.length else []

    def _search(self) -> None:
        self._length, self.disputed, self._place = self._past.find(self._end) or (0, False, 0)


class StoreDrafter(LookupDrafter):
    """Looks up in what was said before where the text itself knows less.

    It leaves most of the budget: lookup is not to stand still for what the store has lost.

    Args:
        eog: ids that end a generation.
        min_match: tokens that must match.
        past: texts of other conversations.
    """

    name = "store"
    reserve = 12.5

    def __init__(self, eog: Collection[int], min_match: int, past: Past) -> None:
        prior = [_WORTH * chance for chance in PRIOR]
        super().__init__(eog, min_match, PastSource(past), prior)


def make(material: DrafterContext) -> StoreDrafter:
    """Return the register's drafter."""
    assert material.shared is not None, "it needs a store"  # noqa: S101
    return StoreDrafter(material.eog, FIXED_MATCH if material.fixed else 2, material.shared)
