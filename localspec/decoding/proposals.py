"""Proposals: what somebody outside expects a text to go on with. It is taken as far as it stands behind the text itself, and only changes the speed."""

import threading
import time
import zlib
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

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
        sure: how sure of each the client says it is, in percent; -1 where it does not say.
        grows: whether the client says that it drafts more behind the chain.
        is_idle: whether it said that it drafts nothing now.
    """

    def __init__(self, n_vocab: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._n_vocab, self._clock = n_vocab, clock
        self._added = threading.Condition()
        self._inbox: deque[_Proposal] = deque(maxlen=_WAITING)
        self.chain: list[int] = []
        self.sure: list[int] = []
        self.grows = self.is_idle = False
        # Of late: from a text to what first stood behind it, and from a token to the next.
        self._late_s: float | None = None
        self._step_s = self._came_s = 0.0
        self.begin(())

    def add(
        self,
        at: int,
        behind: int,
        tokens: Sequence[int],
        sure: Sequence[int] = (),
        *,
        more: bool = False,
    ) -> None:
        """Take a proposal, whatever it is.

        Args:
            at: how many tokens of the text, prompt included, stand before it.
            behind: the `checksum` of these.
            tokens: ids; none says that nothing comes for this text.
            sure: as `sure`, as many as the tokens, or none.
            more: as `grows`.
        """
        count = min(len(tokens), LONGEST)
        known = [min(max(each, 0), 100) for each in sure[:count]]
        known += [-1] * (count - len(known))
        with self._added:
            made = _Proposal(at, behind, tuple(tokens[:count]), known, self._clock(), more)
            self._inbox.append(made)
            self._added.notify()

    def begin(self, tokens: Sequence[int]) -> None:
        """Follow another text from here on."""
        self._clear()
        self._last = deque(tokens[-_REMEMBERED:], _REMEMBERED)
        self._at, self._sum = len(tokens), checksum(tokens)
        self._sums = deque([self._sum], _REMEMBERED)  # the last is of the whole text
        self._since_s, self._is_new = self._clock(), True

    def follow(self, token: int) -> bool | None:
        """Take in the next token of the text; return whether it was proposed, None where nothing was."""
        right = self.chain[0] == token if self.chain else None
        if right:
            del self.chain[0], self.sure[0]
        else:
            self._clear()
        self._last.append(token)
        self._at, self._sum = self._at + 1, checksum((token,), self._sum)
        self._sums.append(self._sum)
        self._since_s, self._is_new = self._clock(), not self.chain
        return right

    def _clear(self) -> None:
        self.chain.clear()
        self.sure.clear()
        self.grows = False

    def take(self) -> list[int]:
        """Return the chain, with what came meanwhile; what stands behind anything but the text is dropped."""
        while self._inbox:
            each = self._inbox.popleft()
            if all(0 <= token < self._n_vocab for token in each.tokens):
                self._take(each)
        return self.chain

    def _take(self, each: "_Proposal") -> None:
        ahead, count = each.at - self._at, len(self.chain)
        if ahead > 0:  # it goes on from the chain
            known = self.chain[:ahead]
            if len(known) < ahead or checksum(known, self._sum) != each.behind:
                return
            self.chain = [*known, *each.tokens][:LONGEST]
            self.sure = [*self.sure[:ahead], *each.sure][:LONGEST]
            if each.tokens and self.grows:
                step_s = (each.when_s - self._came_s) / len(each.tokens)
                self._step_s += (max(0.0, step_s) - self._step_s) / 4
        elif -ahead < len(self._sums) and self._sums[ahead - 1] == each.behind:
            gone, last = -ahead, list(self._last)
            rest = [*each.tokens[gone:]]
            if [*each.tokens[:gone]] != last[len(last) - gone :][: len(each.tokens)]:
                return
            if self.chain[: len(rest)] != rest:
                self.chain, self.sure = rest, each.sure[gone:]
        else:
            return
        self.is_idle, self.grows = not each.tokens, each.more
        if len(self.chain) != count:
            self._came_s = each.when_s
        if self.chain and self._is_new:
            self._is_new = False
            late_s = max(0.0, each.when_s - self._since_s)
            before_s = late_s if self._late_s is None else self._late_s
            self._late_s = before_s + (late_s - before_s) / 4

    def due_s(self, count: int) -> float:
        """Return in how many seconds so many tokens are expected to stand behind the text; infinity where they are not."""
        missing = count - len(self.chain)
        if missing <= 0:
            return 0.0
        now_s = self._clock()
        if self.chain:
            return max(0.0, self._came_s + missing * self._step_s - now_s) if self.grows else inf
        if self.is_idle or self._late_s is None:
            return inf
        return max(0.0, self._since_s + self._late_s - now_s) + (missing - 1) * self._step_s

    def wait(self, most_s: float, count: int = 1) -> None:
        """Wait until so many tokens stand behind the text, for so long at most, and while they are expected."""
        end_s = self._clock() + most_s
        while len(self.take()) < count and self.due_s(count) < inf:
            if (left_s := end_s - self._clock()) <= 0:
                return
            with self._added:
                if not self._inbox:
                    self._added.wait(left_s)


@dataclass(frozen=True, slots=True)
class _Proposal:
    """A proposal as it came; see `Proposals.add`."""

    at: int
    behind: int
    tokens: tuple[int, ...]
    sure: list[int]
    when_s: float
    more: bool
