"""The pairs that a user can choose from, as a list shows them: what suits this machine first. No Textual."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from localspec.errors import ModelUnavailable
from localspec.models.entries import ModelEntry, PairEntry
from localspec.models.recommend import BESIDE_BYTES, Memory, best, recommend, rounded
from localspec.models.registry import Registry, load_registry
from localspec.models.store import Store
from localspec.resources import free_ram_bytes
from localspec.storage.files import size_text
from localspec.storage.paths import data_dir

_SIZE, _SPEED = 7, 5


@dataclass(frozen=True, slots=True)
class PairChoice:
    """A pair, as lists show it.

    Args:
        name: what `--pair` takes.
        size_bytes: of its target; None where that is known only to the hub.
        here: whether that is on this machine.
        fits: whether the free memory holds it; None where that is not known.
        about: what it is good for.
        recommended: whether it is one of the few that suit this machine best.
        tokens_per_s: the speed that is foreseen without drafting; None where nothing was measured.
        drafts: whether its draft model could make it faster here; None where it has none, that is not sure, or nobody
            asked.
        own: whether the user fetched or imported it.
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

    def row(self, name_width: int, *, loaded: bool = False) -> str:
        """Return all that fits one line, the most important first: 33 columns, and what it is good for."""
        mark = "●" if loaded else "★" if self.recommended else " "
        speed = "" if self.tokens_per_s is None else f"{rounded(self.tokens_per_s)}/s"
        about = "needs more memory than is free" if self.fits is False else self.about
        columns = f"{self.name:<{name_width}}{mark}{self._size():>{_SIZE}} {speed:>{_SPEED}}"
        return f"{columns}  {about}".rstrip()

    @property
    def hint(self) -> str:
        """All that is known, in a sentence's parts."""
        parts = ["here" if self.here else f"{self._size()} to download" if self.size_bytes else ""]
        if self.tokens_per_s is not None:
            parts.append(f"about {rounded(self.tokens_per_s)} tokens/s here")
        parts.append(self.about)
        if self.drafts is not None:
            parts.append(
                "its draft model could make it faster"
                if self.drafts
                else "faster without its draft model"
            )
        return " · ".join(each for each in parts if each)

    def _size(self) -> str:
        if self.here:
            return "here"
        return "" if self.size_bytes is None else size_text(self.size_bytes)


def choices(memories: Sequence[Memory] = (), registry: Registry | None = None) -> list[PairChoice]:
    """Return the models whose files are known: those that are here, what is recommended, then the others by size.

    Of each kind, what does not fit comes last. Draft models are left out.

    Args:
        memories: of this machine, whose speed was measured; without them nothing is recommended.
        registry: the known pairs.
    """
    registry = registry or load_registry()
    proposed = [each.pair for each in recommend(registry, memories)]
    # It is said to be a toy, and comes last of what fits.
    toy, free = registry.default_pair, free_ram_bytes()
    found = []
    for pair in registry.pairs.values():
        target = registry.find(pair.target)
        if target is not None:
            found.append(_choice(pair, target, memories, free, registry, pair.name in proposed))
    known = {registry.find(name) for each in registry.pairs.values() for name in _models_of(each)}
    for entry in (*registry.models.values(), *_imported()):
        if entry not in known and entry.embedding is None:
            pair = PairEntry(entry.name, entry.name, "lookup", None, "")
            choice = _choice(pair, entry, memories, free, registry, recommended=False)
            found += [choice] if choice.here else []
    return sorted(
        found,
        key=lambda each: (
            not each.here,
            proposed.index(each.name) if each.recommended else len(proposed),
            each.fits is False,
            each.name == toy,
            each.size_bytes or 0,
        ),
    )


def _models_of(pair: PairEntry) -> list[str]:
    return [pair.target, pair.draft_model] if pair.draft_model else [pair.target]


def _imported() -> Iterable[ModelEntry]:
    if not (data_dir() / "imports.toml").exists():
        return ()
    from localspec.models.names import load_imports  # noqa: PLC0415 - numpy comes with it

    return load_imports(data_dir()).values()


def measured_choices() -> list[PairChoice]:
    """Return the pairs with the speed that this machine's memory allows; takes a fifth of a second at first.

    Without a speed, and nothing recommended, where the system does not tell how much memory is free.
    """
    # Imported late: llama.cpp comes with it, to say which devices there are.
    from localspec.launch.memories import memories  # noqa: PLC0415

    registry, places = load_registry(), list[Memory]()
    with suppress(ModelUnavailable):
        places = memories(registry)
    return choices(places, registry)


def _choice(
    pair: PairEntry,
    target: ModelEntry,
    memories: Sequence[Memory],
    free: int | None,
    registry: Registry,
    recommended: bool,
) -> PairChoice:
    size = target.size_bytes if target.is_known else None
    here = target.is_known and Store(data_dir()).path_of(target) is not None
    found = best(pair.name, target, memories)
    fits = None if free is None or size is None else size + BESIDE_BYTES <= free
    if memories and size is not None:
        fits = found is not None
    return PairChoice(
        pair.name,
        size,
        here,
        fits,
        pair.good_for,
        recommended,
        None if found is None else found.tokens_per_s,
        _drafts(pair, target, registry) if recommended else None,
        own=here and pair.name != registry.default_pair,
    )


def _drafts(pair: PairEntry, target: ModelEntry, registry: Registry) -> bool | None:
    draft_model = registry.find(pair.draft_model) if pair.draft_model else None
    if draft_model is None or not draft_model.is_known:
        return None
    from localspec.launch.worth import draft_model_could_pay  # noqa: PLC0415 - likewise

    return draft_model_could_pay(target, draft_model)
