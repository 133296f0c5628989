"""SQLite files that only their owner can read: opened, brought up to date, changed all or nothing, and emptied."""

import errno
import mmap
import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cache
from pathlib import Path

from localspec.storage.files import private_directory
from localspec.storage.paths import shown

_BUSY_S, _SHORT_S, _AGAIN_S = 5.0, 0.2, 0.01
_FULL = (errno.ENOSPC, errno.EDQUOT)
_NO_ROOM_BYTES = 64 * 1024
"""Free bytes of a disk on which SQLite's shared memory file, of 32 kB, may have had no room."""
_UNMAPPED = (errno.ENODEV, errno.EINVAL, errno.ENOTSUP)
FILES = ("", "-wal", "-shm", "-journal")
"""What SQLite has of a database, behind its name."""
_PIECE = 1 << 20
_INCREMENTAL = 2
_PASSING = (
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
)
_LOG = ("journal_mode = WAL", "synchronous = NORMAL")
_JOURNAL = ("journal_mode = TRUNCATE", "synchronous = FULL")
_ROOM_GIVEN_BACK = "auto_vacuum = INCREMENTAL"
"""Of a new file; another one gets it when it is written anew."""
_SETTINGS = ("secure_delete = ON", "foreign_keys = ON")


class DatabaseTooNewError(sqlite3.DatabaseError):
    """A later localspec wrote the file; says so, with its version."""


def open_database(
    path: Path,
    steps: Sequence[str],
    *,
    make: bool = True,
    busy_s: float = _BUSY_S,
    functions: Mapping[str, Callable[[str], str]] | None = None,
) -> sqlite3.Connection:
    """Open a file for any thread, and bring it up to date; without a write-ahead log where programs cannot share its index.

    Args:
        path: the file.
        steps: scripts, their statements separated by blank lines; step n takes a file from `user_version` n to n + 1.
        make: whether it is made, with its directory, if it is missing.
        busy_s: how long to wait for another program, now and with each statement.
        functions: of a text, by the names that steps and triggers call them; each text has one value.

    Raises:
        OSError: it cannot be made or written.
        sqlite3.Error: it cannot be used; `DatabaseTooNewError` if its version is beyond the last step.
    """
    if make:
        private_directory(path.parent)
    # SQLite gives its log the same mode as the file. One that is there stays closed: closing it would end SQLite's locks.
    if not os.access(path, os.W_OK):
        os.close(os.open(path, os.O_RDWR | (os.O_CREAT if make else 0), 0o600))
    until_s = time.monotonic() + busy_s
    journal = _LOG if shares_memory(path.absolute().parent) else _JOURNAL
    while True:
        connection = _connected(path.absolute().as_uri(), busy_s)
        try:
            for name, function in (functions or {}).items():
                connection.create_function(name, 1, function, deterministic=True)
            _prepare(connection, steps, journal)
        except BaseException as error:
            connection.close()
            is_unmapped = getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_IOERR_SHMMAP
            # SQLite does not wait for others that make the same file when it changes to its write-ahead log.
            if not (is_unmapped or is_busy(error)) or time.monotonic() > until_s:
                raise
            if is_unmapped:
                _take_log_in(path)
                journal = _JOURNAL
            time.sleep(_AGAIN_S)
        else:
            return connection


@cache
def shares_memory(directory: Path) -> bool:
    """Return whether files of a directory can be mapped by several programs, as a write-ahead log needs; FUSE may refuse it."""
    try:
        with tempfile.TemporaryFile(dir=directory) as file:
            file.truncate(mmap.PAGESIZE)
            mmap.mmap(file.fileno(), mmap.PAGESIZE).close()
    except OSError as error:
        return error.errno not in _UNMAPPED
    return True


def _take_log_in(path: Path) -> None:
    """Have a file keep a rollback journal, unless another program has it; alone, SQLite reads its log without shared memory."""
    try:
        with closing(_connected(path.absolute().as_uri(), _SHORT_S)) as connection:
            for setting in ("locking_mode = EXCLUSIVE", "journal_mode = TRUNCATE"):
                connection.execute(f"PRAGMA {setting}").fetchall()
    except sqlite3.OperationalError as error:
        if not is_busy(error):
            raise


def open_to_read(
    path: Path,
    steps: Sequence[str],
    *,
    oldest: int | None = None,
    functions: Mapping[str, Callable[[str], str]] | None = None,
) -> tuple[sqlite3.Connection, bool]:
    """Open a file; return it, and whether it can only be read. That may be so on a full disk, a read-only one, or without the right.

    Args:
        path: the file.
        steps: as `open_database` takes them.
        oldest: the first version that can be read as it is; by default only the last one.
        functions: likewise.

    Raises:
        OSError: it cannot be read.
        sqlite3.Error: so is it, or it is damaged.
    """
    try:
        return open_database(path, steps, make=False, functions=functions), False
    except (OSError, sqlite3.Error) as error:
        if not may_be_whole(error):
            raise
        try:
            return open_read_only(path, steps, oldest=oldest), True
        except sqlite3.Error:
            raise error from None


