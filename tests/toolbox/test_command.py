"""Commands that would get out, go on for ever, or fill what there is. Each is bounded by itself, too."""

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from localspec.toolbox import confined as confining
from localspec.toolbox.command import (
    CommandEnded,
    CommandLimits,
    command_text,
    confinement,
    profile,
    run_command,
)
from localspec.toolbox.confined import landlock_version, readable
from tests.support.processes import running
from tests.waiting import until

pytestmark = pytest.mark.process
confined = pytest.mark.skipif(not landlock_version(), reason="this kernel offers no Landlock")
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="counted from /proc")
PYTHON = f"{sys.executable} -I -S"
MEMFD = {
    "memfd_create": {"x86_64": 319, "aarch64": 279}.get(os.uname().machine),
    "memfd_secret": 447,
}


def run(folder: Path, command: str, **limits: float) -> CommandEnded:
    return run_command(command, folder, CommandLimits(**limits), threading.Event())  # type: ignore[arg-type]


def run_code(folder: Path, code: str, **limits: float) -> CommandEnded:
    (folder / "code.py").write_text(code)
    return run(folder, f"{PYTHON} code.py", **limits)


def test_links_that_a_command_leaves_are_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o500)
    leave = f"ln -s {outside} shut/door; chmod 500 shut; chmod 0 none; pwd"
    place = Path(run(tmp_path, f"cd $TMPDIR; mkdir shut none; {leave}").output.decode().strip())
    assert outside.stat().st_mode & 0o777 == 0o500
    if place.exists():  # only root can remove all of it
        for each in place.iterdir():
            each.chmod(0o700)
        shutil.rmtree(place)


def test_output_and_code_come_back(tmp_path: Path) -> None:
    ended = run(tmp_path, "echo out; echo err >&2; exit 3")
    assert (ended.output, ended.code, ended.why) == (b"out\nerr\n", 3, "")
    assert command_text(ended) == "out\nerr\n[exit code 3]"
    place = Path(run(tmp_path, "touch $TMPDIR/x; echo $TMPDIR").output.decode().strip())
    assert place.name
    assert not place.exists()


def test_there_is_no_secret_and_no_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_TOKEN", "MY_API_KEY", "LC_TOKEN"):
        monkeypatch.setenv(name, "hf_hidden")
    text = run(tmp_path, "env; cat; tty; (: < /dev/tty) 2>&1; cat /proc/$PPID/environ 2>&1").output
    assert b"hidden" not in text
    assert b"PATH=" in text
    assert b"not a tty" in text


@confined
def test_no_terminal_and_no_device_is_read(tmp_path: Path) -> None:
    master, slave = os.openpty()
    try:
        os.write(master, b"typed\n")
        name = os.ttyname(slave)
        devices = [*Path("/dev").glob("*"), Path(name), *(Path("/dev/pts").glob("*"))]
        allowed = {"null", "zero", "full", "random", "urandom", "fd", "stdin", "stdout", "stderr"}
        tried = [str(each) for each in devices if each.name not in allowed]
        code = f"import os\nfor each in {tried!r}:\n"
        code += "    try: os.open(each, os.O_RDONLY | os.O_NONBLOCK); print(each)\n    except OSError: pass\n"
        code += "open('/dev/tty')"
        ended = run_code(tmp_path, f"{code}")
        assert ended.output.startswith(b"Traceback"), ended.output
        assert name.encode() not in ended.output
        assert not [each for each in tried[:-1] if f"{each}\n".encode() in ended.output]
        assert os.read(slave, 99) == b"typed\n"
        fine = "head -c 4 /dev/zero | wc -c; head -c 4 /dev/urandom > /dev/null; echo a > /dev/stdout; echo b | cat /dev/stdin /dev/fd/0"
        assert run(tmp_path, fine).output == b"4\na\nb\n"
    finally:
        os.close(master)
        os.close(slave)


