"""Backoff: when a draft model is asked that has still to show that it pays, or showed that it does not."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress

_COMPARED, _FEWEST = 10, 6
"""Latest tokens of the reply that it is compared with before it drafts, and how many of them must not have been copied."""
_PAUSE, _MOST_FAILURES = 8.0, 6
"""Tokens until it is tried again, for each plain step that the try had lost; doubled six times."""
_EARNED, _MOST_EARNED_FAILURES = 7.5, 2
"""Plain steps that have to be gained, beyond the tokens that were copied in the reply, until it may try more often: its pause is doubled only so often then."""
_BLIND = 3
"""What a try counts, in failures, that found the draft model right about nothing."""
DRAFT_ROWS = 1 + _COMPARED
"""Most rows of logits that a pass of a draft model is asked for."""


@dataclass(frozen=True, slots=True)
class Hindsight:
    """What a drafter would have proposed for a token that is known by now.

    Args:
        gap: by how much its choice beat the second best; see `Draft`.
        hit: whether the text says the same.
    """

    gap: float
    hit: bool


def own_of(hindsight: Sequence[Hindsight], own: Sequence[bool]) -> list[Hindsight]:
    """Return what was compared with tokens that were not copied.

    Args:
        hindsight: of the latest tokens; fewer than `own` where a pass gives no more rows.
        own: of the latest tokens, whether each is the target's own.
    """
    return list(compress(hindsight, own[len(own) - len(hindsight) :]))


class Backoff:
    """Lets a draft model try, ever more rarely while it fails.

    A try begins with the tokens that the target chose since: the draft model has to evaluate them
    anyway, and how many of them it would have proposed shows what it is good for, without a pass
    of the target. What was copied from the text shows nothing: there it is not needed.

    Attributes:
        proven: whether it may draft.
        earned: whether it has gained much in this reply, and more than was copied: the text may become once more what
            it was, and what drafting may lose is the draft model's alone. Until something is copied.
    """

    def __init__(self) -> None:
        self.proven = self.earned = False
        self._pause = 0.0
        self._failures = 0
        self._since = self._copied = 0
        self._lost = self._lost_in_reply = 0.0
        self._own = deque([True], _COMPARED)

    @property
    def failed(self) -> bool:
        """Whether the last try did."""
        return not self.proven and self._pause > 0

    def begin(self) -> None:
        """Start a reply: it may be of a kind that drafts better, so it is tried sooner."""
        self.earned, self._copied, self._lost_in_reply = False, 0, 0.0
        self._failures = min(self._failures, 1)
        self._pause = min(self._pause, 2 * _PAUSE)
        self._own = deque([True], _COMPARED)

    def pass_over(self, copied: int) -> None:
        """Count a round without the draft model, which confirmed so many copied tokens before the target's own."""
        self._since += copied + 1
        self._copied += copied
        self.earned = self.earned and not copied
        self._own.extend([*[False] * copied, True])

    def look_back(self, lag: int) -> tuple[bool, ...] | None:
        """Return which of the latest tokens to compare before drafting: none where nothing is to be shown, None to wait.

        Args:
            lag: tokens that the draft model has not evaluated.
        """
        if self.proven:
            return ()
        own = tuple(self._own)[-(lag - 1) :] if lag > 1 else ()
        return None if self._since < self._pause or sum(own) < _FEWEST else own

    def settle(self, lost: float) -> None:
        """Count a round of the draft model.

        Args:
            lost: plain steps against plain decoding; below 0 it gained.
        """
        self._since = 0
        self._own.clear()
        self._lost += lost
        self._lost_in_reply += lost
        if self._lost < 0:
            self._failures = 0
        gained = -self._lost_in_reply
        self.earned = self.earned or (self.proven and gained > _EARNED + self._copied)

    def prove(self) -> None:
        """Let it draft from now on."""
        self.proven = True
        self._lost = self._lost_in_reply = 0.0

    def fail(self, *, blind: bool = False) -> None:
        """Let it rest.

        Args:
            blind: whether it was right about nothing.
        """
        most = _MOST_EARNED_FAILURES if self.earned else _MOST_FAILURES
        self._failures = min(self._failures + (_BLIND if blind else 0), most)
        self._pause = _PAUSE * max(1.0, self._lost) * 2**self._failures
        self._failures = min(self._failures + 1, most)
        self.proven = False
        self._lost = self._lost_in_reply = 0.0
