"""A reference server, as it comes from the package index, over its stdin and stdout."""

import json
import sys

import pytest

from localspec.toolbox.mcp import connection
from localspec.toolbox.mcp.servers import McpServer
from tests.toolbox.mcp.boxes import opened
from tests.waiting import PATIENCE_S

TIME = McpServer("time", (sys.executable, "-m", "mcp_server_time", "--local-timezone", "UTC"))


@pytest.mark.slow
def test_the_server_of_times_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "START_S", PATIENCE_S)  # it imports much
    with opened(TIME) as box:
        assert box.names == ["time__get_current_time", "time__convert_time"]
        told = box.call("time__get_current_time", '{"timezone": "Asia/Tokyo"}')
        assert json.loads(told.text)["datetime"].endswith("+09:00")
        wrong = box.call("time__get_current_time", '{"timezone": "Nowhere/None"}')
        assert wrong.is_error
        assert "Nowhere/None" in wrong.text
    assert not box.notes
