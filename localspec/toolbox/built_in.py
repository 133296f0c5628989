"""BuiltIn: functions that work offline: files of one folder are read, listed, searched and changed, commands run in it."""

import difflib
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from localspec.display import counted, printable
from localspec.errors import UsageError
from localspec.messages import ToolCall, ToolResult
from localspec.storage.tree import list_files
from localspec.toolbox.command import (
    CommandEnded,
    CommandLimits,
    command_text,
    confinement,
    run_command,
)
from localspec.toolbox.file_text import FileText, diff_lines
from localspec.toolbox.folder import Folder
from localspec.toolbox.functions import Function
from localspec.toolbox.rules import COMMAND, Rules
from localspec.toolbox.search import search
from localspec.toolbox.toolbox import Access, Proposal

_MOST_READ = 1 << 20
_MOST_LINES = 400
_MOST_CHARS = 16_000
_MOST_LISTED = 200
_MOST_MATCHES = 60
_ACCESS = {"write_file": Access.WRITE, "edit_file": Access.WRITE, COMMAND: Access.RUN}
_VERBS = {"read_file": "read", "list_folder": "list", "search_folder": "search", "write_file": "write", "edit_file": "change"}  # fmt: skip


class _Change(NamedTuple):
    """A file's name, links followed, its bytes, and what they become."""

    name: str
    before: bytes
    after: bytes


