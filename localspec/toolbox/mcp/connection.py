"""Connection: one server on an event loop: what it offers now, and calls of that. Nothing of it raises to its owner.

A server that does not answer or dies costs its tools: `offers` is empty from then on. It is not started again.
"""

import asyncio
import json
import os
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from typing import TYPE_CHECKING, Any, TextIO

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
from localspec.toolbox.mcp.offers import Names, OfferedTool, offers_of
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
_MOST_SENTENCE = 300
_READ = 64 << 10
_ERRORS, _KEYLESS = 400, (401, 403)
"""Statuses of HTTP: from where on they are errors, and those that a key may help against."""
_LAST_BYTES = 2_000
_Content = types.ContentBlock | types.TextResourceContents | types.BlobResourceContents


class _LostError(Exception):
    """The connection is over; the text is the rest of a sentence about the server."""


class Connection:
    """A server that is started, listed and called.

    Args:
        server: which.
        names: of all servers' tools.
        notify: takes sentences that the user should read, in the loop's thread.
    """

    def __init__(self, server: McpServer, names: Names, notify: Callable[[str], None]) -> None:
        self.server = server
        self.offers: Mapping[str, OfferedTool] = {}
        self.settled = threading.Event()
        self._names = names
        self._notify = notify
        self._client: Client | None = None
        self._stderr = _Stderr()
        self._statuses = list[int]()  # of HTTP, the last that was an error
        self._gone = ""
        self._woken = asyncio.Event()

    async def run(self) -> None:
        """Start the server and follow it until it is gone; cancelling this ends it."""
        try:
            await self._run()
        except Exception as error:  # of a library that a stranger's program speaks to
            self._lose(await self._reason(error))
        finally:
            self.offers, self._client = {}, None
            self.settled.set()

    async def call(self, offer: OfferedTool, arguments: Mapping[str, Any]) -> tuple[str, bool]:
        """Call a tool, or read a resource; return the result as text, and whether that is an error.

        The server gets to know when this is cancelled.
        """
        client, within_s = self._client, self.server.timeout_s
        if client is None:
            return f"the MCP server {self.server.name} is gone", True
        try:
            async with asyncio.timeout(within_s):
                if offer.is_resource:
                    uri = str(arguments.get("uri", ""))
                    return text_of((await client.session.read_resource(uri)).contents), False
                # Not `call_tool`, which has a schema of the server's check what the server sends:
                # its regular expressions may take for ever, and hold the whole program meanwhile.
                params = types.CallToolRequestParams(name=offer.own_name, arguments=dict(arguments))
                result = await client.session.send_request(
                    types.CallToolRequest(params=params), types.CallToolResult
                )
                return text_of(result.content, result.structured_content), result.is_error
        except TimeoutError:
            return f"no answer within {within_s:g} s", True
        except Exception as error:  # as above
            return bounded(await self._reason(error)), True

    async def _run(self) -> None:
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(START_S):
                    client = Client(
                        _transport(self.server, self._stderr, self._statuses),
                        client_info=types.Implementation(name="localspec", version=__version__),
                        message_handler=self._on_message,
                        cache=None,
                    )
                    await stack.enter_async_context(client)
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
        """List the tools again whenever they change, until the server is gone."""
        for change in count(1):
            await self._woken.wait()
            await asyncio.sleep(_SETTLE_S)  # several changes may be one
            self._woken.clear()
            if self._gone:
                return
            if change > _MOST_CHANGES:
                raise _LostError(f"changed its tools more than {_MOST_CHANGES} times")
            try:
                async with asyncio.timeout(START_S):
                    await self._list(client, again=True)
            except TimeoutError:
                raise _LostError(f"did not list its tools within {START_S:g} s") from None

    async def _listen(self, client: Client) -> None:
        """Subscribe to changes, of which servers of 2026 send no notice otherwise."""
        tools = client.server_capabilities.tools
        if client.session.discover_result is None or tools is None or not tools.list_changed:
            return
        async with client.listen(tools_list_changed=True) as events:
            async for _ in events:
                self._woken.set()

    async def _on_message(self, message: object) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._woken.set()

    def _lose(self, reason: str) -> None:
        if not self._gone:
            self._gone, self.offers = reason, {}
            self._report(f"{reason}; its tools are off")
            self._woken.set()

    async def _reason(self, error: BaseException) -> str:
        """Return why something failed, as the rest of a sentence; where the connection has ended, the tools are lost."""
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        match error:
            # Over HTTP it is the end of a single request.
            case MCPError() if error.error.code == types.CONNECTION_CLOSED and self.server.command:
                self._lose(await asyncio.to_thread(self._stderr.ending))
                return self._gone
            case _LostError():
                return str(error)
            case OSError():
                return f"cannot be started or reached ({error.strerror or error})"
            case MCPError():
                return _answer(self._statuses, error.error.message)
            case ValidationError():
                return "sent what is not MCP"
        return f"failed ({type(error).__name__}: {error})"

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
            self._report(
                f"changed its tools ({new[:_MOST_SENTENCE]}): what was allowed of the old ones is asked again"
            )
        for note in notes[:_MOST_NOTES]:
            self._report(note)
        if len(notes) > _MOST_NOTES:
            self._report(f"{len(notes) - _MOST_NOTES} more of its tools are left out")

    async def _tools(self, client: Client) -> list[types.Tool]:
        tools: list[types.Tool] = []
        cursor: str | None = None
        for _ in range(_MOST_PAGES):
            params = types.PaginatedRequestParams(cursor=cursor)
            page = await client.session.list_tools(params=params)
            tools += page.tools
            cursor = page.next_cursor
            if not cursor or len(tools) > _MOST_LISTED:
                break
        return tools

    async def _resources(self, client: Client) -> dict[str, OfferedTool]:
        """Return a tool that reads the server's resources, of which its description names the first."""
        page = await client.session.list_resources()
        if not page.resources:
            return {}
        named = [
            f"{each.uri} ({each.name})"[:_MOST_SENTENCE]
            for each in page.resources[:_MOST_RESOURCES]
        ]
        about = f"Read a resource of {self.server.name}, such as {', '.join(named)}"
        uri = {"uri": {"type": "string"}}
        parameters = {"type": "object", "properties": uri, "required": ["uri"]}
        description = printable_line(about)
        name = self._names.of(self.server.name, "read_resource", description)
        tool = Tool(name, parameters, description)
        return {name: OfferedTool(tool, "read_resource", only_reads=True, is_resource=True)}

    def _report(self, text: str) -> None:
        self._notify(f"MCP server {self.server.name}: {printable_line(text)[:_MOST_SENTENCE]}")


