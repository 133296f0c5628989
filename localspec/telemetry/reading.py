"""Reading: the database's sums become a report. Rounds are never read for it, so that its size does not matter."""

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

from localspec.errors import LocalspecError
from localspec.telemetry.database import FILE
from localspec.telemetry.figures import Figures, Point, Report, Shift, Tally
from localspec.telemetry.plain_cost import PlainCost, plain_cost
from localspec.telemetry.schema import VERSION

K = TypeVar("K")

_SUMS = ", ".join(
    f"sum({name})"
    for name in (
        "rounds", "drafted", "accepted", "confirmed",
        "draft_prefill_us", "draft_us", "verify_us", "sample_us", "truncate_us", "other_us",
    )
)  # fmt: skip
_HOUR_S = 3600
_STEPS_H = (1, 24, 7 * 24, 28 * 24, 365 * 24)
_MOST_POINTS = 60


@dataclass(frozen=True, slots=True)
class ListedReply:
    """One reply, as it is listed; without its text."""

    id: int
    started_s: float
    pair: str
    workload: str
    by_user: bool
    tokens: int
    drafted: int
    accepted: int
    wall_s: float


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is there; `first_s` is when the oldest reply began."""

    rounds: int
    replies: int
    with_text: int
    first_s: float | None


@contextmanager
def reading(directory: Path) -> Iterator[sqlite3.Connection | None]:
    """Open the database to be read; None where there is none yet.

    Raises:
        LocalspecError: it cannot be read.
    """
    path = directory / FILE
    if not path.is_file():
        yield None
        return
    try:
        with closing(_opened(path)) as connection:
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if version > VERSION:
                raise LocalspecError(
                    f"{path} was written by a later localspec (version {version}, this one knows {VERSION}): "
                    "update localspec"
                )
            yield connection if version else None
    except sqlite3.Error as error:
        raise LocalspecError(
            f"{path} cannot be read ({error}): `localspec telemetry wipe` starts afresh"
        ) from error


class _Cell(NamedTuple):
    """Sums over hours, of what has the same place in the report."""

    pair: int
    workload: str
    drafter: str
    depth: int
    counts: Sequence[int]


def read_report(connection: sqlite3.Connection, since_s: float | None = None) -> Report:
    """Return the report of everything since a moment, which counts from the beginning of its hour."""
    first_hour = 0 if since_s is None else int(since_s // _HOUR_S)
    connection.execute("BEGIN")  # all of it at one moment
    try:
        cells = _cells(connection, first_hour)
        names, calibrated = _pairs(connection)
        plain = _plain_costs(cells, calibrated)
        step_h, points = _trend(connection, first_hour, plain)
        replies, first_s = connection.execute(
            "SELECT count(*), min(started_s) FROM reply WHERE started_s >= ?",
            (_HOUR_S * first_hour,),
        ).fetchone()
        return Report(
            since_s=since_s,
            first_s=first_s,
            replies=replies,
            total=_summed(cells, plain, lambda _: "").get("", Figures()),
            by_pair=_summed(cells, plain, lambda cell: names.get(cell.pair, "?")),
            by_workload=_summed(cells, plain, lambda cell: cell.workload),
            by_drafter=_summed(cells, plain, lambda cell: cell.drafter),
            by_depth=dict(sorted(_summed(cells, plain, lambda cell: cell.depth).items())),
            positions=_tallies(connection, first_hour, "position"),
            confidences=_tallies(connection, first_hour, "confidence"),
            ranks=_ranks(connection, first_hour),
            trend=points,
            step_s=step_h * _HOUR_S,
            shifts=_shifts(connection, names, since_s or 0.0),
            plain={name: plain[number] for number, name in names.items() if number in plain},
        )
    finally:
        connection.execute("ROLLBACK")


def list_replies(connection: sqlite3.Connection, most: int) -> list[ListedReply]:
    """Return the latest replies, the last one first."""
    rows = connection.execute(
        "SELECT reply.id, started_s, target, draft_model, workload, tagged_by, tokens, drafted, accepted, wall_us "
        "FROM reply JOIN pair ON pair.id = reply.pair ORDER BY reply.id DESC LIMIT ?",
        (most,),
    )
    return [
        ListedReply(
            id=number,
            started_s=started_s,
            pair=_pair_name(target, draft_model),
            workload=workload,
            by_user=tagged_by == "user",
            tokens=tokens,
            drafted=drafted,
            accepted=accepted,
            wall_s=wall_us / 1e6,
        )
        for number, started_s, target, draft_model, workload, tagged_by, tokens, drafted, accepted, wall_us in rows
    ]


def sizes(connection: sqlite3.Connection) -> Sizes:
    """Return how much there is."""
    (rounds,) = connection.execute("SELECT count(*) FROM round").fetchone()
    (with_text,) = connection.execute("SELECT count(*) FROM said WHERE n > 0").fetchone()
    replies, first_s = connection.execute("SELECT count(*), min(started_s) FROM reply").fetchone()
    return Sizes(rounds, replies, with_text, first_s)


def _opened(path: Path) -> sqlite3.Connection:
    place = path.absolute().as_uri()
    connection = sqlite3.connect(f"{place}?mode=ro", uri=True, isolation_level=None, timeout=5.0)
    try:
        connection.execute("PRAGMA user_version").fetchone()
    except sqlite3.OperationalError:
        # In a folder that cannot be written there is no log to be made: as it stands, then.
        connection.close()
        connection = sqlite3.connect(f"{place}?immutable=1", uri=True, isolation_level=None)
    return connection


def _cells(connection: sqlite3.Connection, first_hour: int) -> list[_Cell]:
    rows = connection.execute(
        f"SELECT pair, workload, drafter, depth, {_SUMS} FROM cell WHERE hour >= ? "  # noqa: S608 - names of columns
        "GROUP BY pair, workload, drafter, depth",
        (first_hour,),
    )
    return [_Cell(row[0], row[1], row[2], row[3], row[4:]) for row in rows]


def _pairs(connection: sqlite3.Connection) -> tuple[dict[int, str], dict[int, float]]:
    """Return names of pairs, and seconds of a plain pass where those were calibrated."""
    names, calibrated = {}, {}
    rows = connection.execute("SELECT id, target, draft_model, plain_us FROM pair ORDER BY id")
    for number, target, draft_model, plain_us in rows:
        names[number] = _pair_name(target, draft_model)
        if plain_us is not None:
            calibrated[number] = plain_us / 1e6
    return names, calibrated


def _pair_name(target: str, draft_model: str) -> str:
    return f"{target} + {draft_model}" if draft_model else target


def _plain_costs(cells: Sequence[_Cell], calibrated: Mapping[int, float]) -> dict[int, PlainCost]:
    rounds: dict[int, dict[int, tuple[int, float]]] = {}
    for cell in cells:
        by_depth = rounds.setdefault(cell.pair, {})
        if cell.drafter == "off":
            count, seconds = by_depth.get(cell.depth, (0, 0.0))
            took_s = sum(cell.counts[4:]) / 1e6
            by_depth[cell.depth] = (count + cell.counts[0], seconds + took_s)
    return {pair: plain_cost(by_depth, calibrated.get(pair)) for pair, by_depth in rounds.items()}


def _summed(
    cells: Sequence[_Cell], plain: Mapping[int, PlainCost], key: Callable[[_Cell], K]
) -> dict[K, Figures]:
    """Return the figures of cells by a key, those with the most rounds first."""
    found: dict[K, Figures] = {}
    for cell in cells:
        plain_s = plain[cell.pair].of(cell.depth)
        found.setdefault(key(cell), Figures()).add(cell.counts, plain_s)
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
        f"SELECT hour / ? AS at, pair, depth, {_SUMS} FROM cell WHERE hour >= ? GROUP BY at, pair, depth",  # noqa: S608
        (step, first_hour),
    )
    points: dict[int, Figures] = {}
    for at, pair, depth, *counts in rows:
        points.setdefault(at, Figures()).add(counts, plain[pair].of(depth))
    return step, [Point(at * step * _HOUR_S, figures) for at, figures in sorted(points.items())]


def _tallies(
    connection: sqlite3.Connection, first_hour: int, kind: str
) -> dict[str, dict[int, Tally]]:
    rows = connection.execute(
        "SELECT drafter, bucket, sum(tried), sum(accepted) FROM tally WHERE hour >= ? AND kind = ? "
        "GROUP BY drafter, bucket",
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
