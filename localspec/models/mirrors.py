"""Sources that a user named: folders, and web servers that hold the same files as the hub.

A file is looked for under its name on the hub, also below its repository's name, and as
`<name of the model>.gguf`. Its bytes are verified like those of any source.
"""

import os
import shlex
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from localspec.errors import UsageError
from localspec.models.entries import ModelEntry
from localspec.models.hub import plain_client
from localspec.models.store import Store
from localspec.models.transfer import RemoteFile, SourceFailedError, fetch_rest, require_space

MIRRORS_VARIABLE = "LOCALSPEC_MIRRORS"


def mirrors_from_environment() -> tuple[str, ...]:
    """Return the folders and addresses in LOCALSPEC_MIRRORS: parted by spaces, quoted as in a shell.

    Raises:
        UsageError: a quote is left open.
    """
    value = os.environ.get(MIRRORS_VARIABLE, "")
    try:
        return tuple(shlex.split(value))
    except ValueError as error:
        raise UsageError(
            f"{MIRRORS_VARIABLE} is {value!r}, which cannot be taken apart ({error}): close the quote"
        ) from error


def from_mirror(
    mirror: str, entry: ModelEntry, store: Store, offline: bool, report: Callable[[int], None]
) -> Path:
    """Return the path in the store of a file that a mirror has.

    Args:
        mirror: a folder, or an address that begins with http:// or https://.
        entry: what the bytes have to be.
        store: takes the file in.
        offline: ask no web server.
        report: called with the number of bytes that have arrived so far.

    Raises:
        SourceFailedError: the mirror does not have it, or does not deliver it.
        IntegrityError: it has another file of that name.
        OSError: the store or the folder fails.
    """
    if not mirror.startswith(("http://", "https://")):
        return _from_folder(Path(mirror).expanduser(), entry, store, report)
    if offline:
        raise SourceFailedError("not asked, offline")
    return store.receive(
        entry, report, lambda partial: fetch_rest(_first_there(mirror, entry), partial, report)
    )


def _from_folder(
    folder: Path, entry: ModelEntry, store: Store, report: Callable[[int], None]
) -> Path:
    if not folder.is_dir():
        raise SourceFailedError("there is no such folder")
    file = next((folder / name for name in _names(entry) if (folder / name).is_file()), None)
    if file is None:
        raise SourceFailedError("not there")
    require_space(store.root, entry.size_bytes - store.partial_bytes(entry))
    return store.copy(entry, file, report)  # since a folder may be a stick that is pulled out


def _first_there(mirror: str, entry: ModelEntry) -> RemoteFile:
    """Return the first of the names that the server knows; the last one if it knows none."""
    client = plain_client()
    for name in _names(entry):
        file = RemoteFile(client, f"{mirror.rstrip('/')}/{quote(name)}")
        with suppress(SourceFailedError), file.open(0, 0):
            break
    return file


def _names(entry: ModelEntry) -> list[str]:
    own = f"{entry.name.replace(':', '-')}.gguf"
    hub = entry.hub
    return [own] if hub is None else [hub.file, f"{hub.repo}/{hub.file}", own]
