"""The chat in lines with a server of tools: its calls are asked about, and its end is not the end of the conversation."""

from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue

import pytest

from localspec.session.approval import CallRunner
from localspec.toolbox.mcp import connection
from localspec.toolbox.mcp.box import McpToolbox
from localspec.toolbox.permissions import Permissions
from localspec.toolbox.rules import Rules
from tests.toolbox.mcp.boxes import stranger
from tests.tui.lines import said
from tests.tui.tools import called

# Each of them waits for processes that import the protocol, which takes seconds.
pytestmark = pytest.mark.slow

SCRIPT = {
    "calls": True,
    "answers": {
        "say": called("odd__echo", text="there"),
        "there": "It said so.",
        "ended: out": "It is gone.",
        "still": "I am here.",
    },
}


def talk(way: str, folder: Path, answers: Iterator[str], *typed: str) -> tuple[str, str]:
    """Chat in lines with a server that goes its own way; return the answers, and the news."""
    news = SimpleQueue[str]()
    work = CallRunner([McpToolbox([stranger(way)], news.put)], Permissions(Rules()), (), news)
    return said(folder, *typed, script=SCRIPT, answers=answers, work=work)[1:]


def test_a_server_that_dies_in_a_call_costs_its_tools_and_not_the_chat(tmp_path: Path) -> None:
    out, err = talk("dies in a call", tmp_path, iter(["y"]), "say it", "are you still there?")
    assert out == "It is gone.\nI am here.\n"
    assert "odd__echo of the MCP server odd" in err
    assert "ended: out of tokens; its tools are off" in err


def test_what_is_allowed_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_SETTLE_S", 1000.0)
    out, _ = talk("changes", tmp_path, iter(["a"]), "say it", "say it")
    assert out == "It said so.\nIt said so.\n"
