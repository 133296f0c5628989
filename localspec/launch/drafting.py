"""Drafting: the policies that loaded models can run with, by the names that users give them."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING

from localspec.decoding.costs import (
    AT_BEST,
    PairCosts,
    best_yield,
    draft_model_could_win,
    window_length,
)
from localspec.decoding.drafters.drafter import Drafter
from localspec.decoding.drafters.register import (
    WITHOUT_MODEL,
    DrafterEntry,
    Material,
    drafters,
    uses_draft_model,
)
from localspec.decoding.policy import (
    LONGEST_DRAFT,
    AdaptivePolicy,
    FixedPolicy,
    Policy,
    plain_policy,
)
from localspec.decoding.round import OFF
from localspec.decoding.scheduler import Sequences
from localspec.errors import UsageError
from localspec.options import LaunchOptions

if TYPE_CHECKING:
    from localspec.decoding.drafters.copying import Past
    from localspec.decoding.drafters.spelling import Spelling

AUTO = "auto"


@dataclass(frozen=True, slots=True)
class DraftMode:
    """What is to draft, and how far.

    Args:
        kind: `off`, `auto`, which chooses in every round, or the name of a drafter.
        draft_length: tokens to draft a round, from 1; of `off` and `auto` it is None.
    """

    kind: str
    draft_length: int | None = None

    @property
    def rows(self) -> int:
        """Rows of logits that a pass of the target may ask for."""
        return 1 + {OFF: 0, AUTO: LONGEST_DRAFT}.get(self.kind, self.draft_length or 0)

    @property
    def name(self) -> str:
        """As users write it."""
        return self.kind if self.draft_length is None else f"{self.kind}:{self.draft_length}"

    @property
    def needs_draft_model(self) -> bool:
        """Whether it cannot do without a draft model."""
        return uses_draft_model(self.kind)

    @property
    def needs_heads(self) -> bool:
        """Whether it cannot do without heads of the target."""
        return self.kind in drafters() and drafters()[self.kind].needs_heads

    @property
    def may_use_draft_model(self) -> bool:
        """Whether a draft model, or a file of heads, is of use to it."""
        return self.kind == AUTO or self.needs_draft_model or self.needs_heads


def draft_mode(text: str, draft_length: int | None = None) -> DraftMode:
    """Return the mode that `off`, `auto`, `lookup`, `lookup:8`, `model` or `model:3` stands for.

    Args:
        text: kind, and the draft length after a colon.
        draft_length: what a mode without a length of its own takes; None takes the usual one.

    Raises:
        UsageError: there is no such mode, or it takes no such length.
    """
    kind, colon, length = text.partition(":")
    if kind in {OFF, AUTO} and not colon:
        return DraftMode(kind)
    if kind not in drafters() or (colon and not length.isdecimal()):
        *others, last = drafters()
        raise UsageError(
            f"draft mode {text!r}: choose {', '.join([OFF, AUTO, *others])} or {last}; "
            "a drafter may have a length, as in model:3"
        )
    drafted = int(length) if colon else draft_length or drafters()[kind].usual_length
    LaunchOptions(draft_length=drafted)  # which says what lengths there are
    return DraftMode(kind, drafted)


def draft_modes(options: LaunchOptions) -> tuple[DraftMode, ...]:
    """Return every mode that a pair has to be ready for, the wanted one first.

    Raises:
        UsageError: there is no such mode.
    """
    return tuple(
        draft_mode(each, options.draft_length) for each in (options.draft, *options.further)
    )


@dataclass(frozen=True, slots=True, eq=False)
class Drafting:
    """What loaded models can draft with.

    Args:
        count: sequences of each.
        draft_models: the draft model's sequences, or those of the target's heads; None without one.
        spelling: says what the draft model's ids mean to the target, for a sequence; None without one.
        eog: ids that end a generation.
        costs: what passes cost; None if they were not measured, and `auto` looks up.
        longest: most tokens of any draft.
        past: texts of other conversations; None where they are not stored.
        has_heads: whether `draft_models` are heads.
        branches: most branches of a pass of the target.
        running: slots of the sequences that are answering.
    """

    count: int
    draft_models: Sequences | None
    spelling: "Callable[[], Spelling] | None"
    eog: Collection[int]
    costs: PairCosts | None
    longest: int
    past: "Past | None" = None
    has_heads: bool = False
    branches: int = 0
    running: set[int] = field(default_factory=set)

    def policy(self, mode: str | DraftMode, slot: int = 0) -> Policy:
        """Return a policy without memories for one sequence.

        Args:
            mode: see `draft_mode`.
            slot: of the sequence.

        Raises:
            UsageError: there is no such mode, or no draft model for it.
        """
        mode = draft_mode(mode) if isinstance(mode, str) else mode
        if mode.kind == OFF or self.longest == 0:
            return plain_policy()
        lacks = ""
        if mode.needs_draft_model and (self.draft_models is None or self.has_heads):
            lacks = "a draft model: no draft model is loaded"
        elif mode.needs_heads and not self.has_heads:
            lacks = "heads of the target: no heads are loaded"
        elif mode.kind in drafters() and drafters()[mode.kind].needs_store and self.past is None:
            lacks = "the store of what was said: `localspec config set store on`"
        if lacks:
            raise UsageError(f"draft mode {mode.name!r} needs {lacks}")
        if mode.kind != AUTO or self.costs is None:
            entry = drafters()[WITHOUT_MODEL if mode.kind == AUTO else mode.kind]
            length = min(mode.draft_length or entry.usual_length, self.longest)
            return FixedPolicy(self._drafter(entry, slot, fixed=True), length)
        longest = min(self.longest, LONGEST_DRAFT)
        able = [
            self._drafter(entry, slot, fixed=False)
            for entry in drafters().values()
            if (not entry.needs_store or self.past is not None) and self._could_win(entry, longest)
        ]
        target, measured = self.costs.target, self.costs.at_best < AT_BEST
        best = best_yield(self.costs, longest) if measured else inf
        return AdaptivePolicy(target, longest, able, self.branches, self.running, slot, best)

    def _could_win(self, entry: DrafterEntry, longest: int) -> bool:
        """Return whether a drafter that asks for passes has whom to ask, and they are not too dear."""
        if not (entry.needs_draft_model or entry.needs_heads):
            return True
        return (
            self.draft_models is not None
            and entry.needs_heads is self.has_heads
            and self.costs is not None
            and draft_model_could_win(self.costs, longest, self.count)
        )

    def _drafter(self, entry: DrafterEntry, slot: int, *, fixed: bool) -> Drafter:
        material = Material(self.eog, fixed=fixed, past=self.past)
        if self.draft_models is None:
            return entry.make(material)
        view, costs = self.draft_models.views[slot], self.costs
        makes_passes = entry.needs_draft_model or entry.needs_heads
        spelling = self.spelling() if makes_passes and self.spelling is not None else None
        material = replace(material, draft_model=view, spelling=spelling)
        if costs is None or costs.draft_model is None:
            return entry.make(material)
        fresh = window_length(costs.target, costs.draft_model, view.n_ctx)
        draft_costs = None if fixed else costs.draft_model
        return entry.make(replace(material, draft_costs=draft_costs, fresh=fresh))
