"""PeerServer: a llama-server process on a port of this machine. Knows HTTP, no modes and no ratios.

Source: `tools/server/README.md` of llama.cpp for `/health` and `/completion`.
"""

import http.client
import json
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, BinaryIO

from lab.ports import free_port
from localspec.decoding.cancel import Cancelled
from localspec.errors import LocalspecError
from localspec.storage.paths import shown

_HOST = "127.0.0.1"
_ANSWER_TIMEOUT_S = 600.0
_POLL_S = 0.1
_COMPLAINT = re.compile(r"error|invalid|fail|cannot|unable|couldn", re.IGNORECASE)


class PeerServer:
    """A server that is ready to answer; `close` ends it.

    Args:
        program: the binary.
        flags: what it is started with, beside its address.
        is_cancelled: asked while waiting.
        timeout_s: how long it may take to become ready.

    Raises:
        LocalspecError: it does not start; in one line, with its own last word where it has one.
        Cancelled: `is_cancelled` said so.
    """

    def __init__(
        self,
        program: Path,
        flags: Sequence[str],
        is_cancelled: Callable[[], bool] = lambda: False,
        timeout_s: float = 300.0,
    ) -> None:
        self._program = program
        self._is_cancelled = is_cancelled
        self._port = free_port()
        self._log: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`
        command = [str(program), "--host", _HOST, "--port", str(self._port), *flags]
        try:
            # In a session of its own, as our engine is: Linux shares the cores out among sessions.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                start_new_session=True,
            )
        except OSError as error:
            self._log.close()
            raise LocalspecError(
                f"llama-server {shown(program)} does not start ({error.strerror or error}): "
                "give the path of an executable file"
            ) from None
        try:
            self._wait(time.monotonic() + timeout_s, timeout_s)
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    @property
    def pids(self) -> list[int]:
        """All its processes."""
        return [self.pid]

    @property
    def address(self) -> str:
        """Where it is asked, as a URL."""
        return f"http://{_HOST}:{self._port}"

    def complete(self, request: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Send a `/completion` request and yield what the server streams, the last with `stop`.

        Raises:
            LocalspecError: the server refuses, breaks off, or ended.
            Cancelled: `is_cancelled` said so.
        """
        with closing(
            http.client.HTTPConnection(_HOST, self._port, timeout=_ANSWER_TIMEOUT_S)
        ) as to:
            try:
                body = json.dumps({**request, "stream": True})
                to.request("POST", "/completion", body, {"Content-Type": "application/json"})
                response = to.getresponse()
                if response.status != http.HTTPStatus.OK:
                    raise self._failed(response.read(2000).decode(errors="replace"))
                chunk: dict[str, Any] = {}
                for line in response:
                    if self._is_cancelled():
                        raise Cancelled
                    if line.startswith(b"data: {"):
                        yield (chunk := json.loads(line[6:]))
                    elif line.startswith(b"error: "):
                        raise self._failed(line.decode(errors="replace"))
                if not chunk.get("stop"):
                    raise self._broken_off("it ended an answer without saying so")
            except (OSError, http.client.HTTPException, ValueError) as error:
                raise self._broken_off(str(error)) from None

    def close(self) -> None:
        """End the process; closing twice is harmless."""
        self._process.terminate()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()

    def _wait(self, deadline: float, timeout_s: float) -> None:
        while time.monotonic() < deadline:
            if self._is_cancelled():
                raise Cancelled
            if (code := self._process.poll()) is not None:
                said = self._last_word() or f"exit code {code}"
                raise LocalspecError(
                    f"llama-server {shown(self._program)} ended while it started ({said}): "
                    "check that it is llama-server and as new as this program's llama.cpp"
                )
            if self._is_healthy():
                return
            time.sleep(_POLL_S)
        raise LocalspecError(
            f"llama-server {shown(self._program)} was not ready after {timeout_s:.0f} s "
            f"({self._last_word() or 'it said nothing'}): try a smaller model"
        )

    def _is_healthy(self) -> bool:
        with closing(http.client.HTTPConnection(_HOST, self._port, timeout=2)) as to:
            try:
                to.request("GET", "/health")
                return to.getresponse().status == http.HTTPStatus.OK
            except (OSError, http.client.HTTPException):
                return False

    def _broken_off(self, said: str) -> LocalspecError | Cancelled:
        """Return why no more arrives: whoever cancels may have ended the server first."""
        time.sleep(_POLL_S)
        if self._is_cancelled():
            return Cancelled()
        return self._failed(f"{said}; its last word: {self._last_word() or 'none'}")

    def _failed(self, said: str) -> LocalspecError:
        return LocalspecError(
            f"llama-server broke off ({' '.join(said.split())[:300]}): try it by itself"
        )

    def _last_word(self) -> str:
        """Return the last line that it complained with, or else the last it said."""
        if self._log.closed:
            return ""
        self._log.seek(0)
        text = self._log.read()[-20_000:].decode(errors="replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        complaints = [line for line in lines if _COMPLAINT.search(line)]
        return (complaints or lines or [""])[-1][:300]
