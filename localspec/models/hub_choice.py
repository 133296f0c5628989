"""Chooses the files of one model among the files of a repository. Knows names, asks nobody."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from localspec.errors import ModelUnavailable
from localspec.models.registry_file import SEGMENTS, SHA256

_SHARD = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf", re.IGNORECASE)
# Projectors, prediction heads and importance matrices are GGUF files, but no models.
_NO_MODELS = ("mmproj", "mtp-", "imatrix")
_QUANT = re.compile(
    r"(?<![A-Za-z0-9])((?:IQ|Q|TQ)\d[A-Za-z0-9_]*|BF16|F16|F32|MXFP4)", re.IGNORECASE
)
_SHOWN = 8


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file as the hub lists it."""

    path: str
    size_bytes: int
    sha256: str


def choose_files(
    name: str, quant: str | None, default_quant: str, files: Sequence[ListedFile]
) -> list[ListedFile]:
    """Return the file of a quantisation, or all its shards in order.

    Args:
        name: what the user wrote, for messages.
        quant: the quantisation, in any case; None takes `default_quant`, or the only model there is.
        default_quant: what most people mean.
        files: everything in the repository.

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


def _models(files: Sequence[ListedFile]) -> dict[str, dict[tuple[int, int], ListedFile]]:
    """Return shards by (number, count) by the path that they have in common."""
    models: dict[str, dict[tuple[int, int], ListedFile]] = {}
    for file in files:
        name = _last(file.path).lower()
        usable = re.fullmatch(SEGMENTS, file.path) and re.fullmatch(SHA256, file.sha256)
        if not usable or not name.endswith(".gguf") or name.startswith(_NO_MODELS):
            continue
        match = _SHARD.fullmatch(file.path)
        stem, key = (
            (match[1], (int(match[2]), int(match[3]))) if match else (file.path[:-5], (1, 1))
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
