"""What the names of GGUF files say: which are models, of which quantisation, in how many shards, and which mmproj is whose.

A file whose path has a word for heads, or for a draft, is none of the models beside one that has no such word.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import PurePosixPath

from localspec.errors import ModelUnavailable
from localspec.models.entries import SEGMENTS, ModelEntry

_FILE = re.compile(r"(.+?)(?:-(\d{5})-of-(\d{5}))?\.gguf", re.IGNORECASE)
# Prediction heads and importance matrices are GGUF files, but no models; nor are mmproj files.
_NO_MODELS = ("mtp-", "imatrix")
_MMPROJ = "mmproj"
_CALLED_HEADS = "eagle eagle3 dflash dspark mtp nextn medusa speculator assistant draft drafter"
_HEADS = frozenset(_CALLED_HEADS.split())
_WORD = re.compile(r"[a-z]+3?(?![a-z])|[a-z]+")
_QUANT = re.compile(
    r"(?<![A-Za-z0-9])((?:IQ|Q|TQ)\d[A-Za-z0-9_]*|BF16|F16|F32|MXFP4)", re.IGNORECASE
)
_LISTED = 8
# F16 runs fast everywhere; BF16 does not on older CPUs, and F32 is twice as large for nothing.
_BEST_MMPROJ = ("F16", "BF16", "F32", "Q8_0")


def by_name(_file: ModelEntry) -> bool | None:
    """Return None: nothing but its name says whether a file holds heads."""
    return None


def choose_files(
    name: str,
    quant: str | None,
    default_quant: str,
    files: Sequence[ModelEntry],
    is_heads: Callable[[ModelEntry], bool | None] = by_name,
) -> list[ModelEntry]:
    """Return the file of a quantisation, or all its shards in order.

    Args:
        name: what the user wrote, for messages.
        quant: the quantisation, in any case; None takes `default_quant`, or the only model there is.
        default_quant: what most people mean.
        files: everything in the repository, named by their paths.
        is_heads: returns whether a file holds heads, by its header; None where that cannot be said. It is asked where
            names leave it open: of one that is called so, if no other fits, and of what fits beside other models.

    Raises:
        ModelUnavailable: there is no such quantisation, or shards of it are missing.
    """
    models = _models(files)
    if not models:
        raise ModelUnavailable(
            f"{name[:120]} has no GGUF file of a model: choose another repository"
        )
    called_heads = set(models) - set(without_heads(models))
    fitting = [stem for stem in models if _is_of(quant or default_quant, stem)]
    plain = [stem for stem in models if stem not in called_heads]
    if len({_base(each).removesuffix("ud") for each in plain}) > 1:  # unsloth's dynamic quants
        plain = [e for e in plain if e not in fitting or not is_heads(_first(models[e]))]
    fitting = [stem for stem in fitting if stem in plain] or [
        stem
        for stem in fitting
        if quant and stem in called_heads and is_heads(_first(models[stem])) is False
    ]
    if not fitting and quant is None and len(plain) == 1:
        fitting = plain
    models = {stem: each for stem, each in models.items() if stem in plain or stem in fitting}
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


def is_model(name: str) -> bool:
    """Return whether a file holds weights of a model."""
    last = _last(name).lower()
    return last.endswith(".gguf") and _MMPROJ not in last and not last.startswith(_NO_MODELS)


def models_in(names: Iterable[str]) -> list[str]:
    """Return the files to open of the models among several: those in one file, and the first shards."""
    models = without_heads([name for name in names if is_model(name)])
    matches = [match for name in models if (match := _FILE.fullmatch(name))]
    return sorted(match[0] for match in matches if int(match[2] or 1) == 1)


def without_heads(models: Iterable[str]) -> list[str]:
    """Return files without those that are called heads, or a draft, beside others that are not."""
    models = list(models)
    return [e for e in models if _HEADS.isdisjoint(_WORD.findall(e.lower()))] or models


def _first(shards: Mapping[tuple[int, int], ModelEntry]) -> ModelEntry:
    return shards[min(shards)]


def quant_of(path: str) -> str | None:
    """Return the quantisation in the name of a file, as it is spelt there."""
    match = _QUANT.search(_last(path))
    return None if match is None else match[1]


def _models(files: Sequence[ModelEntry]) -> dict[str, dict[tuple[int, int], ModelEntry]]:
    """Return shards by (number, count) by the path that they have in common."""
    models: dict[str, dict[tuple[int, int], ModelEntry]] = {}
    for file in files:
        match = _FILE.fullmatch(file.name) if re.fullmatch(SEGMENTS, file.name) else None
        if match is not None and is_model(file.name):
            models.setdefault(match[1], {})[int(match[2] or 1), int(match[3] or 1)] = file
    return models


def mmproj_for(model: str, names: Sequence[str], *, mixed: bool = False) -> str | None:
    """Return which of several files is the mmproj of a model; None without one.

    One that is named after a model is for that model alone; any other is for all models in its folder.

    Args:
        model: file of the model.
        names: of all files of its folder, itself among them.
        mixed: whether these may be files of models that have nothing to do with each other, as in a folder of a user's.
    """
    if _is_mmproj(model):
        return None
    own = _base(model)
    ours = {name: _base(name) for name in names if _is_mmproj(name)}
    models = {_base(name) for name in without_heads(filter(is_model, names))}
    alone = models <= {own}
    named = [name for name, base in ours.items() if base and (base in own or own in base)]
    common = [name for name, base in ours.items() if alone or not (base or mixed)]
    return min(named or common, key=_mmproj_rank, default=None)


def _mmproj_rank(name: str) -> tuple[int, int, str]:
    quant = (quant_of(name) or "").upper()
    best = _BEST_MMPROJ.index(quant) if quant in _BEST_MMPROJ else len(_BEST_MMPROJ)
    return best, len(name), name


def _base(path: str) -> str:
    """Return which model a file is, or is for, without quantisation and number of the shard; empty where it does not say."""
    match = _FILE.fullmatch(_last(path))
    words = _QUANT.sub("", match[1] if match else _last(path)).lower()
    return re.sub(r"mmproj|\bmodel\b|[^a-z0-9]", "", words)


def _is_mmproj(name: str) -> bool:
    return _MMPROJ in _last(name).lower() and name.lower().endswith(".gguf")


def _is_of(quant: str, stem: str) -> bool:
    # `model_Q4_K_M` has a Q4_K_M, and `model-IQ4_XS` has no XS.
    joined = "" if _QUANT.match(quant) else "_"
    pattern = rf"(?<![A-Za-z0-9{joined}]){re.escape(quant)}(?![A-Za-z0-9_])"
    return re.search(pattern, stem, re.IGNORECASE) is not None


def _last(path: str) -> str:
    return PurePosixPath(path).name