def _answer(statuses: Sequence[int], message: str) -> str:
    """Return what a server's error means, as the rest of a sentence; `statuses` has that of HTTP, where there is one."""
    if not statuses:
        return f"answered with an error: {message}"
    (status,) = statuses
    if status in _KEYLESS:
        return f"answered with HTTP {status}: it needs a key, or another one: give it in `headers` of the server's table"
    return f"answered with HTTP {status}: {message}"


@asynccontextmanager
async def _transport(
    server: McpServer, stderr: "_Stderr", statuses: list[int]
) -> AsyncIterator["TransportStreams"]:
    """Connect to a server, which is started where it is a program; yield the streams of its messages.

    Args:
        server: which.
        stderr: takes what a program writes there.
        statuses: gets the status of the last answer of HTTP that was an error, in place of others.
    """
    if server.url:

        async def note(response: httpx2.Response) -> None:
            statuses[:] = [response.status_code] if response.status_code >= _ERRORS else []

        timeout, hooks = httpx2.Timeout(_CONNECT_S, read=_SILENCE_S), {"response": [note]}
        async with (
            httpx2.AsyncClient(
                headers=server.headers, timeout=timeout, event_hooks=hooks
            ) as client,
            streamable_http_client(server.url, http_client=client) as streams,
        ):
            yield streams
        return
    program, *arguments = server.command
    parameters = StdioServerParameters(
        command=program, args=arguments, env=server.env, cwd=server.folder
    )
    async with AsyncExitStack() as stack:
        with stderr.begin() as errlog:
            streams = await stack.enter_async_context(stdio_client(parameters, errlog))
        yield streams


class _Stderr:
    """The last words of a server on its stderr, which are printed only if it ends."""

    def __init__(self) -> None:
        self._last = b""
        self._thread = threading.Thread(daemon=True)

    def begin(self) -> TextIO:
        """Return what the server writes to; to be closed here once it has been started."""
        reading, writing = os.pipe()
        self._thread = threading.Thread(target=self._read, args=(reading,), daemon=True)
        self._thread.start()
        return os.fdopen(writing, "w")

    def _read(self, descriptor: int) -> None:
        with os.fdopen(descriptor, "rb", buffering=0) as stream:
            while piece := stream.read(_READ):
                self._last = (self._last + piece)[-_LAST_BYTES:]

    def ending(self) -> str:
        """Return that the server ended, with the last line that it wrote."""
        if self._thread.ident is not None:
            self._thread.join(_STDERR_S)
        lines = reversed(self._last.decode(errors="replace").split("\n"))
        line = next((text for each in lines if (text := printable_line(each))), "")
        return f"ended: {line[:_MOST_SENTENCE]}" if line else "ended"


def text_of(contents: Sequence[_Content], structured: object = None) -> str:
    """Return the contents of a result as text; `structured` only where they have none."""
    text = "\n".join(map(_text, contents))
    if not text and structured is not None:
        text = json.dumps(structured, ensure_ascii=False)
    return bounded(text or "(nothing)")


def bounded(text: str) -> str:
    """Return a text without control characters, cut where it is too long."""
    more = len(text) - _MOST_CHARS
    cut = f"\n[{more:,} more characters are left out]" if more > 0 else ""
    return printable(text[:_MOST_CHARS], "\n\t") + cut


def _text(content: _Content) -> str:
    match content:
        case types.TextContent() | types.TextResourceContents():
            return content.text
        case types.EmbeddedResource():
            return _text(content.resource)
        case types.ResourceLink():
            return f"[resource {content.uri}: {content.name}]"
        case types.BlobResourceContents():
            base64 = content.blob
        case _:
            base64 = content.data
    size = f"{len(base64) * 3 // 4:,} bytes"
    return f"[{content.mime_type or 'data'}, {size}: only text is read]"
