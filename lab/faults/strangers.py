"""MCP servers that flood, lie, hang, die, and change their tools: they cost their tools, and the server beside them goes on."""

import os
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from threading import Event, Timer

from lab.faults.deaths import until_gone
from lab.faults.ground import PATIENCE, Ground
from lab.faults.trial import Trial
from localspec.messages import ToolCall
from tests.toolbox.mcp.boxes import Opened, opened, stranger

_MOST_MB = 96
"""What a stranger may take of our memory, for as long as it is there."""
_GLANCE_S = 0.02

Then = Callable[[Opened, Random], None]
"""Sees that a stranger costs what it should."""


def beside(way: str, then: Then, _ground: Ground, chance: Random) -> str:
    """Call a stranger and an honest server; see that the honest one answers all along, and nothing stays behind."""
    before = _memory_mb()
    honest = replace(stranger("honest"), name="honest")
    with opened(stranger(way, timeout_s=2), honest) as box:
        started = _processes(way)
        _assert_answers(box)
        then(box, chance)
        _assert_answers(box)
        grown = _memory_mb() - before
        assert grown < _MOST_MB, f"{grown} MB more"
        told = box.notes[-1] if box.notes else ""
    until_gone(started)
    assert all(each.isprintable() for each in box.notes), box.notes
    return told


def calls_fail(box: Opened, chance: Random) -> None:
    for _ in range(chance.randint(1, 3)):
        assert box.call("odd__echo", '{"text": "x"}').is_error


def is_ended(box: Opened, chance: Random) -> None:
    calls_fail(box, chance)
    _until(lambda: "odd__echo" not in box.names)
    assert any("its tools are off" in each for each in box.notes)


def stops(box: Opened, chance: Random) -> None:
    stop = Event()
    Timer(chance.uniform(0, 0.5), stop.set).start()
    began_s = time.monotonic()
    assert "stopped" in box.call("odd__echo", '{"text": "x"}', stop).text
    assert time.monotonic() - began_s < 2
    calls_fail(box, chance)


def lies_are_left_out(box: Opened, _chance: Random) -> None:
    assert box.names == ["odd__echo", "honest__echo"], box.names


def is_another_tool(box: Opened, _chance: Random) -> None:
    assert box.call("odd__echo", '{"text": "x"}').text == "x"
    _until(lambda: "odd__echo" not in box.names)
    assert "odd__echo_2" in box.names
    assert box.box.propose(ToolCall("1", "odd__echo", "{}")).error, "allowed for the old one"
    assert box.call("odd__echo", '{"text": "x"}').is_error


def is_all(_box: Opened, _chance: Random) -> None:
    """See nothing more."""


def _assert_answers(box: Opened) -> None:
    assert box.call("honest__echo", '{"text": "here"}').text == "here"


def _until(reached: Callable[[], bool]) -> None:
    for _ in range(PATIENCE):
        if reached():
            return
        time.sleep(_GLANCE_S)
    raise AssertionError("waited in vain")


def _processes(way: str) -> list[int]:
    """Return the stranger's process and those that it started; other trials may have theirs."""
    found: list[int] = []
    for task in Path("/proc/self/task").glob("*/children"):
        for pid in task.read_text().split():
            if Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[-2:-1] == [way.encode()]:
                own = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
                found += map(int, (pid, *own))
    return found


def _memory_mb() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") >> 20


_WAYS: dict[str, tuple[str, Then]] = {
    "an MCP server floods a line": ("floods a line", is_ended),
    "an MCP server floods small messages": ("floods messages", is_ended),
    "an MCP server floods stderr": ("floods stderr", is_ended),
    "an MCP server lies about schemas": ("lies", lies_are_left_out),
    "an MCP server hangs in a call": ("hangs in a call", stops),
    "an MCP server dies at the start": ("dies at the start", is_all),
    "an MCP server dies in a call": ("dies in a call", is_ended),
    "an MCP server changes a tool in mid-conversation": ("changes", is_another_tool),
    "an MCP server ignores SIGTERM, and so does its child": ("stays", is_all),
}
TRIALS = [
    Trial(fault, "tools", partial(beside, way, then), short=way in {"dies in a call", "changes"})
    for fault, (way, then) in _WAYS.items()
]
