"""`chat.toml` in the directory of settings: colours and keys of the chat, personas and templates."""

from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.structs import asdict

from localspec.config.own import write_keys
from localspec.storage.paths import config_dir
from localspec.storage.toml import read_settings

FILE = "chat.toml"
Compact = Literal["ask", "auto", "off"]


class _Settings(Struct, frozen=True, forbid_unknown_fields=True):
    theme: str = ""
    keys: dict[str, str] = {}
    personas: dict[str, str] = {}
    templates: dict[str, str] = {}
    compact: Compact = "ask"


class Preferences(_Settings, frozen=True):
    """How one user likes the chat.

    Args:
        theme: name of the colours; empty for the usual ones.
        keys: keys by the name of what they do, several separated by commas.
        personas: system prompts by name.
        templates: prompts by name, in jinja.
        compact: what is done about a context that gets full: `ask` offers a summary, `auto` has one made.
        file: where a change is saved; None saves none.
    """

    file: Path | None = None


def read_preferences(path: Path | None = None) -> Preferences:
    """Read the file; where there is none, everything is as usual.

    Raises:
        UsageError: it cannot be read, or says something that it cannot.
    """
    path = path or config_dir() / FILE
    return Preferences(**asdict(read_settings(path, _Settings)), file=path)


def keep_theme(preferences: Preferences, name: str) -> None:
    """Write the name of a theme to the file, where it is not there already; the rest of the file stays.

    Raises:
        UsageError: it cannot be written.
    """
    file = preferences.file
    if file is None or name == preferences.theme:
        return
    write_keys(file, {"theme": name})
