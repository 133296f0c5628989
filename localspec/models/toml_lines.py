"""Says on which line of a TOML text a key stands, which `tomllib` does not.

For texts that `tomllib` has accepted; of any other text some keys may be missing.
"""

import re
import tomllib
from bisect import bisect_right
from collections.abc import Mapping

KeyPath = tuple[str | int, ...]
"""Keys from the outermost in; a number counts elements of an array, from 0."""

# Keys of keys of keys: nobody looks for deeper ones, and each costs the room of all above it.
_DEEPEST = 16

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_KEY = re.compile(r"""[ \t]*("(?:[^"\\\n]|\\.)*"|'[^'\n]*'|[A-Za-z0-9_-]+)[ \t]*""")
_STRING = re.compile(
    r'''"""(?:\\.|[^\\])*?"{3,5}|\'\'\'.*?\'{3,5}|"(?:[^"\\\n]|\\.)*"|'[^'\n]*\'''', re.DOTALL
)
_SCALAR = re.compile(r"[^,\]}#\r\n]*")


def key_lines(text: str) -> Mapping[KeyPath, int]:
    """Return the line, counted from 1, on which each table and key first stands."""
    scan = _Scan(text)
    try:
        while scan.statement():
            pass
    except (_LostError, RecursionError):
        pass
    return scan.lines


class _LostError(Exception):
    """The text is no TOML from here on."""


class _Scan:
    """A position in a TOML text, and what was found before it."""

    def __init__(self, text: str) -> None:
        self.lines: dict[KeyPath, int] = {}
        self._text = text
        self._at = 0
        self._ends = [match.start() for match in re.finditer("\n", text)]
        self._table: KeyPath = ()
        self._lengths: dict[KeyPath, int] = {}  # of arrays of tables

    def statement(self) -> bool:
        """Pass one header or one `key = value`; False at the end of the text."""
        self._skip_blank()
        if self._at >= len(self._text):
            return False
        if self._text.startswith("[[", self._at):
            self._at += 2
            parts = self._parts()
            path = (*self._resolved(parts, whole=False), parts[-1])
            number = self._lengths.get(path, 0)
            self._lengths[path] = number + 1
            self._note((*path, number))
            self._table = (*path, number)
            self._expect("]]")
        elif self._text.startswith("[", self._at):
            self._at += 1
            self._table = self._resolved(self._parts(), whole=True)
            self._note(self._table)
            self._expect("]")
        else:
            self._key_and_value(self._table)
        return True

    def _resolved(self, parts: list[str], *, whole: bool) -> KeyPath:
        """Return the path of a header; what is an array of tables there means its last element."""
        path: KeyPath = ()
        for part in parts if whole else parts[:-1]:
            path = (*path, part)
            if path in self._lengths:
                path = (*path, self._lengths[path] - 1)
        return path

    def _key_and_value(self, table: KeyPath) -> None:
        start = self._at
        path = (*table, *self._parts())
        self._note(path, start)
        self._expect("=")
        self._value(path)

    def _value(self, path: KeyPath) -> None:
        self._skip_blank()
        start = self._text[self._at : self._at + 1]
        if start == "[":
            self._sequence("]", path, numbered=True)
        elif start == "{":
            self._sequence("}", path, numbered=False)
        else:
            pattern = _STRING if start in {'"', "'"} else _SCALAR
            match = pattern.match(self._text, self._at)
            if match is None:
                raise _LostError
            self._at = match.end()

    def _sequence(self, end: str, path: KeyPath, *, numbered: bool) -> None:
        self._at += 1
        number = 0
        while True:
            self._skip_blank()
            if self._text.startswith(end, self._at):
                self._at += 1
                return
            if numbered:
                self._note((*path, number))
                self._value((*path, number))
            else:
                self._key_and_value(path)
            number += 1
            self._skip_blank()
            if self._text.startswith(",", self._at):
                self._at += 1
            elif not self._text.startswith(end, self._at):
                raise _LostError

    def _parts(self) -> list[str]:
        parts = []
        while True:
            match = _KEY.match(self._text, self._at)
            if match is None:
                raise _LostError
            self._at = match.end()
            parts.append(_unquoted(match[1]))
            if not self._text.startswith(".", self._at):
                return parts
            self._at += 1

    def _note(self, path: KeyPath, at: int | None = None) -> None:
        line = bisect_right(self._ends, (self._at if at is None else at) - 1) + 1
        for length in range(1, min(len(path), _DEEPEST) + 1):
            self.lines.setdefault(path[:length], line)

    def _expect(self, mark: str) -> None:
        if not self._text.startswith(mark, self._at):
            raise _LostError
        self._at += len(mark)

    def _skip_blank(self) -> None:
        match = _BLANK.match(self._text, self._at)
        self._at = match.end() if match else self._at


def _unquoted(part: str) -> str:
    if not part.startswith(('"', "'")):
        return part
    try:
        return next(iter(tomllib.loads(f"{part} = 0")))
    except tomllib.TOMLDecodeError as error:
        raise _LostError from error
