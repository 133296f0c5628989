import numpy as np
import pytest
from localspec.decoding.drafter import Draft
from localspec.decoding.verify import Verdict

from localspec.decoding.choose import Ranking
from localspec.decoding.round import Round

_NEAR = Ranking(np.array([3, 5, 8]), np.array([2.0, 1.0, 1.5]))
_DRAFT = Draft((4, 3), (0.9, 0.8), "model", (1.0, 0.5), (), (_NEAR, _NEAR))


@pytest.mark.parametrize(("correction", "rank"), [(8, 2), (5, 3), (6, None)])
def test_rank_of_a_correction_is_looked_up_where_the_draft_went_wrong(
    correction: int, rank: int | None
) -> None:
    assert Round(_DRAFT, Verdict(1, correction)).correction_rank == rank


def test_bonus_has_no_rank_nor_has_a_correction_of_a_drafter_that_ranks_nothing() -> None:
    assert Round(_DRAFT, Verdict(2, 8)).correction_rank is None
    assert Round(Draft((4,), (0.5,), "lookup"), Verdict(0, 8)).correction_rank is None