def open_read_only(
    path: Path, steps: Sequence[str], *, oldest: int | None = None
) -> sqlite3.Connection:
    """Open a file that cannot be written; see `open_to_read`.

    What its log holds is read, too, where SQLite has a place for the log's index: a file beside it, or memory, for which it
    keeps other programs out. Else the file is as it was when the log was last put into it, and may seem damaged.

    Raises:
        sqlite3.Error: it cannot be read, or is of another version.
    """
    reason: sqlite3.Error = sqlite3.DatabaseError("it is of another version")
    for how, locking in (("?mode=ro", "NORMAL"), ("", "EXCLUSIVE"), ("?immutable=1", "NORMAL")):
        connection = _connected(path.absolute().as_uri() + how, _SHORT_S)
        try:
            connection.execute(f"PRAGMA locking_mode = {locking}").fetchall()
            connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
            version = _version(connection)
            if (len(steps) if oldest is None else oldest) <= version <= len(steps):
                return connection
        except sqlite3.Error as error:
            reason = error
        connection.close()
    raise reason


def _connected(place: str, busy_s: float = _BUSY_S) -> sqlite3.Connection:
    connection = sqlite3.connect(
        place, timeout=busy_s, isolation_level=None, check_same_thread=False, uri=True
    )
    connection.row_factory = sqlite3.Row
    return connection


def _prepare(connection: sqlite3.Connection, steps: Sequence[str], journal: Sequence[str]) -> None:
    # Written into the file each time that it is set, also where it is so.
    first = () if _version(connection) else (_ROOM_GIVEN_BACK,)
    for setting in (*first, *_SETTINGS, *journal):
        connection.execute(f"PRAGMA {setting}").fetchall()
    if _version(connection) != len(steps):
        _migrate(connection, steps)


def _migrate(connection: sqlite3.Connection, steps: Sequence[str]) -> None:
    with transaction(connection):
        version = _version(connection)  # another process may have been at it, too
        if version > len(steps):
            raise DatabaseTooNewError(
                f"it is of a later localspec, version {version}, and this one knows {len(steps)}: update localspec"
            )
        for step in steps[version:]:
            for statement in step.split("\n\n"):
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {len(steps)}")


def _version(connection: sqlite3.Connection) -> int:
    return _number(connection, "user_version")


def _number(connection: sqlite3.Connection, pragma: str) -> int:
    return int(connection.execute(f"PRAGMA {pragma}").fetchone()[0])


@contextmanager
def transaction(connection: sqlite3.Connection, begin: str = "IMMEDIATE") -> Iterator[None]:
    """Make the changes within, or none of them; other programs wait with theirs. `DEFERRED` reads what is of one moment."""
    with connection:
        connection.execute(f"BEGIN {begin}")
        # Rows may name each other before both are there.
        connection.execute("PRAGMA defer_foreign_keys = ON")
        yield


@contextmanager
def errors_as(make: Callable[[Exception], Exception]) -> Iterator[None]:
    """Raise, in place of an error of a file, what a function makes of it."""
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        raise make(error) from error


def reason_of(error: Exception, path: Path | None = None) -> str:
    """Return why a file cannot be used, in a few words; `path` is the file, which tells a full disk from a broken one."""
    if is_full(error, path):
        return "the disk is full"
    return getattr(error, "strerror", None) or str(error)


def empty_log(connection: sqlite3.Connection) -> None:
    """Empty the write-ahead log, which still holds what was deleted; later if another program reads."""
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def give_back(connection: sqlite3.Connection, most_pages: int) -> bool:
    """Give some of the room that removed rows have left back to the disk; return whether there is more to give.

    A file of an earlier version keeps its room for later rows.
    """
    free = _number(connection, "freelist_count")
    if _number(connection, "auto_vacuum") != _INCREMENTAL or not free:
        return False
    connection.execute(f"PRAGMA incremental_vacuum({most_pages})").fetchall()
    return free > most_pages


def write_anew(connection: sqlite3.Connection) -> None:
    """Write a file anew without the room that removed rows have left, if that is a quarter of it; others wait meanwhile.

    Raises:
        sqlite3.Error: another program uses it, or the disk has no room for a second one.
    """
    if 4 * _number(connection, "freelist_count") >= _number(connection, "page_count"):
        connection.execute("VACUUM")
    empty_log(connection)


def used_bytes(connection: sqlite3.Connection) -> int:
    """Return what the rows of a file take, without the room that removed ones have left."""
    used = "SELECT (page_count - freelist_count) * page_size FROM pragma_page_count, pragma_freelist_count, pragma_page_size"
    return int(connection.execute(used).fetchone()[0])


