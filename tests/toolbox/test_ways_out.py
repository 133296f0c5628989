"""Ways out of the sandbox: commands that would reach a socket, a device, another process, a hidden file or another folder."""

import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from localspec.toolbox.command import CommandLimits, run_command
from localspec.toolbox.confined import landlock_version
from tests.support.processes import alive

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(not landlock_version(), reason="this kernel offers no Landlock"),
]
HIDDEN = "hidden-words"


@dataclass(frozen=True, slots=True)
class Outside:
    """What is out of reach: sockets, a terminal, a process, files."""

    folder: Path
    stream: Path
    datagram: Path
    port: int
    terminal: str
    process: int
    secret: Path
    shared: Path
    sockets: tuple[socket.socket, ...]
    typed: int

    def fill(self, text: str) -> str:
        for name in ("folder", "stream", "datagram", "port", "terminal", "process", "secret", "shared"):  # fmt: skip
            text = text.replace(name.upper(), str(getattr(self, name)))
        return text

    def heard(self) -> list[bytes]:
        """Return what came to the sockets; connections count as one."""
        heard = []
        for each in self.sockets:
            each.setblocking(False)
            with suppress(OSError):
                heard.append(
                    each.recv(99)
                    if each.type == socket.SOCK_DGRAM
                    else repr(each.accept()).encode()
                )
        return heard


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Outside]:
    home, folder = tmp_path / "home", tmp_path / "outside"
    for each in (home / ".ssh", folder, tmp_path / "inside"):
        each.mkdir(parents=True)
    secret = home / ".ssh" / "id_new"
    secret.write_text(f"echo {HIDDEN}")
    for name in (".cache/huggingface/token", ".cache/huggingface/stored_tokens", "data/history"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(HIDDEN)
    (folder / "kept").write_text("kept")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(home / "data"))
    monkeypatch.delenv("HF_HOME", raising=False)
    shared = Path(f"/dev/shm/localspec-test-{os.getpid()}")
    with ExitStack() as stack:
        sockets = []
        for kind, at in ((socket.SOCK_STREAM, "s"), (socket.SOCK_DGRAM, "d")):
            made = stack.enter_context(socket.socket(socket.AF_UNIX, kind))
            made.bind(str(folder / at))
            sockets.append(made)
        sockets[0].listen()
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        master, slave = os.openpty()
        stack.callback(os.close, master)
        stack.callback(os.close, slave)
        os.write(master, f"{HIDDEN}\n".encode())
        code = f"x = open({str(secret)!r}); words = {HIDDEN!r}; import time; time.sleep(600)"
        words = ["/usr/bin/env", "SECRET=" + HIDDEN, sys.executable, "-c", code]
        other = stack.enter_context(subprocess.Popen(words, start_new_session=True))
        stack.callback(other.kill)
        shared.write_text(HIDDEN)
        stack.callback(shared.unlink)
        yield Outside(
            *(folder, folder / "s", folder / "d", server.getsockname()[1], os.ttyname(slave), other.pid),
            *(secret, shared, (*sockets, server), slave),
        )  # fmt: skip


