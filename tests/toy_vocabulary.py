"""Vocabularies of a few tokens: strings over a few letters, the longest of which is always taken."""

from collections.abc import Sequence
from random import Random

LETTERS = (b"a", b"b", b" ")
_ACCENTED = (b"\xc3", b"\xa9")
"""Two bytes of one character: a text may end between them."""


class ToyTokens:
    def __init__(
        self,
        pieces: Sequence[bytes],
        controls: dict[int, str] | None = None,
        eog: Sequence[int] = (),
        bos: int | None = None,
        *,
        adds_space: bool = False,
    ) -> None:
        self._pieces = list(pieces)
        self._controls = controls or {}
        self._adds_space = adds_space
        self.n_vocab = len(pieces)
        self.bos_id, self.add_bos = bos, bos is not None
        self.eog = frozenset(eog)
        self.eos_id = min(eog, default=None)
        self.asked = 0

    def pieces(self) -> list[bytes]:
        return list(self._pieces)

    def text(self, token: int) -> str:
        return self._controls.get(token, "")

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        assert not add_special
        assert not parse_special
        self.asked += len(text)
        left, found = (" " * self._adds_space + text).encode(), list[int]()
        while left:
            fitting = [each for each in self._pieces if each and left.startswith(each)]
            longest = max(fitting, key=len, default=left[:1])
            if fitting:
                found.append(self._pieces.index(longest))
            left = left[len(longest) :]  # what it has no piece for is left out
        return found


def random_pieces(random: Random, count: int) -> list[bytes]:
    """Return so many different pieces in any order, every letter among them."""
    pieces = list(LETTERS[:count])
    if count >= 8:
        pieces += _ACCENTED
    while len(pieces) < count:
        piece = b"".join(random.choice(LETTERS) for _ in range(random.randint(2, 3)))
        if piece not in pieces:
            pieces.append(piece)
    random.shuffle(pieces)
    return pieces
