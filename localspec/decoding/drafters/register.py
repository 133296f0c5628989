"""The register of drafters: a new one is its file, and one entry here, or an entry point of another package.

Cheap to import: what a drafter needs is imported when one is made.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from localspec.decoding.round import OFF, Round
from localspec.errors import UsageError

if TYPE_CHECKING:
    from localspec.decoding.costs import PassCosts
    from localspec.decoding.drafters.copying import Past
    from localspec.decoding.drafters.drafter import Drafter
    from localspec.decoding.drafters.spelling import Spelling
    from localspec.decoding.model import LanguageModel


@dataclass(frozen=True, slots=True, eq=False)
class Material:
    """What a drafter of one sequence is made of.

    Args:
        eog: ids that end a generation.
        draft_model: the draft model's sequence, or that of the target's heads; None without one.
        spelling: what the draft model's ids mean to the target; None without one.
        draft_costs: of the draft model's passes; None if they were not measured, or it always drafts.
        fresh: tokens of a long text that the draft model starts with; None takes what it holds.
        fixed: whether it always drafts, instead of being weighed by a policy.
        past: texts of other conversations; None where they are not stored.
    """

    eog: Collection[int]
    draft_model: "LanguageModel | None" = None
    spelling: "Spelling | None" = None
    draft_costs: "PassCosts | None" = None
    fresh: int | None = None
    fixed: bool = False
    past: "Past | None" = None

    def models(self) -> "tuple[LanguageModel, Spelling]":
        """Return the draft model's sequence or the heads', and what its ids mean."""
        assert self.draft_model is not None and self.spelling is not None, "there is none"  # noqa: S101, PT018
        return self.draft_model, self.spelling


@dataclass(frozen=True, slots=True)
class DrafterEntry:
    """A drafter by its name.

    Args:
        name: how users call it, and figures.
        module: has a function `make` of a `Material`.
        usual_length: tokens that it drafts a round where no length is given.
        needs_draft_model: whether it is of use only with one.
        marks: what opens and closes its tokens in the token lens, two characters.
        colour: how screens show them: the name of a colour that every theme has.
        origin: where such a token comes from, in a few words.
        needs_store: whether it is of use only where what was said before is kept.
        needs_heads: whether it is of use only where the target has heads.
    """

    name: str
    module: str
    usual_length: int
    needs_draft_model: bool
    marks: str
    colour: str
    origin: str
    needs_store: bool = False
    needs_heads: bool = False

    def make(self, material: Material) -> "Drafter":
        """Return a drafter for one sequence."""
        make: Callable[[Material], Drafter] = import_module(self.module).make
        return make(material)


GROUP = "localspec.drafters"
"""Entry points of this group name a `DrafterEntry` each."""


def _own(
    name: str, length: int, marks: str, colour: str, origin: str, needs: str = ""
) -> DrafterEntry:
    model, store, heads = (needs == each for each in ("draft model", "store", "heads"))
    module = f"localspec.decoding.drafters.{name}"
    return DrafterEntry(name, module, length, model, marks, colour, origin, store, heads)


_ENTRIES = (
    _own("lookup", 15, "{}", "primary", "looked up in the text so far"),
    _own("model", 3, "[]", "success", "proposed by the draft model", "draft model"),
    _own("store", 15, "||", "secondary", "said before", "store"),
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
    from importlib.metadata import entry_points  # noqa: PLC0415 - reads every package's metadata

    for point in entry_points(group=GROUP):
        try:
            entry: DrafterEntry = point.load()
        except Exception as error:  # whatever another package raises
            raise UsageError(
                f"the drafter {point.name!r} of another package: {error}; repair or uninstall it"
            ) from error
        DRAFTERS.setdefault(entry.name, entry)
    return DRAFTERS


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
