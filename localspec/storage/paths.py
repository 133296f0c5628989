"""Where localspec keeps its files, and how a path is printed; knows no models."""

import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import platformdirs

from localspec.errors import LocalspecError, UsageError
from localspec.storage.files import private_directory

DATA_DIR_VARIABLE = "LOCALSPEC_DATA_DIR"
CONFIG_DIR_VARIABLE = "LOCALSPEC_CONFIG_DIR"
_NOTICES, _NOTICES_BEFORE = "notices_shown", "told"
"""Where notices are noted, and what that was called once."""
_unmade = set[str]()
"""Names of missing folders that this process does not make."""


def data_dir() -> Path:
    """Return the directory for models and history, created readable by its owner only.

    `LOCALSPEC_DATA_DIR` overrides the platform's own place for application data.

    Raises:
        UsageError: the directory is a file, or cannot be created.
    """
    make = os.environ.get(DATA_DIR_VARIABLE) not in _unmade
    return _directory("data", DATA_DIR_VARIABLE, platformdirs.user_data_path, make=make)


def only_read() -> str:
    """Where the variable of `data_dir` names what is not there, have it create nothing in this process, and return a line that says so."""
    override = os.environ.get(DATA_DIR_VARIABLE)
    if not override or Path(override).expanduser().exists():
        return ""
    _unmade.add(override)
    return f"{DATA_DIR_VARIABLE} is {shown(override)}, and there is no such folder: nothing is read from it"


def config_dir() -> Path:
    """Return the directory of the user's own settings and registry; it need not exist.

    `LOCALSPEC_CONFIG_DIR` overrides the platform's own place for settings.

    Raises:
        UsageError: the variable names the home of an unknown user.
    """
    return _directory("config", CONFIG_DIR_VARIABLE, platformdirs.user_config_path, make=False)


def _directory(what: str, variable: str, usual: Callable[[str], Path], *, make: bool) -> Path:
    override = os.environ.get(variable)
    try:
        # Absolute, since a child process may be started with another working directory.
        path = Path(override).expanduser().absolute() if override else usual("localspec")
        if make:
            private_directory(path)
    except (OSError, RuntimeError) as error:  # RuntimeError: `~` of an unknown user
        reason = getattr(error, "strerror", None) or str(error)
        place = override or getattr(error, "filename", None) or "of this user"
        raise UsageError(
            f"{what} directory {shown(place)} cannot be used ({reason}): "
            f"set {variable} to a directory that you can {'write to' if make else 'read'}"
        ) from error
    return path


def first_time(what: str) -> bool:
    """Return whether a notice is the first of its kind on this machine, and note it; False where that cannot be noted.

    Args:
        what: any words for it.
    """
    if os.environ.get(DATA_DIR_VARIABLE) in _unmade:
        return False
    with suppress(OSError, LocalspecError):
        folder, before = data_dir() / _NOTICES, data_dir() / _NOTICES_BEFORE
        if before.is_dir() and not folder.exists():
            before.rename(folder)
        private_directory(folder)
        # An empty file that only one program can make.
        (folder / hashlib.sha256(what.encode()).hexdigest()).touch(exist_ok=False)
        return True
    return False


def read_named(path: Path, most_bytes: int, advice: str) -> str:
    """Return the text of a file that a user named, without a byte order mark; of a pipe, too.

    Raises:
        UsageError: it cannot be read, is longer than that, or is not UTF-8.
    """
    name = shown(path)
    try:
        with path.open("rb") as stream:
            raw = stream.read(most_bytes + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"{name} cannot be read ({reason}): check the path") from error
    if len(raw) > most_bytes:
        raise UsageError(f"{name} has more than {most_bytes >> 20} MB: {advice}")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise UsageError(
            f"{name}:{line}: is not UTF-8 text: convert it, for example with iconv"
        ) from None


def shown(path: str | os.PathLike[str]) -> str:
    """Return a path as it may stand in a one-line message: escaped where it has odd characters."""
    text = os.fspath(path)
    return text if text.isprintable() else ascii(text)


def brief(path: Path) -> str:
    """Return a path as short as it can be written here: from the working directory, or else from home."""
    for start, sign in ((Path.cwd(), ""), (Path.home(), "~/")):
        if path.is_relative_to(start):
            return f"{sign}{path.relative_to(start)}"
    return str(path)
