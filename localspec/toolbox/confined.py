"""Run as a program: starts a command with limits, confines it where the system can, and ends all that came of it.

It is started by its path and imports the standard library alone, so that nothing of the folder that it runs in is
imported. Its first argument is a JSON object with the fields of `Confines`, the rest the command. It watches its
standard input: when that has something to read, or ends, its caller wants the command to end, or is gone.
The last thing that it writes, on descriptor `report`, is why the command ended.
"""

import contextlib
import ctypes
import json
import os
import platform
import re
import resource
import select
import signal
import struct
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_LOOK_S = 0.02
_LOOKS_A_COUNT = 5
_GRACE_S = 1.0
_SWEEPS_S = 5.0
_THREADS = 4  # of a process, on average
EXITED, STOPPED, TOO_MANY = "exited", "stopped", "too many processes"
TOO_MUCH_MEMORY, TOO_MUCH_DISK = "too much shared memory", "too much of the disk"
NOT_STARTED = 126
"""Exit code where the command could not be started as it should be."""

# Numbers of prctl(2).
_NO_NEW_PRIVS, _CHILD_SUBREAPER, _SECCOMP, _CAPBSET_DROP = 38, 36, 22, 24
_MOST_CAPABILITIES = 64
# landlock(7): system calls, which have the same numbers everywhere, and rights.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION = 1
_PATH_BENEATH = 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_TRUNCATE, _IOCTL_DEV = 1 << 14, 1 << 15
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15}
_MOST_RIGHTS = 16
_NETWORK_SINCE, _SCOPES_SINCE = 4, 6
_TCP = 0b11
_SCOPES = 0b11  # abstract Unix sockets, and signals
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_SHARED = (b"/dev/zero", b"/memfd:", b"/SYSV")
_DEVICE_SYSTEMS = {"devpts", "devtmpfs", "mqueue"}
# seccomp(2): the architecture as it is audited.
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
# Numbers of system calls there. Refused: sockets and what would connect them, and what outlives the command or holds other
# programs' secrets: shared memory, semaphores and messages of System V, message queues of POSIX, and the kernel's keys.
_REFUSED = {
    "x86_64": (41, 42, 43, 49, 50, 288, *range(29, 32), *range(64, 72), 220, 240, 241, *range(248, 251)),
    "aarch64": (198, *range(200, 204), 242, *range(180, 182), *range(186, 198), *range(217, 220)),
}  # fmt: skip
# Allowed for two ends of the same stream alone: a datagram's may be connected, or send, to any other's name.
_SOCKETPAIR = {"x86_64": 53, "aarch64": 199}
_AF_UNIX, _SOCK_STREAM, _SOCK_SEQPACKET, _SOCK_TYPE = 1, 1, 5, 0xF
# Allowed for the process that calls alone: prlimit64, sched_setparam, sched_setscheduler, sched_setaffinity and
# sched_setattr, whose first argument is a process, 0 for itself; setpriority and ioprio_set, where that is the second one.
_OF_ITSELF = {"x86_64": (302, 142, 144, 203, 314), "aarch64": (261, 118, 119, 122, 274)}
_OF_ONE_PROCESS = {"x86_64": ((141, 0), (251, 1)), "aarch64": ((140, 0), (30, 1))}
# Said to be missing, as in older kernels: io_uring_setup makes the other calls unseen; memory of memfd_create and
# memfd_secret belongs to no process, so no limit counts it.
_MISSING = {"x86_64": (425, 319, 447), "aarch64": (425, 279, 447)}
_X32 = 0x40000000
_EACCES, _ENOSYS = 13, 38


@dataclass(frozen=True, slots=True)
class Confines:
    """What a command may do.

    Args:
        writes: folders that it may change.
        hidden: files and folders that it may not read.
        confined: whether Landlock and seccomp are to hold it; then it is not started where they do not.
        processes: at a time.
        memory_bytes: private memory of each of them, and what they share in all.
        file_bytes: the longest file.
        disk_bytes: of the disks that it writes to; never more than half of what is free there.
        report: descriptor that takes why the command ended.
    """

    writes: list[str]
    hidden: list[str]
    confined: bool
    processes: int
    memory_bytes: int
    file_bytes: int
    disk_bytes: int
    report: int


