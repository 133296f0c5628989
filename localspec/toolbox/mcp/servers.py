"""Servers of tools that the user names: in `mcp.toml` in the folder of settings, or by `--mcp`. Values; starts nothing.

A project's files name none: a server is a program of the user's.
"""

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from string import Template

from localspec.errors import UsageError
from localspec.models.toml import Table, parse_toml
from localspec.storage.files import read_bounded
from localspec.storage.paths import config_dir, shown

USER_FILE = "mcp.toml"
_MOST_BYTES = 256 << 10
_NAME = r"[A-Za-z0-9][A-Za-z0-9-]{0,23}"
_VARIABLE = r"[A-Za-z_][A-Za-z0-9_]*"
_HEADER = r"[A-Za-z0-9-]+"
_LINE = r"[^\x00-\x1f\x7f]*"
_URL = r"https?://[^\s\x00-\x1f\x7f]+"
_USUAL_CALL_S = 60
# Programs that run another, which is what a server is called by.
_RUNNERS = re.compile(
    r"npx|bunx|uvx|uv|pipx|node|deno|python[0-9.]*|docker|podman|env|sh|bash|run|exec|tool"
)
_SAYS_NOTHING = re.compile(r"^(mcp-server-|server-|mcp-)|(-mcp-server|-mcp|-server)$")


@dataclass(frozen=True, slots=True)
class McpServer:
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

    name: str
    command: tuple[str, ...] = ()
    url: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    folder: Path | None = None
    tools: tuple[str, ...] | None = None
    trust_hints: bool = False
    timeout_s: float = _USUAL_CALL_S


def named_servers(commands: Sequence[str], file: Path | None = None) -> tuple[McpServer, ...]:
    """Return the servers of a file and of command lines, each by a name of its own.

    Args:
        commands: each starts a server.
        file: None takes the user's own, which need not exist.

    Raises:
        UsageError: the file or a command cannot be read.
    """
    found = {each.name: each for each in _of_file(file or config_dir() / USER_FILE)}
    for text in commands:
        server = of_command(text)
        number, name = 2, server.name
        while name in found:
            name, number = f"{server.name}-{number}", number + 1
        found[name] = replace(server, name=name)
    return tuple(found.values())


def of_command(text: str) -> McpServer:
    """Return the server that a command line starts, by the name of the program.

    Raises:
        UsageError: it is no command line.
    """
    words = _words(text)
    if not words:
        raise UsageError(f"--mcp {text[:60]!r} names no program: write the command of a server")
    return McpServer(_name_of(words), words)


def _words(text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise UsageError(f"--mcp {text[:60]!r} is no command ({error}): fix its quotes") from None


def _name_of(words: Sequence[str]) -> str:
    """Return a short name for a command: `time` for `uvx mcp-server-time --local-timezone UTC`."""
    plain = [each for each in words if not each.startswith("-")] or list(words)
    meant = next((each for each in plain if not _RUNNERS.fullmatch(Path(each).name)), plain[0])
    stem = re.sub(r"\.(py|js|mjs|ts|sh)$", "", meant.partition("@")[0] or meant)
    name = re.sub(r"[^A-Za-z0-9]+", "-", Path(stem).name).strip("-")
    return _SAYS_NOTHING.sub("", name)[:24].strip("-") or "server"


def _of_file(file: Path) -> Iterator[McpServer]:
    if not os.path.lexists(file):
        return
    try:
        text = read_bounded(file, _MOST_BYTES).decode()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise UsageError(f"{shown(file)} cannot be read ({reason}): fix it") from error
    top = parse_toml(text, shown(file))
    servers = [_server(name, table) for name, table in top.tables("servers", _NAME)]
    top.finish()
    yield from servers


def _server(name: str, table: Table) -> McpServer:
    if ("command" in table) == ("url" in table):
        raise table.error("command", "or url is needed, and not both")
    command = table.optional_text("command", f"{_LINE}\\S{_LINE}")
    folder = table.optional_text("folder", _LINE)
    server = McpServer(
        name=name,
        command=() if command is None else _words(command),
        url=table.optional_text("url", _URL) or "",
        env=_filled(table, "env", _VARIABLE),
        headers=_filled(table, "headers", _HEADER),
        folder=None if folder is None else Path(folder).expanduser(),
        tools=table.optional_list("tools", _LINE),
        trust_hints=table.switch("trust_hints"),
        timeout_s=table.positive("timeout_s", default=_USUAL_CALL_S),
    )
    table.finish()
    return server


def _filled(table: Table, key: str, name_pattern: str) -> dict[str, str]:
    """Take named texts, with the environment's `${VARIABLES}` in them."""
    found = {}
    for name, text in table.texts(key, name_pattern, _LINE).items():
        try:
            found[name] = Template(text).substitute(os.environ)
        except KeyError as missing:
            variable = missing.args[0]
            raise table.error(key, f"names the variable {variable}, which is not set") from None
        except ValueError:
            raise table.error(key, "has a $ that begins no variable: write $$ for it") from None
    return found
