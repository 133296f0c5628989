"""Headers of models, wherever their files are: on this machine, half fetched, or on the hub.

On the hub a header is read, and nothing behind it: a tokenizer stands in the first megabytes, which
are fetched by HTTP Range, in growing windows, until the whole header is there.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from localspec.errors import LocalspecError, ModelFileError, ModelUnavailable
from localspec.models.entries import HubSource, ModelEntry, shards_of
from localspec.models.gguf import GgufHeader, merged, parse_header, read_header, read_model
from localspec.models.gguf_encoding import CutOffError
from localspec.models.hub import HubFile
from localspec.models.hub_cache import cached_file
from localspec.models.store import Store
from localspec.models.transfer import LineCutError, RemoteFile, SourceFailedError
from localspec.storage.paths import data_dir

# The largest vocabularies, of 262,144 tokens, make headers of 16 MB. A file with a longer one than the
# last of these has to be fetched to be judged.
_WINDOWS_BYTES = tuple(size << 20 for size in (1, 2, 4, 8, 16, 18))
_TRIES = 3


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
    return None if entry.hub is None else cached_file(entry.hub)


def find_header(entry: ModelEntry, name: str) -> FoundHeader:
    """Read the header of one file of a model; where it is not here, from the hub.

    Raises:
        ModelUnavailable: the hub does not deliver it, or has never had it.
        ModelFileError: the file is no sound GGUF.
    """
    path = local_file(entry)
    if path is not None:
        return FoundHeader(read_header(path), entry)
    if entry.hub is None:
        raise ModelUnavailable(
            f"{name} is not on this machine, and no hub has its header: run `localspec pull {name}`"
        )
    header, beginning = _read_remote(entry.hub, name, entry.size_bytes)
    return FoundHeader(header, entry, beginning)


def find_headers(model: ModelEntry | Path) -> Iterator[FoundHeader]:
    """Yield the headers of all files of a model; of a path, one that stands for all its files.

    What was fetched of a file, and not finished, is looked into before the hub is asked.

    Raises:
        ModelUnavailable: the hub does not deliver one, or has never had it.
        ModelFileError: a file is no sound GGUF.
    """
    if isinstance(model, Path):
        entry = ModelEntry(str(model), 0, "")
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
    if not found.fetched or store.partial_bytes(entry):
        return
    with store.partial(entry, lambda _: None) as partial:
        if partial.size_bytes == 0 and store.path_of(entry) is None:
            partial.write(found.fetched, 0)


def _of_beginning(entry: ModelEntry) -> GgufHeader | None:
    data = Store(data_dir()).beginning(entry, _WINDOWS_BYTES[-1])
    try:
        return parse_header(data, name=entry.name, size_bytes=entry.size_bytes) if data else None
    except LocalspecError:  # too short, or not what it should be, which the download will find
        return None


def _read_remote(source: HubSource, name: str, size_bytes: int) -> tuple[GgufHeader, bytes]:
    """Return the header of a file on the hub, and the bytes that were fetched for it.

    Raises:
        ModelUnavailable: the hub does not deliver it.
        ModelFileError: what it delivers is no GGUF with a header of 18 MiB at most.
    """
    data = bytearray()
    try:
        file = HubFile(source)
        for window in _WINDOWS_BYTES:
            _extend(file, data, min(window, size_bytes))
            try:
                return parse_header(data, name=name, size_bytes=size_bytes), bytes(data)
            except ModelFileError as error:
                if len(data) >= size_bytes or not isinstance(error.__cause__, CutOffError):
                    raise
    except (SourceFailedError, OSError) as error:
        raise ModelUnavailable(
            f"the header of {name} cannot be read from the hub ({error}): "
            f"go online, or run `localspec pull {name}` where it works"
        ) from error
    raise ModelFileError(
        f"{name} is damaged, or its header is longer than {_WINDOWS_BYTES[-1] >> 20} MiB: "
        "fetch it to judge it"
    )


def _extend(file: RemoteFile, data: bytearray, size: int) -> None:
    """Fetch until `data` has `size` bytes, or more where the server knows no ranges."""
    for attempt in range(1, _TRIES + 1):
        if len(data) >= size:
            return
        try:
            with file.open(len(data), size - 1) as answer:
                # The whole file is coming: what is here comes again, and more than was asked for.
                skip, most = len(data) - answer.start, size if answer.start else _WINDOWS_BYTES[-1]
                for piece in answer.chunks:
                    data += piece[skip:][: most - len(data)]
                    skip = max(skip - len(piece), 0)
                    if len(data) >= most:
                        break
        except LineCutError:
            if attempt == _TRIES:
                raise
    if len(data) < size:
        raise SourceFailedError(f"it ends after {len(data)} bytes")
