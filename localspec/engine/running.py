"""Which servers of this user run: a small file for each, locked as long as its process lives. Knows no HTTP.

An unlocked file is of a server that is gone, however it went: the lock goes with the process, and a number
that another process has got since is not mistaken for it.
"""

import fcntl
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import msgspec

from localspec.storage.files import private_directory
from localspec.storage.paths import data_dir

_PLACE = "servers"
_MOST_BYTES = 1 << 16


class Running(msgspec.Struct, frozen=True):
    """A server.

    Args:
        pid: its process.
        model: the usual name of its models.
        addresses: where it listens: URLs, and paths of sockets.
        since: when it began to listen, in Unix seconds.
        engine: the socket at which other programs of this user ask its engine; empty where there is none.
        records: what it records of replies, see `config.recorded`: nothing where it is empty.
        n_ctx: tokens of context of a request; 0 where that is not known.
        keyed: whether requests have to carry a key.
        models: the tokens of context of all models that it was started with, by each of their names.
        loading: whether it loads what it was started with; its requests wait until that is there.
    """

    pid: int
    model: str
    addresses: tuple[str, ...]
    since: int
    engine: str = ""
    records: str = ""
    n_ctx: int = 0
    keyed: bool = False
    models: dict[str, int] = {}
    loading: bool = False


def directory() -> Path:
    """Return where the files and the logs of servers are.

    Raises:
        UsageError: it cannot be made.
    """
    path = data_dir() / _PLACE
    private_directory(path)
    return path


def engine_socket(pid: int | str) -> Path:
    """Return where the engine of a server's process is asked."""
    return data_dir() / _PLACE / f"{pid}.sock"


@contextmanager
def announced(running: Running) -> Iterator[None]:
    """Let others see a server while this lasts; within it, another takes the place of what is seen."""
    place = directory()
    descriptor, name = tempfile.mkstemp(dir=place)
    path = place / f"{running.pid}.json"
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        # A path may have bytes that are no UTF-8, which this escapes.
        os.write(descriptor, json.dumps(msgspec.to_builtins(running)).encode())
        Path(name).rename(path)
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def servers() -> list[Running]:
    """Return the servers that run, the oldest first; what is left of others is removed."""
    running = []
    for path in (data_dir() / _PLACE).glob("*.json"):
        with suppress(OSError), path.open("rb") as stream:  # unreadable now is not gone
            if not _is_locked(stream):
                path.unlink(missing_ok=True)
                engine_socket(path.stem).unlink(missing_ok=True)
            elif server := _read(stream):
                running.append(server)
    return sorted(running, key=lambda each: each.since)


def runs(pid: int) -> Running | None:
    """Return the server that a process is, as soon as it listens; None if it is none."""
    with suppress(OSError), (directory() / f"{pid}.json").open("rb") as stream:
        return _read(stream) if _is_locked(stream) else None
    return None


def clear_logs() -> None:
    """Remove the logs of servers that are gone."""
    for path in directory().glob("*.log"):
        with suppress(OSError, ValueError):
            os.kill(int(path.stem), 0)  # it may begin, and not be announced yet
            continue
        path.unlink(missing_ok=True)


def _is_locked(stream: BinaryIO) -> bool:
    """Return whether the server of a file is alive."""
    try:
        fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def _read(stream: BinaryIO) -> Running | None:
    """Return what a file says; None if it is none of ours."""
    with suppress(msgspec.MsgspecError, ValueError, RecursionError):
        return msgspec.convert(json.loads(stream.read(_MOST_BYTES)), Running)
    return None
