"""Run as a program: `python sockets.py LOG COMMAND…` runs a command, refuses every socket of the network, and notes it.

The kernel asks, by seccomp, about each that the command or any program under it would open. It needs no privileges.
"""

import ctypes
import fcntl
import os
import platform
import select
import socket
import struct
import sys
from contextlib import suppress
from pathlib import Path

_SOCKET, _SECCOMP = {"x86_64": (41, 317), "aarch64": (198, 277)}.get(platform.machine(), (0, 0))
_RECEIVE, _SEND = 0xC0502100, 0xC0182101
_LOAD, _EQUAL, _END, _ASK, _ALLOW = 0x20, 0x15, 0x06, 0x7FC00000, 0x7FFF0000
# Number, then the family of the address: AF_INET or AF_INET6.
_FILTER = (
    (_LOAD, 0, 0, 0), (_EQUAL, 0, 3, _SOCKET), (_LOAD, 0, 0, 16), (_EQUAL, 2, 0, 2), (_EQUAL, 1, 0, 10),
    (_END, 0, 0, _ALLOW), (_END, 0, 0, _ASK),
)  # fmt: skip


def listener() -> int:
    """Install the filter in this process; return the descriptor that answers for it, negative where there is none."""
    libc = ctypes.CDLL(None, use_errno=True)
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *each) for each in _FILTER))
    program = struct.pack("@HP", len(_FILTER), ctypes.addressof(code))
    libc.prctl(38, 1, 0, 0, 0)  # no_new_privs
    return int(libc.syscall(_SECCOMP, 1, 8, program)) if _SECCOMP else -1


def _answer(asking: int, log: str) -> None:
    told = bytearray(80)
    with suppress(OSError):  # who asked may be gone
        fcntl.ioctl(asking, _RECEIVE, told)
        number, process = struct.unpack_from("=QI", told)
        with open(log, "a") as file:  # noqa: PTH123
            print("socket:", Path(f"/proc/{process}/comm").read_text().strip(), file=file)
        fcntl.ioctl(asking, _SEND, struct.pack("=QqiI", number, 0, -13, 0))


def main() -> int:
    log, *command = sys.argv[1:]
    ours, theirs = socket.socketpair()
    child = os.fork()
    if not child:
        socket.send_fds(theirs, [b"."], [listener()])
        os.execvp(command[0], command)
    theirs.close()
    _, (asking,), *_ = socket.recv_fds(ours, 1, 1)
    poll = select.poll()
    poll.register(asking, select.POLLIN)
    while True:
        for _, events in poll.poll(20):
            if events & select.POLLIN:
                _answer(asking, log)
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(main())
