"""Takes keys out of a TOML table, each checked, with errors that name the file and the key.

Knows types and patterns, not what the keys mean.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from localspec.errors import UsageError


class Table:
    """A table of which every key must be taken exactly once.

    Args:
        values: what the TOML parser returned.
        file: the file's name, for messages.
        path: the dotted key of this table, for messages; empty for the whole file.
    """

    __slots__ = ("_file", "_path", "_rest")

    def __init__(self, values: Mapping[str, Any], file: str, path: str) -> None:
        self._rest = dict(values)
        self._file = file
        self._path = path

    def __contains__(self, key: str) -> bool:
        return key in self._rest

    def error(self, key: str, problem: str) -> UsageError:
        """Return the error for a key; `problem` goes on after it, such as `is missing`."""
        full = f"{self._path}.{key}" if self._path else key
        return UsageError(f"registry {self._file}: {full[:120]} {problem}")

    def text(self, key: str, pattern: str) -> str:
        """Take a string that matches the whole of a pattern."""
        value = self._take(key)
        if not isinstance(value, str) or not re.fullmatch(pattern, value):
            raise self.error(key, f"cannot be {str(value)[:80]!r}")
        return value

    def optional_text(self, key: str, pattern: str) -> str | None:
        """Take a string if it is there."""
        return self.text(key, pattern) if key in self._rest else None

    def positive(self, key: str, *, default: int | None = None) -> int:
        """Take an integer of at least 1."""
        if default is not None and key not in self._rest:
            return default
        value = self._take(key)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise self.error(key, f"must be a whole number of at least 1, not {str(value)[:80]!r}")
        return value

    def one_of(self, key: str, known: Iterable[str]) -> str:
        """Take a string that is among those known."""
        value, names = self._take(key), list(known)
        if not isinstance(value, str) or value not in names:
            raise self.error(key, f"is {str(value)[:80]!r}, known are {', '.join(names)}")
        return value

    def tables(self, key: str, name_pattern: str) -> Iterator[tuple[str, "Table"]]:
        """Take a table of named tables."""
        value = self._take(key)
        if not isinstance(value, dict):
            raise self.error(key, "is not a table")
        for name, inner in value.items():
            if not re.fullmatch(name_pattern, name):
                raise self.error(f"{key}.{name!r}", "is not a usable name")
            if not isinstance(inner, dict):
                raise self.error(f"{key}.{name}", "is not a table")
            yield name, Table(inner, self._file, f"{key}.{name}")

    def list_of_tables(self, key: str) -> Iterator["Table"]:
        """Take a list of tables; none if it is not there."""
        value = self._rest.pop(key, [])
        if not isinstance(value, list) or not all(isinstance(inner, dict) for inner in value):
            raise self.error(key, "is not a list of tables")
        for number, inner in enumerate(value, 1):
            yield Table(inner, self._file, f"{self._path}.{key}[{number}]")

    def finish(self) -> None:
        """Refuse keys that nobody took: most are misspelt."""
        for key in self._rest:
            raise self.error(f"{key!r}", "is not a known key")

    def _take(self, key: str) -> Any:
        if key not in self._rest:
            raise self.error(key, "is missing")
        return self._rest.pop(key)
