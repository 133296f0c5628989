"""A draft model that has no logits for some ids: the text stays the same, and it never proposes one of them."""

from collections.abc import Sequence
from dataclasses import fields
from random import Random

import numpy as np
import pytest

from tests.decoding.worlds import World, check_same_text, random_world, seeds
from tests.toy import Table


class CutWorld(World):
    """A world whose draft model has a row of -inf for half of its ids, as one with a cut head."""

    def tables(self) -> tuple[Table, Table]:
        """Return the tables of target and draft model; raises as the world's own."""
        target, draft = super().tables()
        rows = draft.rows.copy()
        rows[:, self.gone()] = -np.inf
        return target, Table(rows, draft.window)

    def gone(self) -> Sequence[int]:
        """Return the ids that the draft model cannot say; one it always can."""
        return Random(self.whim).sample(range(self.draft_n_vocab - 1), self.draft_n_vocab // 2)

    @property
    def draft_knows(self) -> bool:
        """Say that it does not, since what it lacks may be what the target says."""
        return False


def cut(world: World) -> World:
    return CutWorld(**{each.name: getattr(world, each.name) for each in fields(world)})


@pytest.mark.first(1)
@pytest.mark.parametrize("some", seeds(160, parts=4), ids=str)
def test_drafts_of_a_part_of_the_vocabulary_change_nothing(some: range) -> None:
    for seed in some:
        check_same_text(cut(random_world(Random(seed))))
