"""Drafting: the policies that loaded models can run with, by the names that users give them."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING, Any

from localspec.decoding.costs import (
    AT_BEST,
    PairCosts,
    best_yield,
    draft_model_could_win,
    window_length,
)
from localspec.decoding.draft_mode import AUTO, DraftMode, draft_mode
from localspec.decoding.drafters.drafter import Drafter
from localspec.decoding.drafters.register import (
    WITHOUT_MODEL,
    DrafterContext,
    DrafterEntry,
    drafters,
)
from localspec.decoding.policy import (
    LONGEST_DRAFT,
    AdaptivePolicy,
    FixedPolicy,
    Policy,
    Sharing,
    plain_policy,
)
from localspec.decoding.round import OFF
from localspec.decoding.scheduler import Sequences
from localspec.errors import UsageError

if TYPE_CHECKING:
    from localspec.decoding.drafters.vocab_map import VocabMap


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
        shared: what is kept for drafters, by their names; see `Keeper`.
        has_heads: whether `draft_models` are heads.
        branches: most branches of a pass of the target.
        sharing: the sequences that are answering.
    """

    count: int
    draft_models: Sequences | None
    spelling: "Callable[[], VocabMap] | None"
    eog: Collection[int]
    costs: PairCosts | None
    longest: int
    shared: Mapping[str, Any] = field(default_factory=dict)
    has_heads: bool = False
    branches: int = 0
    sharing: Sharing = field(default_factory=Sharing)

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
            return plain_policy(self.sharing, slot)
        lacks = ""
        if mode.needs_draft_model and (self.draft_models is None or self.has_heads):
            lacks = "a draft model: no draft model is loaded"
        elif mode.needs_heads and not self.has_heads:
            lacks = "heads of the target: no heads are loaded"
        elif mode.kind in drafters() and self._lacks(drafters()[mode.kind]):
            setting = drafters()[mode.kind].setting
            lacks = f"the {mode.kind} of what was said: `localspec config set {setting} on`"
        if lacks:
            raise UsageError(f"draft mode {mode.name!r} needs {lacks}")
        if mode.kind != AUTO or self.costs is None:
            entry = drafters()[WITHOUT_MODEL if mode.kind == AUTO else mode.kind]
            length = min(mode.draft_length or entry.usual_length, self.longest)
            drafter = self._drafter(entry, slot, fixed=True)
            return FixedPolicy(drafter, length, self.sharing, slot)
        longest = min(self.longest, LONGEST_DRAFT)
        able = [
            self._drafter(entry, slot, fixed=False)
            for entry in drafters().values()
            if not self._lacks(entry) and self._could_win(entry, longest)
        ]
        target, measured = self.costs.target, self.costs.at_best < AT_BEST
        best = best_yield(self.costs, longest) if measured else inf
        return AdaptivePolicy(target, longest, able, self.branches, self.sharing, slot, best)

    def _lacks(self, entry: DrafterEntry) -> bool:
        """Return whether what a drafter keeps is not there."""
        return bool(entry.keeper) and entry.name not in self.shared

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
        material = DrafterContext(self.eog, fixed=fixed, shared=self.shared.get(entry.name))
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
