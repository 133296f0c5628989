"""A small JSON file beside the store, replaced as a whole: what no file of the store says of itself."""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from localspec.errors import LocalspecError
from localspec.models.paths import shown
from localspec.models.private import private_opener


def read_index(path: Path, what: str, remedy: str) -> dict[str, Any]:
    """Return what an index says, by name; nothing where there is none. Values are not checked.

    Args:
        path: of the file.
        what: what it lists, for messages.
        remedy: how to go on without it, likewise.

    Raises:
        LocalspecError: it cannot be read.
    """
    if path.exists() and not path.is_file():  # opening a named pipe would wait for ever
        raise damaged(path, what, remedy, "it is no regular file")
    try:
        top = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise damaged(path, what, remedy, getattr(error, "strerror", None)) from error
    if not isinstance(top, dict):
        raise damaged(path, what, remedy)
    return top


def damaged(path: Path, what: str, remedy: str, reason: str | None = None) -> LocalspecError:
    """Return the error for an index that cannot be used."""
    return LocalspecError(
        f"the list of {what} {shown(path)} cannot be read ({reason or 'it is damaged'}): "
        f"mend or remove it, and {remedy}"
    )


def write_index(path: Path, values: Mapping[str, Any]) -> None:
    """Replace an index; whoever reads meanwhile sees the old one or the new one, whole.

    The caller holds the lock of its directory.
    """
    beside = path.with_name(f"{path.name}.new")
    with suppress(FileNotFoundError):
        beside.unlink()
    with open(beside, "x", encoding="utf-8", opener=private_opener) as stream:
        json.dump(dict(sorted(values.items())), stream, indent=1)
        stream.flush()
        os.fsync(stream.fileno())
    beside.replace(path)
