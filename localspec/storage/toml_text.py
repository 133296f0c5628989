"""Changes one key of a TOML text and leaves every other character, comments among them, as it is."""

import json
import tomllib
from collections.abc import Iterator, Sequence

from localspec.errors import UsageError

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


def _statements(lines: Sequence[str]) -> Iterator[tuple[int, int, dict[str, object]]]:
    """Yield the first line of every statement, the line behind it, and what it says alone."""
    first = 0
    for last in range(1, len(lines) + 1):
        try:
            parsed = tomllib.loads("\n".join(lines[first:last]))
        except ValueError:  # it goes on in the next line
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
