"""BuiltIn: functions that work offline: files of one folder are read, listed, searched and changed, commands run in it."""

import difflib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from localspec.calls import Tool
from localspec.display import printable
from localspec.errors import UsageError
from localspec.messages import ToolCall, ToolResult
from localspec.storage.tree import found_below
from localspec.toolbox.command import CommandEnded, CommandLimits, confinement, run_command
from localspec.toolbox.escapes import without_escapes
from localspec.toolbox.folder import Folder
from localspec.toolbox.rules import COMMAND, Rules
from localspec.toolbox.search import search
from localspec.toolbox.toolbox import Access, Proposal

_MOST_READ = 1 << 20
_SHOWN_LINES = 400
_SHOWN_CHARS = 16_000
_MOST_LISTED = 200
_MOST_FOUND = 60
_CHANGED_SINCE = "changed since the change was proposed: read it again"


@dataclass(frozen=True, slots=True)
class _Known:
    """A function: what a model is told of it, what it needs, and which of its arguments says what it touches."""

    tool: Tool
    access: Access
    subject: str


def _known(
    name: str, access: Access, subject: str, about: str, needed: int, **arguments: str
) -> _Known:
    """Return a function of so many arguments that are needed, the first ones; a name with `_line` is a number's."""
    properties = {
        key: {"type": "integer" if key.endswith("_line") else "string", "description": value}
        for key, value in arguments.items()
    }
    schema = {
        "type": "object",
        "properties": properties,
        "required": list(arguments)[:needed],
        "additionalProperties": False,
    }
    return _Known(Tool(name, schema, about), access, subject)


_PATH = "path in the folder"
_KNOWN = {
    each.tool.name: each
    for each in (
        _known(
            "read_file", Access.READ, "path", "Read a text file.", 1,
            path=_PATH, first_line="line to begin at, 1 by default", last_line="line to end with",
        ),
        _known(
            "list_folder", Access.READ, "path", "List the files and folders in a folder.", 0,
            path=f"{_PATH}, all of it by default",
        ),
        _known(
            "search_folder", Access.READ, "path",
            "Find the lines that match a regular expression in the files of a folder.", 1,
            pattern="regular expression", path=f"{_PATH} to search in, all of it by default",
        ),
        _known(
            "write_file", Access.WRITE, "path", "Write a new file, or replace a whole one.", 2,
            path=_PATH, content="all of the new text",
        ),
        _known(
            "edit_file", Access.WRITE, "path",
            "Change a file: replace a text that stands in it exactly once.", 3,
            path=_PATH, old="text to replace, exactly as it stands in the file", new="text to put in its place",
        ),
        _known(
            COMMAND, Access.RUN, "command", "Run a shell command in the folder, such as a test.", 1,
            command="the command",
        ),
    )
}  # fmt: skip
BUILT_IN = tuple(_KNOWN)


