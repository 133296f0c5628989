"""What the hub knows of a model before it is fetched: its files, their lengths and sha256, and their headers.

What the hub answers counts from then on, see `ledger.py`. No weights are fetched: a tokenizer stands in
the first megabytes, which come by HTTP Range, in growing windows, until the whole header is there. A
header of a file that is here, or half fetched, is read from the disk.
"""

import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

from msgspec.structs import replace

from localspec.errors import IntegrityError, LocalspecError, ModelFileError, ModelUnavailable
from localspec.models.entries import (
    DEFAULT_QUANT,
    SEGMENTS,
    HubName,
    ModelEntry,
    Pin,
    of_shards,
    shards_of,
)
from localspec.models.gguf import GgufHeader, merged, parse_header, read_header, read_model
from localspec.models.gguf_encoding import CutOffError
from localspec.models.hub import HubFile, cached_file, files_on_hub
from localspec.models.ledger import with_bytes_of
from localspec.models.store import Store
from localspec.models.transfer import LineCutError, RemoteFile, SourceFailedError
from localspec.storage.paths import data_dir

_FILE = re.compile(r"(.+?)(?:-(\d{5})-of-(\d{5}))?\.gguf", re.IGNORECASE)
# Projectors, prediction heads and importance matrices are GGUF files, but no models.
_NO_MODELS = ("mmproj", "mtp-", "imatrix")
_QUANT = re.compile(
    r"(?<![A-Za-z0-9])((?:IQ|Q|TQ)\d[A-Za-z0-9_]*|BF16|F16|F32|MXFP4)", re.IGNORECASE
)
_LISTED = 8


def of_repository(wanted: HubName) -> ModelEntry:
    """Return the model of a repository that a name means; see `names.learn`."""
    commit, files = files_on_hub(wanted.text, wanted.repo, None)
    chosen = choose_files(wanted.text, wanted.quant, DEFAULT_QUANT, files)
    quant = quant_of(chosen[0].name)
    if wanted.quant is not None and (quant or "").lower() != wanted.quant.lower():
        quant = wanted.quant  # else as the file's name spells it
    bare = wanted.quant is None and quant != DEFAULT_QUANT
    name = HubName(wanted.repo, None if bare else quant).text
    shards = [replace(file, name=f"{name} {file.name}") for file in chosen]
    return replace(of_shards(name, shards), quant=quant or "", pin=_today(commit, None))


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
        for what, promised, actual in (
            ("size", shard.size_bytes, file.size_bytes),
            ("sha256", shard.sha256, file.sha256),
        ):
            if promised and promised != actual:
                raise IntegrityError(
                    f"{entry.name}: the hub has a {source.file[:120]} of {what} {actual}, and models.toml "
                    f"promises {promised}: fix its entry, or name a revision"
                )
        shards.append(replace(file, name=shard.name))
    learnt = replace(of_shards(entry.name, shards), pin=_today(commit, revision))
    return with_bytes_of(entry, learnt)


def _today(commit: str, revision: str | None) -> Pin:
    return Pin(datetime.now(UTC).date().isoformat(), commit, revision)


def choose_files(
    name: str, quant: str | None, default_quant: str, files: Sequence[ModelEntry]
) -> list[ModelEntry]:
    """Return the file of a quantisation, or all its shards in order.

    Args:
        name: what the user wrote, for messages.
        quant: the quantisation, in any case; None takes `default_quant`, or the only model there is.
        default_quant: what most people mean.
        files: everything in the repository, named by their paths.

    Raises:
        ModelUnavailable: there is no such quantisation, or shards of it are missing.
    """
    models = _models(files)
    if not models:
        raise ModelUnavailable(
            f"{name[:120]} has no GGUF file of a model: choose another repository"
        )
    fitting = [stem for stem in models if _is_of(quant or default_quant, stem)]
    if not fitting and quant is None and len(models) == 1:
        fitting = list(models)
    if not fitting:
        there = sorted(set(filter(None, map(quant_of, models))))
        listed = ", ".join(there[:_LISTED]) + (", …" if len(there) > _LISTED else "")
        raise ModelUnavailable(
            f"{name[:120]} has no {(quant or default_quant)[:40]}: it has {listed or 'other files'}"
        )
    # Where several fit, such as Q4_K_M and UD-Q4_K_M, the plainest name is meant.
    stem = min(fitting, key=lambda each: (len(_last(each)), each))
    shards = models[stem]
    count = max(shards)[1]
    if sorted(number for number, _ in shards) != list(range(1, count + 1)):
        raise ModelUnavailable(
            f"{name[:120]} has {len(shards)} of {count} shards of {_last(stem)[:80]}: "
            "choose another quantisation"
        )
    return [shards[key] for key in sorted(shards)]


def quant_of(path: str) -> str | None:
    """Return the quantisation in the name of a file, as it is spelt there."""
    match = _QUANT.search(_last(path))
    return None if match is None else match[1]


def _models(files: Sequence[ModelEntry]) -> dict[str, dict[tuple[int, int], ModelEntry]]:
    """Return shards by (number, count) by the path that they have in common."""
    models: dict[str, dict[tuple[int, int], ModelEntry]] = {}
    for file in files:
        match = _FILE.fullmatch(file.name) if re.fullmatch(SEGMENTS, file.name) else None
        if match is not None and not _last(file.name).lower().startswith(_NO_MODELS):
            models.setdefault(match[1], {})[int(match[2] or 1), int(match[3] or 1)] = file
    return models


def _is_of(quant: str, stem: str) -> bool:
    # `model_Q4_K_M` has a Q4_K_M, and `model-IQ4_XS` has no XS.
    joined = "" if _QUANT.match(quant) else "_"
    pattern = rf"(?<![A-Za-z0-9{joined}]){re.escape(quant)}(?![A-Za-z0-9_])"
    return re.search(pattern, stem, re.IGNORECASE) is not None


def _last(path: str) -> str:
    return PurePosixPath(path).name


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
    with suppress(
        LocalspecError
    ):  # too short, or not what it should be, which the download will find
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
