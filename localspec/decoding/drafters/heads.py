"""HeadsDrafter: heads of the target propose, as a draft model would, going on from what the target computed."""

from collections.abc import Collection, Sequence
from typing import Protocol, cast

from localspec.decoding.costs import PassCosts
from localspec.decoding.drafters.model import ModelDrafter, Window
from localspec.decoding.drafters.register import Material
from localspec.decoding.drafters.spelling import Spelling
from localspec.decoding.model import LanguageModel


class HeadsOfTarget(LanguageModel, Protocol):
    """Heads of a target, as a model of one sequence.

    Attributes:
        fresh: tokens of a text that they begin with, where they would have to evaluate more.
    """

    fresh: int

    def knows(self, tokens: Sequence[int]) -> bool:
        """Return whether the target has computed what they need to draft after `tokens`."""


class HeadsDrafter(ModelDrafter):
    """Proposes what the heads of the target would choose, one pass a token.

    Args:
        heads: whose passes the scheduler makes.
        spelling: what their ids mean, which is the same to both.
        eog: ids that end a generation; nothing useful follows them.
        costs: of the heads' passes; None if they are not known, and nothing is forecast.
    """

    name = "heads"

    def __init__(
        self,
        heads: HeadsOfTarget,
        spelling: Spelling,
        eog: Collection[int],
        costs: PassCosts | None = None,
    ) -> None:
        super().__init__(heads, spelling, eog, costs)
        self._heads = heads
        self._window = _Whole(heads, heads.n_ctx)

    def _read(self, tokens: Sequence[int]) -> Sequence[int] | None:
        return super()._read(tokens) if self._heads.knows(tokens) else None


class _Whole(Window):
    """All of a text: where the heads begin is their own business, for they count places as the target does."""

    def _begin(self, tokens: Sequence[int]) -> tuple[int, int]:
        return 0, len(tokens) - self._model.common_prefix(tokens)


def make(material: Material) -> HeadsDrafter:
    """Return the register's drafter."""
    assert material.draft_model is not None, "it needs heads"  # noqa: S101
    heads = cast(HeadsOfTarget, material.draft_model)
    costs = None if material.fixed else material.draft_costs
    if costs is not None and material.fresh is not None:
        heads.fresh = material.fresh
    assert material.spelling is not None, "which have ids"  # noqa: S101
    return HeadsDrafter(heads, material.spelling, material.eog, costs)
