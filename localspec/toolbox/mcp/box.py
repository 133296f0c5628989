"""McpToolbox: the tools of MCP servers as a toolbox. An event loop in a thread of its own speaks with all of them."""

import asyncio
import atexit
import json
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, wait
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING

from localspec.calls import Tool
from localspec.display import printable, printable_line
from localspec.errors import UsageError
from localspec.messages import ToolCall, ToolResult
from localspec.toolbox.mcp.offers import Names, OfferedTool
from localspec.toolbox.mcp.servers import McpServer
from localspec.toolbox.toolbox import Access, Proposal

if TYPE_CHECKING:
    from localspec.toolbox.mcp.connection import Connection

_LOOK_S = 0.05
_END_S = 8.0
_SHOWN = 100
_LOGGERS = ("mcp", "client", "httpx2")
"""Of the package, which says on stderr what goes wrong where nobody listens."""


class McpToolbox:
    """The tools of servers, each server's as soon as it has listed them, until it is gone.

    Args:
        servers: to start.
        notify: is told sentences that the user should read, from a thread of its own.
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
        require_package()
        self._servers = [each for each in servers if not (offline and each.url)]
        for each in servers:
            if each not in self._servers:
                notify(
                    f"MCP server {each.name} is left out: it is on the network, and localspec is offline"
                )
        self._notify = notify
        self._connections: Sequence[Connection] = ()
        self._tasks: Sequence[asyncio.Task[None]] = ()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._begun = threading.Event()
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
        found = self._found(call.name)
        if found is None:
            text = f"no MCP server offers {printable_line(call.name)[:_SHOWN]!r} now"
            return Proposal(Access.RUN, text, error=text)
        connection, offer = found
        server = connection.server
        access = Access.READ if server.trust_hints and offer.only_reads else Access.RUN
        try:
            arguments = offer.tool.parse(call.arguments)
        except UsageError as error:
            return Proposal(access, f"{call.name}, which cannot be called", error=str(error))
        summary = f"{call.name} of the MCP server {server.name}"
        shown = json.dumps(arguments, ensure_ascii=False, indent=2)
        return Proposal(access, summary, printable(shown, "\n") if arguments else "")

    def call(self, call: ToolCall, stop: threading.Event) -> ToolResult:
        """Call a tool of a server; see `Toolbox`. A call that is stopped may go on in a server that does not listen."""
        found = self._found(call.name)
        error = self.propose(call).error
        if found is None or error:
            return ToolResult(call.id, error or "", is_error=True)
        connection, offer = found
        arguments = offer.tool.parse(call.arguments)
        assert self._loop is not None, "there are connections"  # noqa: S101
        coroutine = connection.call(offer, arguments)
        try:
            future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError:  # the loop is closed
            coroutine.close()
            return ToolResult(call.id, "the MCP servers are ended", is_error=True)
        while not wait([future], _LOOK_S).done:
            if stop.is_set():
                future.cancel()
                return ToolResult(call.id, "stopped by the user", is_error=True)
        try:
            text, is_error = future.result()
        except CancelledError:
            text, is_error = "the MCP servers are ended", True
        return ToolResult(call.id, text, is_error)

    def close(self) -> None:
        """End the servers, and all that they started."""
        atexit.unregister(self.close)
        self._begun.wait(_END_S)
        if self._loop is not None:
            with suppress(RuntimeError):  # it is closed: all servers are gone
                self._loop.call_soon_threadsafe(self._cancel)
        self._thread.join(_END_S)

    def _found(self, name: str) -> "tuple[Connection, OfferedTool] | None":
        for connection in self._connections:
            offer = connection.offers.get(name)
            if offer is not None:
                return connection, offer
        return None

    def _cancel(self) -> None:
        for each in self._tasks:
            each.cancel()

    def _work(self) -> None:
        for each in _LOGGERS:
            logging.getLogger(each).addHandler(logging.NullHandler())
        try:
            asyncio.run(self._follow())
        finally:
            self._begun.set()

    async def _follow(self) -> None:
        from localspec.toolbox.mcp.connection import Connection  # noqa: PLC0415 - `mcp` takes a while

        names = Names()
        self._loop = asyncio.get_running_loop()
        connections = [Connection(each, names, self._notify) for each in self._servers]
        self._tasks = [asyncio.create_task(each.run()) for each in connections]
        self._connections = connections
        self._begun.set()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def require_package() -> None:
    """Raise UsageError where `mcp` is not installed."""
    if find_spec("mcp") is None:
        raise UsageError(
            "MCP needs the package mcp, which is not installed: run `pip install 'mcp>=2.3,<3'` where localspec is"
            " (with pipx: `pipx inject localspec 'mcp>=2.3,<3'`)"
        )