def landlock_version() -> int:
    """Return which version of Landlock the kernel offers; 0 for none."""
    if not sys.platform.startswith("linux"):
        return 0
    try:
        return max(0, int(_libc().syscall(_CREATE_RULESET, None, 0, _VERSION)))
    except (OSError, AttributeError):
        return 0


def blocks_network() -> bool:
    """Return whether the network can be closed here."""
    return platform.machine() in _ARCHITECTURES


def readable(hidden: Iterable[str], start: str = "/") -> Iterator[str]:
    """Yield the files and folders that hold everything but what is hidden."""
    hidden = [each for each in hidden if each == start or each.startswith(start.rstrip("/") + "/")]
    if start in hidden:
        return
    if not hidden:
        yield start
        return
    with contextlib.suppress(OSError):
        for each in sorted(Path(start).iterdir()):
            if not each.is_symlink():  # what it leads to is readable, or hidden, by its own name
                yield from readable(hidden, str(each))


def device_folders() -> list[str]:
    """Return where devices and terminals are, which are no files: what is read there is taken from others, or comes from a camera."""
    folders = ["/dev"]
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/mountinfo").read_text(errors="surrogateescape").splitlines():
            here, _, system = line.partition(" - ")
            if system.split()[0] in _DEVICE_SYSTEMS:
                place = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), here.split()[4])
                folders.append(place)
    return folders


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _checked(result: int, what: str) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")
    return result


