"""RoundRow: a round as it is kept. Numbers only; knows no database."""

from collections.abc import Sequence
from typing import NamedTuple

STAGES = ("draft_prefill", "draft", "verify", "sample", "truncate", "other")


class RoundRow(NamedTuple):
    """One row of the table `round`, in the order of its columns.

    Args:
        reply: id of the reply.
        n: 1 for its first round.
        drafter: who drafted: off, lookup, model.
        drafted: tokens that the target judged.
        accepted: how many of them it would have chosen itself.
        confirmed: tokens that came of the round.
        correction_rank: the correction's place under the draft, its own token being 1; None without a correction, or
            where it was not near.
        width: tokens of the target's pass.
        depth: tokens before the round, prompt included.
        draft_prefill_us: microseconds; of the stages' times, see `Timings`.
        draft_us: likewise.
        verify_us: likewise.
        sample_us: likewise.
        truncate_us: removing rejected tokens from the caches.
        other_us: everything else from the round before to this one's end.
        confidences: how sure the drafter was of each token, in 255ths.
        gaps: by how much each beat the second best, in sixteenths, up to 15.9; empty where nobody knows.
    """

    reply: int
    n: int
    drafter: str
    drafted: int
    accepted: int
    confirmed: int
    correction_rank: int | None
    width: int
    depth: int
    draft_prefill_us: int
    draft_us: int
    verify_us: int
    sample_us: int
    truncate_us: int
    other_us: int
    confidences: bytes
    gaps: bytes

    @property
    def stages_us(self) -> tuple[int, ...]:
        """Microseconds of each of `STAGES`."""
        return self[9:15]

    @property
    def judged(self) -> int:
        """Tokens of the draft up to the first that was not accepted: those behind it tell nothing."""
        return min(self.accepted + 1, self.drafted)


def shares(values: Sequence[float]) -> bytes:
    """Return numbers from 0 to 1 as bytes."""
    return bytes([min(max(round(255 * value), 0), 255) for value in values])


def sixteenths(values: Sequence[float]) -> bytes:
    """Return numbers from 0 to 15.9 as bytes; what lies beyond counts as the end of that."""
    return bytes([int(min(max(16 * value, 0.0), 255.0)) for value in values])
