"""The table of models that every list shows: `search`, `list`, `show`, `recommend`, the model picker and the first run."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from localspec.models.entries import HEADS, Medium, ModelEntry, PairEntry
from localspec.models.ledger import IMPORTS
from localspec.models.mmproj import takes
from localspec.models.registry import Registry, load_registry
from localspec.models.store import is_here
from localspec.plan.recommend import Memory, Recommendation, best, needed_bytes, recommend
from localspec.resources import free_ram_bytes
from localspec.storage.paths import data_dir

Kind = Literal["chat", "code", "draft", "embedding", "other"]
_ORDER: tuple[tuple[Kind, ...], ...] = (("chat", "code"), ("draft", "other"), ("embedding",))


@dataclass(frozen=True, slots=True)
class ModelRow:
    """A pair, or a model that is no pair's target.

    Args:
        name: what `-m` takes.
        size_bytes: of the model, without its draft model; None where only the hub knows.
        here: whether it is on this machine.
        fits: whether memory that is free now holds it; None where that is not known.
        about: what it is good for, or what kind of model it is.
        recommended: whether it is one of the few that suit this machine best.
        tokens_per_s: predicted speed without drafting; None where nothing was measured.
        drafts: whether its draft model could make it faster here; None where it has none, that is not sure, or
            was not judged.
        own: whether the user fetched or imported it.
        kind: what it is for.
        mmproj_bytes: size of its mmproj file; None where it has none, or only the hub knows.
        takes: what it takes beside text.
        draft_bytes: size of its draft model; None where it has none, or only the hub knows.
        draft_here: whether all that it drafts with is on this machine.
        tools: whether it can call tools; None where that is not known.
        thinking: whether it writes thoughts unasked; None where that is not known.
        heads: whether it has heads, in its file or in one of their own.
        suited: how it would run in the memory that it suits best; None where it fits into none.
        year: in which it came out, of the latest; 0 of others.
        pair: its entry in the registry, or one that stands for the model alone.
    """

    name: str
    size_bytes: int | None
    here: bool
    fits: bool | None
    about: str
    recommended: bool = False
    tokens_per_s: float | None = None
    drafts: bool | None = None
    own: bool = False
    kind: Kind = "chat"
    mmproj_bytes: int | None = None
    takes: tuple[Medium, ...] = ()
    draft_bytes: int | None = None
    draft_here: bool = True
    tools: bool | None = None
    thinking: bool | None = None
    heads: bool = False
    suited: Recommendation | None = None
    year: int = 0
    pair: PairEntry | None = None


def model_rows(registry: Registry, memories: Sequence[Memory] = ()) -> list[ModelRow]:
    """Return all models that there are, those that answer before draft models and those that make vectors.

    Of each of these, the latest come first, and of those the smallest.

    Args:
        registry: the known models.
        memories: of this machine, whose speed was measured; without them nothing is recommended.
    """
    proposed = {each.pair for each in recommend(registry, memories)}
    targets = {registry.find(each.target) for each in registry.pairs.values()}
    pairs = [
        (pair, _kind(pair), registry.find(pair.target), pair.name in proposed)
        for pair in registry.pairs.values()
    ]
    for entry in (*registry.models.values(), *IMPORTS.load(data_dir()).values()):
        if entry not in targets:
            kind, about = _kind_alone(entry, registry)
            # Where the bare name means a pair with other weights.
            name = entry.full_name if entry.name in registry.pairs else entry.name
            pairs.append((PairEntry(name, name, "lookup", None, about), kind, entry, False))
    free = [each.free_bytes for each in memories] or [free_ram_bytes()]
    most = max((each for each in free if each is not None), default=None)
    rows = [_row(*each, registry, memories, most) for each in pairs]
    return sorted(rows, key=lambda row: (_rank(row), -row.year, row.size_bytes or 0, row.name))


def choices(registry: Registry | None = None, memories: Sequence[Memory] = ()) -> list[ModelRow]:
    """Return the models to choose from: those on this machine, what is recommended, then the others by size.

    Of each kind, what does not fit comes last. Draft models are choices where they are on this machine.
    """
    registry = registry or load_registry()
    proposed = [each.pair for each in recommend(registry, memories)]
    return sorted(
        (
            row
            for row in model_rows(registry, memories)
            if row.kind != "embedding" and (row.here or row.name in registry.pairs)
        ),
        key=lambda row: (
            not row.here,
            _rank(row),
            proposed.index(row.name) if row.recommended else len(proposed),
            row.fits is False,
            row.name == registry.default_pair,  # a toy
            -row.year,
            row.size_bytes or 0,
        ),
    )


def measured_choices() -> list[ModelRow]:
    """Return the models to choose from with their predicted speed; takes a fifth of a second once an hour."""
    # Imported late: llama.cpp comes with it, to say which devices there are.
    from localspec.session.memories import memories  # noqa: PLC0415

    registry = load_registry()
    return choices(registry, memories(registry))


def _rank(row: ModelRow) -> int:
    return next(at for at, kinds in enumerate(_ORDER) if row.kind in kinds)


def _kind(pair: PairEntry) -> Kind:
    return "code" if "code" in pair.good_for.split() or pair.recommend == "code" else "chat"


def _kind_alone(entry: ModelEntry, registry: Registry) -> tuple[Kind, str]:
    """Return what kind of model one is that is no pair's target, and that in words."""
    if entry.embedding is not None:
        ranks = "reranker, for `serve`"
        return (
            "embedding",
            ranks if entry.embedding.ranks else "embedding model, for `index add --vectors`",
        )
    if entry.heads is not None and entry.heads.target is not None:
        return "draft", f"{HEADS[entry.heads.kind]} for {entry.heads.target}"
    drafted = _drafted_for(entry, registry)
    if drafted is not None:
        return "draft", f"draft model for {drafted}"
    return "other" if entry.good_for else "chat", entry.good_for


