"""The engine of a server that runs, asked over its private Unix socket in the words that one's own is asked in.

Such a server answers `Load` at once: `Ready` where just that is in its memory, `Loading` before it where it was unloaded
meanwhile and the first question has it loaded again, and else `Failed`.
"""

import socket
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress

import msgspec

from localspec.engine.link import ServerLink
from localspec.engine.protocol import (
    NOTICES,
    Failed,
    FrameError,
    Hello,
    Load,
    Loading,
    Notice,
    Ready,
    encode,
)
from localspec.engine.running import Running
from localspec.messages import Held
from localspec.options import LaunchOptions

_PATIENCE_S = 2.0


def connect(path: str, pid: int, options: LaunchOptions) -> ServerLink | None:
    """Return a link to a server that has this in memory; None where it has not, or does not answer soon.

    Args:
        path: of its socket.
        pid: its process.
        options: what is to be loaded, by names that mean the same everywhere, see `models.requested`.
    """
    link = ready = None
    with suppress(OSError, ValueError, FrameError):  # of another version; or a NUL in the path
        link = _connected(path, pid)
        link.send(encode(Load(options)))
        ready = _ready(link)
    if link is None or ready is None:
        if link is not None:
            link.end(0)
        return None
    loads = ", which loads the model again" if link.unloaded else ""
    note = f"answered by your server, process {pid}{loads}; --own loads the model here instead"
    link.ready = msgspec.structs.replace(ready, notes=(note,), load_s=0.0, held=Held())
    return link


def first_of(running: Iterable[Running], wanted: LaunchOptions) -> ServerLink | None:
    """Return a link to the first that has the models in memory; where none has, to the first that would load them again."""
    links, chosen = list[ServerLink](), None
    for each in running:
        link = connect(each.engine, each.pid, wanted)
        links += [] if link is None else [link]
        if link is not None and not link.unloaded:
            chosen = link
            break
    chosen = chosen or next(iter(links), None)
    for other in links:
        if other is not chosen:
            other.end(0)
    return chosen


def states_of(path: str) -> dict[str, str]:
    """Return the states of the models that a server has or had in memory, by name; none where it does not answer soon."""
    with suppress(OSError, ValueError, FrameError):
        link = _connected(path, 0)
        try:
            return next((each.models for each in _notices(link) if isinstance(each, Hello)), {})
        finally:
            link.end(0)
    return {}


def _connected(path: str, pid: int) -> ServerLink:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(_PATIENCE_S)
        connection.connect(path)
    except BaseException:
        connection.close()
        raise
    return ServerLink(connection, pid)


def _notices(link: ServerLink) -> Iterator[Notice]:
    """Yield what a server says within a while."""
    end_s = time.monotonic() + _PATIENCE_S
    while not link.ended and link.wait(max(0.0, end_s - time.monotonic())):
        yield from map(NOTICES.decode, link.read())


def _ready(link: ServerLink) -> Ready | None:
    """Return what a server has loaded, and note whether that was unloaded; None where it has something else."""
    for notice in _notices(link):
        match notice:
            case Ready():
                return notice
            case Loading():
                link.unloaded = True
            case Failed():
                return None
    return None
