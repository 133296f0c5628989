"""Tools of servers under the loop that asks: as any others, and anew where they changed."""

from threading import Event

import pytest

from localspec.messages import ToolCall
from localspec.toolbox.loop import CarriedOut, ToolLoop
from localspec.toolbox.mcp import connection
from localspec.toolbox.permissions import Decision, Permissions
from localspec.toolbox.rules import Rule, Rules
from localspec.toolbox.toolbox import Proposal
from tests.toolbox.mcp.boxes import Opened, opened, stranger


class Generous:
    """Allows everything for good, and notes what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def decide(self, call: ToolCall, proposal: Proposal, stop: Event) -> Decision:
        self.asked.append(call.name)
        return Decision(allowed=True, always=True)

    def began(self, call: ToolCall, proposal: Proposal) -> None: ...

    def ended(self, done: CarriedOut) -> None: ...


def called(loop: ToolLoop, name: str) -> str:
    (result,) = loop.results([ToolCall("1", name, '{"text": "hello"}')], Event())
    return result.text


def until_changed(box: Opened) -> None:
    for _ in range(1_000):
        if box.names == ["odd__echo_2"]:
            return
        Event().wait(0.01)
    raise AssertionError(box.names)


def test_what_was_allowed_for_good_is_asked_again_once_the_tool_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "_SETTLE_S", 0.3)
    with opened(stranger("changes")) as box:
        hands = Generous()
        loop = ToolLoop([box.box], Permissions(Rules()), hands)
        assert called(loop, "odd__echo") == called(loop, "odd__echo") == "hello"
        assert hands.asked == ["odd__echo"]
        until_changed(box)
        assert [each.name for each in loop.tools] == ["odd__echo_2"]
        assert "no function odd__echo" in called(loop, "odd__echo")
        assert called(loop, "odd__echo_2") == "hello"
        assert hands.asked == ["odd__echo", "odd__echo_2"]


def test_rules_hold_for_servers_too() -> None:
    with opened(stranger("honest")) as box:
        hands = Generous()
        denied = ToolLoop([box.box], Permissions(Rules(deny=(Rule("odd__*"),))), hands)
        assert "rules forbid" in called(denied, "odd__echo")
        allowed = ToolLoop([box.box], Permissions(Rules(allow=(Rule("odd__echo"),))), hands)
        assert called(allowed, "odd__echo") == "hello"
        assert hands.asked == []
