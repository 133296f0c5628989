"""What an answer has to look like, from flags: a schema, a grammar or a regular expression, in a file or written out."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from localspec.chat.reply_options import ReplyOptions
from localspec.errors import UsageError

_MOST_BYTES = 4 << 20
_FLAGS = ("json_schema", "grammar", "regex", "lark")
_WRITTEN_OUT = ("{", "true", "false")


def structured(options: ReplyOptions, flags: Mapping[str, Any]) -> ReplyOptions:
    """Return options with what the flags say of the answer's look.

    Raises:
        UsageError: there is no such file, it is wrong, or more than one of them are given.
    """
    given = [name for name in _FLAGS if flags[name] is not None]
    if not given:
        return options
    if len(given) > 1:
        names = " and ".join(f"--{name.replace('_', '-')}" for name in given)
        raise UsageError(f"{names} exclude each other: give one of them")
    (name,) = given
    value = flags[name]
    if name == "regex" or (name == "json_schema" and value.lstrip().startswith(_WRITTEN_OUT)):
        return replace(options, **{name: value})
    text = _read(Path(value), f"--{name.replace('_', '-')}")
    return _from_file(value, lambda: replace(options, **{name: text}))


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
