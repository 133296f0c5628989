"""Servers of tools that the user names: in `mcp.toml` in the folder of settings, or by `--mcp`. Values; starts nothing.

A project's files name none: a server is a program of the user's.
"""

import os
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from string import Template
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from localspec.errors import UsageError
from localspec.storage.files import read_bounded
from localspec.storage.paths import config_dir, shown

USER_FILE = "mcp.toml"
_MOST_BYTES = 256 << 10
_Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9-]{0,23}$")]
_Line = Annotated[str, Meta(pattern=r"^[^\x00-\x1f\x7f]*$")]
_Words = Annotated[str, Meta(pattern=r"^[^\x00-\x1f\x7f]*[^\s\x00-\x1f\x7f][^\x00-\x1f\x7f]*$")]
_Url = Annotated[str, Meta(pattern=r"^https?://[^\s\x00-\x1f\x7f]+$")]
_Variable = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
_Header = Annotated[str, Meta(pattern=r"^[A-Za-z0-9-]+$")]
_USUAL_CALL_S = 60
_T = TypeVar("_T")
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


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    """A table of the file; see `McpServer`."""

    command: _Words | None = None
    url: _Url | None = None
    env: dict[_Variable, _Line] = {}
    headers: dict[_Header, _Line] = {}
    folder: _Line | None = None
    tools: list[_Line] | None = None
    trust_hints: bool = False
    timeout_s: Annotated[float, Meta(gt=0)] = _USUAL_CALL_S


class _File(msgspec.Struct, forbid_unknown_fields=True):
    servers: dict[_Name, dict[str, Any]] = {}


def _of_file(file: Path) -> Iterator[McpServer]:
    if not os.path.lexists(file):
        return
    try:
        values = tomllib.loads(read_bounded(file, _MOST_BYTES).decode())
    except OSError as error:
        raise UsageError(f"{shown(file)} cannot be read ({error.strerror}): fix it") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{shown(file)} is not TOML ({str(error)[:200]}): fix it") from None
    for name, table in _converted(values, _File, shown(file)).servers.items():
        yield _server(name, _converted(table, _Entry, f"{shown(file)}: servers.{name}"), file)


def _converted(value: object, kind: type[_T], where: str) -> _T:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        problem, _, place = str(error).partition(" - at `")
        place = place.rstrip("`").removeprefix("$")
        raise UsageError(f"{where}{place}: {problem}: fix it") from None


def _server(name: str, entry: _Entry, file: Path) -> McpServer:
    where = f"{shown(file)}: servers.{name}"
    if (entry.command is None) == (entry.url is None):
        raise UsageError(f"{where}: command or url is needed, and not both")
    return McpServer(
        name=name,
        command=() if entry.command is None else _words(entry.command),
        url=entry.url or "",
        env=_filled(entry.env, f"{where}.env"),
        headers=_filled(entry.headers, f"{where}.headers"),
        folder=None if entry.folder is None else Path(entry.folder).expanduser(),
        tools=None if entry.tools is None else tuple(entry.tools),
        trust_hints=entry.trust_hints,
        timeout_s=entry.timeout_s,
    )


def _filled(texts: Mapping[str, str], where: str) -> dict[str, str]:
    """Return named texts, with the environment's `${VARIABLES}` in them."""
    filled = {}
    for name, text in texts.items():
        try:
            filled[name] = Template(text).substitute(os.environ)
        except KeyError as missing:
            raise UsageError(
                f"{where}: the variable {missing.args[0]} is not set: set it"
            ) from None
        except ValueError:
            raise UsageError(f"{where}: a $ begins no variable: write $$ for it") from None
    return filled
