"""Stretch: some consecutive rounds of one reply, as a spool holds them; and the rows that they become.

All of it is tuples that JSON takes as they are, with times as they stand: whatever takes work is done once the reply is
made. Floats may be any, infinite ones included.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from localspec.telemetry.pair import Pair
from localspec.telemetry.rows import RoundRow, shares, sixteenths

_FORM = 1


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


class Times(NamedTuple):
    """Seconds so far: of the whole, of its stages, and of removing from the caches of target and draft model."""

    decode: float = 0.0
    draft_prefill: float = 0.0
    draft: float = 0.0
    verify: float = 0.0
    sample: float = 0.0
    truncate_target: float = 0.0
    truncate_draft: float = 0.0


class NotedRound(NamedTuple):
    """One round; `at_once` is how many replies shared its passes."""

    drafter: str
    drafted: int
    accepted: int
    confirmed: int
    correction_rank: int | None
    confidences: Sequence[float]
    gaps: Sequence[float]
    at_once: int
    times: Sequence[float]


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
        before: times before these.
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
    before: Sequence[float]
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
        before = _microseconds(self.before)
        for n, noted in enumerate(self.rounds, start=self.n + 1):
            now = _microseconds(noted.times)
            yield _row(reply, n, noted, depth, before, now)
            depth, before = depth + noted.confirmed, now


def stretch_of(document: Any) -> Stretch:
    """Return what JSON made lists of; raises TypeError, ValueError or LookupError where it is none."""
    head, workload, n, tokens, before, rounds, ended, prompt, said, pieces = document
    if head[-1] != _FORM:
        raise ValueError
    return Stretch(
        Head(*head),
        workload,
        n,
        tokens,
        before,
        [NotedRound(*each) for each in rounds],
        None if ended is None else Ended(*ended),
        prompt,
        [Said(*each) for each in said],
        pieces,
    )


def _microseconds(times: Sequence[float]) -> list[int]:
    return [round(1e6 * each) for each in times]


def _row(
    reply: int, n: int, noted: NotedRound, depth: int, before: Sequence[int], now: Sequence[int]
) -> RoundRow:
    decode, draft_prefill, draft, verify, sample, of_target, of_draft = (
        after - earlier for after, earlier in zip(now, before, strict=True)
    )
    # What the draft model removed, it did before its first pass: be that prefill or draft.
    of_prefill = max(0, of_draft - draft)
    stages = [
        draft_prefill - of_prefill,
        draft - of_draft + of_prefill,
        verify - of_target,
        sample,
        of_target + of_draft,
        decode - draft_prefill - draft - verify - sample,
    ]
    shared = [max(0, stage) // noted.at_once for stage in stages]
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
        shared[0],
        shared[1],
        shared[2],
        shared[3],
        shared[4],
        shared[5],
        shares(noted.confidences[: noted.drafted]),
        sixteenths(noted.gaps[: noted.drafted]),
    )