@confined
def test_programs_that_people_run_still_work(tmp_path: Path) -> None:
    """Each of them sets modes, times, owners or attributes in its folder, or limits of its own: that cannot be refused."""
    (tmp_path / "own.py").write_text(
        "import os, resource; resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)); os.nice(1)\n"
        "resource.prlimit(0, resource.RLIMIT_CPU, (60, 60)); os.setpriority(os.PRIO_PROCESS, 0, 19)\n"
        "os.sched_setaffinity(0, os.sched_getaffinity(0))\n"
        "os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0)); open('done', 'w')"
    )
    for command in (
        "echo x > new && mkdir -p c/d && mv new c/d && test -f c/d/new && echo y > $TMPDIR/z",
        f"ulimit -n 100; nice -n 1 {PYTHON} own.py && test -f done",
        "echo x > a; cp -p a b; touch -d 2001-01-01 b; chmod 640 b; test $(stat -c %a b) = 640",
        "mkdir t; echo x > t/y; tar cf t.tar t; rm -r t; tar xf t.tar; test -f t/y",
        "git init -q g && cd g && echo x > y && git add y && git -c user.email=a@b -c user.name=a commit -qm m",
        f"{sys.executable} -m venv --without-pip v && v/bin/python -c 'import json'",
        "printf 'all:\\n\\techo made > m\\n' > Makefile; command -v make > /dev/null || exit 0; make -s; test -f m",
    ):
        ended = run(tmp_path, command)
        assert (ended.output, ended.code, ended.why) == (b"", 0, ""), command


def test_whatever_a_command_started_ends_with_it(tmp_path: Path) -> None:
    marker = f"marker-{os.getpid()}-ignores"
    (tmp_path / marker).write_text(
        "trap '' TERM INT HUP; (trap '' TERM; sleep 60) & setsid sh $0-2 & sleep 60; sleep 60"
    )
    (tmp_path / f"{marker}-2").write_text("trap '' TERM; sleep 60; sleep 60")
    stop = threading.Event()
    threading.Timer(0.7, stop.set).start()
    ended = run_command(f"sh {tmp_path / marker}", tmp_path, CommandLimits(), stop)
    assert ended.why == "it was stopped by the user"
    assert running(marker) == []
    left = f"setsid sh {marker}-2 > /dev/null 2>&1 & (sh {marker}-2 &) ; sleep 0.2; echo done"
    ended = run(tmp_path, left)
    assert (ended.output, ended.code) == (b"done\n", 0)
    assert running(marker) == []


def test_it_ends_where_whoever_started_it_is_killed(tmp_path: Path) -> None:
    marker = f"marker-{os.getpid()}-orphan"
    (tmp_path / marker).write_text("trap '' TERM HUP; touch begun; sleep 600; sleep 600")
    code = (
        "import pathlib, threading\n"
        "from localspec.toolbox.command import CommandLimits, run_command\n"
        f"run_command('sh {marker}', pathlib.Path({str(tmp_path)!r}), CommandLimits(), threading.Event())"
    )
    with subprocess.Popen([sys.executable, "-c", code]) as starter:
        assert until((tmp_path / "begun").exists)
        starter.kill()
    assert until(lambda: not running(marker)), running(marker)


def test_a_command_has_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = tmp_path / "begun"
    # Half a second has gone by once it has begun.
    clock = SimpleNamespace(monotonic=lambda: float(begun.exists()))
    monkeypatch.setattr("localspec.toolbox.command.time", clock)
    ended = run(tmp_path, "echo begun; touch begun; sleep 600", seconds=0.5)
    assert (ended.output, "after 0.5 s" in ended.why) == (b"begun\n", True)


def test_output_is_bounded_and_its_middle_left_out(tmp_path: Path) -> None:
    much = "echo first; head -c 1000000000 /dev/zero | tr '\\0' x"
    ended = run(tmp_path, much, output_bytes=4 << 20)
    assert "more than 4 MB" in ended.why
    assert ended.output.startswith(b"first\nxxx")
    assert b"bytes left out" in ended.output
    assert len(ended.output) < 20_000
    ended = run(tmp_path, "echo first; seq 1 100000; echo last", returned_bytes=1000)
    assert ended.output.startswith(b"first\n1\n2\n")
    assert ended.output.endswith(b"100000\nlast\n")
    assert len(ended.output) < 1100
    assert ended.code == 0


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="tasks are counted from /proc")
def test_processes_are_counted(tmp_path: Path) -> None:
    marker = f"marker-{os.getpid()}-many"
    many = tmp_path / f"{marker}.py"
    many.write_text(
        "import os, time\nfor _ in range(40):\n    if not os.fork():\n        os.setsid(); time.sleep(60); os._exit(0)\n"
        "time.sleep(60)\n"
    )
    ended = run(tmp_path, f"{PYTHON} {many}", processes=20, seconds=30)
    assert "too many processes" in ended.why
    assert running(marker) == []


