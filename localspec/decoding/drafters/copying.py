"""CopySource: where the text may be copying from, followed token by token.

It costs no pass of any model, so it follows the text whether or not anything is drafted from it,
and every confirmed token shows whether the source foretold it.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

_TRIED = 16
_LONGEST = 32
_LASTING = 6
"""Tokens of a match from which on a place is remembered where it breaks off."""
_BEFORE, _BEHIND = 4, 24
"""How far from there, in tokens, an edited copy is expected to go on."""


class Foretold(NamedTuple):
    """What the source had to say of one confirmed token.

    Args:
        length: tokens before it that matched the source, from 2 to 32.
        near: whether the source lies where a long match broke off shortly before.
        disputed: whether another source, matching about as well, foretold another token.
        right: whether the token came.
    """

    length: int
    near: bool
    disputed: bool
    right: bool


class FollowedText(Protocol):
    """A text that seems to repeat another, token by token; `CopySource` says what the names mean."""

    near: bool
    disputed: bool

    @property
    def length(self) -> int:
        """Tokens at the end of the text that match; 0 where nothing is foretold."""

    def begin(self, tokens: Sequence[int]) -> None:
        """Follow another text from here on; nothing of it was foretold."""

    def follow(self, tokens: Sequence[int]) -> Iterator[Foretold]:
        """Take in the next tokens of the text, yielding what was foretold of each."""

    def foretell(self, most: int) -> list[int]:
        """Return up to `most` tokens that follow in the source."""


class SaidBefore(Protocol):
    """What was said before, wherever it is kept."""

    def find(self, text: Sequence[int]) -> tuple[int, bool, int] | None:
        """Return where the end of a text was said before: tokens that match, whether other tokens followed elsewhere, the place."""

    def read(self, place: int, most: int) -> list[int]:
        """Return up to so many tokens that follow a place; at any time fewer, or others."""


class CopySource:
    """Follows a growing text and the place in it that the text seems to repeat.

    A place is found by its last two tokens, the longest match first and the latest among
    equals; as long as it foretells what comes, it is kept. Where a long match breaks off, as at
    an edit, the text is likely to go on close behind, so that places there come first.

    Attributes:
        length: tokens at the end of the text that match the source, up to 32; 0 without one.
        near: whether the source lies where a long match broke off shortly before.
        disputed: whether another place matches about as well and goes on differently.

    Source: prompt lookup decoding, Saxena 2023.
    """

    def __init__(self) -> None:
        self._text: list[int] = []
        self._ends: dict[tuple[int, ...], list[int]] = {}
        self._next: int = 0
        self._broken_off: int | None = None
        self.length = 0
        self.near = False
        self.disputed = False

    def begin(self, tokens: Sequence[int]) -> None:
        """Forget what was followed, and follow another text from here on; nothing of it was foretold."""
        self._text.clear()
        self._ends.clear()
        self._broken_off = None
        ends: list[int] = []
        for token in tokens:
            ends = self._append(token)
        self._search(ends)

    def follow(self, tokens: Sequence[int]) -> Iterator[Foretold]:
        """Take in the next tokens of the text, yielding what was foretold of each."""
        for token in tokens:
            if self.length == 0:
                ends = self._append(token)
                if len(ends) > 1:
                    self._search(ends)
                continue
            right = self._text[self._next] == token
            yield Foretold(self.length, self.near, self.disputed, right)
            ends = self._append(token)
            if right:
                self._next += 1
                self.length = min(self.length + 1, _LONGEST)
                self.disputed = False
            else:
                if self.length >= _LASTING:
                    self._broken_off = self._next
                self._search(ends)

    def foretell(self, most: int) -> list[int]:
        """Return up to `most` tokens that follow in the source; it may run into its own copy."""
        if self.length == 0:
            return []
        text, start = self._text, self._next
        period = len(text) - start
        return [text[start + i % period] for i in range(most)]

    def _append(self, token: int) -> list[int]:
        """Take in a token, and return where the text ends as it does now, the latest end last."""
        text = self._text
        text.append(token)
        if len(text) < 2:
            return []
        ends = self._ends.setdefault((text[-2], token), [])
        ends.append(len(text))
        return ends

    def _search(self, ends: Sequence[int]) -> None:
        """Find the best match of the end of the text, and whether another one disputes it."""
        text, self.length = self._text, 0
        if len(ends) < 2:
            return
        start, end = self._expected()
        around = ends[bisect_left(ends, start) : bisect_left(ends, end)]
        tried = {*ends[-_TRIED - 1 : -1], *around} - {len(text)}
        found = [(self._match(at), start <= at < end, at) for at in tried]
        self.length, self.near, self._next = max(
            found, key=lambda match: (match[0] + _LASTING * match[1], match[2])
        )
        self.disputed = any(
            text[at] != text[self._next] and length + 2 >= self.length for length, _, at in found
        )

    def _expected(self) -> tuple[int, int]:
        """Return the range of places in which an edited copy would go on; empty without one."""
        if self._broken_off is None:
            return 0, 0
        return self._broken_off - _BEFORE, self._broken_off + _BEHIND

    def _match(self, end: int) -> int:
        """Return how many tokens before `end` equal the end of the text."""
        text, length = self._text, 2
        longest = min(_LONGEST, end)
        while length < longest and text[end - length - 1] == text[-length - 1]:
            length += 1
        return length
