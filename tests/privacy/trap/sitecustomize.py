"""Python imports this by itself where it is on the path: every use of the network is noted, and refused.

An audit hook cannot be taken off again, and sees every socket that Python opens, also in children. A pair of
connected sockets within a process, or a pipe, is no network.
"""

import os
import sys

_FORBIDDEN = {
    "socket.connect",
    "socket.bind",
    "socket.sendto",
    "socket.sendmsg",
    "socket.getaddrinfo",
    "socket.gethostbyname",
    "socket.gethostbyaddr",
}


def _refuse(event: str, arguments: tuple[object, ...]) -> None:
    if event in _FORBIDDEN:
        with open(os.environ["LOCALSPEC_NETWORK_LOG"], "a") as log:  # noqa: PTH123
            print(event, arguments[1:], file=log)
        raise PermissionError(f"no network here: {event}")


sys.addaudithook(_refuse)