class BuiltIn:
    """The functions of one folder; see `Toolbox`.

    Args:
        folder: where all of it happens.
        rules: what may not even be read in passing.
        limits: of commands.
        names: of the functions that there are.
    """

    def __init__(
        self,
        folder: Folder,
        rules: Rules | None = None,
        limits: CommandLimits | None = None,
        names: Sequence[str] = BUILT_IN,
    ) -> None:
        self._folder = folder
        self._rules = rules or Rules()
        self._limits = limits or CommandLimits()
        self._tools = tuple(_KNOWN[each].tool for each in names)
        # What was shown of a change: the file's name and text before it, and the text after it.
        self._shown: dict[str, tuple[str, bytes, bytes]] = {}

    @property
    def tools(self) -> Sequence[Tool]:
        """Return what can be called."""
        return self._tools

    def propose(self, call: ToolCall) -> Proposal:
        """Return what a call would do; see `Toolbox`."""
        known = _KNOWN[call.name]
        try:
            arguments = _arguments(call, known.tool)
            if known.access is Access.RUN:
                command = arguments["command"]
                return Proposal(
                    known.access, f"run {_line(command)}", confinement()[0], None, command
                )
            name = self._folder.canonical(arguments.get("path") or ".")
            self._refuse(call.name, name)
            preview = self._preview(call, arguments) if known.access is Access.WRITE else ""
        except UsageError as error:
            return Proposal(known.access, f"{call.name} {_line(call.arguments)}", error=str(error))
        return Proposal(known.access, _SUMMARIES[call.name](name, arguments), preview, None, name)

    def call(self, call: ToolCall, stop: threading.Event) -> ToolResult:
        """Carry a call out; see `Toolbox`."""
        try:
            arguments = _arguments(call, _KNOWN[call.name].tool)
            text, failed = self._done(call, arguments, stop)
        except UsageError as error:
            text, failed = str(error), True
        except OSError as error:
            text, failed = f"{call.name} failed ({error.strerror}): try something else", True
        return ToolResult(call.id, text, failed)

    def close(self) -> None:
        """Let go of the folder."""
        self._folder.close()

    def _done(
        self, call: ToolCall, arguments: Mapping[str, Any], stop: threading.Event
    ) -> tuple[str, bool]:
        match call.name:
            case "read_file":
                return self._read(arguments), False
            case "list_folder":
                return self._list(arguments.get("path") or "."), False
            case "search_folder":
                return self._search(arguments["pattern"], arguments.get("path") or ".", stop), False
            case "write_file" | "edit_file":
                return self._write(call, arguments), False
            case _:
                ended = run_command(arguments["command"], self._folder.path, self._limits, stop)
                return command_text(ended), bool(ended.code or ended.why)

    def _refuse(self, tool: str, name: str) -> None:
        rule = self._rules.denied(tool, name)
        if rule is not None:
            raise UsageError(f"{name} is not for {tool}: the user's rules forbid it ({rule})")

    def _text(self, tool: str, name: str) -> tuple[str, str]:
        """Return the name of a file, links followed, and its text."""
        found = self._folder.read(name, _MOST_READ)
        if found is None:
            raise UsageError(f"there is no file {name[:200]}: list the folder to see what there is")
        self._refuse(tool, found[0])
        return found[0], _decoded(found[1], name)

    def _read(self, arguments: Mapping[str, Any]) -> str:
        _, text = self._text("read_file", arguments["path"])
        lines = text.splitlines()
        first = max(arguments.get("first_line") or 1, 1)
        last = min(arguments.get("last_line") or len(lines), len(lines), first + _SHOWN_LINES - 1)
        if first > len(lines) > 0:
            raise UsageError(f"first_line is {first}: the file has {len(lines)} lines")
        shown = lines[first - 1 : last]
        while shown[1:] and sum(map(len, shown)) > _SHOWN_CHARS:
            shown = shown[: len(shown) * 3 // 4]
        text = "\n".join(shown)[:_SHOWN_CHARS]
        last = first + len(shown) - 1
        whole = first == 1 and last == len(lines)
        return text if whole else f"{text}\n[lines {first} to {last} of {len(lines)}]"

    def _names(self, name: str) -> tuple[str, list[str]]:
        """Return the name of a folder, links followed, and the files below it, without those that are ignored."""
        place = self._folder.canonical(name)
        if place != "." and not self._folder.is_folder(place):
            raise UsageError(f"there is no folder {name[:200]}: list the folder above it")
        start = "" if place == "." else f"{place}/"
        return start, [start + each for each in found_below(self._folder.path / place)]

    def _list(self, name: str) -> str:
        start, names = self._names(name)
        found = dict.fromkeys(
            first + slash
            for first, slash, _ in sorted(each.removeprefix(start).partition("/") for each in names)
        )
        listed = list(found)[:_MOST_LISTED]
        more = len(found) - len(listed)
        return "\n".join([*listed, *([f"[{more} more]"] if more else [])]) or "[it is empty]"

    def _search(self, pattern: str, name: str, stop: threading.Event) -> str:
        names = self._names(name)[1] if self._folder.is_folder(name) else [name]
        lines, note = search(pattern, self._texts(names), _MOST_FOUND, stop)
        return "\n".join([*lines, *([f"[{note}]"] if note else [])]) or "[nothing matches]"

    def _texts(self, names: Sequence[str]) -> Iterator[tuple[str, str]]:
        """Yield names and texts; what is no text, or may not be read, is left out."""
        for each in sorted(names):
            try:
                yield each, self._text("read_file", each)[1]
            except UsageError:
                continue

    def _preview(self, call: ToolCall, arguments: Mapping[str, Any]) -> str:
        name, before, after = self._change(call.name, arguments)
        self._shown[call.id] = name, before, after
        lines = difflib.unified_diff(
            _decoded(before, name).splitlines(keepends=True),
            after.decode().splitlines(keepends=True),
            f"a/{name}" if before else "/dev/null",
            f"b/{name}",
        )
        return "".join(each if each.endswith("\n") else f"{each}\n" for each in lines)

    def _change(self, tool: str, arguments: Mapping[str, Any]) -> tuple[str, bytes, bytes]:
        """Return the name of a file, links followed, its bytes, and what they become."""
        path = arguments["path"]
        found = self._folder.read(path, _MOST_READ)
        name, before = found or (self._folder.canonical(path), b"")
        if len(before) > _MOST_READ:
            raise UsageError(f"{path} is longer than {_MOST_READ >> 20} MB: change it by a command")
        if tool == "write_file":
            return name, before, arguments["content"].encode()
        if found is None:
            raise UsageError(f"there is no file {path[:200]}: use write_file to make it")
        text, old, new = _decoded(before, path), arguments["old"], arguments["new"]
        count = text.count(old) if old else 0
        if count != 1:
            raise UsageError(
                f"`old` stands {count} times in {path[:200]}: read it, and give a text that stands in it exactly once"
            )
        return name, before, text.replace(old, new).encode()

    def _write(self, call: ToolCall, arguments: Mapping[str, Any]) -> str:
        changed = self._change(call.name, arguments)
        shown = self._shown.pop(call.id, changed)
        self._refuse(call.name, changed[0])
        if shown != changed:
            raise UsageError(f"{changed[0]} {_CHANGED_SINCE}")
        self._folder.write(changed[0], changed[2])
        return f"{changed[0]} is written" if changed[1] else f"{changed[0]} is new"


def command_text(ended: CommandEnded) -> str:
    """Return what a model is told of a command: its output without what a terminal obeys, and how it ended."""
    text = without_escapes(ended.output.decode(errors="replace")).strip("\n")
    how = ended.why or f"exit code {ended.code}"
    return f"{text}\n[{how}]" if text else f"[{how}, no output]"


def _arguments(call: ToolCall, tool: Tool) -> dict[str, Any]:
    """Return the arguments of a call, checked against what its function takes."""
    found = tool.parse(call.arguments)
    known = tool.parameters["properties"]
    for name, value in found.items():
        if name not in known:
            raise UsageError(f"{name[:40]!r} is no argument of {call.name}: use {', '.join(known)}")
        kind = int if known[name]["type"] == "integer" else str
        if not isinstance(value, kind) or isinstance(value, bool):
            raise UsageError(f"{name} is no {known[name]['type']}: write one")
        if isinstance(value, str):
            _check_text(name, value)
    for name in tool.parameters["required"]:
        if name not in found:
            raise UsageError(f"{name} is missing: {known[name]['description']}")
    return found


def _check_text(name: str, value: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{name} has half of a character: write all of it") from None
    if "\0" in value:
        raise UsageError(f"{name} has a NUL in it: leave it out")


def _decoded(raw: bytes, name: str) -> str:
    if len(raw) > _MOST_READ:
        raise UsageError(
            f"{name} is longer than {_MOST_READ >> 20} MB: search in it, or use a command"
        )
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise UsageError(f"{name} is not UTF-8 text: use a command to read it") from None


def _line(text: str) -> str:
    """Return a text as one line that a terminal cannot obey, without hiding a part of it."""
    return printable(" ⏎ ".join(text.splitlines()))


_SUMMARIES: Mapping[str, Callable[[str, Mapping[str, Any]], str]] = {
    "read_file": lambda name, _: f"read {_line(name)}",
    "list_folder": lambda name, _: f"list {_line(name)}",
    "search_folder": lambda name, given: f"search {_line(name)} for {_line(given['pattern'])}",
    "write_file": lambda name, _: f"write {_line(name)}",
    "edit_file": lambda name, _: f"change {_line(name)}",
}
