"""ServerProcess: a server in a process of its own, localspec's or llama-server; and what a process holds."""

import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

from localspec.errors import LocalspecError
from localspec.storage.paths import shown

_POLL_S, _END_S = 0.1, 30.0


def status(pid: int) -> dict[str, int]:
    """Return the kilobytes that a process holds in memory, and its descriptors."""
    text = Path(f"/proc/{pid}/status").read_text()
    named = dict(line.split(":", 1) for line in text.splitlines())
    descriptors = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    return {"rss_kb": int(named["VmRSS"].split()[0]), "fds": descriptors}


class ServerProcess:
    """A server that is ready to answer; `close` ends it, and closing twice is harmless.

    Args:
        command: what starts it, the program first.
        find_address: returns where it answers, given what it has printed; None while it is not ready.
        timeout_s: how long it may take to become ready.

    Raises:
        LocalspecError: it does not start; with the last line of its log.
    """

    def __init__(
        self,
        command: Sequence[str],
        find_address: Callable[[str], str | None],
        timeout_s: float = 600.0,
    ) -> None:
        self._log: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`
        log = {"stdin": subprocess.DEVNULL, "stdout": self._log, "stderr": self._log}
        refusal = f"{Path(command[0]).name} {shown(Path(command[0]))} does not start"
        try:
            # In a session of its own, as our engine is: Linux shares the cores out among sessions.
            self.process = subprocess.Popen(command, start_new_session=True, **log)  # type: ignore[call-overload]
        except OSError as error:
            self._log.close()
            raise LocalspecError(f"{refusal}: {error}") from None
        end_s = time.monotonic() + timeout_s
        while (address := find_address(self._printed())) is None:
            if self.process.poll() is not None or time.monotonic() > end_s:
                last = self.last_line()
                self.close()
                raise LocalspecError(f"{refusal}: {last}")
            time.sleep(_POLL_S)
        self.address = address

    def close(self) -> None:
        """End it as Ctrl-C does; by force if that takes long."""
        self.process.terminate()
        try:
            self.process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._log.close()

    def last_line(self) -> str:
        """Return the last line that it printed."""
        lines = self._printed()[-20_000:].split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "no message")[:300]

    def _printed(self) -> str:
        self._log.seek(0)
        return self._log.read().decode(errors="replace")