SHELL = {
    "bash's own TCP": "bash -c 'echo x > /dev/tcp/127.0.0.1/PORT'",
    "bash's own UDP": "bash -c 'echo x > /dev/udp/127.0.0.1/PORT'",
    "curl to a path": "curl -s -m 2 --unix-socket STREAM http://localhost/",
    "perl to a path": "perl -MIO::Socket::UNIX -e 'IO::Socket::UNIX->new(Peer => q(STREAM)) or die'",
    "a line for the log": "logger -u DATAGRAM --socket-errors=on x",
    "news for the service manager": "NOTIFY_SOCKET=DATAGRAM systemd-notify --ready",
    "what is typed": "head -c 5 TERMINAL",
    "what is typed, by the root of a process": "head -c 5 /proc/self/root/TERMINAL",
    "what is typed, as one's own terminal": "setsid sh -c 'head -c 5 0< TERMINAL; head -c 5 < /dev/tty'",
    "a word on the terminal": "echo x > TERMINAL",
    "the list of terminals": "ls /dev/pts",
    "others' shared memory": "cat SHARED",
    "others' environment": "cat /proc/PROCESS/environ",
    "others' memory": "dd if=/proc/PROCESS/mem bs=1 count=1",
    "others' files": "cat /proc/PROCESS/fd/*",
    "others' folder": "ls /proc/PROCESS/cwd/",
    "others' root": "cat /proc/PROCESS/root/SECRET",
    "a signal": "kill -STOP PROCESS",
    "a debugger": "gdb -p PROCESS -batch -ex quit 2>&1 | grep -q Attaching.*done",
    "a secret": "cat SECRET",
    "a secret that is run": "sh SECRET",
    "a secret by another name": "ln SECRET here && cat here",
    "a secret that is moved": "mv SECRET here",
    "a secret behind a link": "ln -s SECRET there; cat there",
    "a secret in another namespace": "touch m; unshare -rm sh -c 'mount --bind SECRET m && cat m'",
    "a secret behind another root": "unshare -r chroot / cat SECRET",
    "a secret in an archive": "tar cf - SECRET 2> /dev/null | grep -qa hidden",
    "the list of secrets": "ls $(dirname SECRET)",
    "a key of the hub": "cat ~/.cache/huggingface/token",
    "keys of the hub": "cat ~/.cache/huggingface/stored_tokens",
    "what was said before": "cat ~/data/history",
    "a new file": "echo x > FOLDER/new",
    "a longer file": "echo x >> FOLDER/kept",
    "a file written over": "echo x > FOLDER/kept",
    "a file cut": "truncate -s 0 FOLDER/kept",
    "a file less": "rm -f FOLDER/kept; test ! -e FOLDER/kept",
    "a file moved away": "mv FOLDER/kept .",
    "a file by another name": "ln FOLDER/kept hard",
    "a file in the folder of all": "touch /tmp/localspec-escape",
    "a folder above": "sh -c 'cd .. && touch outside/new'",
    "a folder by another way": "sh -c 'cd /proc/self/cwd/.. && touch outside/new'",
    "a folder behind a link": "ln -s FOLDER door; touch door/new",
    "a folder in another namespace": "mkdir m2; unshare -Ur sh -c 'mount --bind FOLDER m2; touch m2/new'",
    "a link to be": "ln -s x FOLDER/new",
    "a device": "mknod d c 1 3 && head -c 1 d",
    "more rights": "sudo -n id || su -c id",
    "a job for later": "echo 'touch FOLDER/new' | at now || echo '* * * * * true' | crontab -",
}
CALLS = {
    "the network": "socket.socket(socket.AF_INET)",
    "the network of version 6": "socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)",
    "a socket of this machine": "socket.socket(socket.AF_UNIX)",
    **{
        f"a pair of {kind}": f"socket.socketpair(socket.AF_UNIX, socket.SOCK_{kind})"
        for kind in ("DGRAM", "DGRAM | socket.SOCK_NONBLOCK", "RAW")
    },
    "a pair of TIPC": "socket.socketpair(30, 1)",
    "a pair of vsock": "socket.socketpair(40, 1)",
    "a pair that connects": "one.connect('DATAGRAM')",
    "a pair that binds": "one.bind('here')",
    "a pair that listens": "denied(one.listen)",
    "a pair that accepts": "denied(one.accept)",
    "a pair that sends": "unheard(one.sendto(b'x', 'DATAGRAM'))",
    "a pair that sends a message": "unheard(one.sendmsg([b'x'], [], 0, 'DATAGRAM'))",
    "a socket by its number": "syscall(41, 1, 1, 0)",
    "a socket of the other numbers": "syscall(0x40000000 + 41, 1, 1, 0)",
    "a descriptor of another process": "syscall(438, syscall(434, PROCESS, 0), 0, 0)",
    "a look with ptrace": "syscall(101, 16, PROCESS, 0, 0)",
    "a look with ptrace from afar": "syscall(101, 0x4206, PROCESS, 0, 0)",
    "a ring of calls": "syscall(425, 8, ctypes.create_string_buffer(256))",
    "memory of no process": "syscall(319, b'x', 0)",
    "secret memory": "syscall(447, 0)",
    "a kernel's key": "syscall(248, b'user', b'x', b'y', 1, -4)",
    "a queue of messages": "syscall(240, b'x', 0o102, 0o600, 0)",
    "shared memory of System V": "syscall(29, 77, 4096, 0o1600)",
    "semaphores of System V": "syscall(64, 77, 1, 0o1600)",
    "messages of System V": "syscall(68, 77, 0o1600)",
    "others' memory of System V": "denied(lambda: syscall(30, 0, 0, 0))",
    "the state of that memory": "denied(lambda: syscall(31, 0, 0, 0))",
    "others' messages of System V": "denied(lambda: syscall(70, 0, 0, 0, 0, 0o4000))",
    "a signal by descriptor": "syscall(424, syscall(434, PROCESS, 0), 19, 0, 0)",
    "a signal to a thread": "syscall(234, PROCESS, PROCESS, 19)",
    "a signal for news of a pipe": "signal_by_pipe(PROCESS)",
    "another's network": "syscall(308, os.open('/proc/PROCESS/ns/net', os.O_RDONLY), 0)",
    "a file by its handle": "by_handle(b'SECRET')",
    "a file without a name": "os.link(f'/proc/self/fd/{os.open(\"FOLDER\", os.O_TMPFILE | os.O_WRONLY)}', 'FOLDER/new', follow_symlinks=True)",
    "an exchange of files": "syscall(316, -100, b'mine', -100, b'FOLDER/kept', 2)",
    "another's nice": "syscall(141, 0, PROCESS, 19)",
    "the nice of another's group": "os.setpriority(os.PRIO_PGRP, PROCESS, 19)",
    "another's limits": "resource.prlimit(PROCESS, resource.RLIMIT_NOFILE, (8, 8))",
    "a look at another's limits": "resource.prlimit(PROCESS, resource.RLIMIT_CPU)",
    "another's processors": "os.sched_setaffinity(PROCESS, os.sched_getaffinity(0))",
    "another's scheduler": "os.sched_setscheduler(PROCESS, os.SCHED_BATCH, os.sched_param(0))",
    "another's place in it": "os.sched_setparam(PROCESS, os.sched_param(0))",
    "a call of 32 bits": "of_32_bits()",
}
PROGRAM = r"""
import ctypes, fcntl, mmap, os, resource, signal, socket, struct
libc = ctypes.CDLL(None, use_errno=True)
for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):  # of which nothing leads elsewhere
    one, other = socket.socketpair(socket.AF_UNIX, kind | socket.SOCK_CLOEXEC)
    socket.send_fds(one, [b"x"], [0])
    assert socket.recv_fds(other, 1, 1)[0] == b"x"

def denied(call):
    try:
        call()
    except OSError as error:  # another error is one of a call that is carried out
        if isinstance(error, PermissionError):
            raise

def unheard(_):
    raise OSError("whether it came is looked at from outside")

def syscall(*given):
    result = libc.syscall(*(ctypes.c_long(each) if isinstance(each, int) else each for each in given))
    if result == -1:
        raise OSError(ctypes.get_errno(), "refused")
    return result

def signal_by_pipe(process):
    reader, writer = os.pipe()
    fcntl.fcntl(reader, fcntl.F_SETOWN, process)
    fcntl.fcntl(reader, fcntl.F_SETSIG, signal.SIGSTOP)
    fcntl.fcntl(reader, fcntl.F_SETFL, os.O_ASYNC)
    os.write(writer, b"x")
    raise OSError("its fate is looked at from outside")

def by_handle(path):
    handle = ctypes.create_string_buffer(struct.pack("Ii", 128, 0) + bytes(128))
    syscall(303, -100, path, handle, ctypes.byref(ctypes.c_int()), 0)
    os.read(syscall(304, os.open(".", os.O_RDONLY), handle, os.O_RDONLY), 9)

def of_32_bits():
    # push rbx; mov eax, 359; mov ebx, 1; mov ecx, 2; xor edx, edx; int 0x80; pop rbx; ret
    code = bytes.fromhex("53b867010000bb01000000b90200000031d2cd805bc3")
    child = os.fork()
    if not child:
        page = mmap.mmap(-1, 4096, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        page.write(code)
        call = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
        os._exit(0 if 0 <= call() < 4096 else 1)
    if os.waitpid(child, 0)[1]:
        raise OSError("refused")

open("mine", "w").write("mine")
"""