def test_memory_and_files_are_bounded(tmp_path: Path) -> None:
    ended = run(tmp_path, "head -c 50000000 /dev/zero > big", file_bytes=1 << 20)
    assert ended.code != 0
    assert (tmp_path / "big").stat().st_size <= 1 << 20
    if sys.platform == "linux":  # other systems count other memory
        for code in ("x = b'x' * (1 << 29)", STACK):
            ended = run_code(tmp_path, code, memory_bytes=200 << 20)
            assert ended.code != 0, ended
        assert run_code(tmp_path, "x = b'x' * (1 << 25)", memory_bytes=200 << 20).code == 0


STACK = """
import resource
try:
    resource.setrlimit(resource.RLIMIT_STACK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
except ValueError:
    raise SystemExit(1)
"""
SHARED = """
import mmap, os, time
held = []
for _ in range(PARTS):
    part = mmap.mmap(-1, 16 << 20)
    if os.fork() == 0:
        time.sleep(60)
        os._exit(0)
    part.close()  # now only the child has it, and none of its pages
time.sleep(60)
"""


@on_linux
def test_shared_memory_is_bounded_in_all(tmp_path: Path) -> None:
    code = SHARED.replace("PARTS", "20")
    ended = run_code(tmp_path, code, memory_bytes=200 << 20, seconds=30)
    assert ended.why == "it was stopped: it took too much shared memory"
    few = "import mmap\nx = mmap.mmap(-1, 64 << 20)\nx[:9] = bytes(9)"
    assert run_code(tmp_path, few, memory_bytes=200 << 20).code == 0
    for name in ("memfd_create", "memfd_secret"):
        code = f"import ctypes, os\nprint(ctypes.CDLL(None).syscall({MEMFD[name]}, b'x', 0))"
        assert not landlock_version() or run_code(tmp_path, code).output == b"-1\n"


@on_linux
def test_the_disk_is_not_filled(tmp_path: Path) -> None:
    for command in (
        "while true; do fallocate -l 4000000 f$((n=n+1)); done",
        "while true; do head -c 4000000 /dev/zero > f$((n=n+1)); done",
    ):
        ended = run(tmp_path, command, disk_bytes=64 << 20, seconds=60)
        assert ended.why == "it was stopped: it took too much of the disk"
        for each in tmp_path.glob("f*"):
            each.unlink()


@on_linux
def test_half_of_what_is_free_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = SimpleNamespace(f_bavail=100, f_frsize=1 << 20, f_favail=0)
    monkeypatch.setattr(os, "statvfs", lambda _: free)
    few, half = confining._DiskRoom("/", 10 << 20), confining._DiskRoom("/", 1 << 40)
    seen = []
    for free.f_bavail in (90, 89, 50, 49):
        seen.append((few.is_used_up(), half.is_used_up()))
    assert seen == [(False, False), (True, False), (True, False), (True, True)]


def test_a_file_of_the_folder_is_not_imported(tmp_path: Path) -> None:
    """A project may have a `json.py`; what starts commands must not run it unconfined."""
    mark = tmp_path / "imported"
    for name in ("json.py", "ctypes.py", "os.py", "sitecustomize.py", "usercustomize.py"):
        (tmp_path / name).write_text(f"open({str(mark)!r}, 'w'); raise SystemExit(9)")
    assert run(tmp_path, "echo fine").output == b"fine\n"
    assert not mark.exists()


def test_escapes_of_a_program_are_taken_out() -> None:
    raw = b"\x1b[31mred\x1b[0m \x1b]0;title\x07 a\rb \x1b]52;c;eA==\x1b\\ \x9b31m \x08\x00 \xff\n"
    text = command_text(CommandEnded(raw, "", 0))
    assert all(each.isprintable() or each == "\n" for each in text)
    assert "title" not in text
    assert "52;c" not in text


def test_readable_is_everything_but_what_is_hidden(tmp_path: Path) -> None:
    for name in ("a/b/hidden", "a/shown", "c"):
        (tmp_path / name).mkdir(parents=True)
    start = str(tmp_path)
    assert list(readable([f"{start}/a/b/hidden"], start)) == [f"{start}/a/shown", f"{start}/c"]
    assert list(readable([], start)) == [start]


def test_confinement_is_named_and_a_profile_of_macos_quotes_names() -> None:
    text = profile(['/a "b'], ["/hidden"])
    assert '(allow file-write* (subpath "/a \\"b"))' in text
    assert "(deny network*)" in text
    name, holds = confinement()
    assert name.startswith("confined" if holds else "NOT confined")
