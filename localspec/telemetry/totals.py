"""Totals: rounds added up, by where they belong. Reports are made of these sums, and never read rounds."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from localspec.telemetry.rows import RoundRow

if TYPE_CHECKING:
    import sqlite3

GAPS = (0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0)
"""Bounds of the buckets of gaps, as the adaptive policy has them."""
_SIXTEENTHS = tuple(int(16 * gap) for gap in GAPS)
CONFIDENCES = 10
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

    def add(self, row: RoundRow) -> None:
        """Count a round."""
        cell = self.cells.setdefault((row.drafter, depth_from(row.depth)), [0] * 10)
        counted = (1, row.drafted, row.accepted, row.confirmed, *row.stages_us)
        for at, value in enumerate(counted):
            cell[at] += value
        for position in range(row.judged):
            hit = position < row.accepted
            self._tally(row.drafter, "position", position, hit)
            if position < len(row.confidences):
                bucket = row.confidences[position] * CONFIDENCES // 256
                self._tally(row.drafter, "confidence", bucket, hit)
            if position < len(row.gaps):
                bucket = bisect_right(_SIXTEENTHS, row.gaps[position])
                self._tally(row.drafter, "gap", bucket, hit)
        if row.gaps and row.accepted < row.drafted:
            self._tally(row.drafter, "rank", row.correction_rank or 0, hit=False)

    def _tally(self, drafter: str, kind: str, bucket: int, hit: bool) -> None:
        tally = self.tallies.setdefault((drafter, kind, bucket), [0, 0])
        tally[0] += 1
        tally[1] += hit


def totals_of(rows: Iterable[RoundRow]) -> Totals:
    """Add up rounds."""
    totals = Totals()
    for row in rows:
        totals.add(row)
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
