"""What an answer has to look like, from flags: a grammar or a JSON schema, in a file or written out."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from localspec.chat.reply_options import ReplyOptions
from localspec.errors import UsageError

_MOST_BYTES = 4 << 20
_WRITTEN_OUT = ("{", "true", "false")


def structured(options: ReplyOptions, flags: Mapping[str, Any]) -> ReplyOptions:
    """Return options with the grammar or the schema that the flags name.

    Raises:
        UsageError: there is no such file, it is wrong, or both are given.
    """
    schema, grammar = flags["json_schema"], flags["grammar"]
    if schema is not None and grammar is not None:
        raise UsageError("--json-schema and --grammar exclude each other: give one of them")
    if grammar is not None:
        text = _read(Path(grammar), "--grammar")
        return _from_file(grammar, lambda: replace(options, grammar=text))
    if schema is None:
        return options
    if schema.lstrip().startswith(_WRITTEN_OUT):
        return replace(options, json_schema=schema)
    text = _read(Path(schema), "--json-schema")
    return _from_file(schema, lambda: replace(options, json_schema=text))


def _from_file(name: str, read: Callable[[], ReplyOptions]) -> ReplyOptions:
    try:
        return read()
    except UsageError as error:
        raise UsageError(f"{name}: {error}") from None


def _read(path: Path, option: str) -> str:
    try:
        with path.open("rb") as file:
            raw = file.read(_MOST_BYTES + 1)
        text = raw.decode("utf-8-sig")
    except OSError as error:
        raise UsageError(f"{option} {path} cannot be read: {error.strerror}") from None
    except ValueError:  # of a name with a NUL in it, too
        raise UsageError(f"{option} {str(path)!r} is no UTF-8 text") from None
    if len(raw) > _MOST_BYTES:
        raise UsageError(f"{option} {path} has more than {_MOST_BYTES >> 20} MB: shorten it")
    return text
