"""The engine's process: its pipes, its end, and a server between them. Whoever calls it brings the factory."""

import os
import sys
import threading
import time
from collections.abc import Callable
from typing import BinaryIO, NoReturn

from localspec.decoding.cancel import CancelFlag
from localspec.engine.factory import Factory
from localspec.engine.interruption import Interruption
from localspec.engine.outbox import Outbox
from localspec.engine.protocol import Failed, Hello, Notice
from localspec.engine.requests import Requests
from localspec.engine.server import Server
from localspec.engine.wire import FrameError, encode

_GRACE_S = 3.0
_LOOK_FOR_PARENT_S = 1.0
_LAST_WORDS_S = 2.0


def serve(factory: Factory, version: str, at_end: Callable[[], None] = lambda: None) -> NoReturn:
    """Serve the process at the other end of stdin and stdout until it says bye or is gone; then end this one.

    Args:
        factory: loads models.
        version: of localspec.
        at_end: called before this process ends; it must not take long.
    """
    commands, notices = _private_pipes()
    cancel, interruption = CancelFlag(), Interruption()

    def write(notice: Notice) -> None:
        notices.write(encode(notice))

    def complain(error: FrameError) -> None:
        outbox.put(Failed(None, "FrameError", str(error)))

    outbox = Outbox(write, notices.flush)  # in one go: whoever reads is woken once
    requests = Requests(commands, cancel, interruption.interrupt, complain)
    server = Server(factory, requests, cancel, interruption, outbox.put)
    threading.Thread(target=_outlive_nobody, args=(requests,), daemon=True).start()
    outbox.put(Hello(version, os.getpid()))
    server.serve()
    at_end()
    outbox.close(_LAST_WORDS_S)
    sys.stderr.flush()
    os._exit(0)  # threads may still stand at a pipe, and the system frees faster than we


def _private_pipes() -> tuple[BinaryIO, BinaryIO]:
    """Take stdin and stdout for the protocol, so that no stray print or child process gets at them."""
    commands = os.fdopen(os.dup(0), "rb")
    notices = os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return commands, notices


def _outlive_nobody(requests: Requests) -> None:
    """End when the client is gone, also where a process that it left behind keeps the pipe open.

    What does not stop by itself within a grace, such as a native call that watches no flag, is ended with us.
    """
    parent = os.getppid()
    while not requests.cut_off.wait(_LOOK_FOR_PARENT_S):
        if os.getppid() != parent:
            requests.end()
    time.sleep(_GRACE_S)
    os._exit(1)
