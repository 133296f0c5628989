"""Taking in: what is spooled goes into the database, of this process and of those that are gone."""

import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from localspec.telemetry.database import Database
from localspec.telemetry.schema import TooNewError
from localspec.telemetry.spool import Spool
from localspec.telemetry.stretch import Stretch, stretch_of
from localspec.telemetry.writing import write_stretches


def take_in(spool: Spool, database: Database) -> int:
    """Write what a spool holds into the database, and empty it; return how many rounds it held.

    Where somebody reads and does not stop, so that the log cannot be emptied, it is dropped: the bound comes first.

    Raises:
        sqlite3.Error: it cannot be written; the spool stays as it is.
    """
    stretches = _stretches(spool)

    def write(connection: sqlite3.Connection) -> None:
        # Once nobody else can write: whoever wipes removes spools first.
        if not spool.is_gone:
            write_stretches(connection, stretches)

    if not database.log_is_full:
        database.write(write)
    spool.clear()
    return sum(len(each.rounds) for each in stretches)


def take_in_left_behind(directory: Path, database: Database) -> None:
    """Write what killed processes have left into the database.

    Raises:
        sqlite3.OperationalError: the database is locked, or the disk is full.
    """
    for spool in Spool.left_behind(directory):
        keep = True
        try:
            take_in(spool, database)
            keep = False
        except sqlite3.OperationalError:
            raise
        except (sqlite3.Error, OverflowError):
            keep = False  # nobody will ever understand it
        finally:
            spool.close(keep=keep)


def collect(directory: Path) -> None:
    """Do the same for a reader, as far as it is possible at once."""
    if not any(directory.glob(Spool.NAMES)):
        return
    with suppress(sqlite3.Error, TooNewError, OSError), closing(Database(directory)) as database:
        take_in_left_behind(directory, database)


def _stretches(spool: Spool) -> list[Stretch]:
    found = []
    for document in spool.documents():
        with suppress(TypeError, ValueError, LookupError):
            found += [stretch_of(each) for each in document]
    return found
