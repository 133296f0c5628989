"""`chat.toml` in the directory of settings: colours and keys of the chat, personas and templates."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from localspec.errors import UsageError
from localspec.storage.paths import config_dir, shown

FILE = "chat.toml"
Compact = Literal["ask", "auto", "off"]
_MOST_BYTES = 256 << 10


@dataclass(frozen=True, slots=True)
class Preferences:
    """How one user likes the chat.

    Args:
        theme: name of the colours; empty for the usual ones.
        keys: keys by the name of what they do, several separated by commas.
        personas: system prompts by name.
        templates: prompts by name, in jinja.
        compact: what is done about a context that gets full: `ask` offers a summary, `auto` has one made.
        file: where a change is kept; None keeps none.
    """

    theme: str = ""
    keys: Mapping[str, str] = field(default_factory=dict)
    personas: Mapping[str, str] = field(default_factory=dict)
    templates: Mapping[str, str] = field(default_factory=dict)
    compact: Compact = "ask"
    file: Path | None = field(default=None, compare=False)


def read_preferences(path: Path | None = None) -> Preferences:
    """Read the file; where there is none, everything is as usual.

    Raises:
        UsageError: it cannot be read, or says something that it cannot.
    """
    path = path or config_dir() / FILE
    if not path.is_file():
        return Preferences(file=path)
    try:
        with path.open("rb") as stream:
            values = tomllib.loads(stream.read(_MOST_BYTES).decode())
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"{shown(path)} cannot be read ({reason}): fix it") from error
    tables = ("keys", "personas", "templates")
    unknown = values.keys() - {"theme", "compact", *tables}
    if unknown:
        known = ", ".join(f"[{each}]" for each in tables)
        raise UsageError(
            f"{shown(path)}: {min(unknown)[:60]!r} is not a known key: use theme, compact, {known}"
        )
    theme = values.get("theme", "")
    if not isinstance(theme, str):
        raise UsageError(f"{shown(path)}: theme is {theme!r}: give the name of a theme")
    compact = values.get("compact", "ask")
    if compact not in get_args(Compact):
        raise UsageError(f"{shown(path)}: compact is {compact!r}: choose one of ask, auto, off")
    texts = {each: _texts(values, each, path) for each in tables}
    return Preferences(theme=theme, compact=compact, file=path, **texts)


def keep_theme(preferences: Preferences, name: str) -> None:
    """Write the name of a theme to the file, where it is not there already; the rest of the file stays.

    Raises:
        UsageError: it cannot be written.
    """
    from localspec.storage.files import private_directory, write_atomic  # noqa: PLC0415 - not at the start
    from localspec.storage.toml import with_key  # noqa: PLC0415

    file = preferences.file
    if file is None or name == preferences.theme:
        return
    try:
        text = file.read_text(encoding="utf-8") if file.exists() else ""
        private_directory(file.parent)
        write_atomic(file.resolve(), with_key(text, "theme", name).encode())
    except OSError as error:
        raise UsageError(
            f"{shown(file)} cannot be written ({error.strerror}): the theme is not saved"
        ) from error


def _texts(values: Mapping[str, object], name: str, path: Path) -> Mapping[str, str]:
    table = values.get(name, {})
    if not isinstance(table, dict) or not all(isinstance(each, str) for each in table.values()):
        raise UsageError(f"{shown(path)}: every entry of [{name}] must be text")
    return table
