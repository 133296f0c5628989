"""Offers: what a server says it can do, checked and named, as a model may call it.

A server may lie, change its mind and never come to an end. What is wrong with a tool costs that tool; a tool whose
description or schema changes is another tool, by another name, so no permission for the old one holds for it.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from localspec.calls import Tool
from localspec.display import printable, printable_line
from localspec.errors import UsageError
from localspec.grammar import require_arguments

if TYPE_CHECKING:
    from mcp_types import Tool as ListedTool

MOST_TOOLS = 64
"""Of one server; a model reads them all before every answer."""
_MOST_SCHEMA = 16_000
_MOST_DESCRIPTION = 1_000
_LONGEST_NAME = 64
"""What OpenAI's interface takes, and so what models have seen."""
_OTHERS = re.compile(r"[^A-Za-z0-9_-]+")
_MOST_NAME = 60


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """A tool that may be called.

    Args:
        tool: as the model reads it.
        own_name: as its server calls it.
        only_reads: whether the server says that it changes nothing.
        is_resource: a resource is read, and no tool called.
    """

    tool: Tool
    own_name: str
    only_reads: bool = False
    is_resource: bool = False


@dataclass(slots=True)
class Names:
    """Gives each tool a name that no other has, the same one whenever just that tool comes again."""

    _known: dict[tuple[str, str, str], str] = field(default_factory=dict)

    def of(self, server: str, own_name: str, text: str) -> str:
        """Return the name of a tool.

        Args:
            server: name of its server.
            own_name: as that calls it.
            text: all that a user or a model reads of it.
        """
        key = (server, own_name, text)
        if key not in self._known:
            base = f"{server}__{_OTHERS.sub('_', own_name).strip('_') or 'tool'}"[:_LONGEST_NAME]
            taken, name, number = set(self._known.values()), base, 2
            while name in taken:
                end = f"_{number}"
                name, number = f"{base[: _LONGEST_NAME - len(end)]}{end}", number + 1
            self._known[key] = name
        return self._known[key]


def offers_of(
    server: str, listed: "Iterable[ListedTool]", names: Names, wanted: tuple[str, ...] | None
) -> tuple[dict[str, OfferedTool], list[str]]:
    """Return the tools of a server that can be offered, by name, and why others cannot, a sentence each.

    Args:
        server: its name.
        listed: what it lists.
        names: of all servers' tools.
        wanted: names of those that are to be offered, as the server calls them; None wants all.
    """
    offers: dict[str, OfferedTool] = {}
    notes: list[str] = []
    listed_names: set[str] = set()
    count = 0
    for each in listed:
        if each.name in listed_names or (wanted is not None and each.name not in wanted):
            continue
        listed_names.add(each.name)
        count += 1
        if len(offers) == MOST_TOOLS:
            continue
        try:
            schema = _checked(each.input_schema)
        except UsageError as error:
            name = printable_line(each.name)[:_MOST_NAME]
            notes.append(f"its tool {name!r} is left out: {error}")
            continue
        description = _described(each.description or "")
        name = names.of(server, each.name, f"{description}\n{json.dumps(schema)}")
        only_reads = each.annotations is not None and each.annotations.read_only_hint is True
        offers[name] = OfferedTool(Tool(name, schema, description), each.name, only_reads)
    if count - len(notes) > MOST_TOOLS:
        notes.append(
            f"of its {count} tools {MOST_TOOLS} are offered: name those that you need in mcp.toml"
        )
    missing = [each for each in wanted or () if each not in listed_names]
    if missing:
        notes.append(f"it has no tool {missing[0][:_MOST_NAME]!r}, which mcp.toml names")
    return offers, notes


def _described(text: str) -> str:
    text = printable(text, "\n").strip()
    return f"{text[:_MOST_DESCRIPTION]} …" if len(text) > _MOST_DESCRIPTION else text


def _checked(schema: Any) -> dict[str, Any]:
    """Return the schema of a tool's arguments.

    Raises:
        UsageError: it is none, or no grammar can keep even the names of the arguments.
    """
    if not isinstance(schema, dict) or schema.get("type", "object") != "object":
        raise UsageError("its arguments are not an object")
    try:
        text = json.dumps(schema, allow_nan=False)
    except (ValueError, RecursionError):
        raise UsageError("its schema is not JSON") from None
    if len(text) > _MOST_SCHEMA:
        raise UsageError(f"its schema has {len(text):,} characters, more than {_MOST_SCHEMA:,}")
    require_arguments(text)
    return {**schema, "type": "object"}
