"""What the hub knows of a model before it is fetched: its files, their lengths and sha256, and their headers.

What the hub answers counts from then on, see `ledger.py`. No weights are fetched: a tokenizer stands in
the first megabytes, which come by HTTP Range, in growing windows, until the whole header is there. A
header of a file that is here, or half fetched, is read from the disk.
"""

from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from msgspec.structs import replace

from localspec.display import notice
from localspec.errors import IntegrityError, LocalspecError, ModelFileError, ModelUnavailable
from localspec.models.architectures import is_heads_alone
from localspec.models.entries import DEFAULT_QUANT, HubName, ModelEntry, Pin, of_shards, shards_of
from localspec.models.file_names import choose_files, mmproj_for, quant_of
from localspec.models.gguf import GgufHeader, merged, parse_header, read_header, read_model
from localspec.models.gguf_encoding import CutOffError
from localspec.models.hub import HubFile, cached_file, files_on_hub
from localspec.models.ledger import with_bytes_of
from localspec.models.store import Store
from localspec.models.transfer import LineCutError, RemoteFile, SourceFailedError
from localspec.storage.paths import data_dir


def of_repository(wanted: HubName) -> ModelEntry:
    """Return the model of a repository that a name means; see `names.learn`."""
    commit, files = files_on_hub(wanted.text, wanted.repo, None)
    chosen = choose_files(wanted.text, wanted.quant, DEFAULT_QUANT, files, _is_heads)
    quant = quant_of(chosen[0].name)
    if wanted.quant is not None and (quant or "").lower() != wanted.quant.lower():
        quant = wanted.quant  # else as the file's name spells it
    bare = wanted.quant is None and quant != DEFAULT_QUANT
    name = HubName(wanted.repo, None if bare else quant).text
    shards = [replace(file, name=f"{name} {file.name}") for file in chosen]
    mmproj = mmproj_for(chosen[0].name, [file.name for file in files])
    file = next((replace(f, name=f"{name} {f.name}") for f in files if f.name == mmproj), None)
    entry = of_shards(name, shards)
    return replace(entry, quant=quant or "", pin=_today(commit, None), mmproj=file)


def _is_heads(file: ModelEntry) -> bool | None:
    """Return whether a file on the hub holds heads of another model; None where its header cannot be read."""
    try:
        return is_heads_alone(find_header(file, file.name)[0])
    except LocalspecError:
        return None


def of_entry(entry: ModelEntry) -> ModelEntry:
    """Return a registry's entry with the size and sha256 of every file; see `names.learn`."""
    wanted = [(shard, hub) for shard in shards_of(entry) if (hub := shard.hub) is not None]
    repo, revision = wanted[0][1].repo, wanted[0][1].revision
    commit, listed = files_on_hub(entry.name, repo, revision)
    by_name = {file.name: file for file in listed}
    shards = []
    for shard, source in wanted:
        file = by_name.get(source.file)
        if file is None:
            raise ModelUnavailable(
                f"{entry.name} cannot be learnt: {repo} has no {source.file[:120]} with a sha256 "
                f"at {revision or 'its main branch'}: fix its entry in models.toml"
            )
        _require_promised(entry.name, shard, file)
        shards.append(replace(file, name=shard.name))
    learnt = replace(of_shards(entry.name, shards), pin=_today(commit, revision))
    return with_bytes_of(entry, learnt)


def with_mmproj(entry: ModelEntry) -> ModelEntry:
    """Return an entry with size and sha256 of its mmproj file; as it is where its repository has none, with a notice.

    Raises:
        ModelUnavailable: the hub does not answer.
        IntegrityError: it has another file than the registry promises.
    """
    mmproj, model = entry.mmproj, shards_of(entry)[0].hub
    if mmproj is None or mmproj.is_known or (source := mmproj.hub or model) is None:
        return entry
    commit, listed = files_on_hub(entry.name, source.repo, source.revision)
    name = mmproj.hub.file if mmproj.hub else None
    by_name = {file.name: file for file in listed}
    if name not in by_name and model is not None:
        name = mmproj_for(model.file, list(by_name))
    if name is None:
        notice(f"{entry.name} will read text only: {source.repo} has no mmproj file")
        return entry
    file = by_name[name]
    if mmproj.hub is not None and mmproj.hub.file == name:
        _require_promised(entry.name, mmproj, file)
    pin = entry.pin or _today(commit, source.revision)
    learnt = replace(mmproj, size_bytes=file.size_bytes, sha256=file.sha256, sources=file.sources)
    return replace(entry, mmproj=learnt, pin=pin)


def _require_promised(name: str, promise: ModelEntry, file: ModelEntry) -> None:
    for what, promised, actual in (
        ("size", promise.size_bytes, file.size_bytes),
        ("sha256", promise.sha256, file.sha256),
    ):
        if promised and promised != actual:
            raise IntegrityError(
                f"{name}: the hub has a {file.name[:120]} of {what} {actual}, and models.toml "
                f"promises {promised}: fix its entry, or name a revision"
            )


def _today(commit: str, revision: str | None) -> Pin:
    return Pin(datetime.now(UTC).date().isoformat(), commit, revision)


# The largest vocabularies, of 262,144 tokens, make headers of 16 MB. A file with a longer one than the
# last of these has to be fetched to be judged.
_WINDOWS_BYTES = tuple(size << 20 for size in (1, 2, 4, 8, 16, 18))
_TRIES = 3


def local_file(entry: ModelEntry) -> Path | None:
    """Return where a file of a model is on this machine: in the store, or in the hub's cache."""
    path = Store(data_dir()).path_of(entry)
    return path or (None if entry.hub is None else cached_file(entry.hub))


def model_header(model: ModelEntry | Path) -> GgufHeader:
    """Return the header of a model, of all its files; raises as `find_header` does."""
    if isinstance(model, Path):
        return read_model(model)
    headers = [find_header(shard, shard.name)[0] for shard in shards_of(model)]
    return merged(headers, model.name)


def find_header(entry: ModelEntry, name: str) -> tuple[GgufHeader, int]:
    """Return the header of one file of a model, and how many bytes were fetched for it.

    It is read from the file, from what was fetched of it and is not finished, or from the hub.

    Raises:
        ModelUnavailable: the hub does not deliver it, or has never had it.
        ModelFileError: the file is no sound GGUF, or one with a header of more than 18 MiB.
    """
    path = local_file(entry)
    if path is not None:
        return read_header(path), 0
    beginning = Store(data_dir()).beginning(entry, _WINDOWS_BYTES[-1])
    # It may be too short, or not what it should be, which the download will find.
    with suppress(LocalspecError):
        if beginning:
            return parse_header(beginning, name=name, size_bytes=entry.size_bytes), 0
    if entry.hub is None:
        raise ModelUnavailable(
            f"{name} is not on this machine, and no hub has its header: run `localspec pull {name}`"
        )
    data = bytearray()
    try:
        file = HubFile(entry.hub)
        for window in _WINDOWS_BYTES:
            _extend(file, data, min(window, entry.size_bytes))
            try:
                return parse_header(data, name=name, size_bytes=entry.size_bytes), len(data)
            except ModelFileError as error:
                if len(data) >= entry.size_bytes or not isinstance(error.__cause__, CutOffError):
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
                # The whole file is coming: what is here comes again, and more than was requested.
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
