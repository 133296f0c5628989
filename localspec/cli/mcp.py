"""`localspec mcp`: a model as tools of other programs, by the Model Context Protocol."""

import asyncio
import signal
import sys
from typing import Any

import click

from localspec.cli import leave
from localspec.cli.options import (
    complete_models,
    gate_option,
    gate_rules,
    launch_options,
    option_flags,
    own_option,
    reply_options,
    with_model,
    with_own,
)
from localspec.display import notice
from localspec.errors import UsageError
from localspec.options import ReplyOptions

_KEEP_ALIVE_S = 600.0
_MOST = 64


@click.command()
@click.argument("name", metavar="[MODEL]", required=False, shell_complete=complete_models)
@option_flags("models", "exact", "sampling", "context", "device")
@own_option
@gate_option
def mcp(name: str | None, **flags: Any) -> int:
    """Offer MODEL, or your default model, to other programs as MCP tools.

    \b
        {"mcpServers": {"localspec": {"command": "localspec", "args": ["mcp", "qwen2.5-coder-1.5b"]}}}

    Write that into the settings of a program that uses MCP servers; it starts this command. The tools
    are ask and ask_json. The model is loaded when it is first asked, and unloaded after 10 minutes
    without a question; a server that runs and has it in memory answers instead.
    """  # noqa: D301 - click keeps lines behind a \b
    from localspec.toolbox.mcp.box import require_package  # noqa: PLC0415 - others do without it

    require_package()
    if sys.stdin.isatty():
        raise UsageError(
            "mcp is started by a program that uses MCP servers, see `localspec mcp --help`: use `localspec chat` here"
        )
    flags["model"] = flags["model"] or name
    found = with_model({**flags, "quiet": False})
    if found["unasked"]:
        notice(found["unasked"])
    # A thread waits for stdin, and would wait on; the engine ends with its pipe.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: leave(128 + number))
    asyncio.run(_served(found, gate_rules(found["gate"])))
    return 0


async def _served(flags: dict[str, Any], gate: str) -> None:
    # Imported here: no other verb needs them.
    from localspec.engine.engine import RemoteEngine  # noqa: PLC0415
    from localspec.launch.engine import server_finder  # noqa: PLC0415
    from localspec.models.registry import load_registry  # noqa: PLC0415
    from localspec.serve.backend import Backend  # noqa: PLC0415
    from localspec.serve.catalogue import Catalogue  # noqa: PLC0415
    from localspec.serve.mcp import AskTools, LoadWatch, serve_stdio  # noqa: PLC0415
    from localspec.serve.residence import Residence, ServedModel  # noqa: PLC0415

    def options_of(name: str | None) -> ReplyOptions:
        return reply_options(with_own(flags, name))

    launch = launch_options(flags)
    name = launch.pair or launch.target or load_registry().default_pair
    model = ServedModel(name, launch, options_of(None))
    loading = LoadWatch()
    find = server_finder(own=flags["own"], workload=flags.get("workload"))
    engine = RemoteEngine(find=find, watch=loading.see, revives=True)
    backend = Backend(engine, launch, _MOST)
    residence = Residence(backend, None, _KEEP_ALIVE_S, _MOST)
    catalogue = Catalogue(model, (name,), options_of)
    tools = AskTools(backend, residence, catalogue, loading, gate)
    try:
        await serve_stdio(tools)
    finally:
        await backend.close()
