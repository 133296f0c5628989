"""Servers of tools that the user names: in `mcp.toml` in the folder of settings, or by `--mcp`. Values; starts nothing.

A project's files name none: a server is a program of the user's.
"""

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Annotated, Any

from msgspec import Meta, Struct
from msgspec.structs import replace

from localspec.errors import UsageError
from localspec.storage.paths import config_dir, shown
from localspec.storage.toml import convert, key_error, read_settings

USER_FILE = "mcp.toml"
_NAME = r"[A-Za-z0-9][A-Za-z0-9-]{0,23}"
_Line = Annotated[str, Meta(pattern=r"\A[^\x00-\x1f\x7f]*\Z")]
# Programs that run another, which is what a server is called by.
_RUNNERS = re.compile(
    r"npx|bunx|uvx|uv|pipx|node|deno|python[0-9.]*|docker|podman|env|sh|bash|run|exec|tool"
)
_AFFIXES = re.compile(r"^(mcp-server-|server-|mcp-)|(-mcp-server|-mcp|-server)$")


class McpServer(Struct, frozen=True, forbid_unknown_fields=True):
    """A server of tools.

    Args:
        name: begins the names of its tools.
        command: the program and its arguments, spoken with over its stdin and stdout; empty where there is a `url`.
        url: of a server that is spoken with over HTTP; else empty.
        env: variables of the program beside the few that every server gets; `HF_TOKEN` and the like are not among them.
        headers: of every request over HTTP.
        folder: the program's working directory; None is this one's.
        tools: names of the tools that are offered, as the server calls them; None offers all.
        trust_hints: believe the server where it says that a tool only reads.
        timeout_s: how long a call may take.
    """

    name: str = ""
    command: tuple[_Line, ...] = ()
    url: Annotated[str, Meta(pattern=r"\Ahttps?://[^\s\x00-\x1f\x7f]+\Z")] = ""
    env: dict[Annotated[str, Meta(pattern=r"\A[A-Za-z_][A-Za-z0-9_]*\Z")], _Line] = {}
    headers: dict[Annotated[str, Meta(pattern=r"\A[A-Za-z0-9-]+\Z")], _Line] = {}
    folder: _Line | None = None
    tools: tuple[_Line, ...] | None = None
    trust_hints: bool = False
    timeout_s: Annotated[float, Meta(ge=1, le=86400)] = 60.0


class _File(Struct, forbid_unknown_fields=True):
    servers: dict[str, Any] = {}


def named_servers(commands: Sequence[str], file: Path | None = None) -> tuple[McpServer, ...]:
    """Return the servers of a file and of command lines, each by a name of its own.

    Args:
        commands: each starts a server.
        file: None takes the user's own, which need not exist.

    Raises:
        UsageError: the file or a command cannot be read.
    """
    file = file or config_dir() / USER_FILE
    tables = read_settings(file, _File).servers
    servers = {name: _server(name, table, shown(file)) for name, table in tables.items()}
    for text in commands:
        server = of_command(text)
        number, name = 2, server.name
        while name in servers:
            name, number = f"{server.name}-{number}", number + 1
        servers[name] = replace(server, name=name)
    return tuple(servers.values())


def of_command(text: str) -> McpServer:
    """Return the server that a command line starts, by the name of the program.

    Raises:
        UsageError: it is no command line.
    """
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise UsageError(
            f"--mcp {text[:60]!r} is not a command ({error}): fix its quotes"
        ) from None
    if not words:
        raise UsageError(f"--mcp {text[:60]!r} names no program: write the command of a server")
    return McpServer(_name_of(words), words)


def _name_of(words: Sequence[str]) -> str:
    """Return a short name for a command: `time` for `uvx mcp-server-time --local-timezone UTC`."""
    plain = [each for each in words if not each.startswith("-")] or list(words)
    program = next((each for each in plain if not _RUNNERS.fullmatch(Path(each).name)), plain[0])
    stem = re.sub(r"\.(py|js|mjs|ts|sh)$", "", program.partition("@")[0] or program)
    name = re.sub(r"[^A-Za-z0-9]+", "-", Path(stem).name).strip("-")
    return _AFFIXES.sub("", name)[:24].strip("-") or "server"


def _server(name: str, table: Any, file: str) -> McpServer:
    if not re.fullmatch(_NAME, name):
        raise key_error(file, "is not a usable name", "servers", name)
    if isinstance(table, dict) and "name" in table:
        raise key_error(file, "is not a known key", "servers", name, "name")
    if isinstance(table, dict) and isinstance(table.get("command"), str):
        try:
            table = {**table, "command": tuple(shlex.split(table["command"]))}
        except ValueError as error:
            problem = f"is not a command ({error}): fix its quotes"
            raise key_error(file, problem, "servers", name, "command") from None
    server = convert(table, McpServer, file, "servers", name)
    if bool(server.command) == bool(server.url):
        raise key_error(file, "or url is needed, and not both", "servers", name, "command")
    return replace(
        server,
        name=name,
        env=_filled(server.env, file, "servers", name, "env"),
        headers=_filled(server.headers, file, "servers", name, "headers"),
        folder=None if server.folder is None else os.path.expanduser(server.folder),  # noqa: PTH111 - a text
    )


def _filled(texts: Mapping[str, str], file: str, *path: str) -> dict[str, str]:
    """Return named texts with the environment's `${VARIABLES}` in them."""
    try:
        return {key: Template(text).substitute(os.environ) for key, text in texts.items()}
    except KeyError as missing:
        problem = f"names the variable {missing.args[0]}, which is not set"
    except ValueError:
        problem = "has a $ that begins no variable: write $$ for it"
    raise key_error(file, problem, *path)