def test_no_way_leads_out(outside: Outside, tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    script = [
        f"({outside.fill(line)}) > got{at} 2>&1 < /dev/null && echo 'out: {at}'"
        for at, line in enumerate(SHELL.values())
        if shutil.which(line.split()[0].partition("=")[0]) or "=" in line.split()[0]
    ]
    lines = [PROGRAM]
    for name, call in CALLS.items():
        if "syscall" in call and os.uname().machine != "x86_64":
            continue  # where calls have other numbers
        lines.append(f"try: {outside.fill(call)}; print('out: ' + {name!r})\nexcept OSError: pass")
    (inside / "calls.py").write_text("\n".join(lines))
    pace = os.getpriority(os.PRIO_PROCESS, outside.process)
    script.append(f"{sys.executable} -I -S calls.py 2>&1; cat got* 2>/dev/null; true")
    ended = run_command("\n".join(script), inside, CommandLimits(), threading.Event())
    names = [*SHELL]
    out = [line.partition(": ")[2] for line in ended.output.decode(errors="replace").splitlines() if line.startswith("out: ")]  # fmt: skip
    assert [names[int(each)] if each.isdigit() else each for each in out] == []
    assert b"Traceback" not in ended.output, ended.output
    assert not Path("/tmp/localspec-escape").exists()
    assert HIDDEN.encode() not in ended.output.replace(str(tmp_path).encode(), b"")
    assert outside.heard() == []
    assert sorted(each.name for each in outside.folder.iterdir()) == ["d", "kept", "s"]
    assert (outside.folder / "kept").read_text() == "kept"
    assert outside.secret.exists()
    assert alive(outside.process)
    state = Path(f"/proc/{outside.process}/stat").read_text().rpartition(")")[2].split()[0]
    assert state == "S", "no signal came"
    assert os.getpriority(os.PRIO_PROCESS, outside.process) == pace
    os.set_blocking(outside.typed, False)
    assert os.read(outside.typed, 99) == f"{HIDDEN}\n".encode()
