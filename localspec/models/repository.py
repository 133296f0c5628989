"""Which files of a repository on the hub a model is, how long they are, and of which sha256.

What the hub answers counts from then on, see `pins.py`. Fetches no weights.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

from localspec.errors import IntegrityError, ModelUnavailable
from localspec.models.entries import (
    DEFAULT_QUANT,
    SEGMENTS,
    HubName,
    ModelEntry,
    Pin,
    of_shards,
    shards_of,
)
from localspec.models.hub import files_on_hub
from localspec.models.pins import with_bytes_of

_SHARD = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf", re.IGNORECASE)
# Projectors, prediction heads and importance matrices are GGUF files, but no models.
_NO_MODELS = ("mmproj", "mtp-", "imatrix")
_QUANT = re.compile(
    r"(?<![A-Za-z0-9])((?:IQ|Q|TQ)\d[A-Za-z0-9_]*|BF16|F16|F32|MXFP4)", re.IGNORECASE
)
_SHOWN = 8


def learn(found: ModelEntry | Path | HubName, *, offline: bool = False) -> ModelEntry | Path:
    """Return what a name was found to mean, with size and sha256 of every file.

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
    return _of_repository(found) if isinstance(found, HubName) else _of_entry(found)


def _of_repository(wanted: HubName) -> ModelEntry:
    commit, files = files_on_hub(f"{wanted.text} is no file here, and", wanted.repo, None)
    chosen = choose_files(wanted.text, wanted.quant, DEFAULT_QUANT, files)
    quant = quant_of(chosen[0].name)
    if wanted.quant is not None and (quant or "").lower() != wanted.quant.lower():
        quant = wanted.quant  # else as the file's name spells it
    bare = wanted.quant is None and quant != DEFAULT_QUANT
    name = HubName(wanted.repo, None if bare else quant).text
    shards = [replace(file, name=f"{name} {file.name}") for file in chosen]
    return replace(of_shards(name, shards), quant=quant or "", pin=_today(commit, None))


def _of_entry(entry: ModelEntry) -> ModelEntry:
    files = [(shard, shard.hub) for shard in shards_of(entry)]
    wanted = [(shard, hub) for shard, hub in files if hub is not None]
    repo, revision = wanted[0][1].repo, wanted[0][1].revision
    commit, listed = files_on_hub(entry.name, repo, revision)
    by_name = {file.name: file for file in listed}
    shards = []
    for shard, source in wanted:
        file = by_name.get(source.file)
        if file is None:
            raise ModelUnavailable(
                f"{entry.name} cannot be learnt: {repo} has no {source.file[:120]} with a sha256 "
                f"at {revision or 'its main branch'}: mend its entry in models.toml"
            )
        for what, promised, found in (
            ("size", shard.size_bytes, file.size_bytes),
            ("sha256", shard.sha256, file.sha256),
        ):
            if promised and promised != found:
                raise IntegrityError(
                    f"{entry.name}: the hub has a {source.file[:120]} of {what} {found}, and models.toml "
                    f"promises {promised}: mend its entry, or name a revision"
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
        raise ModelUnavailable(f"{name[:120]} has no GGUF of a model: give another repository")
    fitting = [stem for stem in models if _is_of(quant or default_quant, stem)]
    if not fitting and quant is None and len(models) == 1:
        fitting = list(models)
    if not fitting:
        there = sorted({found for stem in models if (found := quant_of(stem)) is not None})
        shown = ", ".join(there[:_SHOWN]) + (", …" if len(there) > _SHOWN else "")
        raise ModelUnavailable(
            f"{name[:120]} has no {(quant or default_quant)[:40]}: it has {shown or 'other files'}"
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
    """Return the quantisation that the name of a file tells, as it is spelt there."""
    found = _QUANT.search(_last(path))
    return None if found is None else found[1]


def _models(files: Sequence[ModelEntry]) -> dict[str, dict[tuple[int, int], ModelEntry]]:
    """Return shards by (number, count) by the path that they have in common."""
    models: dict[str, dict[tuple[int, int], ModelEntry]] = {}
    for file in files:
        name = _last(file.name).lower()
        usable = re.fullmatch(SEGMENTS, file.name)
        if not usable or not name.endswith(".gguf") or name.startswith(_NO_MODELS):
            continue
        match = _SHARD.fullmatch(file.name)
        stem, key = (
            (match[1], (int(match[2]), int(match[3]))) if match else (file.name[:-5], (1, 1))
        )
        models.setdefault(stem, {})[key] = file
    return models


def _is_of(quant: str, stem: str) -> bool:
    # `model_Q4_K_M` has a Q4_K_M, and `model-IQ4_XS` has no XS.
    joined = "" if _QUANT.match(quant) else "_"
    pattern = rf"(?<![A-Za-z0-9{joined}]){re.escape(quant)}(?![A-Za-z0-9_])"
    return re.search(pattern, stem, re.IGNORECASE) is not None


def _last(path: str) -> str:
    return PurePosixPath(path).name
