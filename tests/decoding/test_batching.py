"""BatchWidths: a draft is weighed against the neighbours that share its pass, by the same table of costs."""

import pytest

from localspec.decoding.costs import PassCosts
from localspec.decoding.drafters.lookup import LookupDrafter
from localspec.decoding.drafters.model import ModelDrafter
from localspec.decoding.drafters.spelling import SharedIds
from localspec.decoding.policy import batching
from localspec.decoding.policy.batching import (
    BatchPolicy,
    BatchWidths,
    best_count,
    could_pay,
    merged_s,
)
from localspec.decoding.round import Draft, Round, Spent, Verdict
from tests.toy import GREEDY, CachedModel, random_table

LINEAR = PassCosts((1, 64), (1.0, 64.0))
FLAT = PassCosts((1, 64), (1.0, 1.6))
"""As on a device on which a wide pass takes hardly longer than a narrow one."""
# Milliseconds of SmolLM2's passes of so many sequences, on two cores.
SMOLLM2 = PassCosts(
    (1, 2, 4, 6, 8, 12, 16, 24, 32), (6.0, 11.2, 18.1, 25.4, 27.4, 36.4, 44.3, 67.2, 86.3)
)


def test_equal_widths_make_one_pass_and_what_is_wider_another() -> None:
    assert merged_s(LINEAR, [1, 1, 1]) == LINEAR.of(3)
    assert merged_s(FLAT, [2, 2]) == FLAT.of(4)
    assert merged_s(FLAT, [1, 1, 4]) == FLAT.of(3) + FLAT.of(3)
    assert merged_s(FLAT, [1, 3, 4]) == FLAT.of(3) + FLAT.of(4) + FLAT.of(1)


def batch_of(
    count: int, costs: PassCosts = FLAT, draft_model: PassCosts | None = None
) -> BatchWidths:
    batch = BatchWidths(costs, draft_model)
    for slot in range(count):
        batch.begin(slot)
    return batch


def test_alone_a_pass_costs_what_the_table_says() -> None:
    for batch in (batch_of(0), batch_of(1)):
        for width in (1, 2, 7, 40):
            assert batch.seconds(0, width)[-1] == pytest.approx(FLAT.of(width))
            assert batch.joint_s(0, width)[-1] == pytest.approx(FLAT.of(width))


def test_a_plain_pass_costs_a_share_of_everybodys() -> None:
    batch = batch_of(5, LINEAR)
    assert batch.seconds(0, 1)[-1] == pytest.approx(LINEAR.of(5) / 5)
    assert batch.joint_s(0, 1)[-1] == pytest.approx(LINEAR.of(5) / 5)
    batch.leave(4)
    assert batch.seconds(0, 1)[-1] == pytest.approx(LINEAR.of(4) / 4)


def test_a_draft_costs_what_it_adds_to_the_pass_of_all() -> None:
    batch = batch_of(4)
    added = merged_s(FLAT, [1, 1, 1, 6]) - FLAT.of(4)
    assert batch.seconds(2, 6)[-1] == pytest.approx(FLAT.of(4) / 4 + added)
    batch.pass_made(3, 6, by_draft_model=False)
    # Whoever drafts beside another draft shares the second pass with it.
    assert batch.seconds(2, 6)[-1] - batch.seconds(2, 1)[-1] < added


@pytest.mark.parametrize("widths", [(1, 1, 1), (1, 4, 9), (6,), (12, 12)])
def test_every_length_costs_what_it_costs_alone(widths: tuple[int, ...]) -> None:
    batch = batch_of(len(widths) + 1)
    for slot, width in enumerate(widths, start=1):
        batch.pass_made(slot, width, by_draft_model=False)
    plain_s = merged_s(FLAT, [*widths, 1])
    for upto in (1, 5, 20):
        assert batch.seconds(0, upto) == pytest.approx(
            [
                plain_s / (len(widths) + 1) + max(0.0, merged_s(FLAT, [*widths, each]) - plain_s)
                for each in range(1, upto + 1)
            ]
        )


def test_drafts_of_the_draft_model_are_expected_of_all_that_use_it() -> None:
    batch, alone = batch_of(4, FLAT, FLAT), FLAT.of(4) / 4
    joint = alone + (FLAT.of(4 * 6) - FLAT.of(4)) / 4
    assert batch.joint_s(0, 6)[-1] == pytest.approx(joint)
    assert batch.joint_s(0, 6)[-1] < batch.seconds(0, 6)[-1], "together they fill one pass"
    for slot in (1, 2, 3):
        batch.pass_made(slot, 1, by_draft_model=False)
    assert batch.joint_s(0, 6)[-1] == pytest.approx(alone + FLAT.of(6) - FLAT.of(1))
    batch.pass_made(1, 6, by_draft_model=True)
    assert batch.joint_s(0, 6)[-1] == pytest.approx(alone + (FLAT.of(12) - FLAT.of(2)) / 2)
    batch.begin(2)  # with a new reply everybody is expected to try again
    assert batch.joint_s(0, 6)[-1] == pytest.approx(joint)


def test_a_pass_of_the_draft_model_costs_a_share_of_that_of_all_who_use_it() -> None:
    batch = batch_of(4, FLAT, LINEAR)
    costs = batch.draft_costs(0)
    assert costs.of(1) == pytest.approx(LINEAR.of(4) / 4)
    batch = batch_of(4, FLAT, SMOLLM2)
    costs = batch.draft_costs(0)
    assert costs.of(2) == pytest.approx(SMOLLM2.of(8) / 4)
    for slot in (1, 2, 3):
        batch.leave(slot)
    assert costs.of(2) == pytest.approx(SMOLLM2.of(2)), "as of now"


