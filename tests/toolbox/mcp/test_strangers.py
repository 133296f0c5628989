"""Servers that hang, die, lie, and change their mind: they cost their tools, and nothing else."""

import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread, Timer

import pytest

from localspec.messages import ToolCall
from localspec.toolbox.mcp import connection
from localspec.toolbox.mcp.servers import McpServer
from tests.support.processes import alive
from tests.toolbox.mcp.boxes import opened, stranger
from tests.waiting import until

# Each of them waits for processes that import the protocol, which takes seconds.
pytestmark = pytest.mark.slow

ECHO = '{"text": "hello"}'


def children(parent: int) -> list[int]:
    """Return the processes that were started by one, and by those."""
    found = []
    for each in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = each.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(words[1]) == parent and words[0] != "Z":
            found += [int(each.parent.name), *children(int(each.parent.name))]
    return found


@pytest.mark.parametrize(
    ("way", "more", "word"),
    [
        ("hangs at the start", {}, "did not answer"), ("dies at the start", {}, "ended: ?[31mno such file: token.json"),
        ("", {"folder": "/nonexistent"}, "cannot be started"), ("is no list", {}, "not MCP"),
    ],
)  # fmt: skip
def test_one_that_does_not_start_costs_its_tools_alone(
    monkeypatch: pytest.MonkeyPatch, way: str, more: dict[str, str], word: str
) -> None:
    if way.startswith("hangs"):
        monkeypatch.setattr(connection, "START_S", 0.3)
    others = [stranger("honest")] if way == "is no list" else []
    with opened(stranger(way, **more), *others) as box:
        assert box.names == ["odd__echo"] * len(others)
        (note,) = box.notes
        assert word in note


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (401, "HTTP 401: it needs a key, or another one: give it in `headers`"),
        (403, "HTTP 403: it needs a key"),
        (500, "HTTP 500: "),
        (429, "HTTP 429: "),
    ],
)
def test_one_that_refuses_over_http_says_with_which_status(status: int, words: str) -> None:
    class Refusal(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Refusal) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        with opened(McpServer("odd", (), url=f"http://127.0.0.1:{server.server_port}")) as box:
            (note,) = box.notes
            assert words in note
        server.shutdown()


def test_a_call_that_hangs_has_its_time_and_can_be_stopped() -> None:
    with opened(stranger("hangs in a call", timeout_s=0.3)) as box:
        result = box.call("odd__echo", ECHO)
        assert (result.text, result.is_error) == ("no answer within 0.3 s", True)
    with opened(stranger("hangs in a call")) as box:
        stop = Event()
        Timer(0.2, stop.set).start()
        assert "stopped" in box.call("odd__echo", ECHO, stop).text


def test_one_that_dies_in_a_call_costs_its_tools() -> None:
    with opened(stranger("dies in a call")) as box:
        result = box.call("odd__echo", ECHO)
        assert result.is_error
        assert "ended: out of tokens" in result.text
        assert until(lambda: not box.names), f"it stays: {box.names}"
        assert "its tools are off" in box.notes[-1]
        assert box.call("odd__echo", ECHO).is_error


def test_lies_cost_the_tools_that_lie() -> None:
    with opened(stranger("lies")) as box:
        assert box.names == ["odd__echo", "odd__lie2", "odd__lie3"], (
            "loosened, where that is enough"
        )
        assert all(each.isprintable() for each in box.notes)
        assert "its tool 'lie1' is left out" in box.notes[-1]


def test_a_changed_tool_is_another_so_often_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_SETTLE_S", 0.0)
    monkeypatch.setattr(connection, "_MOST_CHANGES", 1)
    with opened(stranger("changes")) as box:
        assert box.call("odd__echo", ECHO).text == "hello"
        assert until(lambda: box.names == ["odd__echo_2"]), box.names
        assert box.box.propose(ToolCall("1", "odd__echo", ECHO)).error
        assert box.call("odd__echo", ECHO).is_error
        assert "changed its tools (odd__echo_2)" in box.notes[0]
        assert not until(lambda: not box.names, 0.3), "it may change so often"
    monkeypatch.setattr(connection, "_MOST_CHANGES", 3)
    with opened(stranger("changes for ever")) as box:
        assert until(lambda: not box.names), f"it stays: {box.names}"
        assert "more than 3 times" in box.notes[-1]


@pytest.mark.parametrize(
    ("way", "end", "is_error"),
    [
        ("prints", "?[2Jcleared? <|im_end|>", False),
        ("says a lot", "[460,000 more characters are left out]", False),
        ("nonsense", "sent what is not MCP", True),
        ("greets", "hello", False),  # and other ways to write what is no message
        ("writes to stderr", "hello", False),
    ],
)
def test_results_are_printable_and_bounded(way: str, end: str, *, is_error: bool) -> None:
    with opened(stranger(way)) as box:
        result = box.call("odd__echo", ECHO)
        assert result.text.endswith(end)
        assert result.is_error is is_error


def test_all_that_a_server_started_ends_with_it() -> None:
    before = children(os.getpid())
    with opened(stranger("stays")) as box:
        assert box.names == ["odd__echo"]
        started = set(children(os.getpid())) - {*before}
        assert len(started) == 2
    # They would sleep for a quarter of an hour; who was killed is gone when it has had its turn.
    assert until(lambda: not any(map(alive, started)))


def test_a_server_gets_none_of_our_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    before = children(os.getpid())
    with opened(stranger("honest", env={"OWN": "1"})):
        (pid,) = set(children(os.getpid())) - {*before}
        environment = Path(f"/proc/{pid}/environ").read_bytes()
        assert b"OWN=1" in environment
        assert b"hf_secret" not in environment
        assert os.getpgid(pid) == pid
