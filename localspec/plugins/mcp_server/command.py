"""`localspec mcp`: a model as tools of other programs, by the Model Context Protocol."""

import asyncio
import signal
import sys

import click

from localspec import api
from localspec.cli import leave
from localspec.cli.options import gate_option, own_option
from localspec.cli.prompt import with_model
from localspec.engine.protocol import Load
from localspec.engine.remote_engine import RemoteEngine
from localspec.errors import require_mcp
from localspec.launch.engine import server_finder
from localspec.plugins.serve.backend import Backend
from localspec.plugins.serve.catalogue import Catalogue
from localspec.plugins.serve.model_pool import ModelPool, ServedModel

_KEEP_ALIVE_S = 600.0
_MOST = 64


@click.command(cls=api.SectionedCommand)
@click.argument("name", metavar="[MODEL]", required=False, shell_complete=api.complete_models)
@api.option_flags("models", "exact", "sampling", "context", "device")
@own_option
@gate_option
@api.with_settings
def mcp(name: str | None, settings: api.Settings) -> int:
    """Offer MODEL, or your default model, to other programs as MCP tools.

    \b
        {"mcpServers": {"localspec": {"command": "localspec", "args": ["mcp", "qwen2.5-coder-1.5b"]}}}

    Put this into the settings of an MCP client, which then starts the command. The tools are `ask`
    and `ask_json`. The model is loaded for the first question, and unloaded after 10 minutes
    without one; a running server that has it in memory answers instead.
    """  # noqa: D301 - click keeps lines behind a \b
    require_mcp()
    if sys.stdin.isatty():
        raise api.UsageError(
            "mcp is started by MCP clients, see `localspec mcp --help`: use `localspec chat` here"
        )
    settings = settings.with_model(name and api.require_model(name))
    settings, default = with_model(settings, quiet=False)
    if default:
        api.notice(default)
    # A thread waits for stdin, and would wait on; the engine ends with its pipe.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: leave(128 + number))
    asyncio.run(_serve(settings))
    return 0


async def _serve(settings: api.Settings) -> None:
    from localspec.plugins.mcp_server.tools import AskTools, LoadWatch, serve_stdio  # noqa: PLC0415 - an extra package

    launch = settings.launch
    name = launch.pair or launch.target or api.load_registry().default_pair
    model = ServedModel(name, launch, settings.reply)
    loading = LoadWatch()
    find = server_finder(Load(own=settings.own))

    def backend_of(model: ServedModel) -> Backend:
        return Backend(RemoteEngine(find=find, watch=loading.see, revives=True), model.launch)

    pool = ModelPool(backend_of, _KEEP_ALIVE_S, _MOST)
    catalogue = Catalogue((model,), settings.reply_of)
    tools = AskTools(pool, catalogue, loading, settings.gate)
    try:
        await serve_stdio(tools)
    finally:
        await pool.close()
