"""CopySource: where the text may be copying from, followed token by token.

It costs no pass of any model, so it follows the text whether or not anything is drafted from it,
and every confirmed token shows whether the source predicted it.
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Protocol

_TRIED = 16
LONGEST = 32
"""Most tokens at the end of a text that are compared."""
_LASTING = 6
"""Tokens of a match from which on a place is remembered where it breaks off."""
_BEFORE, _BEHIND, _NOWHERE = 4, 24, -100
"""How far from there, in tokens, an edited copy is expected to go on; where no match broke off."""


class TextSource(Protocol):
    """What `LookupDrafter` copies from: a place is followed token by token.

    Attributes:
        length: tokens at the end of the text that match; 0 without a place.
        near: whether the place lies where a long match broke off shortly before.
        own: whether the place lies in what came since the text began to be followed.
        disputed: whether other places match about as well and go on differently.
    """

    near: bool
    disputed: bool

    @property
    def own(self) -> bool:
        """See there."""

    @property
    def length(self) -> int:
        """See there."""

    def begin(self, tokens: Sequence[int]) -> None:
        """Follow another text from here on."""

    def follow(self, token: int) -> bool | None:
        """Take in the next token of the text; return whether it was predicted, None where nothing was."""

    def predict(self, most: int) -> list[int]:
        """Return up to `most` tokens that follow there."""


class CopySource:
    """Follows a growing text and the place in it that the text seems to repeat.

    A place is found by its last two tokens, the longest match first and the latest among
    equals; as long as it predicts what comes, it stays the source. Where a long match breaks off, as at
    an edit, the text is likely to go on close behind, so that places there come first.

    Attributes:
        length: tokens at the end of the text that match the source, up to 32; 0 without one.
        near: whether the source lies where a long match broke off shortly before.
        disputed: whether another place matches about as well and goes on differently.

    Source: prompt lookup decoding, Saxena 2023.
    """

    def __init__(self) -> None:
        self.begin(())

    @property
    def place(self) -> int:
        """Where the token lies that is predicted next."""
        return self._next

    @property
    def own(self) -> bool:
        """Whether the place lies in what was said since `begin`."""
        return self._next >= self._began

    def begin(self, tokens: Sequence[int]) -> None:
        """Follow another text from here on; nothing of it was predicted."""
        self._text: list[int] = []
        self._began = len(tokens)
        self._ends: dict[tuple[int, ...], list[int]] = {}
        self._next = self.length = 0
        self._broken_off = _NOWHERE
        self.near = self.disputed = False
        ends: list[int] = []
        for token in tokens:
            ends = self._append(token)
        self._search(ends)

    def follow(self, token: int) -> bool | None:
        """Take in the next token of the text; return whether it was predicted, None where nothing was."""
        right = self._text[self._next] == token if self.length else None
        ends = self._append(token)
        if right:
            self._next += 1
            self.length = min(self.length + 1, LONGEST)
            self.disputed = False
        else:
            if self.length >= _LASTING:
                self._broken_off = self._next
            self._search(ends)
        return right

    def predict(self, most: int) -> list[int]:
        """Return up to `most` tokens that follow in the source; it may run into its own copy."""
        if self.length == 0:
            return []
        copied = self._text[self._next : self._next + most]
        while len(copied) < most:
            copied += copied[: most - len(copied)]
        return copied

    def _append(self, token: int) -> list[int]:
        """Take in a token, and return where the text ends as it does now, the latest end last."""
        text = self._text
        text.append(token)
        ends = self._ends.setdefault(tuple(text[-2:]), [])
        ends.append(len(text))
        return ends

    def _search(self, ends: Sequence[int]) -> None:
        """Find the best match of the end of the text, and whether another one disputes it."""
        text, self.length = self._text, 0
        if len(ends) < 2:
            return
        start, end = self._broken_off - _BEFORE, self._broken_off + _BEHIND
        around = ends[bisect_left(ends, start) : bisect_left(ends, end)]
        tried = {*ends[-_TRIED - 1 : -1], *around} - {len(text)}
        matches = [(self._match(at), start <= at < end, at) for at in tried]
        self.length, self.near, self._next = max(
            matches, key=lambda match: (match[0] + _LASTING * match[1], match[2])
        )
        self.disputed = any(
            text[at] != text[self._next] and length + 2 >= self.length for length, _, at in matches
        )

    def _match(self, end: int) -> int:
        """Return how many tokens before `end` equal the end of the text."""
        text, length = self._text, 2
        longest = min(LONGEST, end)
        while length < longest and text[end - length - 1] == text[-length - 1]:
            length += 1
        return length


def with_prediction(prompt: Sequence[int], prediction: Sequence[int]) -> list[int]:
    """Return a prompt in which a prediction follows, and its end once more: a reply that begins like it is looked up there."""
    return [*prompt, *prediction, *prompt[-LONGEST:]] if prediction else list(prompt)


def predicted(prompt: Sequence[int], prediction: Sequence[int], reply: Sequence[int]) -> int:
    """Return how many tokens of a reply a prediction has in their places, by looking it up."""
    source, count = CopySource(), 0
    start = prompt[-LONGEST:]
    source.begin(with_prediction(start, prediction))
    for token in reply:
        inside = source.place < len(start) + len(prediction)
        count += source.follow(token) is True and inside
    return min(count, len(prediction))
