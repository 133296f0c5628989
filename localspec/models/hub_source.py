"""Fetches a model file from the Hugging Face hub, or finds it in the hub's cache on this machine.

The hub says where a file is; the bytes are fetched here, so that a download that was cut goes on
where it stopped. What arrived goes where the hub's other clients share it, into its cache, and
the store points to it.
"""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from localspec.errors import IntegrityError
from localspec.models.download import (
    ask_hub,
    cache_folder,
    cached_file,
    file_address,
    hub_client,
    hub_headers,
    hub_is_closed,
    quiet_hub,
    revision_of,
)
from localspec.models.entries import HubSource, ModelEntry
from localspec.models.http_file import HttpFile, LineCutError
from localspec.models.hub_reasons import refusal
from localspec.models.partial import Partial
from localspec.models.progress import SourceFailedError
from localspec.models.space import require_space
from localspec.models.staging import require
from localspec.models.store import Store
from localspec.models.transfer import A_PAGE, fetch_rest

_COMMIT = re.compile(r"[0-9a-f]{40}")


def from_hub(
    source: HubSource,
    entry: ModelEntry,
    store: Store,
    offline: bool,
    report: Callable[[int], None],
) -> Path:
    """Return the path in the store of a file that the hub, or its cache on this machine, has.

    Args:
        source: where it is on the hub.
        entry: what its bytes have to be.
        store: takes it in.
        offline: look into the cache only.
        report: called with the number of bytes that have arrived so far.

    Raises:
        SourceFailedError: the hub does not deliver it; what came is kept for the next time.
        IntegrityError: the hub has another file there.
        OSError: the store has no room, or the file cannot be read.
    """
    damaged = False
    for cached in _cached(source, entry):
        try:
            return store.adopt(entry, cached)
        except IntegrityError:
            damaged = True
    if offline or hub_is_closed():
        cache = "its copy in the hub's cache is damaged" if damaged else "not in the hub's cache"
        raise SourceFailedError(cache + (", offline" if offline else ", HF_HUB_OFFLINE is set"))
    require_space(store.root, entry.size_bytes - store.partial_bytes(entry, "http"))
    with quiet_hub():
        address = _HubAddress(source, entry)
        secret = hub_headers()
        file = HttpFile(hub_client(), address.resolve, address.url, secret)
        with suppress(LineCutError):  # the download tries again, a few times
            file.locate()
        with store.resume(entry, "http", report) as partial:
            here = store.path_of(entry)
            if here is not None:  # brought by another process meanwhile
                return here
            refused = refusal(with_token="authorization" in secret)
            fetch_rest(file, partial, report, refused=refused)
            partial.verify()
            return _put_away(source, address.commit, partial, store)


def in_hub_cache(entry: ModelEntry) -> bool:
    """Return whether the hub's cache on this machine has a file, which need not be fetched then.

    Only the size is looked at: hashing waits until the file is taken in.
    """
    hub = [source for source in entry.sources if isinstance(source, HubSource)]
    files = (file for source in hub for file in _cached(source, entry))
    return any(file.stat().st_size == entry.size_bytes for file in files)


@contextmanager
def hub_file(source: HubSource) -> Iterator[HttpFile]:
    """Open a file on the hub for reading parts of it, such as its header.

    Raises:
        SourceFailedError: the hub is closed or does not answer; may also come while reading.
    """
    if hub_is_closed():
        raise SourceFailedError("HF_HUB_OFFLINE is set")
    with quiet_hub():
        address = _HubAddress(source, None)
        yield HttpFile(hub_client(), address.resolve, address.url, hub_headers())


class _HubAddress:
    """Where the hub says that a file is; that address may expire, and is asked for again then."""

    def __init__(self, source: HubSource, entry: ModelEntry | None) -> None:
        self.url = file_address(source)
        self.commit: str | None = None
        self._entry = entry

    def resolve(self) -> str:
        """Return an address for the bytes.

        Raises:
            SourceFailedError: the hub does not deliver the file.
            IntegrityError: the hub has another file there.
            LineCutError: the hub has trouble that may pass.
        """
        answer = ask_hub(self.url)
        if answer.commit_hash is None:
            raise SourceFailedError(A_PAGE)
        if self._entry is not None:
            size, etag = answer.size, answer.etag
            promised = f"{self._entry.size_bytes} bytes"
            if size is not None:
                require(self._entry, "size", f"{size} bytes", promised)
            if etag is not None and len(etag) == len(self._entry.sha256):
                require(self._entry, "sha256", etag, self._entry.sha256)
                # It becomes the name of a folder.
                self.commit = answer.commit_hash if _COMMIT.fullmatch(answer.commit_hash) else None
        location: str = answer.location
        return location


def _cached(source: HubSource, entry: ModelEntry) -> Iterator[Path]:
    """Yield what the hub's cache holds: the blob of any revision, and the file of this one."""
    # The name of a large file's blob is its sha256 there.
    blob = cache_folder(source) / "blobs" / entry.sha256
    if blob.is_file():
        yield blob
        return
    file = cached_file(source)
    if file is not None:
        yield file


def _put_away(source: HubSource, commit: str | None, partial: Partial, store: Store) -> Path:
    """Move a verified file into the hub's cache, as documented there, or else into the store."""
    repo = cache_folder(source)
    blob = repo / "blobs" / partial.entry.sha256
    if commit is None:  # the hub does not name this file by its sha256
        return store.publish(partial)
    try:
        blob.parent.mkdir(parents=True, exist_ok=True)
        partial.move_to(blob)
    except OSError:  # another file system, or a cache that is not ours to write
        return store.publish(partial)
    with suppress(OSError):  # without a name there, the file is still found by its sha256
        name = repo / "snapshots" / commit / source.file
        name.parent.mkdir(parents=True, exist_ok=True)
        name.unlink(missing_ok=True)
        name.symlink_to(os.path.relpath(blob, name.parent))
        revision = revision_of(source)
        if revision != commit:
            reference = repo / "refs" / revision
            reference.parent.mkdir(parents=True, exist_ok=True)
            reference.write_text(commit, encoding="utf-8")
    return store.point_to(partial.entry, blob)
