"""Files by way of the hub's cache on this machine, where its other clients share them.

What it holds is not fetched; what is fetched goes there, and the store points to it.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from localspec.errors import IntegrityError
from localspec.models.entries import HubSource, ModelEntry
from localspec.models.hub import HubFile, is_closed, library
from localspec.models.partial import Partial
from localspec.models.store import Store
from localspec.models.transfer import SourceFailedError, fetch_rest


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
    if offline or is_closed():
        cache = "its copy in the hub's cache is damaged" if damaged else "not in the hub's cache"
        raise SourceFailedError(cache + (", offline" if offline else ", HF_HUB_OFFLINE is set"))
    file = HubFile(source, entry)
    return store.receive(
        entry,
        report,
        lambda partial: fetch_rest(file, partial, report),
        publish=lambda partial: _put_away(source, file.commit, partial, store),
    )


def cached_file(source: HubSource) -> Path | None:
    """Return a file that the hub's cache on this machine holds under its name."""
    file = library().try_to_load_from_cache(source.repo, source.file, revision=source.revision)
    return Path(file) if isinstance(file, str) and Path(file).is_file() else None


def in_hub_cache(entry: ModelEntry) -> bool:
    """Return whether the hub's cache on this machine has a file, which need not be fetched then.

    Only the size is looked at: hashing waits until the file is taken in.
    """
    files = () if entry.hub is None else _cached(entry.hub, entry)
    return any(file.stat().st_size == entry.size_bytes for file in files)


def _cached(source: HubSource, entry: ModelEntry) -> Iterator[Path]:
    """Yield what the hub's cache holds: the blob of any revision, or else the file of this one."""
    # The name of a large file's blob is its sha256 there.
    blob = _cache_folder(source) / "blobs" / entry.sha256
    file = blob if blob.is_file() else cached_file(source)
    if file is not None:
        yield file


def _cache_folder(source: HubSource) -> Path:
    cache = library().constants.HF_HUB_CACHE
    return Path(cache) / "--".join(["models", *source.repo.split("/")])


def _put_away(source: HubSource, commit: str | None, partial: Partial, store: Store) -> Path:
    """Move a verified file into the hub's cache, as documented there, or else into the store."""
    repo = _cache_folder(source)
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
        revision = source.revision or library().constants.DEFAULT_REVISION
        if revision != commit:
            reference = repo / "refs" / revision
            reference.parent.mkdir(parents=True, exist_ok=True)
            reference.write_text(commit, encoding="utf-8")
    return store.point_to(partial.entry, blob)
