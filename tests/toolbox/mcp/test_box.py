"""Tools of servers that the package's own server side makes, in this process and over HTTP; under the loop that asks; and a reference server."""

import asyncio
import json
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from importlib import import_module
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest
import uvicorn

from localspec import errors
from localspec.errors import UsageError
from localspec.messages import ToolCall
from localspec.toolbox.loop import ToolLoop
from localspec.toolbox.mcp.box import McpToolbox
from localspec.toolbox.mcp.servers import McpServer
from localspec.toolbox.permissions import Decision, Permissions
from localspec.toolbox.rules import Rule, Rules
from localspec.toolbox.toolbox import Access, Proposal
from tests.toolbox.mcp.boxes import opened, stranger
from tests.waiting import PATIENCE_S, until

if TYPE_CHECKING:
    from mcp.server import MCPServer

# By name, and in the tests: the protocol takes every process that collects two seconds.
CONNECTION = "localspec.toolbox.mcp.connection"


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> "MCPServer":
    """A shop in this process, in place of every program."""
    from tests.toolbox.mcp.shop import InMemoryTransport, shop  # noqa: PLC0415 - as above

    server = shop()

    @asynccontextmanager
    async def transport(*_: object) -> AsyncIterator[object]:
        async with InMemoryTransport(server) as streams:
            yield streams

    monkeypatch.setattr(f"{CONNECTION}._transport", transport)
    return server


def one(**more: object) -> McpServer:
    return McpServer("shop", ("-",), **more)  # type: ignore[arg-type]


def test_tools_and_resources_can_be_called(here: "MCPServer") -> None:
    with opened(one()) as box:
        names = ("buy", "look", "price", "read_resource", "wait")
        assert sorted(box.names) == [f"shop__{each}" for each in names]
        for name, arguments, text in (
            ("price", '{"item": "tea", "count": 2}', '"tea": 6'), ("price", '{"item": "tea", "count": null}', '"tea": 3'),
            ("look", "{}", "[image/png, 3 bytes: only text is read]"), ("read_resource", '{"uri": "shop://hours"}', "9 to 5"),
        ):  # fmt: skip
            result = box.call(f"shop__{name}", arguments)
            assert text in result.text
            assert not result.is_error
        failed = box.call("shop__buy", '{"item": "tea"}')
        assert failed.is_error
        assert "sold out" in failed.text
        assert box.call("shop__read_resource", '{"uri": "shop://none"}').is_error
        proposal = box.box.propose(ToolCall("1", "shop__price", '{"item": "thé"}'))
        assert (proposal.access, proposal.error) == (Access.RUN, None)
        assert "shop__price" in proposal.summary
        assert '"item": "thé"' in proposal.preview
        for name, wrong, word in (("price", "[]", "JSON"), ("price", "{", "JSON"), ("none", "{}", "offers 'shop__none'")):  # fmt: skip
            call = ToolCall("1", f"shop__{name}", wrong)
            assert word in (box.box.propose(call).error or "")
            assert box.box.call(call, Event()).is_error
        (tool,) = [each for each in box.box.tools if each.name == "shop__read_resource"]
        assert "shop://hours (hours)" in tool.description
    assert not box.notes
    assert box.names == []
    assert box.call("shop__price").is_error
    assert import_module(CONNECTION).text_of([], {"thé": 2}) == '{"thé": 2}'
    box.box.close()


def test_hints_and_names_count_as_the_user_says(here: "MCPServer") -> None:
    for trusted, access in ((False, Access.RUN), (True, Access.READ)):
        with opened(one(trust_hints=trusted)) as box:
            assert box.box.propose(ToolCall("1", "shop__price", "{}")).access is access
            assert box.box.propose(ToolCall("1", "shop__buy", "{}")).access is Access.RUN
    with opened(one(tools=("price",))) as box:
        assert box.names == ["shop__price"]


def test_a_call_that_is_stopped_is_cancelled_in_the_server(here: "MCPServer") -> None:
    with opened(one()) as box:
        stop = Event()
        threading.Timer(0.2, stop.set).start()
        assert box.call("shop__wait", stop=stop).text == "stopped by the user"
        assert here.cancelled.wait(PATIENCE_S)  # type: ignore[attr-defined]


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "find_spec", lambda _name: None)
    with pytest.raises(UsageError, match="pip install"):
        McpToolbox([])


@contextmanager
def web_shop() -> Iterator[str]:
    """Serve a shop over HTTP; yield its URL."""
    from tests.toolbox.mcp.shop import shop  # noqa: PLC0415 - as above

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
    with opened(McpServer("web", url="http://127.0.0.1:9/mcp")) as box:
        assert box.names == []
        assert "its tools are off" in box.notes[0]


class Generous(ToolLoop):
    """Allows everything for good, and notes the questions."""

    def __init__(self, box: McpToolbox, rules: Rules) -> None:
        super().__init__([box], Permissions(rules))
        self.questions: list[str] = []

    def decide(self, call: ToolCall, proposal: Proposal, stop: Event) -> Decision:
        self.questions.append(call.name)
        return Decision(allowed=True, always=True)

    def text_of(self, name: str) -> str:
        (result,) = self.results([ToolCall("1", name, '{"text": "hello"}')], Event())
        return result.text


def test_what_was_allowed_for_good_is_asked_again_once_the_tool_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(f"{CONNECTION}._SETTLE_S", 0.0)
    settles, listed = Event(), import_module(CONNECTION).Connection._list

    async def listed_later(self: Any, client: Any, *, again: bool = False) -> None:
        while again and not settles.is_set():
            await asyncio.sleep(0.01)
        await listed(self, client, again=again)

    monkeypatch.setattr(f"{CONNECTION}.Connection._list", listed_later)
    with opened(stranger("changes")) as box:
        loop = Generous(box.box, Rules())
        assert loop.text_of("odd__echo") == loop.text_of("odd__echo") == "hello"
        assert loop.questions == ["odd__echo"]
        settles.set()
        assert until(lambda: box.names == ["odd__echo_2"]), box.names
        assert [each.name for each in loop.tools] == ["odd__echo_2"]
        assert "no function odd__echo" in loop.text_of("odd__echo")
        assert loop.text_of("odd__echo_2") == "hello"
        assert loop.questions == ["odd__echo", "odd__echo_2"]


def test_rules_hold_for_servers_too() -> None:
    with opened(stranger("honest")) as box:
        denied = Generous(box.box, Rules(deny=(Rule("odd__*"),)))
        assert "rules forbid" in denied.text_of("odd__echo")
        allowed = Generous(box.box, Rules(allow=(Rule("odd__echo"),)))
        assert allowed.text_of("odd__echo") == "hello"
        assert allowed.questions == []


@pytest.mark.slow
def test_a_reference_server_of_the_package_index_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{CONNECTION}.START_S", PATIENCE_S)  # it imports much
    command = (sys.executable, "-m", "mcp_server_time", "--local-timezone", "UTC")
    with opened(McpServer("time", command)) as box:
        assert box.names == ["time__get_current_time", "time__convert_time"]
        result = box.call("time__get_current_time", '{"timezone": "Asia/Tokyo"}')
        assert json.loads(result.text)["datetime"].endswith("+09:00")
        wrong = box.call("time__get_current_time", '{"timezone": "Nowhere/None"}')
        assert wrong.is_error
        assert "Nowhere/None" in wrong.text
    assert not box.notes
