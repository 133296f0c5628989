"""`ask` and `ask_json`, asked by the package's own client in this process, in front of an engine that tells a script."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest
from mcp.client import Client
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, CallToolResult, TextContent

from localspec.engine.remote_engine import RemoteEngine
from localspec.options import LaunchOptions
from localspec.plugins.mcp_server.tools import AskTools, LoadWatch, server_of
from localspec.plugins.serve.backend import Backend
from localspec.plugins.serve.model_pool import ModelPool, ServedModel
from tests.engine.double import command
from tests.plugins.serve.serving import GREEDY, Named
from tests.waiting import PATIENCE_S

# Each of them waits for processes that import the protocol, which takes seconds.
pytestmark = pytest.mark.slow

FIRST = ServedModel("a-pair", LaunchOptions(pair="a-pair"), GREEDY)
Work = Callable[[Client, ModelPool], Awaitable[None]]


def follow(work: Work, script: Mapping[str, Any], mode: str = "auto", gate: str = "") -> None:
    async def run() -> None:
        loading = LoadWatch()

        def backend_of(model: ServedModel) -> Backend:
            engine = RemoteEngine(command(script), watch=loading.see, revives=True)
            return Backend(engine, model.launch)

        pool = ModelPool(backend_of, None, 8)
        catalogue = Named((FIRST,), lambda _: GREEDY, others=("other",))
        tools = AskTools(pool, catalogue, loading, gate)
        try:
            async with Client(server_of(tools), mode=mode) as client:
                await work(client, pool)
        finally:
            await pool.close()

    asyncio.run(run())


async def call(client: Client, tool: str, **arguments: Any) -> tuple[str, CallToolResult]:
    result = await client.call_tool(tool, arguments)
    (block,) = result.content
    assert isinstance(block, TextContent)
    return block.text, result


async def complain(client: Client, tool: str, word: str, **arguments: Any) -> None:
    text, result = await call(client, tool, **arguments)
    assert result.is_error
    assert word in text
    assert "\n" not in text
    assert KEY[4:12] not in text


KEY = "ghp_abcdefghijklmnopqrstuvwxyz0123456789"


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_question_is_answered(mode: str) -> None:
    async def work(client: Client, pool: ModelPool) -> None:
        listed = await client.list_tools()
        assert [each.name for each in listed.tools] == ["ask", "ask_json"]
        assert "a-pair" in (listed.tools[0].description or "")
        assert not pool.loaded, "nothing is loaded before it is asked"
        text, result = await call(client, "ask", prompt="Which river?", seed=5)
        assert (text, result.is_error) == ("The Rhine.", False)
        figures = (result.meta or {})["localspec"]
        assert (figures["model"], figures["seed"]) == ("a-pair", 5)
        _, other = await call(client, "ask", prompt="Which river?", model="other")
        assert (other.meta or {})["localspec"]["model"] == "other"

    follow(work, {"answers": {"river": "The Rhine."}}, mode)


def test_what_cannot_be_asked_is_refused() -> None:
    async def work(client: Client, _pool: ModelPool) -> None:
        for tool, word, arguments in (
            ("ask", "prompt", {}),
            ("ask", "empty", {"prompt": ""}),
            ("ask", "temperature", {"prompt": "x", "temperature": "hot"}),
            ("ask", "temperature", {"prompt": "x", "temperature": -1}),
            ("ask", "schema", {"prompt": "x", "schema": {}}),
            ("ask", "no model '/etc/passwd'", {"prompt": "x", "model": "/etc/passwd"}),
            ("ask", "too large", {"prompt": "x", "model": "other"}),
            ("ask_json", "schema", {"prompt": "x"}),
            ("ask_json", "schema", {"prompt": "x", "schema": {"type": "nothing"}}),
        ):
            await complain(client, tool, word, **arguments)

        for tool in ("tell", "ASK", "ask\n", "ask_json2"):
            with pytest.raises(MCPError, match="there is no tool") as caught:
                await client.call_tool(tool, {})
            assert caught.value.code == INVALID_PARAMS

    follow(work, {"refuses": {"other": ["ModelLoadError", "it is too large"]}})


def test_progress_only_grows_and_ends_with_the_answer() -> None:
    reports: list[tuple[float, str]] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        reports.append((progress, message or ""))

    async def work(client: Client, _pool: ModelPool) -> None:
        await client.call_tool("ask", {"prompt": "Which river?"}, progress_callback=note)

    follow(work, {"answers": {"river": "The Rhine. " * 20}, "load_s": 1.2, "pass_s": 0.005})
    progress = [each for each, _ in reports]
    assert progress == sorted(set(progress))
    assert progress[-1] > 100
    assert "loading" in reports[0][1]


def test_a_call_that_is_cancelled_ends_in_the_engine() -> None:
    async def until(pool: ModelPool, under_way: int) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while pool.under_way != under_way:
                await asyncio.sleep(0.01)

    async def work(client: Client, pool: ModelPool) -> None:
        await call(client, "ask", prompt="Hi")
        cancelled = asyncio.create_task(call(client, "ask", prompt="Which river?"))
        await until(pool, 1)
        cancelled.cancel()
        await until(pool, 0)
        assert (await call(client, "ask", prompt="Hi"))[0] == "Hello."

    script = {"answers": {"river": "On and on. " * 1000, "Hi": "Hello."}, "pass_s": 0.05}
    follow(work, script, "legacy")


def test_answers_pass_the_gate() -> None:
    async def work(client: Client, _pool: ModelPool) -> None:
        text, result = await call(client, "ask", prompt="the key?")
        assert (text, result.is_error) == ("It is [masked: GitHub token], yes.", False)
        assert KEY[4:12] not in result.model_dump_json()

    follow(work, {"answers": {"key": f"It is {KEY}, yes."}, "drafts": 5}, gate="usual")


@pytest.mark.parametrize(
    ("rules", "answer", "word"),
    [("action = 'stop'", f'{{"key": "{KEY}"}}', "stopped"), ("", '{"n": 41791234567}', "masked")],
)
def test_json_that_a_gate_has_broken_is_an_error_of_the_call(
    rules: str, answer: str, word: str
) -> None:
    async def work(client: Client, _pool: ModelPool) -> None:
        await complain(client, "ask_json", f"{word} by a rule of --gate", prompt="json?", schema={})

    gate = f"{rules}\n[[pattern]]\nname = 'n'\npattern = '41791234567'"
    follow(work, {"answers": {"json": answer}, "calls": True}, gate=gate)
