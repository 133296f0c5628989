"""ServeProcess: `localspec serve` in a process of its own, on a port that is free; and what a process holds and uses."""

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

_READY = re.compile(r"serving .* at (http://\S+)/v1")
_POLL_S = 0.1
_TICKS = os.sysconf("SC_CLK_TCK")


def status(pid: int) -> dict[str, int]:
    """Return what a process holds: kilobytes resident and of its own, threads, descriptors."""
    text = Path(f"/proc/{pid}/status").read_text()
    named = dict(line.split(":", 1) for line in text.splitlines())
    return {
        "rss_kb": int(named["VmRSS"].split()[0]),
        "anon_kb": int(named["RssAnon"].split()[0]),
        "threads": int(named["Threads"]),
        "fds": len(list(Path(f"/proc/{pid}/fd").iterdir())),
    }


def cpu_s(pid: int) -> float:
    """Return the CPU seconds that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


class ServeProcess:
    """A server that is ready to answer; `close` ends it.

    Args:
        arguments: what follows `localspec serve`, beside its port.
        environment: of the process; None is this one's.
        timeout_s: how long it may take to become ready.

    Raises:
        RuntimeError: it does not start; with what it said.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str] | None = None,
        timeout_s: float = 600.0,
    ) -> None:
        self._log: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`
        self._process = subprocess.Popen(
            [sys.executable, "-m", "localspec", "serve", *arguments, "--port", "0"],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            env=environment,
        )
        end_s = time.monotonic() + timeout_s
        while (found := _READY.search(self.said)) is None:
            if self._process.poll() is not None or time.monotonic() > end_s:
                said = self.said.strip()
                self.close()
                raise RuntimeError(f"the server does not start: {said}")
            time.sleep(_POLL_S)
        self.address = found[1]

    @property
    def said(self) -> str:
        """What it printed so far."""
        self._log.seek(0)
        return self._log.read().decode(errors="replace")

    @property
    def pids(self) -> list[int]:
        """The server's process, and the engine's where it runs."""
        pid = self._process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [pid, *map(int, children)]

    def close(self) -> None:
        """End it as Ctrl-C does; by force if that takes long."""
        self._process.terminate()
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()
