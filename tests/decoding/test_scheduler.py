"""serve: passes are made in order by the right model, and what one raises is raised where it was asked for."""

from collections.abc import Generator

import numpy as np
import pytest
from localspec.decoding.serve import serve

from localspec.decoding.cancel import Cancelled
from localspec.decoding.model import Logits, Pass, Role
from tests.toy import Asked, CachedModel, Countdown, random_table

TABLE = random_table(1, n_vocab=5)


def test_each_pass_is_made_by_the_model_that_it_is_meant_for() -> None:
    target, draft_model = CachedModel(TABLE, 20), CachedModel(TABLE, 20)

    def asking() -> Generator[Pass, Logits, int]:
        nothing = yield Pass(Role.DRAFT_MODEL, [1, 2], rows=0)
        assert nothing.size == 0
        rows = yield Pass(Role.TARGET, [1, 2, 3], rows=2)
        assert np.array_equal(rows[1], TABLE.row([1, 2, 3]))
        return 7

    assert serve(asking(), {Role.TARGET: target, Role.DRAFT_MODEL: draft_model}) == 7
    assert target.asked == [Asked(2, 3, 3)]
    assert draft_model.asked == [Asked(0, 2, 2)]


def test_what_a_pass_raises_is_raised_where_it_was_asked_for() -> None:
    target = CachedModel(TABLE, 20, Countdown(0))

    def asking() -> Generator[Pass, Logits, str]:
        try:
            yield Pass(Role.TARGET, [1], rows=1)
        except Cancelled:
            yield Pass(Role.TARGET, [2], rows=1)
            return "went on"
        raise AssertionError

    assert serve(asking(), {Role.TARGET: target}) == "went on"


def test_what_is_not_caught_there_comes_through() -> None:
    def asking() -> Generator[Pass, Logits, None]:
        yield Pass(Role.TARGET, [1], rows=1)

    with pytest.raises(Cancelled):
        serve(asking(), {Role.TARGET: CachedModel(TABLE, 20, Countdown(0))})
