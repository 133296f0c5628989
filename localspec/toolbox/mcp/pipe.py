"""Pipe: a server's process, and messages over its stdin and stdout, a line each. Bounds what comes; ends its whole group.

In place of the package's own: that one keeps a line in memory however long it is, and lets stderr through.
"""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import anyio
import mcp_types
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage

from localspec.display import printable_line
from localspec.toolbox.mcp.allowance import FLOODS, MOST_MESSAGE, Allowance, Flood
from localspec.toolbox.mcp.servers import McpServer

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

    Streams = tuple[
        MemoryObjectReceiveStream[SessionMessage | Exception],
        MemoryObjectSendStream[SessionMessage],
    ]

_READ = 64 << 10
_LAST_WORDS = 2_000
_SHOWN = 200
_GRACE_S = 1.0
"""How long a server may take to end by itself, and once more when it is told to."""
_LOOK_S = 0.01


@asynccontextmanager
async def pipe(server: McpServer, gone: Callable[[str], None]) -> AsyncIterator["Streams"]:
    """Start a server and yield the streams of its messages; in the end it is ended, with all that it started.

    Args:
        server: has a command.
        gone: is told why there is nothing more to come: the rest of a sentence about the server.

    Raises:
        OSError: it cannot be started.
        ValueError: likewise; there is a NUL in its command.
    """
    process = await asyncio.create_subprocess_exec(
        *server.command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=MOST_MESSAGE,
        env={**get_default_environment(), **server.env},
        cwd=server.folder,
        start_new_session=True,
    )
    to_session, from_server = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    to_server, from_session = anyio.create_memory_object_stream[SessionMessage](0)
    ends = (to_session, from_server, to_server, from_session)
    spoken = _Spoken(process, gone)
    tasks = [
        asyncio.create_task(spoken.read(to_session)),
        asyncio.create_task(spoken.read_stderr()),
        asyncio.create_task(spoken.write(from_session)),
    ]
    try:
        yield from_server, to_server
    finally:
        spoken.is_over = True
        try:
            await _ended(process)
        finally:
            _signal(process, signal.SIGKILL)  # whatever happens, and what is left of its group
            _close(process)
            for task in tasks:
                task.cancel()
            for end in ends:
                end.close()
            await asyncio.gather(*tasks, return_exceptions=True)


class _Spoken:
    """What a server and its client say to each other."""

    def __init__(self, process: asyncio.subprocess.Process, gone: Callable[[str], None]) -> None:
        self.is_over = False
        self._process = process
        self._gone = gone
        self._last_words = b""
        self._allowance = Allowance()

    async def read(self, to_session: "MemoryObjectSendStream[SessionMessage | Exception]") -> None:
        """Hand on messages until there are no more."""
        stdout = self._process.stdout
        assert stdout is not None  # noqa: S101 - it is a pipe
        reason = ""
        try:
            while line := await stdout.readline():
                self._allowance.take(len(line), 1)
                try:
                    message = mcp_types.jsonrpc_message_adapter.validate_json(line, by_name=False)
                except ValueError:  # many print a banner
                    continue
                await to_session.send(SessionMessage(message))
        except Flood:
            reason = FLOODS
        except ValueError:
            reason = f"sent a message of more than {MOST_MESSAGE >> 20} MB"
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            pass
        await self._end(reason)
        to_session.close()

    async def read_stderr(self) -> None:
        """Keep its last words of stderr, and show them to nobody; it may have to say why it ends."""
        stderr = self._process.stderr
        assert stderr is not None  # noqa: S101 - it is a pipe
        try:
            while piece := await stderr.read(_READ):
                self._last_words = (self._last_words + piece)[-_LAST_WORDS:]
                self._allowance.take(len(piece))
        except Flood:
            await self._end(FLOODS)

    async def write(self, from_session: "MemoryObjectReceiveStream[SessionMessage]") -> None:
        """Hand on what the session says."""
        stdin = self._process.stdin
        assert stdin is not None  # noqa: S101 - it is a pipe
        with suppress(OSError, anyio.ClosedResourceError):
            async for each in from_session:
                text = each.message.model_dump_json(by_alias=True, exclude_unset=True)
                stdin.write(f"{text}\n".encode())
                await stdin.drain()

    async def _end(self, reason: str) -> None:
        """Tell why it is over, once; a server that is at fault is killed."""
        if self.is_over:
            return
        self.is_over = True
        if reason:
            _signal(self._process, signal.SIGKILL)
        else:
            await _exited(self._process, _GRACE_S)
            await asyncio.sleep(_LOOK_S)  # its last words come by another pipe
            code = self._process.returncode
            reason = "closed its output" if code is None else _ending(code)
        lines = self._last_words.decode(errors="replace").split("\n")
        words = next((text for each in reversed(lines) if (text := printable_line(each))), "")
        self._gone(f"{reason}; it said: {words[:_SHOWN]}" if words else reason)


def _ending(code: int) -> str:
    return f"ended with code {code}" if code >= 0 else f"was ended by signal {-code}"


async def _ended(process: asyncio.subprocess.Process) -> None:
    """End a process: by the end of its input, by a signal, and by force."""
    if process.stdin is not None:
        process.stdin.close()
    if await _exited(process, _GRACE_S):
        return
    _signal(process, signal.SIGTERM)
    if await _exited(process, _GRACE_S):
        return
    _signal(process, signal.SIGKILL)
    await _exited(process, _GRACE_S)


async def _exited(process: asyncio.subprocess.Process, within_s: float) -> bool:
    """Say whether a process ends in time. `wait` would wait for its children, too, which may have its pipes."""
    until_s = time.monotonic() + within_s
    while process.returncode is None and time.monotonic() < until_s:
        await asyncio.sleep(_LOOK_S)
    return process.returncode is not None


def _close(process: asyncio.subprocess.Process) -> None:
    """Close the pipes, of which one that was not read to its end stays open; asyncio has no public way."""
    transport = getattr(process, "_transport", None)
    if transport is not None:
        with suppress(PermissionError):  # a program of another user, which Python would kill again
            transport.close()


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    """Send a signal to a process and all that it started, as far as that is in its group."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
