"""Stretch: some consecutive rounds of one reply, as a spool holds them; and the rows that they become.

All of it is tuples that JSON takes as they are, with times as they stand: whatever takes work is done once the reply is
made. Floats may be any, infinite ones included.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from localspec.telemetry.pair import Pair
from localspec.telemetry.rows import RoundRow, shares, sixteenths

_FORM = 2


class Head(NamedTuple):
    """What is known of a reply as it begins.

    Args:
        key: tells it from all others.
        pair: what answers; its fields.
        started_s: seconds since 1970.
        n_prompt: tokens of the prompt.
        greedy: whether the temperature is 0.
        by_user: whether the user said what kind of text it is.
        form: of what follows.
    """

    key: int
    pair: tuple[str, str, float | None, int]
    started_s: float
    n_prompt: int
    greedy: bool
    by_user: bool
    form: int = _FORM


class NotedRound(NamedTuple):
    """One round, and the seconds of its stages, as `STAGES` has them."""

    drafter: str
    drafted: int
    accepted: int
    confirmed: int
    correction_rank: int | None
    confidences: Sequence[float]
    gaps: Sequence[float]
    stages_s: Sequence[float]


class Said(NamedTuple):
    """A round's ids; where text is wanted. `n` is 0 for the token that the prompt gives."""

    n: int
    draft: Sequence[int]
    confirmed: Sequence[int]
    next_token: int


class Ended(NamedTuple):
    """The end of a reply: all of its tokens, and seconds."""

    tokens: int
    prefill_s: float
    decode_s: float
    wall_s: float


class Stretch(NamedTuple):
    """Some rounds of a reply, and what is known of it by then.

    Args:
        head: of the reply.
        workload: what kind of text it is; None as long as nobody has looked.
        n: rounds before these.
        tokens: confirmed tokens before these.
        rounds: in their order.
        ended: the end of the reply; None where it goes on.
        prompt: ids of it, once; empty unless text is wanted.
        said: likewise, of each round.
        pieces: ids that were not met before, and their bytes in hexadecimal.
    """

    head: Head
    workload: str | None
    n: int
    tokens: int
    rounds: Sequence[NotedRound]
    ended: Ended | None
    prompt: Sequence[int]
    said: Sequence[Said]
    pieces: Sequence[tuple[int, str]]

    @property
    def pair(self) -> Pair:
        """What answers."""
        return Pair(*self.head.pair)

    def rows(self, reply: int) -> Iterator[RoundRow]:
        """Yield the rounds as the database holds them, where the reply has this id."""
        depth = self.head.n_prompt + self.tokens
        for n, noted in enumerate(self.rounds, start=self.n + 1):
            yield _row(reply, n, noted, depth)
            depth += noted.confirmed


def stretch_of(document: Any) -> Stretch:
    """Return what JSON made lists of; raises TypeError, ValueError or LookupError where it is none."""
    head, workload, n, tokens, rounds, ended, prompt, said, pieces = document
    if head[-1] != _FORM:
        raise ValueError
    return Stretch(
        Head(*head),
        workload,
        n,
        tokens,
        [NotedRound(*each) for each in rounds],
        None if ended is None else Ended(*ended),
        prompt,
        [Said(*each) for each in said],
        pieces,
    )


def _row(reply: int, n: int, noted: NotedRound, depth: int) -> RoundRow:
    draft_prefill, draft, verify, sample, truncate, other = (
        max(0, round(1e6 * each)) for each in noted.stages_s
    )
    return RoundRow(
        reply,
        n,
        noted.drafter,
        noted.drafted,
        noted.accepted,
        noted.confirmed,
        noted.correction_rank,
        noted.drafted + 1,
        depth,
        draft_prefill,
        draft,
        verify,
        sample,
        truncate,
        other,
        shares(noted.confidences[: noted.drafted]),
        sixteenths(noted.gaps[: noted.drafted]),
    )
