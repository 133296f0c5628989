"""Headers of models, wherever their files are: on this machine, half fetched, or on the hub."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from localspec.errors import LocalspecError, ModelUnavailable
from localspec.models.download import cached_file
from localspec.models.entries import HubSource, ModelEntry
from localspec.models.gguf_header import GgufHeader, parse_header, read_header
from localspec.models.paths import data_dir
from localspec.models.remote_header import LONGEST_BYTES, read_remote_header
from localspec.models.shard_set import shards_of
from localspec.models.split_model import merged, read_model
from localspec.models.store import Store


@dataclass(frozen=True, slots=True)
class FoundHeader:
    """A header, and the bytes that were fetched for it: the beginning of a file that is not here."""

    header: GgufHeader
    entry: ModelEntry
    fetched: bytes = b""


def local_file(entry: ModelEntry) -> Path | None:
    """Return where a file of a model is on this machine: in the store, or in the hub's cache."""
    path = Store(data_dir()).path_of(entry)
    if path is not None:
        return path
    for source in entry.sources:
        if isinstance(source, HubSource) and (cached := cached_file(source)) is not None:
            return cached
    return None


def find_header(entry: ModelEntry, name: str) -> FoundHeader:
    """Read the header of one file of a model; where it is not here, from the hub.

    Raises:
        ModelUnavailable: the hub does not deliver it, or has never had it.
        ModelFileError: the file is no sound GGUF.
    """
    path = local_file(entry)
    if path is not None:
        return FoundHeader(read_header(path), entry)
    source = next((each for each in entry.sources if isinstance(each, HubSource)), None)
    if source is None:
        raise ModelUnavailable(
            f"{name} is not on this machine, and no hub has its header: run `localspec pull {name}`"
        )
    remote = read_remote_header(source, name, entry.size_bytes)
    return FoundHeader(remote.header, entry, remote.data)


def find_headers(model: ModelEntry | Path) -> Iterator[FoundHeader]:
    """Yield the headers of all files of a model; of a path, one that stands for all its files.

    What was fetched of a file, and not finished, is looked into before the hub is asked.

    Raises:
        ModelUnavailable: the hub does not deliver one, or has never had it.
        ModelFileError: a file is no sound GGUF.
    """
    if isinstance(model, Path):
        entry = ModelEntry(str(model), 0, "", None, None, None, ())
        yield FoundHeader(read_model(model), entry)
        return
    for shard in shards_of(model):
        begun = _of_beginning(shard)
        yield find_header(shard, shard.name) if begun is None else FoundHeader(begun, shard)


def of_model(found: list[FoundHeader], name: str) -> GgufHeader:
    """Return the header of a model from those of its files, under the name that a user gave it."""
    return replace(merged([each.header for each in found]), name=name)


def keep_beginning(found: FoundHeader, store: Store) -> None:
    """Let a download go on from the bytes that were fetched for a header.

    They are as good as any others: the sha256 of the whole decides.
    """
    entry = found.entry
    if not found.fetched or store.partial_bytes(entry, "http"):
        return
    with store.resume(entry, "http", lambda _: None) as partial:
        if partial.size_bytes == 0 and store.path_of(entry) is None:
            partial.write(found.fetched)


def _of_beginning(entry: ModelEntry) -> GgufHeader | None:
    data = Store(data_dir()).beginning(entry, LONGEST_BYTES)
    try:
        return parse_header(data, name=entry.name, size_bytes=entry.size_bytes) if data else None
    except LocalspecError:  # too short, or not what it should be, which the download will find
        return None
