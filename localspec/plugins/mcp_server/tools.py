"""MCP: a model as tools of other programs, `ask` and `ask_json`, over stdin and stdout.

The model is loaded with the first question, and unloaded after a while without any.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import mcp_types as types
import msgspec
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError

from localspec import __version__
from localspec.api import (
    Finished,
    LocalspecError,
    Message,
    Prefilling,
    Reply,
    Request,
    RoundDone,
    StopReason,
    UsageError,
)
from localspec.chat.reply_figures import rounded, usage
from localspec.display import reading_text
from localspec.engine.protocol import Downloading, Loading, Measuring, Notice
from localspec.grammar import require_sound
from localspec.messages import checked_text
from localspec.options.fields import with_fields
from localspec.plugins.serve.backend import Backend
from localspec.plugins.serve.catalogue import Catalogue
from localspec.plugins.serve.model_pool import ModelPool, ServedModel

_TICK_S = 0.5
_ASK, _ASK_JSON = "ask", "ask_json"
_MASKED, _STOPPED = "masked by a rule of --gate", "stopped by a rule of --gate"
_PROPERTIES: dict[str, Any] = {
    "prompt": {"type": "string", "description": "What to answer."},
    "system": {"type": "string", "description": "System prompt."},
    "model": {"type": "string", "description": "Another model of this machine."},
    "temperature": {"type": "number", "minimum": 0, "description": "0 is the same every time."},
    "max_tokens": {"type": "integer", "minimum": 1},
    "seed": {"type": "integer", "description": "The same seed gives the same answer."},
}
_SCHEMA = {
    "schema": {"type": "object", "description": "JSON schema under which the answer is valid."}
}
_READS = types.ToolAnnotations(read_only_hint=True, open_world_hint=False)

Report = Callable[[float, float | None, str], Awaitable[None]]
"""Gets how far an answer is, of how much, and in words."""


class AskArguments(msgspec.Struct, forbid_unknown_fields=True):
    """What both tools take."""

    prompt: str
    system: str = ""
    model: str = ""
    temperature: float | None = None
    max_tokens: int | None = None
    seed: int | None = None


class AskJsonArguments(AskArguments, forbid_unknown_fields=True, kw_only=True):
    """What `ask_json` takes."""

    schema: dict[str, Any]


class LoadWatch:
    """How far loading is: a share of it, below 0.5, and words."""

    def __init__(self) -> None:
        self.share, self.text = 0.0, "loading"

    def see(self, notice: Notice) -> None:
        """Note how far loading is."""
        match notice:
            case Downloading(name, done, total):
                self.share, self.text = done / max(total, 1) / 4, f"downloading {name}"
            case Loading(name, share):
                self.share, self.text = 0.25 + share / 8, f"loading {name}"
            case Measuring(name, share):
                self.share, self.text = 0.375 + share / 8, f"measuring {name}"


class AskTools:
    """Answers calls of the two tools.

    Args:
        pool: has the engines; nothing is loaded yet.
        catalogue: the models that calls may name.
        loading: how far that is.
        gate: what is masked in answers, see `Request`.
    """

    def __init__(
        self, pool: ModelPool, catalogue: Catalogue, loading: LoadWatch, gate: str = ""
    ) -> None:
        self._pool = pool
        self._catalogue = catalogue
        self._loading = loading
        self._gate = gate

    async def list_tools(
        self, _context: ServerRequestContext[Any], _params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        """List them."""
        model = self._catalogue.first.name
        return types.ListToolsResult(
            tools=[
                _tool(_ASK, f"Ask {model}, a language model on this machine.", {}),
                _tool(_ASK_JSON, f"Ask {model} for JSON that is valid under a schema.", _SCHEMA),
            ]
        )

    async def call_tool(
        self, context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        """Answer; what is wrong with a call is its result. Ends with the request, if that is cancelled."""
        last = -1.0

        async def report(progress: float, total: float | None, text: str) -> None:
            nonlocal last
            if progress > last:  # it may only grow
                last = progress
                await context.session.report_progress(progress, total, text)

        try:
            model, request = self._request(params.name, params.arguments or {})
            done = await self._answered(model, request, report)
            return _result(done.reply, model, binds=request.options.answer_grammar is not None)
        except LocalspecError as error:
            return _failed(str(error))

    def _request(self, tool: str, given: dict[str, Any]) -> tuple[ServedModel, Request]:
        """Return the model of a call, and the request to it.

        Raises:
            LocalspecError: it cannot be.
            MCPError: there is no such tool.
        """
        if tool not in (_ASK, _ASK_JSON):
            reason = f"there is no tool {tool[:60]!r}: call {_ASK} or {_ASK_JSON}"
            raise MCPError(types.INVALID_PARAMS, reason)
        kind = AskJsonArguments if tool == _ASK_JSON else AskArguments
        try:
            arguments = msgspec.convert(given, kind)
        except (msgspec.ValidationError, RecursionError) as error:
            raise UsageError(f"the arguments of {tool} are not valid: {error}") from None
        model = self._catalogue.find(arguments.model)
        messages = [Message.user(checked_text(arguments.prompt, "the prompt"))]
        if arguments.system:
            messages.insert(0, Message.system(checked_text(arguments.system, "the system prompt")))
        options = with_fields(
            model.options,
            {
                "temperature": arguments.temperature,
                "seed": arguments.seed,
                "max_tokens": arguments.max_tokens,
                "json_schema": getattr(arguments, "schema", None),
            },
        )
        require_sound(options)  # before a model is loaded for it
        return model, Request(0, tuple(messages), options, ephemeral=True, gate=self._gate)

    async def _answered(self, model: ServedModel, request: Request, report: Report) -> Finished:
        most = request.options.max_tokens
        total, tokens = None if most is None else most + 1.0, 0
        async with (
            self._loaded(model, report) as backend,
            aclosing(backend.notices(request)) as notices,
        ):
            async for notice in notices:
                if isinstance(notice, Finished):
                    return notice
                for event in getattr(notice, "events", ()):
                    match event:
                        case Prefilling(done, whole):
                            await report(
                                0.5 + done / max(whole, 1) / 2, total, reading_text(done, whole)
                            )
                        case RoundDone(texts=texts):
                            tokens += len(texts)
                if tokens:
                    await report(1.0 + tokens, total, f"{tokens} tokens")
        raise AssertionError("an answer ends with Finished")

    @asynccontextmanager
    async def _loaded(self, model: ServedModel, report: Report) -> AsyncIterator[Backend]:
        """Keep a model in memory, and yield its engine; report meanwhile how far loading is."""

        async def tick() -> None:
            while True:
                await asyncio.sleep(_TICK_S)
                await report(self._loading.share, None, self._loading.text)

        ticking = asyncio.create_task(tick())
        try:
            async with self._pool.use(model) as backend:
                ticking.cancel()
                yield backend
        finally:
            ticking.cancel()


def server_of(tools: AskTools) -> Server[Any]:
    """Return the MCP server that has the two tools."""
    return Server(
        "localspec",
        version=__version__,
        on_list_tools=tools.list_tools,
        on_call_tool=tools.call_tool,
    )


async def serve_stdio(tools: AskTools) -> None:
    """Serve the two tools on stdin and stdout until the client goes away. What else is written to stdout goes to stderr."""
    server = server_of(tools)
    async with stdio_server() as (reads, writes):
        await server.run(reads, writes, server.create_initialization_options())


def _tool(name: str, description: str, more: dict[str, Any]) -> types.Tool:
    schema = {
        "type": "object",
        "properties": {**_PROPERTIES, **more},
        "required": ["prompt", *more],
        "additionalProperties": False,
    }
    return types.Tool(name=name, description=description, input_schema=schema, annotations=_READS)


def _result(reply: Reply, model: ServedModel, *, binds: bool) -> types.CallToolResult:
    if binds and reply.stop_reason is StopReason.GATED:
        return _failed(f"the answer was {_STOPPED}")
    if binds and reply.stop_reason is not StopReason.EOG:
        return _failed(
            f"the answer is incomplete, so it is not valid under the schema ({reply.stop_reason.value}): raise max_tokens"
        )
    figures = {
        "model": model.name,
        "seed": reply.seed,
        "stop_reason": reply.stop_reason.value,
        **usage(reply),
        "tokens_per_s": rounded(reply.tokens_per_s),
    }
    try:
        value = json.loads(reply.text) if binds else None
    except ValueError:  # of a number, say, a mask leaves none
        return _failed(f"the answer is no longer JSON: a part of it was {_MASKED}")
    return types.CallToolResult(
        content=[types.TextContent(text=reply.text)],
        structured_content=value if isinstance(value, dict) else None,
        _meta={"localspec": figures},
    )


def _failed(reason: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=reason)], is_error=True)
