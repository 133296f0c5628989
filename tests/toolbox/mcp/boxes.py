"""Toolboxes of doubles, made and ended."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

from localspec.messages import ToolCall, ToolResult
from localspec.toolbox.mcp.box import McpToolbox
from localspec.toolbox.mcp.servers import McpServer

STRANGER = Path(__file__).with_name("stranger.py")


def stranger(way: str, **more: Any) -> McpServer:
    """Return a server that goes its own way; see `stranger.py`."""
    # Neither the site's packages nor its own: it starts in a tenth of the time.
    return McpServer("odd", (sys.executable, "-SE", str(STRANGER), way), **more)


@dataclass(slots=True)
class Opened:
    """A toolbox, and the sentences that it had for its user."""

    box: McpToolbox
    notes: list[str]

    @property
    def names(self) -> list[str]:
        return [each.name for each in self.box.tools]

    def call(self, name: str, arguments: str = "{}", stop: Event | None = None) -> ToolResult:
        return self.box.call(ToolCall("1", name, arguments), Event() if stop is None else stop)


@contextmanager
def opened(*servers: McpServer, offline: bool = False) -> Iterator[Opened]:
    """Open the toolbox of some servers, each of which has its tools or is given up."""
    notes: list[str] = []
    box = McpToolbox(servers, notes.append, offline=offline)
    try:
        box.ready()
        yield Opened(box, notes)
    finally:
        box.close()
