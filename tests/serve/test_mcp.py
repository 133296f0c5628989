"""`ask` and `ask_json`, asked by the package's own client in this process, in front of an engine that tells a script."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp.client import Client
from mcp_types import CallToolResult, TextContent

from localspec.engine.engine import RemoteEngine
from localspec.options import LaunchOptions
from localspec.serve.backend import Backend
from localspec.serve.mcp import AskTools, LoadWatch, server_of
from localspec.serve.residence import Residence, ServedModel
from tests.engine.double import command
from tests.serve.serving import GREEDY, Named
from tests.waiting import PATIENCE_S

# Each of them waits for processes that import the protocol, which takes seconds.
pytestmark = pytest.mark.slow

FIRST = ServedModel("a-pair", LaunchOptions(pair="a-pair"), GREEDY)
Work = Callable[[Client, Backend], Awaitable[None]]


@asynccontextmanager
async def asked(
    script: Mapping[str, Any], mode: str, gate: str = ""
) -> AsyncIterator[tuple[Client, Backend]]:
    loading = LoadWatch()
    engine = RemoteEngine(command(script), watch=loading.see, revives=True)
    backend = Backend(engine, FIRST.launch, 8)
    residence = Residence(backend, None, None, 8)
    catalogue = Named(FIRST, ("a-pair",), lambda _: GREEDY, others=("other",))
    tools = AskTools(backend, residence, catalogue, loading, gate)
    try:
        async with Client(server_of(tools), mode=mode) as client:
            yield client, backend
    finally:
        await backend.close()


def follow(work: Work, script: Mapping[str, Any], mode: str = "auto", gate: str = "") -> None:
    async def run() -> None:
        async with asked(script, mode, gate) as (client, backend):
            await work(client, backend)

    asyncio.run(run())


def words(result: CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, TextContent)
    return block.text


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_question_is_answered(mode: str) -> None:
    async def work(client: Client, backend: Backend) -> None:
        listed = await client.list_tools()
        assert [each.name for each in listed.tools] == ["ask", "ask_json"]
        assert "a-pair" in (listed.tools[0].description or "")
        assert backend.ready is None, "nothing is loaded before it is asked"
        result = await client.call_tool("ask", {"prompt": "Which river?", "seed": 5})
        assert (words(result), result.is_error) == ("The Rhine.", False)
        figures = (result.meta or {})["localspec"]
        assert (figures["model"], figures["seed"]) == ("a-pair", 5)
        other = await client.call_tool("ask", {"prompt": "Which river?", "model": "other"})
        assert (other.meta or {})["localspec"]["model"] == "other"

    follow(work, {"answers": {"river": "The Rhine."}}, mode)


@pytest.mark.parametrize(
    ("tool", "arguments", "word"),
    [
        ("tell", {}, "no tool 'tell'"),
        ("ask", {}, "prompt"),
        ("ask", {"prompt": ""}, "empty"),
        ("ask", {"prompt": "x", "temperature": "hot"}, "temperature"),
        ("ask", {"prompt": "x", "temperature": -1}, "temperature"),
        ("ask", {"prompt": "x", "schema": {}}, "schema"),
        ("ask", {"prompt": "x", "model": "/etc/passwd"}, "no model '/etc/passwd'"),
        ("ask_json", {"prompt": "x"}, "schema"),
        ("ask_json", {"prompt": "x", "schema": {"type": "nothing"}}, "schema"),
    ],
)
def test_what_cannot_be_asked_is_told_in_one_line(
    tool: str, arguments: dict[str, Any], word: str
) -> None:
    async def work(client: Client, _backend: Backend) -> None:
        result = await client.call_tool(tool, arguments)
        assert result.is_error
        assert word in words(result)
        assert "\n" not in words(result)

    follow(work, {})


def test_progress_only_grows_and_ends_with_the_answer() -> None:
    told: list[tuple[float, str | None]] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, message))

    async def work(client: Client, _backend: Backend) -> None:
        await client.call_tool("ask", {"prompt": "Which river?"}, progress_callback=note)

    follow(work, {"answers": {"river": "The Rhine. " * 20}, "load_s": 1.2, "pass_s": 0.005})
    found = [each for each, _ in told]
    assert found == sorted(set(found))
    assert told[0][1] is not None
    assert "loading" in told[0][1]
    assert told[-1][0] > 100


def test_a_call_that_is_cancelled_ends_in_the_engine() -> None:
    async def work(client: Client, backend: Backend) -> None:
        await client.call_tool("ask", {"prompt": "Hi"})
        call = asyncio.create_task(client.call_tool("ask", {"prompt": "Which river?"}))
        while not backend.under_way:
            await asyncio.sleep(0.01)
        call.cancel()
        async with asyncio.timeout(PATIENCE_S):
            while backend.under_way:
                await asyncio.sleep(0.01)
        assert words(await client.call_tool("ask", {"prompt": "Hi"})) == "Hello."

    script = {"answers": {"river": "On and on. " * 1000, "Hi": "Hello."}, "pass_s": 0.05}
    follow(work, script, "legacy")


def test_an_engine_that_cannot_load_is_an_error_of_the_call() -> None:
    async def work(client: Client, _backend: Backend) -> None:
        result = await client.call_tool("ask", {"prompt": "Hi"})
        assert result.is_error
        assert "too large" in words(result)

    follow(work, {"refuses": {"a-pair": ["ModelLoadError", "it is too large"]}})


KEY = "ghp_abcdefghijklmnopqrstuvwxyz0123456789"
MASK = "[masked: GitHub token]"


def test_answers_pass_the_gate() -> None:
    async def work(client: Client, _backend: Backend) -> None:
        result = await client.call_tool("ask", {"prompt": "the key?"})
        assert (words(result), result.is_error) == (f"It is {MASK}, yes.", False)
        assert KEY[4:12] not in result.model_dump_json()

    follow(work, {"answers": {"key": f"It is {KEY}, yes."}, "drafts": 5}, gate="usual")


@pytest.mark.parametrize(
    ("rules", "answer", "word"),
    [("action = 'stop'", f'{{"key": "{KEY}"}}', "stopped"), ("", '{"n": 41791234567}', "masked")],
)
def test_json_that_a_gate_has_broken_is_an_error_of_the_call(
    rules: str, answer: str, word: str
) -> None:
    pattern = "[[pattern]]\nname = 'n'\npattern = '41791234567'"

    async def work(client: Client, _backend: Backend) -> None:
        result = await client.call_tool("ask_json", {"prompt": "json?", "schema": {}})
        assert result.is_error
        assert f"{word} by a rule of --gate" in words(result)
        assert KEY[4:12] not in words(result)

    gate = f"{rules}\n{pattern}"
    follow(work, {"answers": {"json": answer}, "calls": True}, gate=gate)