class BuiltIn:
    """The functions of one folder; see `Toolbox`.

    Args:
        folder: where all of it happens.
        rules: what may not even be read in passing.
        limits: of commands.

    Attributes:
        tools: what can be called.
    """

    def __init__(
        self, folder: Folder, rules: Rules | None = None, limits: CommandLimits | None = None
    ) -> None:
        self._folder = folder
        self._rules = rules or Rules()
        self._limits = limits or CommandLimits()
        functions = (
            self.read_file, self.list_folder, self.search_folder, self.write_file, self.edit_file, self.run_command
        )  # fmt: skip
        self._functions = {each.__name__: Function(each) for each in functions}
        tools = (each.tool for each in self._functions.values())
        self.tools = tuple(
            replace(each, parameters={**each.parameters, "additionalProperties": False})
            for each in tools
        )
        self._previewed: dict[str, _Change] = {}

    def propose(self, call: ToolCall) -> Proposal:
        """Return what a call would do; see `Toolbox`."""
        access = _ACCESS.get(call.name, Access.READ)
        try:
            given = self._arguments(call)
            if access is Access.RUN:
                command = given["command"]
                return Proposal(access, f"run {_line(command)}", confinement()[0], None, command)
            name = self._folder.canonical(given.get("path") or ".")
            self._refuse(call.name, name)
            preview = self._preview(call, given) if access is Access.WRITE else ""
        except UsageError as error:
            return Proposal(access, f"{call.name} {_line(call.arguments)}", error=str(error))
        pattern = f" for {_line(given['pattern'])}" if "pattern" in given else ""
        return Proposal(access, f"{_VERBS[call.name]} {_line(name)}{pattern}", preview, None, name)

    def call(self, call: ToolCall, stop: threading.Event) -> ToolResult:
        """Carry a call out; see `Toolbox`. A change is made if it is still the one that was proposed."""
        failed = False
        try:
            done = self._functions[call.name].run(self._arguments(call), stop)
            if isinstance(done, CommandEnded):
                text, failed = command_text(done), bool(done.code or done.why)
            else:
                text = self._write(call, done) if isinstance(done, _Change) else done
        except UsageError as error:
            text, failed = str(error), True
        except OSError as error:
            text, failed = f"{call.name} failed ({error.strerror}): try something else", True
        return ToolResult(call.id, text, failed)

    def close(self) -> None:
        """Let go of the folder."""
        self._folder.close()

    def read_file(self, path: str, first_line: int = 1, last_line: int = 0) -> str:
        """Read a text file.

        Args:
            path: path in the folder
            first_line: line to begin at, 1 by default
            last_line: line to end with
        """
        lines = self._text(path).lines
        first = max(first_line, 1)
        last = min(last_line or len(lines), len(lines), first + _MOST_LINES - 1)
        if first > len(lines) > 0:
            raise UsageError(f"first_line is {first}: the file has {counted(len(lines), 'line')}")
        part = lines[first - 1 : last]
        while part[1:] and sum(map(len, part)) > _MOST_CHARS:
            part = part[: len(part) * 3 // 4]
        text = "\n".join(part)[:_MOST_CHARS]
        last = first + len(part) - 1
        whole = first == 1 and last == len(lines)
        return text if whole else f"{text}\n[lines {first} to {last} of {len(lines)}]"

    def list_folder(self, path: str = "") -> str:
        """List the files and folders in a folder.

        Args:
            path: path in the folder, all of it by default
        """
        start, names = self._names(path or ".")
        parts = sorted(each.removeprefix(start).partition("/") for each in names)
        entries = [*dict.fromkeys(first + slash for first, slash, _ in parts)]
        more = [f"[{len(entries) - _MOST_LISTED} more]"] if len(entries) > _MOST_LISTED else []
        return "\n".join([*entries[:_MOST_LISTED], *more]) or "[it is empty]"

    def search_folder(self, pattern: str, path: str = "", *, stop: threading.Event) -> str:
        """Find the lines that match a regular expression in the files of a folder.

        Args:
            pattern: regular expression
            path: path in the folder to search in, all of it by default
            stop: ends it
        """
        path = path or "."
        names = self._names(path)[1] if self._folder.is_folder(path) else [path]
        try:
            lines, note = search(pattern, self._texts(names), _MOST_MATCHES, stop)
        except ValueError as error:
            raise UsageError(str(error)) from None
        return "\n".join([*lines, *([f"[{note}]"] if note else [])]) or "[nothing matches]"

    def write_file(self, path: str, content: str) -> _Change:
        """Write a new file, or replace a whole one.

        Args:
            path: path in the folder
            content: all of the new text
        """
        name, before = self._current(path)
        return _Change(name, before, FileText.of(before, path).rewritten(content))

    def edit_file(self, path: str, old: str, new: str) -> _Change:
        """Change a file: replace a text that stands in it exactly once.

        Args:
            path: path in the folder
            old: text to replace, exactly as it stands in the file
            new: text to put in its place
        """
        name, before = self._current(path, exists=True)
        file = FileText.of(before, path)
        count = file.count(old)
        if count != 1:
            raise UsageError(
                f"`old` occurs {count} times in {path[:200]}: read it, and give a text that occurs exactly once"
            )
        return _Change(name, before, file.replaced(old, new))

    def run_command(self, command: str, *, stop: threading.Event) -> CommandEnded:
        """Run a shell command in the folder, such as a test.

        Args:
            command: the command
            stop: ends it
        """
        return run_command(command, self._folder.path, self._limits, stop)

    def _arguments(self, call: ToolCall) -> dict[str, Any]:
        given = self._functions[call.name].arguments(call)
        for name, value in given.items():
            if isinstance(value, str) and ("\0" in value or not _is_encodable(value)):
                raise UsageError(f"{name} has a NUL or half of a character in it: leave it out")
        return given

    def _refuse(self, tool: str, name: str) -> None:
        rule = self._rules.denied(tool, name)
        if rule is not None:
            raise UsageError(f"{name} is not for {tool}: the user's rules forbid it ({rule})")

    def _current(self, path: str, *, exists: bool = False) -> tuple[str, bytes]:
        """Return the name of a file, links followed, and its bytes; of one that need not be there, none."""
        file = self._folder.read(path, _MOST_READ)
        if file is None and exists:
            raise UsageError(f"there is no file {path[:200]}: list the folder to see what there is")
        name, content = file or (self._folder.canonical(path), b"")
        if len(content) > _MOST_READ:
            raise UsageError(f"{path} is longer than {_MOST_READ >> 20} MB: use a command")
        return name, content

    def _text(self, path: str) -> FileText:
        name, content = self._current(path, exists=True)
        self._refuse("read_file", name)
        return FileText.of(content, path)

    def _texts(self, names: Sequence[str]) -> Iterator[tuple[str, str]]:
        """Yield names and texts; what is no text, or may not be read, is left out."""
        for each in sorted(names):
            try:
                yield each, self._text(each).text
            except UsageError:
                continue

    def _names(self, path: str) -> tuple[str, list[str]]:
        """Return the name of a folder, links followed, and the files below it, without those that are ignored."""
        name = self._folder.canonical(path)
        if not self._folder.is_folder(name):
            raise UsageError(f"there is no folder {path[:200]}: list the folder above it")
        start = "" if name == "." else f"{name}/"
        return start, [start + each for each in list_files(self._folder.path / name)]

    def _preview(self, call: ToolCall, given: Mapping[str, Any]) -> str:
        change: _Change = self._functions[call.name].run(given, threading.Event())
        self._previewed[call.id] = change
        lines = difflib.unified_diff(
            diff_lines(change.before, change.name),
            diff_lines(change.after, change.name),
            f"a/{change.name}" if change.before else "/dev/null",
            f"b/{change.name}",
        )
        return "".join(lines)

    def _write(self, call: ToolCall, change: _Change) -> str:
        if self._previewed.pop(call.id, None) != change:
            raise UsageError(f"{change.name} changed since the change was proposed: read it again")
        self._folder.write(change.name, change.after)
        return f"{change.name} is {'written' if change.before else 'new'}"


def _is_encodable(text: str) -> bool:
    return text.encode(errors="ignore").decode() == text


def _line(text: str) -> str:
    """Return a text as one line that a terminal cannot obey, without hiding a part of it."""
    return printable(" ⏎ ".join(text.splitlines()))
