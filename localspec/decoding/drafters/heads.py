"""HeadsDrafter: heads of the target propose, as a draft model would, going on from what the target computed."""

from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Protocol, cast

from localspec.decoding.choose import Chooser
from localspec.decoding.drafters.drafter import DraftForecast, Plan
from localspec.decoding.drafters.model import ModelDrafter
from localspec.decoding.drafters.register import DrafterContext
from localspec.decoding.model import LanguageModel, Logits, Pass
from localspec.decoding.round import Draft


class HeadsOfTarget(LanguageModel, Protocol):
    """Heads of a target, as a model of one sequence.

    Attributes:
        fresh: tokens of a text that they begin with, where they would have to evaluate more.
        longest: most tokens of a draft.
        in_one_pass: whether one pass gives all of them.
    """

    fresh: int
    longest: int
    in_one_pass: bool

    def knows(self, tokens: Sequence[int]) -> bool:
        """Return whether the target has computed what they need to draft after `tokens`."""


class HeadsDrafter(ModelDrafter):
    """Proposes what the heads of the target would choose, one pass a token or one for all; their ids are the target's.

    Where in a text they begin is their own business, for they count places as the target does.
    """

    name = "heads"

    def forecast(self, tokens: Sequence[int]) -> DraftForecast | None:
        """Return what a draft model would expect, no further than they draft; see `Drafter`."""
        forecast, heads = super().forecast(tokens), cast(HeadsOfTarget, self.model)
        if forecast is None:
            return None
        chances = forecast.chances[: heads.longest]
        return replace(forecast, chances=chances, in_one_pass=heads.in_one_pass)

    def propose(
        self, tokens: Sequence[int], plan: Plan, chooser: Chooser
    ) -> Generator[Pass, Logits, Draft]:
        """Propose tokens, no more than they can."""
        heads = cast(HeadsOfTarget, self.model)
        most = min(plan.draft_length, heads.longest)
        draft = yield from super().propose(tokens, replace(plan, draft_length=most), chooser)
        return replace(draft, passes=min(draft.passes, 1)) if heads.in_one_pass else draft

    def _read(self, tokens: Sequence[int]) -> Sequence[int] | None:
        return super()._read(tokens) if cast(HeadsOfTarget, self.model).knows(tokens) else None

    def _window(self, tokens: Sequence[int]) -> tuple[int, int]:
        return 0, len(tokens) - self.model.common_prefix(tokens)


def make(material: DrafterContext) -> HeadsDrafter:
    """Return the register's drafter."""
    heads, spelling = material.models()
    if material.draft_costs is not None and material.fresh is not None:
        cast(HeadsOfTarget, heads).fresh = material.fresh
    return HeadsDrafter(heads, spelling, material.eog, material.draft_costs)
