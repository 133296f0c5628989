"""HeadsDrafter: heads of the target propose, as a draft model would, going on from what the target computed."""

from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Protocol, cast

from localspec.decoding.choose import Chooser
from localspec.decoding.drafters.drafter import Plan
from localspec.decoding.drafters.model import ModelDrafter
from localspec.decoding.drafters.register import Material
from localspec.decoding.model import LanguageModel, Logits, Pass
from localspec.decoding.round import Draft


class HeadsOfTarget(LanguageModel, Protocol):
    """Heads of a target, as a model of one sequence.

    Attributes:
        fresh: tokens of a text that they begin with, where they would have to evaluate more.
        longest: most tokens of a draft.
    """

    fresh: int
    longest: int

    def knows(self, tokens: Sequence[int]) -> bool:
        """Return whether the target has computed what they need to draft after `tokens`."""


class HeadsDrafter(ModelDrafter):
    """Proposes what the heads of the target would choose, one pass a token; their ids are the target's.

    Where in a text they begin is their own business, for they count places as the target does.
    """

    name = "heads"

    def propose(
        self, tokens: Sequence[int], plan: Plan, chooser: Chooser
    ) -> Generator[Pass, Logits, Draft]:
        """Propose tokens, no more than they can."""
        most = min(plan.draft_length, cast(HeadsOfTarget, self.model).longest)
        return super().propose(tokens, replace(plan, draft_length=most), chooser)

    def _read(self, tokens: Sequence[int]) -> Sequence[int] | None:
        return super()._read(tokens) if cast(HeadsOfTarget, self.model).knows(tokens) else None

    def _window(self, tokens: Sequence[int]) -> tuple[int, int]:
        return 0, len(tokens) - self.model.common_prefix(tokens)


def make(material: Material) -> HeadsDrafter:
    """Return the register's drafter."""
    heads, spelling = material.models()
    if material.draft_costs is not None and material.fresh is not None:
        cast(HeadsOfTarget, heads).fresh = material.fresh
    return HeadsDrafter(heads, spelling, material.eog, material.draft_costs)
