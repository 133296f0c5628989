"""Wiping: what was recorded goes, and none of its bytes stays in the files."""

import sqlite3
from contextlib import closing
from pathlib import Path

from localspec.errors import LocalspecError
from localspec.telemetry.database import FILE, Database
from localspec.telemetry.schema import TooNewError
from localspec.telemetry.spool import remove_all
from localspec.telemetry.taking_in import collect

_BUSY_S = 10.0


def wipe(directory: Path, *, only_text: bool = False) -> bool:
    """Remove what was recorded, or only what of it is text; say whether there was a database.

    Raises:
        LocalspecError: another process does not let it be removed, or text alone cannot be told from the rest.
    """
    path = directory / FILE
    if only_text:
        collect(directory)  # its counts and times stay
    # Before the database: what is being written is in it already, or never will be.
    found = _spools_removed(directory)
    if not path.exists():
        return found
    try:
        with closing(Database(directory, busy_s=_BUSY_S)) as database:
            database.wipe(only_text=only_text)
    except (sqlite3.Error, TooNewError, OSError) as error:
        busy = getattr(error, "sqlite_errorcode", 0) & 0xFF in {
            sqlite3.SQLITE_BUSY,
            sqlite3.SQLITE_LOCKED,
        }
        if only_text or busy:
            reason = "another process uses it" if busy else str(error)
            raise LocalspecError(
                f"{path} cannot be wiped ({reason}): end whatever uses it, and try again"
            ) from error
        _unlink(path)  # damaged, or of a later version: nothing in it is worth keeping
    return True


def set_bounds(directory: Path, megabytes: int, days: int) -> None:
    """Keep what is there within new bounds, at once.

    Raises:
        LocalspecError: the database cannot be written.
    """
    collect(directory)
    if not (directory / FILE).exists():
        return
    try:
        with closing(Database(directory, megabytes, days, busy_s=_BUSY_S)) as database:
            database.keep_within_bounds()
            database.shrink()
    except (sqlite3.Error, TooNewError, OSError) as error:
        raise LocalspecError(
            f"{directory / FILE} cannot be made smaller ({error}): try again"
        ) from error


def _spools_removed(directory: Path) -> bool:
    try:
        return remove_all(directory)
    except OSError as error:
        raise LocalspecError(
            f"{error.filename} cannot be removed ({error.strerror}): remove it by hand"
        ) from error


def _unlink(path: Path) -> None:
    try:
        for suffix in ("", "-wal", "-shm"):
            path.with_name(f"{FILE}{suffix}").unlink(missing_ok=True)
    except OSError as error:
        raise LocalspecError(
            f"{path} cannot be removed ({error.strerror}): remove it by hand"
        ) from error
