"""Speed-ups of drafts: recorded answers replayed by hand."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.decoding.costs import PassCosts
from localspec.tailor.measure import speed_up

WIDE_IS_FREE = PassCosts((1, 64), (1.0, 1.0))
FREE_DRAFT = PassCosts((1, 2), (1e-9, 1e-9))


def test_answers_are_replayed_round_by_round() -> None:
    # The first token comes with the prompt. Drafts of one: the second is wrong, of the next two passes each confirms a
    # drafted token and one more, and behind each of these drafts the model has two tokens to evaluate.
    hits = [False, False, True, True, True, True]
    target, draft = (
        PassCosts((1, 2, 3, 32), (10.0, 11.0, 99.0, 999.0)),
        PassCosts((1, 2), (1.0, 1.5)),
    )
    spent = (11 + 1) + (11 + 1) + (11 + 1.5)
    found = speed_up({"code": [hits]}, target, draft)["code"]
    assert found == pytest.approx(50 / spent)


def test_a_free_draft_that_is_always_right_confirms_all_it_may() -> None:
    found = speed_up({"a": [[True] * 31], "b": [[False] * 31]}, WIDE_IS_FREE, FREE_DRAFT)
    assert found == {"a": pytest.approx(30), "b": pytest.approx(1)}


@settings(max_examples=30)
@given(st.lists(st.lists(st.booleans(), min_size=1, max_size=20), min_size=1, max_size=2))
def test_more_right_tokens_never_earn_less(answers: list[list[bool]]) -> None:
    draft = PassCosts((1, 2), (0.1, 0.1))
    worse = speed_up({"code": answers}, WIDE_IS_FREE, draft)["code"]
    better = speed_up({"code": [[True] * len(each) for each in answers]}, WIDE_IS_FREE, draft)[
        "code"
    ]
    assert 1.0 <= worse <= better + 1e-9
