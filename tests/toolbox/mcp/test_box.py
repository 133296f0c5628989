"""Tools of servers that the package's own server side makes: in this process, and over HTTP."""

import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from threading import Event

import pytest
import uvicorn
from mcp.client._memory import InMemoryTransport
from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ImageContent, ToolAnnotations

from localspec import errors
from localspec.errors import UsageError
from localspec.messages import ToolCall
from localspec.toolbox.mcp import connection
from localspec.toolbox.mcp.box import McpToolbox
from localspec.toolbox.mcp.servers import McpServer
from localspec.toolbox.toolbox import Access
from tests.toolbox.mcp.boxes import opened
from tests.waiting import PATIENCE_S

HINTS = ToolAnnotations(read_only_hint=True)


def shop() -> MCPServer:
    """Return a server with tools, resources, and a call that can be cancelled."""
    server = MCPServer("shop")
    server.cancelled = Event()  # type: ignore[attr-defined]

    @server.tool(annotations=HINTS)
    def price(item: str, count: int = 1) -> dict[str, int]:
        """Tell what something costs."""
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
        """Say when it is open."""
        return "9 to 5"

    return server


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> MCPServer:
    """A shop in this process, in place of every program."""
    server = shop()

    @asynccontextmanager
    async def transport(*_: object) -> AsyncIterator[object]:
        async with InMemoryTransport(server) as streams:
            yield streams

    monkeypatch.setattr(connection, "_transport", transport)
    return server


def one(**more: object) -> McpServer:
    return McpServer("shop", ("-",), **more)  # type: ignore[arg-type]


def test_tools_and_resources_can_be_called(here: MCPServer) -> None:
    with opened(one()) as box:
        assert sorted(box.names) == [
            *("shop__buy", "shop__look", "shop__price", "shop__read_resource", "shop__wait"),
        ]
        assert '"tea": 6' in box.call("shop__price", '{"item": "tea", "count": 2}').text
        assert '"tea": 3' in box.call("shop__price", '{"item": "tea", "count": null}').text
        failed = box.call("shop__buy", '{"item": "tea"}')
        assert failed.is_error
        assert "sold out" in failed.text
        assert box.call("shop__look").text == "[image/png, 3 bytes: only text is read]"
        assert box.call("shop__read_resource", '{"uri": "shop://hours"}').text == "9 to 5"
        assert box.call("shop__read_resource", '{"uri": "shop://none"}').is_error
        (tool,) = [each for each in box.box.tools if each.name == "shop__read_resource"]
        assert "shop://hours (hours)" in tool.description
    assert not box.notes


@pytest.mark.parametrize(("trusted", "access"), [(False, Access.RUN), (True, Access.READ)])
def test_hints_count_only_where_the_user_says_so(
    here: MCPServer, trusted: bool, access: Access
) -> None:
    with opened(one(trust_hints=trusted)) as box:
        assert box.box.propose(ToolCall("1", "shop__price", "{}")).access is access
        assert box.box.propose(ToolCall("1", "shop__buy", "{}")).access is Access.RUN


def test_a_call_that_is_stopped_is_cancelled_in_the_server(here: MCPServer) -> None:
    with opened(one()) as box:
        stop = Event()
        stop.set()
        threading.Timer(0.2, stop.set).start()
        assert box.call("shop__wait", stop=stop).text == "stopped by the user"
        assert here.cancelled.wait(PATIENCE_S)  # type: ignore[attr-defined]


def test_only_named_tools_are_offered(here: MCPServer) -> None:
    with opened(one(tools=("price",))) as box:
        assert box.names == ["shop__price"]


def test_without_the_package_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "find_spec", lambda _name: None)
    with pytest.raises(UsageError, match="pip install"):
        McpToolbox([])


def test_an_ended_toolbox_offers_nothing(here: MCPServer) -> None:
    with opened(one()) as box:
        pass
    assert box.names == []
    assert box.call("shop__price").is_error
    box.box.close()


@contextmanager
def web_shop() -> Iterator[str]:
    """Serve a shop over HTTP; yield its URL."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        app = shop().streamable_http_app()
        server = uvicorn.Server(uvicorn.Config(app, log_level="critical", ws="none"))
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        while not server.started:
            time.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
        finally:
            server.should_exit = True
            thread.join()


def test_a_server_is_reached_over_http_unless_offline() -> None:
    with web_shop() as url:
        server = McpServer("web", url=url)
        with opened(server) as box:
            assert '"tea": 3' in box.call("web__price", '{"item": "tea"}').text
        assert not box.notes
        with opened(server, offline=True) as box:
            assert box.names == []
            assert "offline" in box.notes[0]


def test_a_server_that_is_not_there_over_http_is_told() -> None:
    with opened(McpServer("web", url="http://127.0.0.1:9/mcp")) as box:
        assert box.names == []
        assert "its tools are off" in box.notes[0]
