"""McpToolbox: the tools of MCP servers as a toolbox. An event loop in a thread of its own speaks with all of them."""

import asyncio
import atexit
import json
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, wait
from contextlib import suppress
from typing import TYPE_CHECKING

from localspec.calls import Tool
from localspec.display import printable, printable_line
from localspec.errors import UsageError, require_mcp
from localspec.messages import ToolCall, ToolResult
from localspec.toolbox.mcp.offers import Names, OfferedTool
from localspec.toolbox.mcp.servers import McpServer
from localspec.toolbox.toolbox import Access, Proposal

if TYPE_CHECKING:
    from localspec.toolbox.mcp.connection import Connection

_LOOK_S = 0.05
_END_S = 8.0
_MOST_CHARS = 100
_LOGGERS = ("mcp", "client", "httpx2")
"""Of the package; without a handler they write to stderr."""


class McpToolbox:
    """The tools of servers, each server's as soon as it has listed them, until it is gone.

    Args:
        servers: to start.
        notify: takes sentences that the user should read, in a thread of its own.
        offline: leave out servers over HTTP. What the others do in the network is their own affair.

    Raises:
        UsageError: the package `mcp` is not installed.
    """

    def __init__(
        self,
        servers: Sequence[McpServer],
        notify: Callable[[str], None] = lambda _: None,
        *,
        offline: bool = False,
    ) -> None:
        require_mcp()
        for each in servers:
            if offline and each.url:
                notify(
                    f"MCP server {each.name} is left out: it is on the network, and localspec is offline"
                )
        self._servers = [each for each in servers if not (offline and each.url)]
        self._notify = notify
        self._connections: Sequence[Connection] = ()
        self._begun = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._main: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._work, daemon=True, name="localspec-mcp")
        self._thread.start()
        atexit.register(self.close)  # for those who never come to use it

    def ready(self, stop: threading.Event | None = None) -> None:
        """Wait until every server has listed its tools or is given up, or until `stop` is set."""
        stop = threading.Event() if stop is None else stop
        while not stop.is_set() and not self._begun.wait(_LOOK_S):
            pass
        for each in self._connections:
            while not stop.is_set() and not each.settled.wait(_LOOK_S):
                pass

    @property
    def tools(self) -> Sequence[Tool]:
        """What can be called now."""
        return [each.tool for one in self._connections for each in one.offers.values()]

    def propose(self, call: ToolCall) -> Proposal:
        """Return what a call would do, as far as that is known; see `Toolbox`."""
        access = Access.RUN
        try:
            connection, offer = self._offer(call.name)
            server = connection.server
            access = Access.READ if server.trust_hints and offer.only_reads else Access.RUN
            arguments = offer.tool.parse(call.arguments)
        except UsageError as error:
            name = printable_line(call.name)[:_MOST_CHARS]
            return Proposal(access, f"{name}, which cannot be called", error=str(error))
        text = json.dumps(arguments, ensure_ascii=False, indent=2) if arguments else ""
        summary = f"{call.name} of the MCP server {server.name}"
        return Proposal(access, summary, printable(text, "\n"))

    def call(self, call: ToolCall, stop: threading.Event) -> ToolResult:
        """Call a tool of a server; see `Toolbox`. A call that is stopped may go on in a server that does not listen."""
        try:
            connection, offer = self._offer(call.name)
            arguments = offer.tool.parse(call.arguments)
        except UsageError as error:
            return ToolResult(call.id, str(error), is_error=True)
        future = asyncio.run_coroutine_threadsafe(connection.call(offer, arguments), self._loop)
        while not wait([future], _LOOK_S).done:
            if stop.is_set():
                future.cancel()
                return ToolResult(call.id, "stopped by the user", is_error=True)
        try:
            return ToolResult(call.id, *future.result())
        except CancelledError:
            return ToolResult(call.id, "the MCP servers are ended", is_error=True)

    def close(self) -> None:
        """End the servers, and all that they started."""
        atexit.unregister(self.close)
        self._begun.wait(_END_S)
        if self._main is not None:
            with suppress(RuntimeError):  # the loop is closed: all servers are gone
                self._loop.call_soon_threadsafe(self._main.cancel)
        self._thread.join(_END_S)

    def _offer(self, name: str) -> "tuple[Connection, OfferedTool]":
        for connection in self._connections:
            if offer := connection.offers.get(name):
                return connection, offer
        raise UsageError(f"no MCP server offers {printable_line(name)[:_MOST_CHARS]!r} now")

    def _work(self) -> None:
        for each in _LOGGERS:
            logging.getLogger(each).addHandler(logging.NullHandler())
        try:
            with (
                suppress(asyncio.CancelledError),
                asyncio.Runner(loop_factory=lambda: self._loop) as runner,
            ):
                runner.run(self._follow())
        finally:
            self._begun.set()

    async def _follow(self) -> None:
        from localspec.toolbox.mcp.connection import Connection  # noqa: PLC0415 - `mcp` takes a while

        self._main, names = asyncio.current_task(), Names()
        self._connections = [Connection(each, names, self._notify) for each in self._servers]
        runs = [each.run() for each in self._connections]
        self._begun.set()
        await asyncio.gather(*runs, return_exceptions=True)
