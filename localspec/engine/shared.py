"""The engine of a server that runs, asked over its private Unix socket in the words that one's own is asked in.

Such a server answers `Load` at once: `Ready` where just that is in its memory, `Loading` before it where it was unloaded
meanwhile and the first question has it loaded again, and else `Failed`.
"""

import socket
import time

import msgspec

from localspec.engine.link import ServerLink
from localspec.engine.protocol import NOTICES, Failed, FrameError, Load, Loading, Ready, encode
from localspec.options import LaunchOptions

_PATIENCE_S = 2.0


def connect(path: str, pid: int, options: LaunchOptions) -> ServerLink | None:
    """Return a link to a server that has this in memory; None where it has not, or does not answer soon.

    Args:
        path: of its socket.
        pid: its process.
        options: what is to be loaded, by names that mean the same everywhere, see `launch.names`.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    link = None
    try:
        connection.settimeout(_PATIENCE_S)
        connection.connect(path)
        link = ServerLink(connection, pid)
        link.send(encode(Load(options)))
        ready = _ready(link)
    except (OSError, ValueError, FrameError):  # of another version; or a NUL in the path
        ready = None
    if link is None or ready is None:
        connection.close()
        return None
    loads = ", which loads the model again" if link.rests else ""
    note = f"answered by your server, process {pid}{loads}; --own loads the model here instead"
    link.ready = msgspec.structs.replace(ready, notes=(note,), load_s=0.0)
    return link


def _ready(link: ServerLink) -> Ready | None:
    """Return what a server has loaded, and note whether it rests; None where it has something else."""
    end_s = time.monotonic() + _PATIENCE_S
    while not link.ended and link.wait(max(0.0, end_s - time.monotonic())):
        for line in link.read():
            match NOTICES.decode(line):
                case Ready() as ready:
                    return ready
                case Loading():
                    link.rests = True
                case Failed():
                    return None
    return None
