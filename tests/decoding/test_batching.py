"""Crowd: a draft is weighed against the neighbours that share its pass, by the same table of costs."""

import pytest
from localspec.decoding.crowd import Crowd, CrowdPolicy, could_pay, merged_s
from localspec.decoding.drafter import Draft
from localspec.decoding.verify import Verdict

from localspec.decoding.costs import PassCosts
from localspec.decoding.round import Round, Spent

LINEAR = PassCosts((1, 64), (1.0, 64.0))
FLAT = PassCosts((1, 64), (1.0, 1.6))
"""As on a device on which a wide pass takes hardly longer than a narrow one."""


def test_equal_widths_make_one_pass_and_what_is_wider_another() -> None:
    assert merged_s(LINEAR, [1, 1, 1]) == LINEAR.of(3)
    assert merged_s(FLAT, [2, 2]) == FLAT.of(4)
    assert merged_s(FLAT, [1, 1, 4]) == FLAT.of(3) + FLAT.of(3)
    assert merged_s(FLAT, [1, 3, 4]) == FLAT.of(3) + FLAT.of(4) + FLAT.of(1)


def test_alone_a_pass_costs_what_the_table_says() -> None:
    crowd = Crowd(FLAT)
    for width in (1, 2, 7, 40):
        assert crowd.seconds(0, width) == pytest.approx(FLAT.of(width))


def test_a_plain_pass_costs_a_share_of_everybodys() -> None:
    crowd = Crowd(LINEAR)
    for place in range(5):
        crowd.join(place)
    assert crowd.seconds(0, 1) == pytest.approx(LINEAR.of(5) / 5)
    crowd.leave(4)
    assert crowd.seconds(0, 1) == pytest.approx(LINEAR.of(4) / 4)


def test_a_draft_costs_what_it_adds_to_the_pass_of_all() -> None:
    crowd = Crowd(FLAT)
    for place in range(4):
        crowd.join(place)
    added = merged_s(FLAT, [1, 1, 1, 6]) - FLAT.of(4)
    assert crowd.seconds(2, 6) == pytest.approx(FLAT.of(4) / 4 + added)
    crowd.join(3, 6)  # whoever drafts beside another draft shares the second pass with it
    assert crowd.seconds(2, 6) - crowd.seconds(2, 1) < added


def test_costs_of_a_sequence_follow_the_crowd() -> None:
    crowd = Crowd(LINEAR)
    costs = crowd.costs_of(0)
    crowd.join(0)
    before = costs.of(1)
    crowd.join(1)
    crowd.join(2)
    assert costs.of(1) == pytest.approx(LINEAR.of(3) / 3)
    assert before == LINEAR.of(1)


def test_a_draft_pays_for_one_or_for_nobody_as_the_crowd_grows() -> None:
    assert could_pay(FLAT, 1, 31)
    assert not could_pay(LINEAR, 1, 31)
    paying = [could_pay(FLAT, count, 31) for count in range(1, 60)]
    assert paying == sorted(paying, reverse=True), "once it does not pay, it never does"
    assert not paying[-1]


def repeating(policy: CrowdPolicy) -> int:
    """Return how far a policy drafts in a text that repeats itself."""
    text = [1, 2, 3, 4, 5, 6, 7, 8] * 6
    policy.begin(greedy=True)
    return policy.plan(text, room=100, lag=0).draft_length


def test_who_is_alone_copies_and_who_is_one_of_many_does_not() -> None:
    crowd = Crowd(FLAT)
    policies = [CrowdPolicy(crowd, place, (), 31) for place in range(60)]
    assert repeating(policies[0]) > 0
    crowd.leave(0)
    for place in range(1, 60):
        crowd.join(place)
    assert repeating(policies[0]) == 0
    for place in range(1, 60):
        crowd.leave(place)
    assert repeating(policies[0]) > 0, "those who are left copy again"


def test_the_time_of_everybodys_pass_is_not_taken_for_its_own() -> None:
    crowd = Crowd(FLAT)
    for place in range(2):
        crowd.join(place)
    policy = CrowdPolicy(crowd, 0, (), 31)
    policy.begin(greedy=True)
    text = [1, 2, 3, 4, 5, 6, 7, 8] * 6
    for _ in range(20):
        length = policy.plan(text, room=100, lag=0).draft_length
        *drafted, bonus = (1 + (len(text) + i) % 8 for i in range(length + 1))
        draft = Draft(tuple(drafted), (1.0,) * length, "lookup")
        done = Round(draft, Verdict(length, bonus))
        text += done.confirmed
        policy.learn(done, Spent(0.0, 0.0, 1000.0, 0.0))
    assert policy.plan(text, room=100, lag=0).draft_length > 0
