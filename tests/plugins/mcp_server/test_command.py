"""`localspec mcp` as a program that uses MCP servers has it: a process that speaks on its stdin and stdout."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp_types import TextContent

from tests.cli.command import COMMAND, PLAIN, Started, environment
from tests.waiting import PATIENCE_S

# Each of them waits for processes that import the protocol, which takes seconds.
pytestmark = pytest.mark.slow

MODEL = ("smollm2-135m", "--draft", "off", "--ctx", "512", "--temperature", "0", *PLAIN)
CALLER = {"capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
HELLO = {"method": "initialize", "params": {"protocolVersion": "2025-06-18", **CALLER}}
CITY = {"type": "object", "properties": {"city": {"enum": ["Rome", "Bern"]}}, "required": ["city"]}


def test_a_model_answers_another_program(smollm2_path: Path) -> None:
    async def work() -> None:
        command, *arguments = (*COMMAND, "mcp", *MODEL)
        server = StdioServerParameters(command=command, args=arguments, env=environment())
        async with Client(server) as client:
            assert client.server_info is not None
            assert client.server_info.name == "localspec"
            told: list[float] = []

            async def note(progress: float, total: float | None, message: str | None) -> None:
                told.append(progress)

            asked = {"prompt": "Name a river.", "max_tokens": 12}
            first = await client.call_tool("ask", asked, progress_callback=note)
            assert not first.is_error
            assert isinstance(first.content[0], TextContent)
            assert (first.meta or {})["localspec"]["completion_tokens"] <= 12
            assert told[-1] > 1
            # Not the first: a prompt that was read before may be rounded otherwise than one that is read now.
            again, once_more = [await client.call_tool("ask", asked) for _ in range(2)]
            assert again.content == once_more.content
            found = await client.call_tool("ask_json", {"prompt": "A city?", "schema": CITY})
            assert found.structured_content in ({"city": "Rome"}, {"city": "Bern"})
            cut = await client.call_tool(
                "ask_json", {"prompt": "A city?", "schema": CITY, "max_tokens": 1}
            )
            assert cut.is_error
            assert isinstance(cut.content[0], TextContent)
            assert "raise max_tokens" in cut.content[0].text
            bad = await client.call_tool("ask", {"prompt": "x", "model": "qwen3-4b-2507"})
            assert bad.is_error

    asyncio.run(work())


def test_stdout_has_messages_alone_and_the_end_of_stdin_is_the_end() -> None:
    asked = json.dumps({"jsonrpc": "2.0", "id": 1, **HELLO}).encode()
    with Started("mcp") as process:
        out, err = process.communicate(b"nonsense\n" + asked + b"\n", PATIENCE_S)
    assert process.returncode == 0, err
    messages = [json.loads(each) for each in out.splitlines()]
    assert messages[-1]["result"]["serverInfo"]["name"] == "localspec"
    assert b"Traceback" not in err


def test_a_signal_ends_it_though_stdin_is_open() -> None:
    with Started("mcp") as process:
        process.stdin.write(b'{}\n{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
        process.stdin.flush()
        process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 128 + signal.SIGTERM


def test_at_a_terminal_it_says_what_it_is_for() -> None:
    code = "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)"
    with Started("mcp", shell=(sys.executable, "-c", code)) as process:
        out, _ = process.communicate(timeout=PATIENCE_S)
    assert b"localspec chat" in out
    assert os.environ["LOCALSPEC_OWN"] == "on"