def _confine(confines: Confines) -> None:
    """Let this process, and all that it starts, read what is not hidden, write a few folders, and use no network."""
    libc = _libc()
    if os.geteuid() == 0:
        for each in range(_MOST_CAPABILITIES):
            libc.prctl(_CAPBSET_DROP, each, 0, 0, 0)
    _checked(libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    version = landlock_version()
    every = (1 << _RIGHTS.get(version, _MOST_RIGHTS)) - 1
    fields = [every]
    if version >= _NETWORK_SINCE:
        fields.append(_TCP)
    if version >= _SCOPES_SINCE:
        fields.append(_SCOPES)
    attributes = struct.pack(f"{len(fields)}Q", *fields)
    ruleset = _checked(
        libc.syscall(_CREATE_RULESET, attributes, len(attributes), 0), "landlock_create_ruleset"
    )
    allowed = [(each, _READ) for each in readable([*confines.hidden, *device_folders()])]
    allowed += [(each, every) for each in confines.writes]
    allowed += [(each, _READ_FILE | _WRITE_FILE | _TRUNCATE) for each in _DEVICES]
    for path, rights in allowed:
        _allow(libc, ruleset, path, rights & every)
    _checked(libc.syscall(_RESTRICT_SELF, ruleset, 0), "landlock_restrict_self")
    os.close(ruleset)
    _filter_calls(libc)


def _allow(libc: ctypes.CDLL, ruleset: int, path: str, rights: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:  # gone since, or not ours to see
        return
    if not Path(path).is_dir():
        rights &= _OF_FILES
    rule = struct.pack("=Qi", rights, descriptor)
    added = libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0)
    os.close(descriptor)
    _checked(added, f"landlock_add_rule {path}")


def _filter_calls(libc: ctypes.CDLL) -> None:
    """Refuse system calls that reach beyond the folder and Landlock does not know.

    New sockets of every kind are among them: the network, and what listens on this machine and would act for others. Of a pair
    of connected ones no call can make another connection.
    """
    machine = platform.machine()
    if machine not in _ARCHITECTURES:
        return
    load, equal, at_least, keep_bits, end = 0x20, 0x15, 0x35, 0x54, 0x06
    number, architecture, first, second = 0, 4, 16, 24
    allow, refuse, missing = "allow", "refuse", "missing"
    # Each: code, where to go on if true, if false (steps to skip, or an end), value.
    program: list[tuple[int, int | str, int | str, int]] = [
        (load, 0, 0, architecture),
        (equal, 0, refuse, _ARCHITECTURES[machine]),
        (load, 0, 0, number),
        (at_least, refuse, 0, _X32),
        *((equal, missing, 0, each) for each in _MISSING[machine]),
        *((equal, refuse, 0, each) for each in _REFUSED[machine]),
        (equal, 0, 6, _SOCKETPAIR[machine]),
        (load, 0, 0, first),
        (equal, 0, refuse, _AF_UNIX),
        (load, 0, 0, second),
        (keep_bits, 0, 0, _SOCK_TYPE),
        (equal, allow, 0, _SOCK_STREAM),
        (equal, allow, refuse, _SOCK_SEQPACKET),
    ]
    for each in _OF_ITSELF[machine]:
        program += [(equal, 0, 2, each), (load, 0, 0, first), (equal, allow, refuse, 0)]
    for each, process in _OF_ONE_PROCESS[machine]:
        program += [(equal, 0, 4, each), (load, 0, 0, first), (equal, 0, refuse, process)]
        program += [(load, 0, 0, second), (equal, allow, refuse, 0)]
    ends = {allow: 0x7FFF0000, refuse: 0x00050000 | _EACCES, missing: 0x00050000 | _ENOSYS}
    places = {name: len(program) + at for at, name in enumerate(ends)}
    packed = b""
    for at, (code, *jumps, value) in enumerate(program):
        skips = (places[to] - at - 1 if isinstance(to, str) else to for to in jumps)
        packed += struct.pack("=HBBI", code, *skips, value)
    packed += b"".join(struct.pack("=HBBI", end, 0, 0, value) for value in ends.values())
    buffer = ctypes.create_string_buffer(packed)
    filter_ = struct.pack("@HP", len(packed) // 8, ctypes.addressof(buffer))
    _checked(libc.prctl(_SECCOMP, 2, filter_, 0, 0), "seccomp")


def _limit(confines: Confines) -> None:
    limits = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: confines.file_bytes,
        resource.RLIMIT_DATA: confines.memory_bytes,
        resource.RLIMIT_STACK: confines.memory_bytes // 4,  # which grows beside that memory
    }
    tasks = _tasks()
    if tasks:  # the kernel does not hold root to it, and counts threads; `_watch` sees the rest
        limits[resource.RLIMIT_NPROC] = tasks + _THREADS * confines.processes
    for kind, wanted in limits.items():
        soft, hard = (_finite(each, wanted) for each in resource.getrlimit(kind))
        resource.setrlimit(kind, (soft, hard) if kind == resource.RLIMIT_STACK else (hard, hard))
    with contextlib.suppress(OSError):  # where memory runs out, it is the command that ends
        Path("/proc/self/oom_score_adj").write_text("1000")


def _finite(limit: int, most: int) -> int:
    return most if limit == resource.RLIM_INFINITY else min(limit, most)


def _start(command: list[str], confines: Confines) -> int:
    """Start the command in a session of its own; return its process."""
    child = os.fork()
    if child:
        return child
    try:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.close(confines.report)
        for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(each, signal.SIG_DFL)
        _limit(confines)
        if confines.confined:
            _confine(confines)
        os.execvp(command[0], command)  # noqa: S606 - to start it is what this is for
    except BaseException as error:
        os.write(2, f"the command was not started: {error}\n".encode())
    os._exit(NOT_STARTED)


def _tasks() -> int:
    """Return how many processes and threads this machine has; 0 where that is not known."""
    try:
        return int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])
    except (OSError, ValueError, IndexError):
        return 0


def _children() -> list[int]:
    """Return this process's living children; as a subreaper it becomes the parent of every descendant that loses its own."""
    children = []
    for each in Path("/proc").glob("[0-9]*/stat"):  # none outside Linux
        with contextlib.suppress(OSError):
            state, parent = each.read_bytes().rpartition(b")")[2].split()[:2]
            if state != b"Z" and int(parent) == os.getpid():
                children.append(int(each.parent.name))
    return children


