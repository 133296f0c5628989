from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.decoding.choose import Chooser
from localspec.decoding.costs import PassCosts
from localspec.decoding.drafters.drafter import Plan
from localspec.decoding.drafters.lookup import LookupDrafter, make
from localspec.decoding.drafters.register import Material
from localspec.decoding.drafters.worth import best_length
from localspec.decoding.noise import Noise
from localspec.decoding.round import Draft, Round, Verdict
from localspec.options import SamplingParams
from tests.decoding.worlds import SomeResidues
from tests.toy import GREEDY

CHOOSER = Chooser(SamplingParams(), Noise(0))
Q4_K_M = PassCosts(
    (1, 2, 3, 4, 5, 6, 8, 12, 16, 32),
    (0.0227, 0.0415, 0.0558, 0.0685, 0.0837, 0.0984, 0.1149, 0.1434, 0.1377, 0.2503),
)
COPIED = [*range(100, 140), 7, *range(100, 120)]


def following(
    tokens: Sequence[int], eog: Sequence[int] = (), min_match: int = 2, known: int | None = None
) -> LookupDrafter:
    """Return a drafter that has followed a text, all but the first `known` tokens round by round."""
    known = len(tokens) if known is None else known
    drafter = LookupDrafter(eog, min_match)
    drafter.begin(tokens[:known], GREEDY)
    for token in tokens[known:]:
        follow(drafter, token)
    return drafter


def follow(drafter: LookupDrafter, *confirmed: int) -> None:
    done = Round(Draft(), Verdict(0, confirmed[-1]), confirmed)
    drafter.learn(done)


def propose(
    drafter: LookupDrafter,
    tokens: Sequence[int],
    draft_length: int,
    chooser: Chooser = CHOOSER,
) -> Draft:
    with pytest.raises(StopIteration) as finished:
        next(drafter.propose(tokens, Plan(drafter, draft_length), chooser))
    draft = finished.value.value
    assert isinstance(draft, Draft)
    return draft


def proposed(tokens: Sequence[int], draft_length: int, **how: object) -> tuple[int, ...]:
    return propose(following(tokens, **how), tokens, draft_length).tokens  # type: ignore[arg-type]


def test_continuation_of_the_match_is_proposed() -> None:
    assert proposed([1, 2, 3, 4, 5, 1, 2], 3) == (3, 4, 5)


def test_longest_match_wins_over_the_latest() -> None:
    assert proposed([8, 1, 2, 3, 9, 1, 2, 4, 8, 1, 2], 1) == (3,)


def test_latest_of_equal_matches_wins() -> None:
    assert proposed([1, 2, 3, 1, 2, 4, 1, 2], 1) == (4,)


def test_match_shorter_than_the_least_proposes_nothing() -> None:
    tokens = [1, 2, 3, 4, 1, 2]
    assert propose(following(tokens, min_match=3), tokens, 3) == Draft(drafter="lookup")


def test_match_that_reaches_the_end_goes_on_in_its_own_copy() -> None:
    assert proposed([7, 8, 7, 8], 5) == (7, 8, 7, 8, 7)


def test_draft_stops_at_end_of_generation() -> None:
    assert proposed([1, 2, 3, 4, 1, 2], 5, eog=(3,)) == (3,)


@pytest.mark.parametrize("draft_length", [0, 1, 4, 60])
def test_draft_is_as_long_as_planned_and_says_how_sure_each_token_is(draft_length: int) -> None:
    draft = propose(following(COPIED), COPIED, draft_length)
    assert len(draft.tokens) == len(draft.confidences) == draft_length
    assert draft.drafter == "lookup"
    assert list(draft.confidences) == sorted(draft.confidences), "each makes the match longer"


def test_longer_match_is_surer() -> None:
    short = propose(following(short_match := [1, 2, 3, 4, 1, 2]), short_match, 1)
    long = propose(following(long_match := [1, 2, 3, 4, 5, 1, 2, 3]), long_match, 1)
    assert 0 < short.confidences[0] < long.confidences[0] < 1


