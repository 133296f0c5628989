"""What an answer has to look like, from flags: a grammar or a JSON schema, in a file or written out."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from localspec.errors import UsageError
from localspec.options import ReplyOptions

_MOST_BYTES = 4 << 20
_WRITTEN_OUT = ("{", "true", "false")


def structured(options: ReplyOptions, flags: Mapping[str, Any]) -> ReplyOptions:
    """Return options with the grammar or the schema that the flags name, if they name any.

    Raises:
        UsageError: there is no such file, it is wrong, or both are given.
    """
    schema, grammar = flags.get("json_schema"), flags.get("grammar")
    if schema is not None and grammar is not None:
        raise UsageError("--json-schema and --grammar exclude each other: give one of them")
    if grammar is not None:
        return _sound(replace(options, grammar=_read(Path(grammar), "--grammar")), grammar)
    if schema is None:
        return options
    if schema.lstrip().startswith(_WRITTEN_OUT):
        return _sound(replace(options, json_schema=schema), "")
    return _sound(replace(options, json_schema=_read(Path(schema), "--json-schema")), schema)


def _sound(options: ReplyOptions, file: str) -> ReplyOptions:
    """Return options whose grammar or schema is sound; what is wrong is said of its file."""
    # Most answers are free, and the chat's first frame waits for none of it.
    from localspec.structured.answer_grammar import answer_gbnf  # noqa: PLC0415

    try:
        answer_gbnf(options)
    except UsageError as error:
        raise UsageError(f"{file}: {error}" if file else str(error)) from None
    return options


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
