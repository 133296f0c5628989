"""Totals: rounds added up, by where they belong. Reports are made of these sums, and never read rounds."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from localspec.decoding.drafters.register import asks_draft_model
from localspec.telemetry.rows import RoundRow

if TYPE_CHECKING:
    import sqlite3

GAPS = (0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0)
"""Bounds of the buckets of gaps, as the adaptive policy has them."""
_GAP_OF = bytes(bisect_right([int(16 * gap) for gap in GAPS], value) for value in range(256))
_TENTHS = bytes(value * 10 // 256 for value in range(256))
_PLACES = bytes(range(256))
_LEAST_DEPTH = 256


class Place(NamedTuple):
    """Where rounds belong, beside drafter and depth."""

    hour: int
    pair: int
    workload: str
    greedy: int


@dataclass(slots=True)
class Totals:
    """Sums over rounds.

    Attributes:
        cells: by drafter and depth: rounds, drafted, accepted, confirmed, and microseconds by stage.
        tallies: by drafter, kind and bucket: tokens that were judged, and those that were accepted.
    """

    cells: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    tallies: dict[tuple[str, str, int], list[int]] = field(default_factory=dict)

    def add(self, drafter: str, rows: Sequence[RoundRow]) -> None:
        """Count rounds of one drafter."""
        by_depth: dict[int, list[RoundRow]] = {}
        for row in rows:
            by_depth.setdefault(depth_from(row.depth), []).append(row)
        for depth, its in by_depth.items():
            columns = list(zip(*its, strict=True))
            # Drafted, accepted and confirmed stand side by side, and so do the stages.
            sums = [sum(column) for column in (*columns[3:6], *columns[9:15])]
            self.cells[drafter, depth] = [len(its), *sums]
        judged = [row for row in rows if row.drafted]
        for kind, bucket_of, values in (
            ("position", _PLACES, [_PLACES] * len(judged)),
            ("confidence", _TENTHS, [row.confidences for row in judged]),
            ("gap", _GAP_OF, [row.gaps for row in judged]),
        ):
            tried = b"".join(its[: row.judged] for row, its in zip(judged, values, strict=True))
            hits = b"".join(its[: row.accepted] for row, its in zip(judged, values, strict=True))
            accepted = Counter(hits.translate(bucket_of))
            for bucket, count in Counter(tried.translate(bucket_of)).items():
                self.tallies[drafter, kind, bucket] = [count, accepted[bucket]]
        corrected = [row for row in judged if row.gaps and row.accepted < row.drafted]
        for rank, count in Counter(row.correction_rank or 0 for row in corrected).items():
            self.tallies[drafter, "rank", rank] = [count, 0]


def totals_of(rows: Iterable[RoundRow]) -> Totals:
    """Add up rounds."""
    totals = Totals()
    by_drafter: dict[str, list[RoundRow]] = {}
    for row in rows:
        # Where a lookup found nothing, the round was a plain one.
        found_nothing = row.drafted == 0 and not asks_draft_model(row.drafter)
        by_drafter.setdefault("off" if found_nothing else row.drafter, []).append(row)
    for drafter, its in by_drafter.items():
        totals.add(drafter, its)
    return totals


def depth_from(depth: int) -> int:
    """Return where the bucket of a depth begins: 0, 256, 512, 1024, and so on."""
    return 0 if depth < _LEAST_DEPTH else 1 << (depth.bit_length() - 1)


_CELL = (
    "rounds, drafted, accepted, confirmed, "
    "draft_prefill_us, draft_us, verify_us, sample_us, truncate_us, other_us"
)
_SUMS = ", ".join(f"{name} = {name} + excluded.{name}" for name in _CELL.split(", "))
_INTO_CELLS = (
    f"INSERT INTO cell(hour, pair, workload, greedy, drafter, depth, {_CELL}) "  # noqa: S608 - names of columns
    f"VALUES ({', '.join('?' * 16)}) ON CONFLICT DO UPDATE SET {_SUMS}"
)
_INTO_TALLIES = (
    "INSERT INTO tally(hour, pair, workload, greedy, drafter, kind, bucket, tried, accepted) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) "
    "ON CONFLICT DO UPDATE SET tried = tried + excluded.tried, accepted = accepted + excluded.accepted"
)


def write(connection: sqlite3.Connection, place: Place, totals: Totals, sign: int = 1) -> None:
    """Add totals to what the database holds at a place, or take them away with a sign of -1."""
    connection.executemany(
        _INTO_CELLS,
        [
            (*place, *key, *(sign * value for value in values))
            for key, values in totals.cells.items()
        ],
    )
    connection.executemany(
        _INTO_TALLIES,
        [
            (*place, *key, *(sign * value for value in values))
            for key, values in totals.tallies.items()
        ],
    )
    if sign < 0:
        connection.execute("DELETE FROM cell WHERE rounds <= 0")
        connection.execute("DELETE FROM tally WHERE tried <= 0")
