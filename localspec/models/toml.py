"""TOML: takes keys out of a table, each checked, and changes one key of a text, all else left as it is.

Knows types and patterns, not what the keys mean. Errors name the file, line and key. On which line a key
stands, `tomllib` does not say: it is found by parsing one statement after the other.
"""

import json
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from localspec.errors import UsageError
from localspec.options import options_of

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

KeyPath = tuple[str | int, ...]
"""Keys from the outermost in; a number counts elements of an array, from 0."""

# Keys of keys of keys: nobody looks for deeper ones.
_DEEPEST = 16
# A statement that goes on for longer is not looked into, nor what follows it.
_MOST_LINES = 200
_LARGEST = 2**63 - 1  # sizes end up in file offsets
_SHOWN = 80


def parse_toml(text: str, file: str) -> "Table":
    """Return the outermost table of a TOML text.

    Args:
        text: the content of a file.
        file: what to call the file in messages, such as `registry models.toml`.

    Raises:
        UsageError: the text is not TOML; the message says on which line.
    """
    try:
        values = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError: also numbers of 5,000 digits
        reason = "too deeply nested" if isinstance(error, RecursionError) else str(error)
        raise UsageError(f"{file} is not TOML: {reason[:200]}") from error
    return Table(values, file, (), text)


def key_lines(text: str) -> Mapping[KeyPath, int]:
    """Return the line, counted from 1, on which the statement begins that first names a table or key.

    Args:
        text: what `tomllib` has accepted; of any other text some keys may be missing.
    """
    lines: dict[KeyPath, int] = {}
    lengths: dict[KeyPath, int] = {}  # of arrays of tables
    table: KeyPath = ()
    written = text.split("\n")
    for first, _, parsed in _statements(written, _MOST_LINES):
        is_header = written[first].lstrip().startswith("[")
        if is_header:
            table = _header(parsed, lengths)
        for path in [table] if is_header else _paths(parsed, table):
            for length in range(1, min(len(path), _DEEPEST) + 1):
                lines.setdefault(path[:length], first + 1)
    return lines


def _header(parsed: Any, lengths: dict[KeyPath, int]) -> KeyPath:
    """Return the path of a header; what is an array of tables there means its last element."""
    path: KeyPath = ()
    while isinstance(parsed, dict) and parsed:
        if path in lengths:
            path = (*path, lengths[path] - 1)
        ((key, parsed),) = parsed.items()
        path = (*path, key)
    if isinstance(parsed, list):
        lengths[path] = lengths.get(path, 0) + 1
    return (*path, lengths[path] - 1) if path in lengths else path


def _paths(value: Any, path: KeyPath) -> Iterator[KeyPath]:
    items: Iterable[tuple[str | int, Any]] = ()
    if len(path) < _DEEPEST and isinstance(value, (dict, list)):
        items = value.items() if isinstance(value, dict) else enumerate(value)
    yield path
    for key, inner in items:
        yield from _paths(inner, (*path, key))


class Table:
    """A table of which every key must be taken exactly once.

    Args:
        values: what the TOML parser returned.
        file: what to call the file in messages.
        path: the keys that lead to this table; none for the whole file.
        text: of the whole file.
    """

    __slots__ = ("_file", "_path", "_text", "rest")

    def __init__(
        self,
        values: Mapping[str, Any],
        file: str,
        path: KeyPath = (),
        text: str = "",
    ) -> None:
        self.rest = dict(values)
        self._file = file
        self._path = path
        self._text = text

    def __contains__(self, key: str) -> bool:
        return key in self.rest

    def error(self, key: str, problem: str) -> UsageError:
        """Return the error for a key; `problem` goes on after it, such as `is missing`.

        A key that is not there is looked for where its table begins.
        """
        path = (*self._path, key)
        lines = key_lines(self._text)
        line = lines.get(path) or lines.get(self._path)
        place = f"{self._file}, line {line}" if line else self._file
        return UsageError(f"{place}: {_dotted(path)[:120]} {problem}")

    def text(self, key: str, pattern: str) -> str:
        """Take a string that matches the whole of a pattern."""
        value = self._take(key)
        if not isinstance(value, str) or not re.fullmatch(pattern, value):
            raise self.error(key, f"cannot be {brief(value)}")
        return value

    def optional_text(self, key: str, pattern: str) -> str | None:
        """Take a string if it is there."""
        return self.text(key, pattern) if key in self.rest else None

    def positive(self, key: str, *, default: int | None = None) -> int:
        """Take an integer of at least 1."""
        if default is not None and key not in self.rest:
            return default
        value = self._take(key)
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= _LARGEST:
            raise self.error(key, f"must be a whole number of at least 1, not {brief(value)}")
        return value

    def optional_positive(self, key: str) -> int | None:
        """Take an integer of at least 1 if it is there."""
        return self.positive(key) if key in self.rest else None

    def one_of(self, key: str, known: Iterable[str]) -> str:
        """Take a string that is among those known."""
        value, names = self._take(key), list(known)
        if not isinstance(value, str) or value not in names:
            raise self.error(key, f"is {brief(value)}: choose one of {', '.join(names)}")
        return value

    def switch(self, key: str) -> bool:
        """Take a boolean; False if it is not there."""
        value = self.rest.pop(key, False)
        if not isinstance(value, bool):
            raise self.error(key, f"must be true or false, not {brief(value)}")
        return value

    def optional_list(self, key: str, pattern: str) -> tuple[str, ...] | None:
        """Take a list of strings that match a pattern if it is there."""
        if key not in self.rest:
            return None
        value = self.rest.pop(key)
        if not isinstance(value, list) or not all(
            isinstance(each, str) and re.fullmatch(pattern, each) for each in value
        ):
            raise self.error(key, "is not a list of texts")
        return tuple(value)

    def tables(self, key: str, name_pattern: str) -> Iterator[tuple[str, "Table"]]:
        """Take a table of named tables; none if it is not there."""
        outer = self.table(key, name_pattern)
        for name in list(outer.rest):
            yield name, outer.table(name)

    def texts(self, key: str, name_pattern: str, pattern: str) -> dict[str, str]:
        """Take a table of named strings that match a pattern; none if it is not there."""
        inner = self.table(key, name_pattern)
        return {name: inner.text(name, pattern) for name in list(inner.rest)}

    def options(self, key: str, kind: "type[DataclassInstance]") -> dict[str, Any]:
        """Take a table of options that a settings file may set, each with a value that it can have."""
        known = {each.name: each for each in options_of(kind) if each.key}
        inner = self.table(key)
        for name, given in inner.rest.items():
            if name not in known:
                raise inner.error(name, f"is not a known option: use one of {', '.join(known)}")
            problem = known[name].problem(given)
            if problem is not None:
                raise inner.error(name, f"cannot be used: {problem}")
        return inner.rest

    def list_of_tables(self, key: str) -> Iterator["Table"]:
        """Take a list of tables; none if it is not there."""
        value = self.rest.pop(key, [])
        if not isinstance(value, list) or not all(isinstance(inner, dict) for inner in value):
            raise self.error(key, "is not a list of tables")
        for number, inner in enumerate(value):
            yield Table(inner, self._file, (*self._path, key, number), self._text)

    def finish(self) -> None:
        """Refuse keys that nobody took: most are misspelt."""
        for key in self.rest:
            raise self.error(key, "is not a known key")

    def table(self, key: str, name_pattern: str = "(?s:.*)") -> "Table":
        """Take a table whose keys match a pattern; an empty one if it is not there."""
        value = self.rest.pop(key, {})
        if not isinstance(value, dict):
            raise self.error(key, "is not a table")
        table = Table(value, self._file, (*self._path, key), self._text)
        for name in value:
            if not re.fullmatch(name_pattern, name):
                raise table.error(name, "is not a usable name")
        return table

    def _take(self, key: str) -> Any:
        if key not in self.rest:
            raise self.error(key, "is missing")
        return self.rest.pop(key)


