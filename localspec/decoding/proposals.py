"""Proposals: what somebody outside expects a text to go on with. It is taken as far as it stands behind the text itself, and only changes the speed."""

import threading
import time
import zlib
from array import array
from collections import deque
from collections.abc import Callable, Sequence

LONGEST = 64
"""Tokens that are kept of what is proposed."""
_REMEMBERED = 256
"""Tokens behind which what is late may stand."""
_WAITING = 32
"""Proposals that wait to be looked at; older ones are forgotten."""


def checksum(tokens: Sequence[int], before: int = 0) -> int:
    """Return the CRC-32 of ids, each as 32 bits with the lowest first, going on from what came before."""
    return zlib.crc32(array("i", tokens), before)


class Proposals:
    """What is proposed for one text. Any thread may add; one follows the text.

    Args:
        n_vocab: ids from there on are none.
        clock: seconds, monotonic.

    Attributes:
        chain: tokens that are proposed to follow the text as it is.
        late_s: seconds from a text to the first proposal that stood behind it, of late; None before any.
    """

    def __init__(self, n_vocab: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._n_vocab, self._clock = n_vocab, clock
        self._added = threading.Condition()
        self._inbox: deque[tuple[int, int, tuple[int, ...], float]] = deque(maxlen=_WAITING)
        self.chain: list[int] = []
        self.late_s: float | None = None
        self.begin(())

    def add(self, at: int, behind: int, tokens: Sequence[int]) -> None:
        """Take a proposal, whatever it is.

        Args:
            at: how many tokens of the text, prompt included, stand before it.
            behind: the `checksum` of these.
            tokens: ids.
        """
        with self._added:
            self._inbox.append((at, behind, tuple(tokens[:LONGEST]), self._clock()))
            self._added.notify()

    def begin(self, tokens: Sequence[int]) -> None:
        """Follow another text from here on."""
        self.chain.clear()
        self._last = deque(tokens[-_REMEMBERED:], _REMEMBERED)
        self._at, self._sum = len(tokens), checksum(tokens)
        self._sums = deque([self._sum], _REMEMBERED)  # the last is of the whole text
        self._since_s, self._is_new = self._clock(), True

    def follow(self, token: int) -> bool | None:
        """Take in the next token of the text; return whether it was proposed, None where nothing was."""
        right = self.chain[0] == token if self.chain else None
        if right:
            del self.chain[0]
        else:
            self.chain.clear()
        self._last.append(token)
        self._at, self._sum = self._at + 1, checksum((token,), self._sum)
        self._sums.append(self._sum)
        self._since_s, self._is_new = self._clock(), not self.chain
        return right

    @property
    def waited_s(self) -> float:
        """Seconds since the text became what it is."""
        return self._clock() - self._since_s

    def take(self) -> list[int]:
        """Return the chain, with what came meanwhile; what stands behind anything but the text is dropped."""
        while self._inbox:
            at, behind, tokens, when_s = self._inbox.popleft()
            ahead = at - self._at
            if not tokens or not all(0 <= each < self._n_vocab for each in tokens):
                continue
            if ahead > 0:  # it goes on from the chain
                known = self.chain[:ahead]
                if len(known) == ahead and checksum(known, self._sum) == behind:
                    self.chain = [*known, *tokens][:LONGEST]
            elif -ahead < len(self._sums) and self._sums[ahead - 1] == behind:
                gone, last = -ahead, list(self._last)
                rest = list(tokens[gone:])
                if [*tokens[:gone]] == last[len(last) - gone :] and self.chain[: len(rest)] != rest:
                    self.chain = rest
            if self.chain and self._is_new:
                self._is_new = False
                late_s = max(0.0, when_s - self._since_s)
                before_s = late_s if self.late_s is None else self.late_s
                self.late_s = before_s + (late_s - before_s) / 4
        return self.chain

    def wait(self, most_s: float) -> None:
        """Wait until something stands behind the text, for so long at most."""
        end_s = self._clock() + most_s
        while not self.take() and (left_s := end_s - self._clock()) > 0:
            with self._added:
                if not self._inbox:
                    self._added.wait(left_s)
