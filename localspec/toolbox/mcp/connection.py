"""Connection: one server on an event loop: what it offers now, and calls of that. Nothing of it raises to its owner.

A server that does not answer, says too much or dies costs its tools: `offers` is empty from then on. It is not started again.
"""

import asyncio
import threading
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any

import mcp_types as types
from mcp.client import Client
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from localspec import __version__
from localspec.calls import Tool
from localspec.display import printable_line
from localspec.toolbox.mcp.content import bounded, text_of_resource, text_of_result
from localspec.toolbox.mcp.offers import Listed, Names, OfferedTool, offers_of
from localspec.toolbox.mcp.pipe import pipe
from localspec.toolbox.mcp.servers import McpServer
from localspec.toolbox.mcp.web import web

START_S = 30.0
"""How long a server may take until its tools are known; some are downloaded first."""
_SETTLE_S = 0.2
_MOST_PAGES = 20
_MOST_LISTED = 1_000
_MOST_CHANGES = 20
"""So often a server may change its tools; each time a user may have to allow them anew."""
_MOST_NOTES = 3
_MOST_RESOURCES = 12
_SHOWN = 300


class _LostError(Exception):
    """The connection is over; the text is the rest of a sentence about the server."""


class Connection:
    """A server that is started, listed and called.

    Args:
        server: which.
        names: of all servers' tools.
        notify: is told sentences that the user should read, on the loop's thread.
    """

    def __init__(self, server: McpServer, names: Names, notify: Callable[[str], None]) -> None:
        self.server = server
        self.offers: Mapping[str, OfferedTool] = {}
        self.settled = threading.Event()
        self._names = names
        self._notify = notify
        self._client: Client | None = None
        self._gone = ""
        self._changed = False
        self._woken = asyncio.Event()

    async def run(self) -> None:
        """Start the server and follow it until it is gone; cancelling this ends it."""
        try:
            await self._run()
        except Exception as error:  # of a library that a stranger's program speaks to
            self._say(f"{self._gone or _reason(error)}; its tools are off")
        finally:
            self.offers, self._client = {}, None
            self.settled.set()

    async def call(self, offer: OfferedTool, arguments: Mapping[str, Any]) -> tuple[str, bool]:
        """Call a tool, or read a resource; return what came of it, and whether that is an error.

        Cancelling this tells the server so.
        """
        client, within_s = self._client, self.server.timeout_s
        if client is None:
            return f"the MCP server {self.server.name} is gone", True
        try:
            async with asyncio.timeout(within_s):
                if offer.is_resource:
                    uri = str(arguments.get("uri", ""))
                    return text_of_resource(await client.session.read_resource(uri)), False
                # Not `call_tool`, which has a schema of the server's check what the server sends:
                # its regular expressions may take for ever, and hold the whole program meanwhile.
                result = await client.session.send_request(
                    types.CallToolRequest(
                        params=types.CallToolRequestParams(
                            name=offer.own_name, arguments=dict(arguments)
                        )
                    ),
                    types.CallToolResult,
                )
                return text_of_result(result), result.is_error
        except TimeoutError:
            return f"no answer within {within_s:g} s", True
        except Exception as error:  # as above
            return bounded(self._gone or _reason(error)), True

    async def _run(self) -> None:
        transport = (web if self.server.url else pipe)(self.server, self._lose)
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(START_S):
                    client = await stack.enter_async_context(
                        Client(
                            transport,
                            client_info=types.Implementation(name="localspec", version=__version__),
                            message_handler=self._hear,
                            cache=None,
                        )
                    )
                    await self._list(client)
            except TimeoutError:
                raise _LostError(f"did not answer within {START_S:g} s") from None
            self._client = client
            self.settled.set()
            listening = asyncio.create_task(self._listen(client))
            try:
                await self._follow(client)
            finally:
                listening.cancel()
                await asyncio.gather(listening, return_exceptions=True)

    async def _follow(self, client: Client) -> None:
        changes = 0
        while True:
            await self._woken.wait()
            self._woken.clear()
            if self._gone:
                raise _LostError(self._gone)
            changes += 1
            if changes > _MOST_CHANGES:
                raise _LostError(f"changed its tools more than {_MOST_CHANGES} times")
            await asyncio.sleep(_SETTLE_S)  # several changes may be one
            self._changed = False
            try:
                async with asyncio.timeout(START_S):
                    await self._list(client, again=True)
            except TimeoutError:
                raise _LostError(f"did not list its tools within {START_S:g} s") from None

    async def _listen(self, client: Client) -> None:
        """Ask to be told of changes, which servers of 2026 do not tell unasked."""
        tools = client.server_capabilities.tools
        if client.session.discover_result is None or tools is None or not tools.list_changed:
            return
        async with client.listen(tools_list_changed=True) as events:
            async for _ in events:
                self._change()

    async def _hear(self, message: object) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._change()

    def _change(self) -> None:
        if not self._changed:
            self._changed = True
            self._woken.set()

    def _lose(self, reason: str) -> None:
        self._gone = self._gone or reason
        self._woken.set()

    async def _list(self, client: Client, *, again: bool = False) -> None:
        """Take what the server offers in place of what it offered before."""
        capabilities, before = client.server_capabilities, self.offers
        listed = await self._tools(client) if capabilities.tools is not None else []
        offers, notes = await asyncio.to_thread(
            offers_of, self.server.name, listed, self._names, self.server.tools
        )
        if capabilities.resources is not None and self.server.tools is None:
            offers |= await self._resources(client)
        self.offers = offers
        if again and offers.keys() != before.keys():
            new = ", ".join(offers.keys() - before.keys()) or "none new"
            self._say(
                f"changed its tools ({new[:_SHOWN]}): what was allowed of the old ones is asked again"
            )
        for note in notes[:_MOST_NOTES]:
            self._say(note)
        if len(notes) > _MOST_NOTES:
            self._say(f"{len(notes) - _MOST_NOTES} more of its tools are left out")

    async def _tools(self, client: Client) -> list[Listed]:
        found: list[Listed] = []
        cursor: str | None = None
        for _ in range(_MOST_PAGES):
            page = await client.session.list_tools(
                params=types.PaginatedRequestParams(cursor=cursor)
            )
            found += [
                Listed(
                    each.name,
                    each.description or "",
                    each.input_schema,
                    each.annotations is not None and each.annotations.read_only_hint is True,
                )
                for each in page.tools
            ]
            cursor = page.next_cursor
            if not cursor or len(found) > _MOST_LISTED:
                break
        return found

    async def _resources(self, client: Client) -> dict[str, OfferedTool]:
        """Return a tool that reads the server's resources, of which its description names the first."""
        page = await client.session.list_resources()
        if not page.resources:
            return {}
        named = [f"{each.uri} ({each.name})"[:_SHOWN] for each in page.resources[:_MOST_RESOURCES]]
        about = f"Read a resource of {self.server.name}, such as {', '.join(named)}"
        parameters = {
            "type": "object",
            "properties": {"uri": {"type": "string"}},
            "required": ["uri"],
        }
        description = printable_line(about)
        name = self._names.of(self.server.name, "read_resource", description)
        tool = Tool(name, parameters, description)
        return {name: OfferedTool(tool, "read_resource", only_reads=True, is_resource=True)}

    def _say(self, text: str) -> None:
        self._notify(f"MCP server {self.server.name}: {printable_line(text)[:_SHOWN]}")


def _reason(error: BaseException) -> str:
    """Return why something failed, as the rest of a sentence."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    match error:
        case _LostError():
            return str(error)
        case OSError():
            return f"cannot be started or reached ({error.strerror or error})"
        case MCPError():
            return f"answered with an error: {error.error.message}"
        case ValidationError():
            return "sent what is not MCP"
    return f"failed ({type(error).__name__}: {error})"