def _drafted_for(entry: ModelEntry, registry: Registry) -> str | None:
    """Return the pair that a model drafts for; of several, one that is on this machine, or else the smallest."""
    pairs = [
        (not is_here(target), target.size_bytes if target else 0, pair.name)
        for pair in registry.pairs.values()
        if pair.draft_model and registry.find(pair.draft_model) == entry
        for target in [registry.find(pair.target)]
    ]
    return min(pairs, default=(True, 0, None))[2]


def _row(
    pair: PairEntry,
    kind: Kind,
    target: ModelEntry | None,
    recommended: bool,
    registry: Registry,
    memories: Sequence[Memory],
    free_bytes: int | None,
) -> ModelRow:
    draft_model = registry.find(pair.draft_model) if pair.draft_model else None
    size = target.size_bytes if target is not None and target.is_known else None
    drafter = registry.drafter_of(pair)
    suited = None if target is None else best(pair.name, target, memories, drafter)
    here = _has(pair.target, target)
    fits = None
    if size is not None and free_bytes is not None:
        fits = needed_bytes(size) <= free_bytes
    return ModelRow(
        pair.name,
        size,
        here,
        fits,
        pair.good_for,
        recommended,
        None if suited is None else suited.tokens_per_s,
        _drafts(target, draft_model) if recommended and drafter is None else None,
        own=here and pair.name != registry.default_pair,
        kind=kind,
        mmproj_bytes=target.mmproj.size_bytes or None if target and target.mmproj else None,
        takes=() if target is None else takes(target),
        draft_bytes=draft_model.size_bytes or None if draft_model is not None else None,
        draft_here=pair.draft_model is None or _has(pair.draft_model, draft_model),
        tools=None if target is None else target.tools,
        thinking=None if target is None else target.thinking,
        heads=drafter is not None,
        suited=suited,
        year=(target.year if target is not None else None) or 0,
        pair=pair,
    )


def _has(reference: str, entry: ModelEntry | None) -> bool:
    """Return whether a model is on this machine; a pair of one's own may name a file."""
    if entry is not None or not reference.startswith(("/", "~")):
        return is_here(entry)
    try:
        return Path(reference).expanduser().is_file()
    except (OSError, RuntimeError):  # RuntimeError: `~` of nobody
        return False


def _drafts(target: ModelEntry | None, draft_model: ModelEntry | None) -> bool | None:
    if target is None or draft_model is None or not draft_model.is_known:
        return None
    from localspec.plan.facts import drafts_could_pay  # noqa: PLC0415 - loads llama.cpp

    return drafts_could_pay(target, draft_model)