def brief(value: object) -> str:
    """Return a value as it may stand in a one-line message."""
    try:
        return repr(str(value)[:_SHOWN])
    except ValueError:  # hexadecimal numbers may be longer than Python prints
        return "a number of thousands of digits"


def _dotted(path: KeyPath) -> str:
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part + 1}]"
        else:
            shown = part if re.fullmatch(r"[A-Za-z0-9._:-]+", part) else repr(part[:_SHOWN])
            text += f".{shown}" if text else shown
    return text


Value = str | int | float | bool | Sequence[str]


def with_key(text: str, key: str, value: Value | None, table: str = "") -> str:
    """Return a text in which a key has a value, or is not there for None.

    Args:
        text: TOML.
        key: a bare or quoted name; dots in it are part of it.
        value: what it gets.
        table: in which table of the outermost one it is; empty for the outermost itself.

    Raises:
        UsageError: the text is written in a way that this cannot change.
    """
    lines = text.removesuffix("\n").split("\n") if text else []
    here, end, header = not table, 0, None
    found: tuple[int, int] | None = None
    for first, last, parsed in _statements(lines):
        if lines[first].lstrip().startswith("["):
            here = parsed == {table: {}}
            header = last if here else header
        elif here and key in parsed:
            found = first, last
        if here and (parsed or last == first):
            end = last
    written = [] if value is None else [f"{_name(key)} = {_written(value)}"]
    if found is not None:
        lines[found[0] : found[1]] = written
    elif written and table and header is None:
        lines += [*([""] if lines else []), f"[{_name(table)}]", *written]
    else:
        at = header if header is not None else end
        lines[at:at] = written
    changed = "\n".join(lines) + "\n" if lines else ""
    _check(text, changed, key, value, table)
    return changed


def _statements(
    lines: Sequence[str], most_lines: int = sys.maxsize
) -> Iterator[tuple[int, int, dict[str, object]]]:
    """Yield the first line of every statement, the line behind it, and what it says alone; end at one that is longer."""
    first = 0
    for last in range(1, len(lines) + 1):
        try:
            parsed = tomllib.loads("\n".join(lines[first:last]))
        except (ValueError, RecursionError):  # it goes on in the next line
            if last - first > most_lines:
                return
            continue
        yield first, last, parsed
        first = last


def _check(before: str, after: str, key: str, value: Value | None, table: str) -> None:
    """Raise UsageError unless nothing but the key has changed."""
    try:
        expected, found = tomllib.loads(before), tomllib.loads(after)
        place = expected.setdefault(table, {}) if table else expected
        place.pop(key, None)
        if value is not None:
            place[key] = list(value) if isinstance(value, tuple | list) else value
        same = found == expected or (table and not place and table not in found)
    except (ValueError, AttributeError):
        same = False
    if not same:
        raise UsageError(f"{key} cannot be changed in this file as it is written: edit it by hand")


def _name(key: str) -> str:
    bare = key.isascii() and key.replace("-", "").replace("_", "").isalnum()
    return key if bare else _written(key)


def _written(value: Value) -> str:
    if isinstance(value, bool | str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, int | float):
        return repr(value)
    return f"[{', '.join(_written(each) for each in value)}]"
