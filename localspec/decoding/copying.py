"""CopySource: where the text may be copying from, followed token by token.

It costs no pass of any model, so it follows the text whether or not anything is drafted from it,
and every confirmed token shows whether the source foretold it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_GRAM = 3
_TRIED = 16
_LONGEST = 32


@dataclass(frozen=True, slots=True)
class Foretold:
    """What the source had to say of one confirmed token.

    Args:
        length: tokens before it that matched the source, up to 32.
        disputed: whether another source, matching about as well, foretold another token.
        right: whether the token came.
    """

    length: int
    disputed: bool
    right: bool


class CopySource:
    """Follows a growing text and the place in it that the text seems to repeat.

    A place is found by its last three tokens, the longest match first and the latest among
    equals; as long as it foretells what comes, it is kept.

    Attributes:
        length: tokens at the end of the text that match the source, up to 32; 0 without one.
        disputed: whether another place matches about as well and goes on differently.

    Source: prompt lookup decoding, Saxena 2023.
    """

    def __init__(self) -> None:
        self._text: list[int] = []
        self._ends: dict[tuple[int, ...], list[int]] = {}
        self._next: int = 0
        self.length = 0
        self.disputed = False

    def follow(self, tokens: Sequence[int]) -> Iterator[Foretold]:
        """Take in the text, yielding what was foretold of each token that is new.

        Args:
            tokens: the whole text; where it does not continue what was followed before, all is
                forgotten and nothing counts as foretold.
        """
        known = len(self._text)
        if known == 0 or known > len(tokens) or tokens[known - 1] != self._text[-1]:
            self.forget()
            for token in tokens:
                self._append(token)
            self._search()
            return
        for token in tokens[known:]:
            if self.length == 0:
                self._append(token)
                self._search()
                continue
            right = self._text[self._next] == token
            yield Foretold(self.length, self.disputed, right)
            self._append(token)
            if right:
                self._next += 1
                self.length = min(self.length + 1, _LONGEST)
            else:
                self._search()

    def forget(self) -> None:
        """Forget the text: another one begins."""
        self._text.clear()
        self._ends.clear()
        self.length = 0

    def foretell(self, most: int) -> list[int]:
        """Return up to `most` tokens that follow in the source; it may run into its own copy."""
        if self.length == 0:
            return []
        text, start = self._text, self._next
        period = len(text) - start
        return [text[start + i % period] for i in range(most)]

    def _append(self, token: int) -> None:
        self._text.append(token)
        if len(self._text) >= _GRAM:
            self._ends.setdefault(tuple(self._text[-_GRAM:]), []).append(len(self._text))

    def _search(self) -> None:
        """Find the longest match of the end of the text, and whether another one disputes it."""
        text = self._text
        ends = self._ends.get(tuple(text[-_GRAM:]), []) if len(text) > _GRAM else []
        found = [(self._match(end), end) for end in ends[-_TRIED - 1 : -1]]
        if not found:
            self.length = 0
            return
        self.length, self._next = max(found)
        self.disputed = any(
            text[end] != text[self._next] and length + 2 >= self.length for length, end in found
        )

    def _match(self, end: int) -> int:
        """Return how many tokens before `end` equal the end of the text."""
        text, length = self._text, _GRAM
        longest = min(_LONGEST, end)
        while length < longest and text[end - length - 1] == text[-length - 1]:
            length += 1
        return length
