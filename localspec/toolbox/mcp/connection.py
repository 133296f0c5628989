"""Connection: one server on an event loop: what it offers now, and calls of that. Nothing of it raises to its owner.

A server that does not answer or dies costs its tools: `offers` is empty from then on. It is not started again.
"""

import asyncio
import json
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import anyio
import httpx2
import mcp_types as types
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from localspec import __version__
from localspec.calls import Tool
from localspec.display import printable, printable_line
from localspec.toolbox.mcp.offers import Listed, Names, OfferedTool, offers_of
from localspec.toolbox.mcp.servers import McpServer

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

START_S = 30.0
"""How long a server may take until its tools are known; some are downloaded first."""
_CONNECT_S = 10.0
_SILENCE_S = 3600.0
"""How long a stream of events may be silent; calls have a time limit of their own."""
_STDERR_S = 1.0
_SETTLE_S = 0.2
_MOST_PAGES = 20
_MOST_LISTED = 1_000
_MOST_CHANGES = 20
"""So often a server may change its tools; each time a user may have to allow them again."""
_MOST_NOTES = 3
_MOST_RESOURCES = 12
_MOST_CHARS = 40_000
_SHOWN = 300
_READ = 64 << 10
_LAST_BYTES = 2_000


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
        self._woken = asyncio.Event()

    async def run(self) -> None:
        """Start the server and follow it until it is gone; cancelling this ends it."""
        try:
            await self._run()
        except Exception as error:  # of a library that a stranger's program speaks to
            self._lose(_reason(error))
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
        transport = _following(_transport(self.server), self._lose)
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
            changes += 1
            if changes > _MOST_CHANGES:
                raise _LostError(f"changed its tools more than {_MOST_CHANGES} times")
            await asyncio.sleep(_SETTLE_S)  # several changes may be one
            self._woken.clear()
            if self._gone:
                raise _LostError(self._gone)
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
                self._woken.set()

    async def _hear(self, message: object) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._woken.set()

    def _lose(self, reason: str) -> None:
        if not self._gone:
            self._gone, self.offers = reason, {}
            self._say(f"{reason}; its tools are off")
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


@asynccontextmanager
async def _transport(
    server: McpServer,
) -> AsyncIterator["tuple[TransportStreams, Callable[[], str]]"]:
    """Connect to a server; yield its streams, and what says why they ended: the rest of a sentence about the server."""
    async with AsyncExitStack() as stack:
        if server.url:
            timeout = httpx2.Timeout(_CONNECT_S, read=_SILENCE_S)
            client = httpx2.AsyncClient(headers=dict(server.headers), timeout=timeout)
            await stack.enter_async_context(client)
            transport = streamable_http_client(server.url, http_client=client)
            yield await stack.enter_async_context(transport), lambda: "closed the connection"
            return
        stderr = _Stderr()
        program, *arguments = server.command
        parameters = StdioServerParameters(
            command=program, args=arguments, env=dict(server.env), cwd=server.folder
        )
        with os.fdopen(stderr.descriptor, "w") as errlog:
            streams = await stack.enter_async_context(stdio_client(parameters, errlog))
        yield streams, stderr.ending


@asynccontextmanager
async def _following(
    transport: AbstractAsyncContextManager["tuple[TransportStreams, Callable[[], str]]"],
    gone: Callable[[str], None],
) -> AsyncIterator["TransportStreams"]:
    """Yield a transport's streams; `gone` is called with the reason when the server closes them."""
    async with transport as ((incoming, outgoing), ending), anyio.create_task_group() as tasks:
        sender, receiver = anyio.create_memory_object_stream[Any](0)

        async def relay() -> None:
            async with sender:
                with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                    async for each in incoming:
                        await sender.send(each)
                gone(await asyncio.to_thread(ending))

        async with receiver:
            tasks.start_soon(relay)
            yield receiver, outgoing
            tasks.cancel_scope.cancel()


class _Stderr:
    """The last words of a server on its stderr, which nobody sees unless it ends.

    Attributes:
        descriptor: where the server writes; to be closed here once it has been started.
    """

    def __init__(self) -> None:
        self._reading, self.descriptor = os.pipe()
        self._last = b""
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with os.fdopen(self._reading, "rb", buffering=0) as stream:
            while piece := stream.read(_READ):
                self._last = (self._last + piece)[-_LAST_BYTES:]

    def ending(self) -> str:
        """Return that the server ended, with the last line that it wrote."""
        self._thread.join(_STDERR_S)
        lines = reversed(self._last.decode(errors="replace").split("\n"))
        line = next((text for each in lines if (text := printable_line(each))), "")
        return f"ended: {line[:_SHOWN]}" if line else "ended"


def text_of_result(result: types.CallToolResult) -> str:
    """Return what a tool returned; its structured content only where it returned no text."""
    text = "\n".join(_texts(result.content))
    if not text and result.structured_content is not None:
        text = json.dumps(result.structured_content, ensure_ascii=False)
    return bounded(text or "(nothing)")


def text_of_resource(result: types.ReadResourceResult) -> str:
    """Return a resource's content."""
    return bounded("\n".join(map(_resource, result.contents)) or "(nothing)")


def bounded(text: str) -> str:
    """Return a text without control characters, cut where it is too long."""
    more = len(text) - _MOST_CHARS
    cut = f"\n[{more:,} more characters are left out]" if more > 0 else ""
    return printable(text[:_MOST_CHARS], "\n\t") + cut


def _texts(blocks: Iterable[types.ContentBlock]) -> Iterable[str]:
    for each in blocks:
        match each:
            case types.TextContent():
                yield each.text
            case types.EmbeddedResource():
                yield _resource(each.resource)
            case types.ResourceLink():
                yield f"[resource {each.uri}: {each.name}]"
            case types.ImageContent() | types.AudioContent():
                yield f"[{each.mime_type}, {_size(each.data)}: only text is read]"


def _resource(content: types.TextResourceContents | types.BlobResourceContents) -> str:
    if isinstance(content, types.TextResourceContents):
        return content.text
    return f"[{content.mime_type or 'data'}, {_size(content.blob)}: only text is read]"


def _size(base64: str) -> str:
    return f"{len(base64) * 3 // 4:,} bytes"