def is_damage(error: BaseException) -> bool:
    """Return whether an error means that the file is damaged or no database."""
    return _code(error) in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


def _code(error: BaseException) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def is_full(error: BaseException, path: Path | None = None) -> bool:
    """Return whether an error means that the disk, or the user's part of it, is full.

    Where the file beside a database cannot grow, SQLite says only that writing failed: of that, the disk of `path` tells.
    """
    code = _code(error)
    if code == sqlite3.SQLITE_IOERR and path is not None:
        with suppress(OSError):
            return shutil.disk_usage(path.parent).free < _NO_ROOM_BYTES
    return code == sqlite3.SQLITE_FULL or getattr(error, "errno", 0) in _FULL


def damage_of(path: Path, most_s: float) -> str | None:
    """Return what is found to be wrong with a file within so many seconds; None where that is nothing, or it cannot be read now."""
    end_s = time.monotonic() + most_s
    try:
        with closing(_connected(f"{path.absolute().as_uri()}?mode=ro", _SHORT_S)) as connection:
            connection.set_progress_handler(lambda: time.monotonic() > end_s, 10_000)
            (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.Error as error:
        return reason_of(error) if is_damage(error) else None
    return None if verdict == "ok" else str(verdict).splitlines()[0]


def may_be_whole(error: Exception) -> bool:
    """Return whether an error says of a disk, or of rights, and nothing of the file: it may be whole, and readable."""
    if isinstance(error, OSError):
        return error.errno not in {errno.ENOENT, errno.ENOTDIR, errno.EISDIR}
    return _code(error) in _PASSING


def remedy(error: BaseException, path: Path, if_damaged: str) -> str:
    """Return what to do about an error of a file: only one that is damaged is worth removing.

    Args:
        error: of the file.
        path: the file.
        if_damaged: what to do if it is.
    """
    if is_damage(error):
        return if_damaged
    if isinstance(error, DatabaseTooNewError):
        return "nothing of it is lost"
    if is_busy(error):
        return "try again when the other program is done with it"
    if is_full(error, path):
        return "free some space; what is in it stays"
    return f"check {shown(path.parent)} and its disk; what is in it stays"


def is_busy(error: BaseException) -> bool:
    """Return whether an error means that another program has the file."""
    return _code(error) in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


def shrink(path: Path, steps: Sequence[str], statement: str) -> int:
    """Run a statement that frees room, and return how many rows it changed; on a full disk, too.

    There it runs without a log on the disk: a kill in its midst damages the file.

    Raises:
        OSError: the file cannot be written.
        sqlite3.Error: another program has it, or it is damaged.
    """
    try:
        with closing(open_database(path, steps)) as connection:
            with transaction(connection):
                count = connection.execute(statement).rowcount
            empty_log(connection)
            return count
    except sqlite3.OperationalError as error:
        if is_busy(error):
            raise
    with closing(_connected(path.absolute().as_uri())) as connection:
        # Locked for itself, it makes no file beside it.
        for setting in ("locking_mode = EXCLUSIVE", "journal_mode = MEMORY", "secure_delete = ON"):
            connection.execute(f"PRAGMA {setting}").fetchall()
        return connection.execute(statement).rowcount


def wipe(path: Path, steps: Sequence[str]) -> bool:
    """Overwrite all rows of a file, and return whether there were any; programs that have it open go on with an empty one.

    One that is damaged, of a later version or on a full disk is overwritten as far as possible, and removed.

    Raises:
        OSError: it cannot be removed.
        sqlite3.Error: another program has it.
    """
    if not path.exists():
        return False
    tables = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    try:
        with closing(open_database(path, steps)) as connection:
            with transaction(connection):
                names = [row["name"] for row in connection.execute(tables)]
                count = sum(
                    connection.execute(f"DELETE FROM {name}").rowcount  # noqa: S608 - names of our own
                    for name in names
                )
            with suppress(sqlite3.OperationalError):  # another program reads: the room stays taken
                connection.execute("VACUUM")
            empty_log(connection)
            return count > 0
    except (OSError, sqlite3.Error) as error:
        if is_busy(error):
            raise
    remove(path)
    return True


def remove(path: Path) -> bool:
    """Overwrite a file, whatever it is, as far as possible; remove it, and what SQLite has beside it. False if there is none.

    Raises:
        OSError: it cannot be removed.
    """
    there = False
    for suffix in FILES:
        each = path.with_name(path.name + suffix)
        if suffix != "-shm" and each.is_file():  # programs have that mapped, and it holds no text
            there = True
            with suppress(OSError), each.open("r+b", buffering=0) as file:
                size = each.stat().st_size
                for start in range(0, size, _PIECE):
                    file.write(bytes(min(_PIECE, size - start)))
                os.fsync(file.fileno())
        each.unlink(missing_ok=True)
    return there
