"""Reading: the database, opened to be read; its replies, listed; and how much there is."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from localspec.errors import LocalspecError
from localspec.telemetry.database import FILE, Database
from localspec.telemetry.pair import Pair
from localspec.telemetry.schema import VERSION


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
def reading(directory: Path, *, takes_in: bool = True) -> Iterator[sqlite3.Connection | None]:
    """Open the database to be read; None where there is none yet.

    Args:
        directory: where it is.
        takes_in: whether what is only spooled is to be in it, as far as its processes are gone. That takes a while.

    Raises:
        LocalspecError: it cannot be read.
    """
    path = directory / FILE
    if takes_in:
        from localspec.telemetry.taking_in import collect  # noqa: PLC0415 - a prior needs none of it

        collect(directory)
    if not path.is_file():
        yield None
        return
    try:
        with closing(_opened(path)) as connection:
            version = _version(connection)
            if version > VERSION:
                raise LocalspecError(
                    f"{path} was written by a later localspec (version {version}, this one knows {VERSION}): "
                    "update localspec"
                )
            if 0 < version < VERSION:
                Database(directory).close()  # brings it up to date
            yield connection if version else None
    except (sqlite3.Error, OSError) as error:
        raise LocalspecError(
            f"{path} cannot be read ({error}): `localspec telemetry wipe` starts afresh"
        ) from error


def list_replies(connection: sqlite3.Connection, most: int) -> list[ListedReply]:
    """Return the latest replies, the last one first."""
    rows = connection.execute(
        "SELECT reply.id, started_s, target, draft_model, at_once, workload, tagged_by, tokens, drafted, accepted, wall_us "
        "FROM reply JOIN pair ON pair.id = reply.pair ORDER BY reply.id DESC LIMIT ?",
        (most,),
    )
    return [
        ListedReply(
            id=number,
            started_s=started_s,
            pair=Pair(target, draft_model, at_once=at_once).name,
            workload=workload,
            by_user=tagged_by == "user",
            tokens=tokens,
            drafted=drafted,
            accepted=accepted,
            wall_s=wall_us / 1e6,
        )
        for number, started_s, target, draft_model, at_once, workload, tagged_by, tokens, drafted, accepted, wall_us in rows
    ]


def sizes(connection: sqlite3.Connection) -> Sizes:
    """Return how much there is."""
    (rounds,) = connection.execute("SELECT count(*) FROM round").fetchone()
    (with_text,) = connection.execute("SELECT count(*) FROM said WHERE n > 0").fetchone()
    replies, first_s = connection.execute("SELECT count(*), min(started_s) FROM reply").fetchone()
    return Sizes(rounds, replies, with_text, first_s)


def _version(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


def _opened(path: Path) -> sqlite3.Connection:
    place = path.absolute().as_uri()
    connection = sqlite3.connect(f"{place}?mode=ro", uri=True, isolation_level=None, timeout=5.0)
    try:
        _version(connection)
    except sqlite3.OperationalError:
        # In a folder that cannot be written there is no log to be made: as it stands, then.
        connection.close()
        connection = sqlite3.connect(f"{place}?immutable=1", uri=True, isolation_level=None)
    return connection
