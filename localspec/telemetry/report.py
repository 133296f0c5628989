"""Report: the database's sums become figures. Rounds are never read for it, so that its size does not matter."""

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

from localspec.telemetry.figures import Compared, Figures, Point, Report, Shift, Tally
from localspec.telemetry.loads import TOOK_US, read_loads
from localspec.telemetry.pair import Pair
from localspec.telemetry.plain_cost import PlainCost

K = TypeVar("K")

_COUNTS = (
    "rounds", "drafted", "accepted", "confirmed",
    "draft_prefill_us", "draft_us", "verify_us", "sample_us", "truncate_us", "other_us",
)  # fmt: skip
_KNOWN = "FILTER (WHERE factor IS NOT NULL)"
_SUMS = ", ".join(
    (
        *(f"sum({name})" for name in _COUNTS),
        f"sum(rounds) {_KNOWN}",
        f"sum(drafted) {_KNOWN}",
        f"sum({TOOK_US}) {_KNOWN}",
        "sum(confirmed * factor)",
    )
)
_HOUR_S = 3600
_STEPS_H = (1, 24, 7 * 24, 28 * 24, 365 * 24)
_MOST_POINTS = 60


class _Cell(NamedTuple):
    """Sums over hours, of what has the same place in the report."""

    pair: int
    workload: str
    drafter: str
    depth: int
    counts: Sequence[int]
    compared: Compared


def read_report(connection: sqlite3.Connection, since_s: float | None = None) -> Report:
    """Return the report of everything since a moment, which counts from the beginning of its hour."""
    first_hour = 0 if since_s is None else int(since_s // _HOUR_S)
    with _one_moment(connection):
        pairs, calibrated = _pairs(connection)
        names = {number: pair.name for number, pair in pairs.items()}
        shared = [number for number, pair in pairs.items() if pair.at_once > 1]
        plain = read_loads(connection, first_hour, calibrated, shared)
        cells = _cells(connection, first_hour, plain)
        step_h, points = _trend(connection, first_hour, plain)
        replies, first_s = connection.execute(
            "SELECT count(*), min(started_s) FROM reply WHERE started_s >= ?",
            (_HOUR_S * first_hour,),
        ).fetchone()
        return Report(
            since_s=since_s,
            first_s=first_s,
            replies=replies,
            total=_summed(cells, lambda _: "").get("", Figures()),
            by_pair=_summed(cells, lambda cell: names.get(cell.pair, "?")),
            by_workload=_summed(cells, lambda cell: cell.workload),
            by_drafter=_summed(cells, lambda cell: cell.drafter),
            by_depth=dict(sorted(_summed(cells, lambda cell: cell.depth).items())),
            positions=_tallies(connection, first_hour, "position"),
            confidences=_tallies(connection, first_hour, "confidence"),
            ranks=_ranks(connection, first_hour),
            trend=points,
            step_s=step_h * _HOUR_S,
            shifts=_shifts(connection, names, since_s or 0.0),
            plain={
                name: plain[number]
                for number, name in names.items()
                if number in plain and number not in shared
            },
        )


@contextmanager
def _one_moment(connection: sqlite3.Connection) -> Iterator[None]:
    """See the database as it is at one moment, whoever writes meanwhile."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")


def _pairs(connection: sqlite3.Connection) -> tuple[dict[int, Pair], dict[int, float]]:
    """Return pairs, and seconds of a plain pass where those were calibrated."""
    pairs, calibrated = {}, {}
    rows = connection.execute(
        "SELECT id, target, draft_model, at_once, plain_us FROM pair ORDER BY id"
    )
    for number, target, draft_model, at_once, plain_us in rows:
        pairs[number] = Pair(target, draft_model, at_once=at_once)
        if plain_us is not None:
            calibrated[number] = plain_us / 1e6
    return pairs, calibrated


def _cells(
    connection: sqlite3.Connection, first_hour: int, plain: Mapping[int, PlainCost]
) -> list[_Cell]:
    rows = connection.execute(
        f"SELECT pair, workload, drafter, depth, {_SUMS} FROM cell LEFT JOIN load USING (hour, pair) "  # noqa: S608
        "WHERE hour >= ? GROUP BY pair, workload, drafter, depth",
        (first_hour,),
    )
    return [
        _Cell(pair, workload, drafter, depth, *_parted(sums, plain[pair], depth))
        for pair, workload, drafter, depth, *sums in rows
    ]


def _parted(sums: Sequence[int], plain: PlainCost, depth: int) -> tuple[Sequence[int], Compared]:
    """Return the counts, and what of them can be compared."""
    rounds, drafted, took_us, tokens = (each or 0 for each in sums[len(_COUNTS) :])
    plain_s = plain.of(depth) or 0.0
    compared = Compared(rounds, drafted, took_us / 1e6, tokens * plain_s)
    return sums[: len(_COUNTS)], compared


def _summed(cells: Sequence[_Cell], key: Callable[[_Cell], K]) -> dict[K, Figures]:
    """Return the figures of cells by a key, those with the most rounds first."""
    found: dict[K, Figures] = {}
    for cell in cells:
        found.setdefault(key(cell), Figures()).add(cell.counts, cell.compared)
    return dict(sorted(found.items(), key=lambda item: -item[1].rounds))


def _trend(
    connection: sqlite3.Connection, first_hour: int, plain: Mapping[int, PlainCost]
) -> tuple[int, list[Point]]:
    """Return how many hours a point stands for, and the points that have rounds."""
    low, high = connection.execute(
        "SELECT min(hour), max(hour) FROM cell WHERE hour >= ?", (first_hour,)
    ).fetchone()
    if low is None:
        return 1, []
    step = next(
        step for step in _STEPS_H if (high - low) / step < _MOST_POINTS or step == _STEPS_H[-1]
    )
    rows = connection.execute(
        f"SELECT hour / ? AS at, pair, depth, {_SUMS} FROM cell LEFT JOIN load USING (hour, pair) "  # noqa: S608
        "WHERE hour >= ? GROUP BY at, pair, depth",
        (step, first_hour),
    )
    points: dict[int, Figures] = {}
    for at, pair, depth, *sums in rows:
        points.setdefault(at, Figures()).add(*_parted(sums, plain[pair], depth))
    return step, [Point(at * step * _HOUR_S, figures) for at, figures in sorted(points.items())]


def _tallies(
    connection: sqlite3.Connection, first_hour: int, kind: str
) -> dict[str, dict[int, Tally]]:
    rows = connection.execute(
        "SELECT drafter, bucket, sum(tried), sum(accepted) FROM tally WHERE hour >= ? AND kind = ? "
        "GROUP BY drafter, bucket HAVING sum(tried) > 0",
        (first_hour, kind),
    )
    found: dict[str, dict[int, Tally]] = {}
    for drafter, bucket, tried, accepted in rows:
        found.setdefault(drafter, {})[bucket] = Tally(tried, accepted)
    return found


def _ranks(connection: sqlite3.Connection, first_hour: int) -> dict[str, dict[int, int]]:
    return {
        drafter: {rank: tally.tried for rank, tally in tallies.items()}
        for drafter, tallies in _tallies(connection, first_hour, "rank").items()
    }


def _shifts(
    connection: sqlite3.Connection, names: Mapping[int, str], since_s: float
) -> list[Shift]:
    rows = connection.execute(
        "SELECT pair, workload, drafter, since_s, found_s, before, after FROM change "
        "WHERE found_s >= ? ORDER BY found_s DESC",
        (since_s,),
    )
    return [Shift(names.get(pair, "?"), *rest) for pair, *rest in rows]
