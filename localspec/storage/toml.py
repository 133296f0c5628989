"""TOML files: read into typed values with errors of one line that name the key, and edited with their comments kept."""

import hashlib
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from localspec.errors import UsageError
from localspec.storage.files import read_bounded, write_atomic
from localspec.storage.paths import shown

T = TypeVar("T")
Value = str | int | float | bool | list[str] | tuple[str, ...]

_MOST_CHARS = 80
_MOST_BYTES = 256 << 10
_AT = re.compile(r"(?s)(?P<problem>.*?)(?: - at (?:`key` in )?`\$(?P<path>[^`]*)`)?")
_FIELD = re.compile(r"(?s)Object (contains unknown|missing required) field `(.*)`")
_BOUND = re.compile(r"Expected `\w+` (<|>)= (\S+)")
_TYPE = re.compile(r"Expected `(.+?)(?: \| null)?`, got .*")
_TYPES = {
    "object": "a table",
    "array": "a list",
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
}


def parse_toml(text: str, file: str) -> dict[str, Any]:
    """Return the outermost table of a TOML text.

    Args:
        text: the content of a file.
        file: what to call the file in messages, such as `registry models.toml`.

    Raises:
        UsageError: the text is not TOML; the message says on which line.
    """
    if not text:
        return {}
    import tomllib  # noqa: PLC0415 - most starts find what was parsed before

    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError: also numbers of 5,000 digits
        reason = "too deeply nested" if isinstance(error, RecursionError) else str(error)
        raise UsageError(f"{file} is not TOML: {reason[:200]}") from error


def parse_once(text: str, file: str, parsed: Path) -> dict[str, Any]:
    """Return what `parse_toml` does, which is also kept in a file: JSON is read in a hundredth of the time.

    Args:
        text: TOML without dates and times, which JSON would make text.
        file: as in `parse_toml`.
        parsed: what was parsed last, with the digest of its text; it is written where its directory is there.
    """
    digest = hashlib.sha256(text.encode()).hexdigest()
    with suppress(OSError, ValueError):
        kind = tuple[str, dict[str, Any]]
        of, tables = msgspec.json.decode(read_bounded(parsed, 4 * _MOST_BYTES), type=kind)
        if of == digest:
            return tables
    tables = parse_toml(text, file)
    with suppress(OSError):
        write_atomic(parsed, msgspec.json.encode((digest, tables)))
    return tables


def read_settings(file: Path, kind: type[T]) -> T:
    """Return the typed content of a file that the user writes; without the file, that of an empty one.

    Raises:
        UsageError: it cannot be read, is not TOML, or has something that it cannot have.
    """
    name, text = shown(file), ""
    try:
        text = read_bounded(file, _MOST_BYTES).decode()
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise UsageError(f"{name} cannot be read ({reason}): fix it") from error
    return convert(parse_toml(text, name), kind, name)


def convert(values: object, kind: type[T], file: str, *path: str) -> T:
    """Return the typed value that a part of a TOML file holds.

    Args:
        values: what the parser returned for it.
        kind: what `msgspec` makes of it.
        file: what to call the file in messages.
        path: the keys that lead to it.

    Raises:
        UsageError: a key is missing, unknown, or has a value that it cannot have.
    """
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        raise UsageError(f"{file}: {_problem(str(error), values, kind, path)}") from None


def key_error(file: str, problem: str, *path: str | int) -> UsageError:
    """Return the error for a key; `problem` goes on after its name, such as `is missing`."""
    return UsageError(f"{file}: {dotted(*path)} {problem}")


def _problem(message: str, value: Any, kind: object, path: tuple[str | int, ...]) -> str:
    """Return in our words what msgspec found wrong, with the path of the key and its value."""
    parts = _AT.fullmatch(message)
    problem, inner = (message, "") if parts is None else (parts["problem"], parts["path"] or "")
    for name, number in re.findall(r"\.(\w+)|\[(\d+)\]", inner.partition("[...]")[0]):
        part = name or int(number)
        path, value = (*path, part), value[part] if part in value or number else None
    if field := _FIELD.fullmatch(problem):
        is_missing = field[1].startswith("missing")
        return f"{dotted(*path, field[2])} is {'missing' if is_missing else 'not a known key'}"
    key = f"{'a value in ' if '[...]' in inner else ''}{dotted(*path)}"
    if problem.startswith("Invalid"):
        choices = ", ".join(dict.fromkeys(_choices(msgspec.json.schema(kind), path[-1])))
        return f"{key} is {brief(value)}: choose one of {choices}"
    if bound := _BOUND.fullmatch(problem):
        return f"{key} must be at {'least' if bound[1] == '>' else 'most'} {bound[2]}, not {brief(value)}"
    if wanted := _TYPE.fullmatch(problem):
        kinds = " or ".join(_TYPES.get(each, each) for each in wanted[1].split(" | "))
        return f"{key} must be {kinds}, not {brief(value)}"
    return f"{key} cannot be {brief(value)}" if "regex" in problem else f"{key} {problem}"


def _choices(schema: Any, key: str | int, here: bool = False) -> Iterator[str]:
    """Yield the values that a JSON schema allows for the property of a name."""
    if isinstance(schema, Mapping):
        if here and "enum" in schema:
            yield from filter(None, schema["enum"])
        for name, inner in schema.items():
            yield from _choices(inner, key, name == key or (here and name == "anyOf"))
    elif isinstance(schema, list):
        for inner in schema:
            yield from _choices(inner, key, here)


def brief(value: object) -> str:
    """Return a value as it may stand in a one-line message."""
    try:
        return repr(str(value)[:_MOST_CHARS])
    except ValueError:  # hexadecimal numbers may be longer than Python prints
        return "a number of thousands of digits"


def dotted(*path: str | int) -> str:
    """Return a path of keys as a message names it; elements of lists count from 1."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part + 1}]"
        else:
            name = part if re.fullmatch(r"[A-Za-z0-9._:-]+", part) else repr(part[:_MOST_CHARS])
            text += f".{name}" if text else name
    return text[:120]


def with_key(text: str, key: str, value: Value | None, table: str = "") -> str:
    """Return a text in which a key has a value, or is not there for None.

    Args:
        text: TOML; comments in it and the order of keys stay.
        key: its name; dots in it are part of it.
        value: what it gets.
        table: in which table of the outermost one it is; empty for the outermost itself.

    Raises:
        UsageError: the text is not TOML, or has no such table but another value of its name.
    """
    # Few runs edit a file.
    import tomlkit  # noqa: PLC0415
    from tomlkit.exceptions import TOMLKitError  # noqa: PLC0415

    try:
        document = tomlkit.parse(text)
        place: Any = document
        if table and (table in document or value is not None):
            place = document.setdefault(table, tomlkit.table())
        if value is not None:
            place[key] = list(value) if isinstance(value, tuple) else value
        elif key in place:
            del place[key]
        return tomlkit.dumps(document)
    except (TOMLKitError, TypeError) as error:
        raise UsageError(
            f"{key} cannot be changed in this file as it is written: edit it by hand"
        ) from error


def dump_toml(values: Mapping[str, Any]) -> bytes:
    """Return a file that the program keeps."""
    import tomlkit  # noqa: PLC0415

    return tomlkit.dumps(values).encode()
