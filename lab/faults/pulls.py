"""`pull` against a hub on the loopback: frozen, on a full disk, with little memory, by a wrong clock."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from lab.faults.ground import PATIENCE, ROOT, Ground, patiently
from lab.faults.limits import Limits
from lab.faults.trial import trial
from tests.models.loopback_hub import loopback_hub
from tests.models.toy_machine import Ended, ToyMachine

_DATA = bytes(range(250)) * 8000  # 2 MB


@contextmanager
def _machine(ground: Ground) -> Iterator[ToyMachine]:
    """Offer a model on a hub; see that the store then holds only whole files, and that the next pull completes."""
    folder = ground.folder / "toy"
    folder.mkdir()
    with loopback_hub(with_storage=True) as hub:
        machine = ToyMachine(folder, hub)
        machine.offer("toy", _DATA)
        yield machine
        machine.assert_only_verified()
        done = machine.run("pull", "toy")
        assert done.code == 0, done.err
        machine.assert_only_verified()
        assert machine.partials == []
        assert len(machine.blobs) == 1


def _complaint(ended: Ended) -> str:
    assert ended.code > 0, ended.err
    assert "Traceback" not in ended.err
    assert "bug in localspec" not in ended.err
    lines = [
        line for line in ended.err.splitlines() if not line.startswith("localspec: downloading")
    ]
    assert len(lines) == 1, ended.err
    return lines[0]


@trial("pull", "another one of its file is frozen")
def another_is_frozen(ground: Ground, _: Random) -> str:
    with _machine(ground) as machine:
        hub = machine.hub
        hub.pause_s = 0.01
        with _killed_at_the_end(machine.start("pull", "toy")) as frozen:
            while hub.sent_bytes < len(_DATA) // 4:
                time.sleep(0.005)
            frozen.send_signal(signal.SIGSTOP)
            with _killed_at_the_end(machine.start("pull", "toy")) as waiting:
                _until_it_waits(waiting)
                time.sleep(0.5)
                assert waiting.poll() is None, "it waits for the one that has the file"
                waiting.send_signal(signal.SIGINT)
                patiently(waiting)
                assert waiting.returncode == 130
            with _killed_at_the_end(machine.start("pull", "toy")) as heir:
                _until_it_waits(heir)
                frozen.kill()
                frozen.communicate()
                told = patiently(heir)[1]
                assert heir.returncode == 0, told
        # What the frozen one did not take is in the system's buffers, and lost with it.
        assert hub.sent_bytes <= 2.05 * len(_DATA)
    return "it waits; Ctrl-C ends it (130)"


@contextmanager
def _killed_at_the_end(process: "subprocess.Popen[bytes]") -> Iterator["subprocess.Popen[bytes]"]:
    """Kill a process that is left, frozen or not: nobody would ever end it."""
    with process:
        try:
            yield process
        finally:
            process.kill()


def _until_it_waits(process: "subprocess.Popen[bytes]") -> None:
    """Wait until a process sleeps between two looks at a lock; nothing before that does."""
    for _ in range(PATIENCE):
        if "nanosleep" in Path(f"/proc/{process.pid}/wchan").read_text():
            return
        assert process.poll() is None, "it ended"
        time.sleep(0.02)
    raise AssertionError("it does not wait for the lock")


def _run_limited(machine: ToyMachine, limits: Limits, **variables: str) -> Ended:
    with subprocess.Popen(
        limits.command([sys.executable, "-m", "tests.models.pull_toy", "pull", "toy"]),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=machine._environment(variables),
        cwd=ROOT,
    ) as process:
        out, err = patiently(process)
    return Ended(process.returncode, out.decode(), err.decode())


@trial("pull", "the disk is full", short=True)
def full_disk(ground: Ground, chance: Random) -> str:
    with _machine(ground) as machine:
        room = chance.choice([0, 100, 70_000, 1 << 20])
        told = _complaint(_run_limited(machine, Limits(file_bytes=room)))
        assert machine.blobs == []
    return told


@trial("pull", "the data directory can only be read", short=True)
def read_only(ground: Ground, _: Random) -> str:
    with _machine(ground) as machine:
        machine.data.chmod(0o500)
        told = _complaint(_run_limited(machine, Limits(ordinary=True)))
        machine.data.chmod(0o700)
    return told


@trial("pull", "60 to 200 MB of address space")
def without_memory(ground: Ground, chance: Random) -> str:
    with _machine(ground) as machine:
        limits = Limits(memory_bytes=chance.randint(60, 200) << 20)
        ended = _run_limited(machine, limits)
        return "" if ended.code == 0 else _complaint(ended)


@trial("pull", "a wall clock that is wrong, or jumps")
def wrong_clock(ground: Ground, chance: Random) -> str:
    with _machine(ground) as machine:
        ended = _run_limited(machine, Limits(), **ground.wrong_clock(chance))
        assert ended.code == 0, ended.err
    return ""