def _end_all(child: int, *, gently: bool) -> None:
    """End the command and its descendants, also those that left its group or ignore SIGTERM."""
    if gently:
        with contextlib.suppress(OSError):
            os.killpg(child, signal.SIGTERM)
        end_s = time.monotonic() + _GRACE_S
        while _children() and time.monotonic() < end_s:
            _reap()
            time.sleep(_LOOK_S)
    end_s = time.monotonic() + _SWEEPS_S
    while time.monotonic() < end_s:
        with contextlib.suppress(OSError):
            os.killpg(child, signal.SIGKILL)
        for each in _children():
            with contextlib.suppress(OSError):
                os.kill(each, signal.SIGKILL)
        while _reap() is not None:
            pass
        if not _children():
            return


def _reap() -> tuple[int, int] | None:
    """Take note of the children that ended; return one of them with its status, None without any."""
    with contextlib.suppress(ChildProcessError):
        ended, status = os.waitpid(-1, os.WNOHANG)
        if ended:
            return ended, status
    return None


def _descendants() -> list[int]:
    """Return the processes under this one; none where the system does not list them."""
    found, parents = list[int](), [os.getpid()]
    while parents:
        parent = parents.pop()
        for each in Path(f"/proc/{parent}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                parents += map(int, each.read_text().split())
        found.append(parent)
    return found[1:]


def _shared_bytes(processes: Iterable[int]) -> int:
    """Return how large the mappings are that processes share and no file holds; whether their pages are in use is not visible."""
    sizes = dict[tuple[bytes, ...], int]()
    for each in processes:
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{each}/maps").read_bytes().splitlines():
                place, rights, *which, name = (*line.split(maxsplit=5), b"")[:6]
                if rights.endswith(b"s") and name.startswith(_SHARED):
                    begin, end = (int(at, 16) for at in place.split(b"-"))
                    sizes[tuple(which)] = end - begin
    return sum(sizes.values())


class _DiskRoom:
    """What may be taken of a disk, in blocks and in files."""

    def __init__(self, folder: str, most_bytes: int) -> None:
        now = os.statvfs(folder)
        self._folder = folder
        self._least_blocks = now.f_bavail - min(most_bytes // now.f_frsize, now.f_bavail // 2)
        self._least_files = now.f_favail // 2

    def is_used_up(self) -> bool:
        """Return whether more was taken, by the command or by others."""
        try:
            now = os.statvfs(self._folder)
        except OSError:
            return False
        return now.f_bavail < self._least_blocks or now.f_favail < self._least_files


def _watch(child: int, confines: Confines) -> tuple[str, int]:
    """Wait for the end of the command; return why it has to end, and its exit code where it ended by itself."""
    most = _tasks() + _THREADS * confines.processes
    rooms = [
        _DiskRoom(each, confines.disk_bytes) for each in confines.writes if Path(each).is_dir()
    ]
    look = 0
    while True:
        while (ended := _reap()) is not None:
            if ended[0] == child:
                return EXITED, os.waitstatus_to_exitcode(ended[1])
        if select.select([0], [], [], _LOOK_S)[0]:
            return STOPPED, 0
        if os.geteuid() == 0 and _tasks() > most:
            return TOO_MANY, 0
        if any(each.is_used_up() for each in rooms):
            return TOO_MUCH_DISK, 0
        if look % _LOOKS_A_COUNT == 0:
            processes = _descendants()
            if len(processes) > confines.processes:
                return TOO_MANY, 0
            if _shared_bytes(processes) > confines.memory_bytes:
                return TOO_MUCH_MEMORY, 0
        look += 1


def main() -> None:
    """Run the command that the arguments name."""
    confines = Confines(**json.loads(sys.argv[1]))
    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(each, signal.SIG_IGN)
    if sys.platform.startswith("linux"):
        _libc().prctl(_CHILD_SUBREAPER, 1, 0, 0, 0)
    child = _start(sys.argv[2:], confines)
    why, code = _watch(child, confines)
    _end_all(child, gently=why == STOPPED)
    os.write(confines.report, json.dumps([why, code]).encode())


if __name__ == "__main__":
    main()
