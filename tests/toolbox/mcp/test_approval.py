"""Tools of servers under the loop that asks: as any others, and anew where they changed."""

import asyncio
from threading import Event
from typing import Any

import pytest

from localspec.messages import ToolCall
from localspec.toolbox.loop import ToolLoop
from localspec.toolbox.mcp import connection
from localspec.toolbox.mcp.box import McpToolbox
from localspec.toolbox.permissions import Decision, Permissions
from localspec.toolbox.rules import Rule, Rules
from localspec.toolbox.toolbox import Proposal
from tests.toolbox.mcp.boxes import opened, stranger
from tests.waiting import until


class Generous(ToolLoop):
    """Allows everything for good, and notes the questions."""

    def __init__(self, box: McpToolbox, rules: Rules) -> None:
        super().__init__([box], Permissions(rules))
        self.questions: list[str] = []

    def decide(self, call: ToolCall, proposal: Proposal, stop: Event) -> Decision:
        self.questions.append(call.name)
        return Decision(allowed=True, always=True)


def called(loop: ToolLoop, name: str) -> str:
    (result,) = loop.results([ToolCall("1", name, '{"text": "hello"}')], Event())
    return result.text


def test_what_was_allowed_for_good_is_asked_again_once_the_tool_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "_SETTLE_S", 0.0)
    settles, listed = Event(), connection.Connection._list

    async def listed_later(self: Any, client: Any, *, again: bool = False) -> None:
        while again and not settles.is_set():
            await asyncio.sleep(0.01)
        await listed(self, client, again=again)

    monkeypatch.setattr(connection.Connection, "_list", listed_later)
    with opened(stranger("changes")) as box:
        loop = Generous(box.box, Rules())
        assert called(loop, "odd__echo") == called(loop, "odd__echo") == "hello"
        assert loop.questions == ["odd__echo"]
        settles.set()
        assert until(lambda: box.names == ["odd__echo_2"]), box.names
        assert [each.name for each in loop.tools] == ["odd__echo_2"]
        assert "no function odd__echo" in called(loop, "odd__echo")
        assert called(loop, "odd__echo_2") == "hello"
        assert loop.questions == ["odd__echo", "odd__echo_2"]


def test_rules_hold_for_servers_too() -> None:
    with opened(stranger("honest")) as box:
        denied = Generous(box.box, Rules(deny=(Rule("odd__*"),)))
        assert "rules forbid" in called(denied, "odd__echo")
        allowed = Generous(box.box, Rules(allow=(Rule("odd__echo"),)))
        assert called(allowed, "odd__echo") == "hello"
        assert allowed.questions == []
