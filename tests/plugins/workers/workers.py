"""Workers to compute on: `localspec worker` on this machine, under a port that can be had again."""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

import pytest

from lab.ports import free_port
from tests.cli.command import started
from tests.waiting import PATIENCE_S

SMALL = ("--threads", "1")
_HAS_RPC = (
    "from localspec.plugins.workers.rpc import has_rpc; raise SystemExit(0 if has_rpc() else 1)"
)


@cache
def require_rpc() -> None:
    if subprocess.run([sys.executable, "-c", _HAS_RPC], check=False).returncode:
        pytest.skip("this build of llama-cpp-python has no RPC")


@dataclass(frozen=True, slots=True, eq=False)
class RunningWorker:
    process: subprocess.Popen[bytes]
    address: str

    def kill(self) -> None:
        """End it as a machine ends that loses power, but for its kernel, which hangs up."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(PATIENCE_S)


def free_address() -> str:
    return f"127.0.0.1:{free_port()}"


@contextmanager
def working(*words: str, at: str = "127.0.0.1:0") -> Iterator[RunningWorker]:
    """Serve this machine's CPU; killed if it outlives the test."""
    require_rpc()
    with started("worker", "--listen", at, *SMALL, *words) as process:
        told = process.stderr.readline().decode()
        found = re.search(r"serving .* at (127\.0\.0\.1:\d+); Ctrl-C stops it$", told)
        assert found, told + process.stderr.read().decode()
        yield RunningWorker(process, found[1])
