"""A server that the package's own server side makes, in a module of its own: what it imports takes seconds."""

import asyncio
from threading import Event

from mcp.client._memory import InMemoryTransport
from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ImageContent, ToolAnnotations

__all__ = ["InMemoryTransport", "shop"]


def shop() -> MCPServer:
    """Return a server with tools, resources, and a call that can be cancelled."""
    server = MCPServer("shop")
    server.cancelled = Event()  # type: ignore[attr-defined]

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    def price(item: str, count: int = 1) -> dict[str, int]:
        """Return a price."""
        return {item: 3 * count}

    @server.tool()
    def buy(item: str) -> str:
        """Buy something."""
        raise ToolError(f"{item} is sold out")

    @server.tool()
    async def wait() -> str:
        """Wait."""
        try:
            await asyncio.sleep(1000)
        finally:
            server.cancelled.set()  # type: ignore[attr-defined]
        return ""

    @server.tool()
    def look() -> ImageContent:
        """Take a picture."""
        return ImageContent(data="AAAA", mime_type="image/png")

    @server.resource("shop://hours")
    def hours() -> str:
        """Return when it is open."""
        return "9 to 5"

    return server