def test_draft_ends_where_a_constraint_lets_it_follow_no_further() -> None:
    constraint = SomeResidues(salt=4, last=8)
    text = [0, 1, 2, 3, 4, 5, 6, 7, 0, 1]
    draft = propose(following(text), text, 6, Chooser(CHOOSER.params, CHOOSER.noise, constraint))
    kept = CHOOSER.admitted(text, (2, 3, 4, 5, 6, 7))
    assert kept == 6
    assert 0 < len(draft.tokens) < 6
    assert draft.tokens == (2, 3, 4, 5, 6, 7)[: len(draft.tokens)]
    assert len(draft.confidences) == len(draft.tokens)


texts = st.lists(st.integers(0, 2), min_size=1, max_size=40)


@given(texts, st.integers(1, 6), st.integers(0, 40), st.integers(2, 5))
@settings(max_examples=150, deadline=None)
def test_what_is_proposed_follows_a_true_match_however_the_text_was_told(
    tokens: list[int], draft_length: int, known: int, min_match: int
) -> None:
    drafted = proposed(tokens, draft_length, min_match=min_match, known=max(1, known))
    if not drafted:
        return
    assert len(drafted) == draft_length
    goes_on = [*tokens, *drafted]
    end = tokens[len(tokens) - min_match :]
    assert any(
        tokens[at - min_match : at] == end and tuple(goes_on[at : at + draft_length]) == drafted
        for at in range(min_match, len(tokens))
    )


def test_only_the_latest_sixteen_matches_are_tried() -> None:
    """A text of nothing but one n-gram costs no more than any other."""
    longest_first = [5, 6, 1, 2, 3] + [1, 2, 4] * 16 + [5, 6, 1, 2]
    assert proposed(longest_first, 1) == (4,)
    assert proposed(longest_first[:5] + longest_first[8:], 1) == (3,)


def test_another_reply_follows_its_own_text() -> None:
    drafter = following([1, 2, 3, 4, 1, 2])
    drafter.begin([1, 2, 9, 1, 2], GREEDY)
    assert propose(drafter, [1, 2, 9, 1, 2], 1).tokens == (9,)
    drafter.begin([1, 2], GREEDY)
    assert propose(drafter, [1, 2], 1).tokens == ()


def test_a_fixed_one_copies_after_five_tokens_and_a_weighed_one_after_two() -> None:
    for fixed, length in ((True, 5), (False, 2)):
        for matched in (length - 1, length):
            drafter = make(Material((), fixed=fixed))
            text = [*range(10), 50, *range(10 - matched, 10)]
            drafter.begin(text, GREEDY)
            assert bool(propose(drafter, text, 3).tokens) is (matched == length)


def test_a_long_match_is_worth_a_pass_and_a_short_one_is_not() -> None:
    verify_s = [Q4_K_M.of(width) for width in range(1, 33)]
    long = following(COPIED).forecast(COPIED)
    assert long is not None
    length, rate = best_length(long.chances, verify_s)
    assert length == 15, "where 16 cost less than 12"
    assert rate > 1.1 / Q4_K_M.of(1)
    short = following(text := [*COPIED[:41], 100, 101]).forecast(text)
    assert short is not None
    assert best_length(short.chances, verify_s)[0] == 0
    assert short.step_s == short.start_s == 0.0


def test_a_forecast_changes_nothing() -> None:
    drafter = following(COPIED, known=50)
    assert drafter.forecast(COPIED) == drafter.forecast(COPIED)


def test_where_nothing_matches_nothing_is_forecast() -> None:
    assert following(text := list(range(40))).forecast(text) is None


def test_a_source_that_is_wrong_again_and_again_is_believed_less_though_nothing_was_drafted() -> (
    None
):
    drafter, text = LookupDrafter(()), list(range(100, 140))
    drafter.begin(text, GREEDY)
    sure: list[float] = []
    for wrong in range(500, 512):  # eight tokens of the source, and then another one
        for token in range(100, 108):
            text.append(token)
            follow(drafter, token)
        sure += propose(drafter, text, 1).confidences
        text.append(wrong)
        follow(drafter, wrong)
    assert len(sure) == 12
    assert sure[-1] < 0.85 * sure[0]