def test_a_draft_pays_for_one_or_for_nobody_as_the_batch_grows() -> None:
    assert could_pay(FLAT, 1, 31)
    assert not could_pay(LINEAR, 1, 31)
    paying = [could_pay(FLAT, count, 31) for count in range(1, 60)]
    assert paying == sorted(paying, reverse=True), "once it does not pay, it never does"
    assert not paying[-1]


def test_whether_a_draft_could_pay_is_worked_out_once_for_each_number_of_sequences(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []

    def counted(costs: PassCosts, count: int, longest: int) -> bool:
        asked.append(count)
        return could_pay(costs, count, longest)

    monkeypatch.setattr(batching, "could_pay", counted)
    batch = batch_of(3)
    for _ in range(5):
        assert batch.could_pay(31)
    batch.leave(2)
    for _ in range(5):
        assert batch.could_pay(31)
    assert asked == [3, 2]


def test_what_passes_cost_beside_others_is_worked_out_once_for_the_same_company(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worked_out = []

    def counted(costs: PassCosts, widths: list[int]) -> float:
        worked_out.append(tuple(widths))
        return merged_s(costs, widths)

    monkeypatch.setattr(batching, "merged_s", counted)
    batch = batch_of(3, SMOLLM2)
    first = batch.seconds(0, 32)
    once = len(worked_out)
    assert once > 0
    for slot in range(3):  # each has the same company
        assert batch.seconds(slot, 32) == first
    assert len(worked_out) == once
    batch.pass_made(2, 5, by_draft_model=False)
    assert batch.seconds(0, 32) != first
    assert batch.seconds(2, 32) == first, "of its own width nothing depends"
    batch.leave(1)
    assert batch.seconds(2, 32) != first


REPEATING = [1, 2, 3, 4, 5, 6, 7, 8] * 6


def policy(batch: BatchWidths, slot: int, *, model: bool = False) -> BatchPolicy:
    drafters = [LookupDrafter(())]
    if not model:
        return BatchPolicy(batch, slot, 31, drafters)
    draft_model = CachedModel(random_table(1, n_vocab=9), 200)
    asking = ModelDrafter(draft_model, SharedIds(9), (), batch.draft_costs(slot))
    return BatchPolicy(batch, slot, 31, [*drafters, asking])


def repeating(made: BatchPolicy) -> int:
    """Return how far a policy drafts in a text that repeats itself."""
    made.begin(REPEATING, GREEDY)
    return made.plan(REPEATING, room=100).draft_length


def test_who_is_alone_copies_and_who_is_one_of_many_does_not() -> None:
    batch = BatchWidths(FLAT)
    policies = [policy(batch, slot) for slot in range(60)]
    assert repeating(policies[0]) > 0
    for slot in range(1, 60):
        batch.begin(slot)
    assert repeating(policies[0]) == 0
    for slot in range(1, 60):
        policies[slot].end()
    assert repeating(policies[0]) > 0, "those who are left copy again"


def test_the_time_of_everybodys_pass_is_not_taken_for_its_own() -> None:
    batch = batch_of(2)
    made, text = policy(batch, 0), list(REPEATING)
    made.begin(text, GREEDY)
    for _ in range(20):
        length = made.plan(text, room=100).draft_length
        *drafted, bonus = (1 + (len(text) + i) % 8 for i in range(length + 1))
        draft = Draft(tuple(drafted), (1.0,) * length, "lookup")
        done = Round(draft, Verdict(length, bonus), (*drafted, bonus), Spent(verify_s=1000.0))
        text += done.confirmed
        made.learn(done)
    assert made.plan(text, room=100).draft_length > 0


def test_others_see_how_wide_the_last_pass_was_and_who_drafted() -> None:
    batch = batch_of(3, costs := PassCosts((1, 8, 64), (1.0, 1.5, 1.6)), costs)
    made = policy(batch, 0, model=True)
    made.begin(REPEATING, GREEDY)
    before = batch.seconds(1, 6)[-1]
    wide = Draft((1,) * 5, (1.0,) * 5, "lookup")
    made.learn(Round(wide, Verdict(0, 1), (1,), Spent(verify_s=1.0)))
    assert batch.seconds(1, 6)[-1] - batch.seconds(1, 1)[-1] < before - batch.seconds(1, 1)[-1]
    others = batch.joint_s(1, 6)[-1]
    modelled = Draft((1,) * 5, (1.0,) * 5, "model", (1.0,) * 5)
    made.learn(Round(modelled, Verdict(0, 1), (1,), Spent(verify_s=1.0)))
    assert batch.joint_s(1, 6)[-1] < others, "one more of those who draft together"


def test_a_sequence_that_has_ended_is_no_neighbour() -> None:
    batch = batch_of(2, LINEAR)
    made = policy(batch, 0)
    made.begin(REPEATING, GREEDY)
    made.end()
    made.end()
    assert batch.seconds(1, 1)[-1] == LINEAR.of(1)


def test_the_least_count_that_gives_nearly_the_most_is_chosen() -> None:
    assert best_count(SMOLLM2, 64) == 16


@pytest.mark.parametrize(("most", "count"), [(1, 1), (2, 2), (5, 4), (8, 8), (15, 12)])
def test_no_more_than_there_may_be(most: int, count: int) -> None:
    assert best_count(SMOLLM2, most) == count


def test_where_more_gain_nothing_one_is_enough() -> None:
    assert best_count(PassCosts((1, 2, 64), (1.0, 2.0, 64.0)), 64) == 1


def test_where_width_is_free_all_are_taken() -> None:
    assert best_count(PassCosts((1, 8, 64), (1.0, 1.0, 1.0)), 64) == 64
    assert best_count(PassCosts((1, 8, 64), (1.0, 1.0, 1.0)), 63) == 8
