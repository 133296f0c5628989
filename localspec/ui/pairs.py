"""The pairs that a user can choose from, and what is known of each before it is fetched. No Textual."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from localspec.errors import LocalspecError, ModelLoadError
from localspec.models.entries import ModelEntry, PairEntry
from localspec.models.pairs import read_side
from localspec.models.registry import Registry, load_registry
from localspec.models.repository import local_file
from localspec.resources import free_ram_bytes
from localspec.storage.files import size_text


@dataclass(frozen=True, slots=True)
class PairChoice:
    """A pair, as the picker shows it.

    Args:
        name: what `--pair` takes.
        size_bytes: of its files; None where that is known only to the hub.
        here: whether they are on this machine.
        fits: whether the free memory holds it; None while that is not known.
        why: what it needs, or what is missing, in a sentence.
        about: what it is good for, and what to know before.
        default: whether it is the one that is taken where nothing is chosen.
    """

    name: str
    size_bytes: int | None
    here: bool
    fits: bool | None
    why: str
    about: str
    default: bool

    @property
    def hint(self) -> str:
        """All that is known, on one line."""
        size = "" if self.size_bytes is None else f"{size_text(self.size_bytes)} "
        where = "here" if self.here else f"{size}to fetch"
        fit = {True: "fits", False: "does not fit", None: ""}[self.fits]
        return " · ".join(each for each in (where, fit, self.why, self.about) if each)


def choices(registry: Registry | None = None) -> list[PairChoice]:
    """Return the pairs whose files are known, what is here and fits first; reads no model's header."""
    registry = registry or load_registry()
    free = free_ram_bytes()
    found = []
    for pair in registry.pairs.values():
        entries = _entries(pair, registry)
        if entries is not None:
            found.append(_quick(pair, entries, free, default=pair.name == registry.default_pair))
    return sorted(
        found,
        key=lambda each: (
            not each.default,
            each.fits is False,
            not each.here,
            each.size_bytes or 0,
        ),
    )


def judged(found: list[PairChoice], registry: Registry | None = None) -> Iterator[PairChoice]:
    """Yield the choices again as soon as the headers of their files have told what memory they need.

    A header that is not here is read from the hub; where that fails, the choice stays as it was.
    """
    registry = registry or load_registry()
    for choice in found:
        if choice.fits is not False:
            try:
                yield _planned(choice, registry.pair(choice.name), registry)
            except LocalspecError:
                continue


def _quick(
    pair: PairEntry, entries: list[ModelEntry], free: int | None, *, default: bool
) -> PairChoice:
    known = all(each.is_known for each in entries)
    size = sum(each.size_bytes for each in entries) if known else None
    fits, why = None, ""
    if free is not None and size is not None:
        why = f"needs at least {size_text(size)} of memory, {size_text(free)} are free"
        fits = False if size > free else None
    about = "; ".join(each for each in (pair.good_for, pair.caveat) if each)
    here = known and all(local_file(each) is not None for each in entries)
    return PairChoice(pair.name, size, here, fits, why, about, default)


def _planned(choice: PairChoice, pair: PairEntry, registry: Registry) -> PairChoice:
    # Imported late: llama.cpp comes with it, to say which devices there are.
    from localspec.launch.fit import plan_fit  # noqa: PLC0415

    target = read_side(pair.target, registry).header
    draft_model = read_side(pair.draft_model, registry).header if pair.draft_model else None
    try:
        plan = plan_fit(target, draft_model)
    except ModelLoadError as error:
        return replace(choice, fits=False, why=str(error))
    return choice if plan is None else replace(choice, fits=True, why="; ".join(plan.lines()))


def _entries(pair: PairEntry, registry: Registry) -> list[ModelEntry] | None:
    """Return the models of a pair; None where one of them is not of the registry."""
    names = dict.fromkeys([pair.target, pair.draft_model or pair.target])
    found = [registry.find(name) for name in names]
    return None if None in found else [each for each in found if each is not None]
