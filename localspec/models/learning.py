"""Asks the hub for what no registry says of a model: which files, how long, and of which sha256.

What it answers counts from then on, see `learnt.py`. Fetches no weights.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from localspec.errors import IntegrityError, ModelUnavailable
from localspec.models.entries import HubSource, Learnt, ModelEntry, of_shards
from localspec.models.hub_choice import ListedFile, choose_files, quant_of
from localspec.models.hub_files import files_on_hub
from localspec.models.hub_reference import DEFAULT_QUANT, HubReference
from localspec.models.learnt import with_facts_of


def learn(found: ModelEntry | Path | HubReference, *, offline: bool = False) -> ModelEntry | Path:
    """Return what a reference was found to mean, with size and sha256 of every file.

    Args:
        found: passed through where nothing is to be learnt of it.
        offline: ask nobody.

    Raises:
        ModelUnavailable: the hub does not tell, or has no such file.
        IntegrityError: it has another file than the registry promises.
    """
    if isinstance(found, Path) or (isinstance(found, ModelEntry) and found.is_known):
        return found
    if offline:
        name = found.name if isinstance(found, ModelEntry) else f"{found.text} is no file here, and"
        raise ModelUnavailable(
            f"{name} cannot be looked up on the hub, offline: go online and pull it first, "
            "or give a known name"
        )
    return _of_repository(found) if isinstance(found, HubReference) else _of_entry(found)


def _of_repository(reference: HubReference) -> ModelEntry:
    commit, files = files_on_hub(f"{reference.text} is no file here, and", reference.repo, None)
    chosen = choose_files(reference.text, reference.quant, DEFAULT_QUANT, files)
    quant = _quant(reference, chosen[0])
    bare = reference.quant is None and quant != DEFAULT_QUANT
    name = HubReference(reference.repo, None if bare else quant).text
    shards = [
        ModelEntry(
            name=f"{name} {file.path}",
            size_bytes=file.size_bytes,
            sha256=file.sha256,
            params=None,
            context=None,
            licence=None,
            sources=(HubSource(reference.repo, file.path, commit),),
        )
        for file in chosen
    ]
    return replace(of_shards(name, shards), quant=quant or "", learnt=_today(commit, None))


def _quant(reference: HubReference, file: ListedFile) -> str | None:
    """Return the quantisation as the file's name spells it, where that is what was asked for."""
    spelt = quant_of(file.path)
    if reference.quant is None or (spelt or "").lower() == reference.quant.lower():
        return spelt
    return reference.quant


def _of_entry(entry: ModelEntry) -> ModelEntry:
    parts = entry.shards or (entry,)
    wanted = [_hub_source(part) for part in parts]
    commit, files = files_on_hub(entry.name, wanted[0].repo, wanted[0].revision)
    listed = {file.path: file for file in files}
    shards = list(_with_facts(entry, parts, wanted, listed, commit))
    learnt = replace(of_shards(entry.name, shards), learnt=_today(commit, wanted[0].revision))
    return with_facts_of(entry, learnt)


def _with_facts(
    entry: ModelEntry,
    parts: Sequence[ModelEntry],
    wanted: Sequence[HubSource],
    listed: Mapping[str, ListedFile],
    commit: str,
) -> Iterator[ModelEntry]:
    for part, source in zip(parts, wanted, strict=True):
        file = listed.get(source.file)
        if file is None:
            raise ModelUnavailable(
                f"{entry.name} cannot be learnt: {source.repo} has no {source.file[:120]} with a sha256 "
                f"at {source.revision or 'its main branch'}: mend its entry in models.toml"
            )
        for what, promised, found in (
            ("size", part.size_bytes, file.size_bytes),
            ("sha256", part.sha256, file.sha256),
        ):
            if promised and promised != found:
                raise IntegrityError(
                    f"{entry.name}: the hub has a {source.file[:120]} of {what} {found}, and models.toml "
                    f"promises {promised}: mend its entry, or name a revision"
                )
        pinned = (replace(source, revision=commit),)
        yield replace(part, size_bytes=file.size_bytes, sha256=file.sha256, sources=pinned)


def _hub_source(entry: ModelEntry) -> HubSource:
    return next(source for source in entry.sources if isinstance(source, HubSource))


def _today(commit: str, revision: str | None) -> Learnt:
    return Learnt(datetime.now(UTC).date().isoformat(), commit, revision)
