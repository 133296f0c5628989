"""What the hub said of models of which no registry knows the bytes, in `learnt.json` beside the store.

Size and sha256 are learnt once, before the first download, and count from then on: the same
file is wanted the next time, whatever the repository has by then, and no network is needed to know
it. Names are those of the user's registry, or `user/repo:QUANT`. Knows no network.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from localspec.models.entries import HubSource, Learnt, ModelEntry, of_shards
from localspec.models.index_file import read_index, write_index
from localspec.models.locks import locked
from localspec.models.private import private_directory
from localspec.models.registry_file import MODEL_NAME, NAME, REPO, SEGMENTS, SHA256

_INDEX = "learnt.json"
_WHAT, _REMEDY = "learnt models", "pull them again"
_COMMIT = r"[0-9a-f]{40}"
_DATE = r"\d{4}-\d\d-\d\d"


def load_learnt(root: Path) -> dict[str, ModelEntry]:
    """Return what was learnt, by name; what is not sound in it is left out.

    Raises:
        LocalspecError: the list cannot be read.
    """
    index = read_index(root / _INDEX, _WHAT, _REMEDY)
    entries = {name: _entry(name, values) for name, values in index.items()}
    return {name: entry for name, entry in entries.items() if entry is not None}


def with_learnt(models: Mapping[str, ModelEntry], root: Path) -> dict[str, ModelEntry]:
    """Return a registry's models with what was learnt of them, and those that only the hub names.

    A registry's entry that names another file than the one that was learnt is another model.

    Raises:
        LocalspecError: the list cannot be read.
    """
    learnt = load_learnt(root)
    completed = {
        name: _completed(entry, learnt.get(entry.full_name)) for name, entry in models.items()
    }
    on_hub = {name: entry for name, entry in learnt.items() if "/" in name}
    return {**completed, **on_hub}


def remember(entry: ModelEntry, root: Path) -> None:
    """Note what was learnt of a model; of the same name, the latest counts."""
    private_directory(root)
    with locked(root):
        index = read_index(root / _INDEX, _WHAT, _REMEDY)
        values = _values(entry)
        if index.get(_key(entry)) != values:
            write_index(root / _INDEX, {**index, _key(entry): values})


def forget(entry: ModelEntry, root: Path) -> None:
    """Forget what was learnt of a model: the next pull takes what the hub has then."""
    with locked(root):
        index = read_index(root / _INDEX, _WHAT, _REMEDY)
        if index.pop(_key(entry), None) is not None:
            write_index(root / _INDEX, index)


def _key(entry: ModelEntry) -> str:
    # The shortest name of a registry's model depends on what else is in the registry.
    return entry.name if "/" in entry.name else entry.full_name


def _completed(entry: ModelEntry, learnt: ModelEntry | None) -> ModelEntry:
    if entry.is_known or learnt is None or learnt.learnt is None:
        return entry
    if _files(entry) != _files(learnt, learnt.learnt.revision):
        return entry
    return with_facts_of(entry, learnt)


def with_facts_of(entry: ModelEntry, learnt: ModelEntry) -> ModelEntry:
    """Return a registry's entry with the bytes, and the commit, of what was learnt of it."""
    others = [source for source in entry.sources if not isinstance(source, HubSource)]
    return replace(
        entry,
        size_bytes=learnt.size_bytes,
        sha256=learnt.sha256,
        sources=(*learnt.sources, *others),
        shards=learnt.shards,
        learnt=learnt.learnt,
    )


def _files(entry: ModelEntry, revision: str | None = None) -> list[tuple[str, str, str | None]]:
    """Return repository, file and revision of every file, the latter as it was asked for."""
    return [
        (source.repo, source.file, source.revision if entry.learnt is None else revision)
        for shard in entry.shards or (entry,)
        for source in shard.sources
        if isinstance(source, HubSource)
    ]


def _values(entry: ModelEntry) -> dict[str, Any]:
    learnt = entry.learnt
    if learnt is None:
        raise ValueError(f"nothing was learnt of {entry.name}")
    sources = [
        (shard, source)
        for shard in entry.shards or (entry,)
        for source in shard.sources
        if isinstance(source, HubSource)
    ]
    return {
        "repo": sources[0][1].repo,
        "revision": learnt.revision,
        "commit": learnt.commit,
        "date": learnt.date,
        "quant": entry.quant,
        "files": [
            {"file": source.file, "size_bytes": shard.size_bytes, "sha256": shard.sha256}
            for shard, source in sources
        ],
    }


def _entry(name: str, values: object) -> ModelEntry | None:
    """Return the entry that an index has; None where anything in it is not as we wrote it.

    The sha256 becomes a file name, the rest an address.
    """
    match values:
        case {
            "repo": str(repo),
            "revision": None | str() as revision,
            "commit": str(commit),
            "date": str(date),
            "quant": str(quant),
            "files": [_, *_] as files,
        }:
            shards = list(_shards(files, name, repo, commit))
        case _:
            return None
    sound = (
        len(shards) == len(files)
        and re.fullmatch(rf"{MODEL_NAME}|{REPO}(:{NAME})?", name)
        and re.fullmatch(REPO, repo)
        and (revision is None or re.fullmatch(NAME, revision))
        and re.fullmatch(_COMMIT, commit)
        and re.fullmatch(_DATE, date)
        and re.fullmatch(rf"({NAME})?", quant)
    )
    if not sound:
        return None
    return replace(of_shards(name, shards), quant=quant, learnt=Learnt(date, commit, revision))


def _shards(files: list[object], name: str, repo: str, commit: str) -> Iterator[ModelEntry]:
    for number, values in enumerate(files, 1):
        match values:
            case {"file": str(file), "size_bytes": int(size), "sha256": str(sha256)} if (
                type(size) is int
                and size > 0
                and re.fullmatch(SEGMENTS, file)
                and re.fullmatch(SHA256, sha256)
            ):
                source = HubSource(repo, file, commit)
                shard = f"{name} shard {number} of {len(files)}"
                yield ModelEntry(shard, size, sha256, None, None, None, (source,))
