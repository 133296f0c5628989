"""The register of drafters: a new one is its file, and one entry here, or an entry point of another package.

Cheap to import: what a drafter needs is imported when one is made.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from localspec.decoding.round import OFF, Round
from localspec.entry_points import DRAFTERS as GROUP
from localspec.entry_points import by_name

if TYPE_CHECKING:
    from localspec.decoding.costs import PassCosts
    from localspec.decoding.drafters.drafter import Drafter
    from localspec.decoding.drafters.vocab_map import VocabMap
    from localspec.decoding.model import LanguageModel


@dataclass(frozen=True, slots=True, eq=False)
class DrafterContext:
    """What a drafter of one sequence is made of.

    Args:
        eog: ids that end a generation.
        draft_model: the draft model's sequence, or that of the target's heads; None without one.
        spelling: what the draft model's ids mean to the target; None without one.
        draft_costs: of the draft model's passes; None if they were not measured, or it always drafts.
        fresh: tokens of a long text that the draft model starts with; None takes what it holds.
        fixed: whether it always drafts, instead of being weighed by a policy.
        shared: what its `Keeper` opened for the models that are loaded; None without one.
    """

    eog: Collection[int]
    draft_model: "LanguageModel | None" = None
    spelling: "VocabMap | None" = None
    draft_costs: "PassCosts | None" = None
    fresh: int | None = None
    fixed: bool = False
    shared: Any = None

    def models(self) -> "tuple[LanguageModel, VocabMap]":
        """Return the draft model's sequence or the heads', and what its ids mean."""
        assert self.draft_model is not None and self.spelling is not None, "there is none"  # noqa: S101, PT018
        return self.draft_model, self.spelling


class Keeper(Protocol):
    """A module that keeps something of what was said, for a drafter. All but `open_shared` raise OSError where its file is in the way."""

    def open_shared(self, vocabulary: Any, megabytes: int) -> tuple[Any, tuple[Any, ...]] | None:
        """Return what `DrafterContext.shared` is for models of a vocabulary, and who observes replies; None if it cannot be had."""

    def forget(self, data: Path, conversation: int) -> None:
        """Overwrite what was said in a conversation of the history."""

    def wipe(self, data: Path) -> bool:
        """Overwrite everything; return whether there was anything."""

    def amount(self, data: Path) -> str:
        """Return how much there is, for people; empty if nothing."""


@dataclass(frozen=True, slots=True)
class DrafterEntry:
    """A drafter by its name.

    Args:
        name: how users call it, and figures.
        module: has a function `make` of a `DrafterContext`.
        usual_length: tokens that it drafts a round where no length is given.
        needs_draft_model: whether it is of use only with one.
        marks: what opens and closes its tokens in the token lens, two characters.
        colour: how screens show them: the name of a colour that every theme has.
        origin: where such a token comes from, in a few words.
        needs_heads: whether it is of use only where the target has heads.
        setting: the setting that has to be on for it; empty without one.
        keeper: a module that is its `Keeper`, where it keeps something of what was said; it has a setting, then.
    """

    name: str
    module: str
    usual_length: int
    needs_draft_model: bool
    marks: str
    colour: str
    origin: str
    needs_heads: bool = False
    setting: str = ""
    keeper: str = ""

    def make(self, material: DrafterContext) -> "Drafter":
        """Return a drafter for one sequence."""
        make: Callable[[DrafterContext], Drafter] = import_module(self.module).make
        return make(material)

    @property
    def kept(self) -> "Keeper":
        """What keeps something for it; of a drafter that has it alone."""
        keeper: Keeper = import_module(self.keeper)
        return keeper


def _own(
    name: str, length: int, marks: str, colour: str, origin: str, needs: str = ""
) -> DrafterEntry:
    model, heads = (needs == each for each in ("draft model", "heads"))
    module = f"localspec.decoding.drafters.{name}"
    return DrafterEntry(name, module, length, model, marks, colour, origin, heads)


_ENTRIES = (
    _own("lookup", 15, "{}", "primary", "looked up in the text so far"),
    _own("model", 3, "[]", "success", "proposed by the draft model", "draft model"),
    _own("heads", 3, "^^", "accent", "proposed by heads of the target", "heads"),
    _own("forced", 15, "()", "warning", "all that the grammar allows"),
)
DRAFTERS: dict[str, DrafterEntry] = {entry.name: entry for entry in _ENTRIES}
"""By name, in the order in which a policy weighs them; see `drafters`."""
WITHOUT_MODEL = next(name for name, entry in DRAFTERS.items() if not entry.needs_draft_model)
"""What drafts if there is no draft model, or nothing is known of what passes cost."""


@cache
def drafters() -> Mapping[str, DrafterEntry]:
    """Return all drafters by name, those of other packages last; one cannot take the name of another."""
    points, _ = by_name(GROUP, DRAFTERS)
    for point in points.values():
        entry: DrafterEntry = point.load()
        DRAFTERS.setdefault(entry.name, entry)
    return DRAFTERS


def drafter_names() -> tuple[str, ...]:
    """Return the names of all drafters; those of other packages as their metadata has them, without importing any."""
    return (*DRAFTERS, *by_name(GROUP, DRAFTERS)[0])


def keeping() -> list[DrafterEntry]:
    """Return the drafters for which something is kept of what was said."""
    return [entry for entry in drafters().values() if entry.keeper]


def uses_draft_model(name: str) -> bool:
    """Return whether a drafter of this name proposes with the draft model."""
    return name in DRAFTERS and DRAFTERS[name].needs_draft_model


def uses_passes(name: str) -> bool:
    """Return whether a drafter of this name asks for passes that are not the target's."""
    return uses_draft_model(name) or (name in DRAFTERS and DRAFTERS[name].needs_heads)


def counted_as(done: Round) -> str:
    """Return the drafter that a round counts for: none where a lookup proposed nothing, for that was a plain round."""
    drafter = done.draft.drafter
    return drafter if done.drafted or uses_passes(drafter) else OFF
