"""Branches: second choices verified beside a draft, where their row costs less than they are expected to confirm."""

from collections import Counter

import pytest

from localspec.decoding.costs import PassCosts
from localspec.decoding.drafters.branches import RIGHT, choose_branches, right_after
from localspec.decoding.drafters.draft_length import Worth
from localspec.decoding.drafters.model import ModelDrafter
from localspec.decoding.drafters.vocab_map import SharedIds
from localspec.decoding.policy import AdaptivePolicy, FixedPolicy, Policy
from localspec.decoding.round import Draft, Round, Spent, Verdict
from tests.decoding.simulator.catalogue import build
from tests.decoding.simulator.contenders import Contender, adaptive, chains
from tests.decoding.simulator.loop import Run, plain_seconds, run
from tests.decoding.simulator.pair import VirtualModel
from tests.decoding.simulator.world import World
from tests.decoding.test_model_drafter import propose
from tests.toy import GREEDY, CachedModel, random_table

FREE, CHEAP = PassCosts((1, 64), (0.01, 0.0100001)), PassCosts((1, 64), (0.0001, 0.0002))


@pytest.mark.parametrize(
    ("row_s", "most", "right", "places"),
    [
        # They are worth 0.4 of 0.1, of 0.9 * 0.5, and of 0.9 * 0.5 * 0.2 tokens, less the row that is evaluated again.
        (0.034, 7, 0.4, (2, 1, 0)),
        (0.037, 7, 0.4, (1, 0)),
        (0.1, 7, 0.4, (1,)),
        (0.2, 7, 0.4, ()),
        (0.0, 1, 0.4, (1,)),
        (0.0, 0, 0.4, ()),
        (0.0, 7, 0.0, ()),
    ],
)
def test_a_branch_grows_where_it_is_expected_to_pay_its_row_as_far_as_there_is_room(
    row_s: float, most: int, right: float, places: tuple[int, ...]
) -> None:
    worth = Worth(0.0, 0.0, [1 + row_s * width for width in range(13)], 1.0)
    for chance in (0.9, 0.5, 0.8):
        worth.add(chance)
    assert worth.n_verified == 3
    assert choose_branches(worth, [(5,)] * 3, (), most, right) == places


def test_branches_gain_where_width_is_free_or_shared() -> None:
    worth = Worth(0.0, 0.0, (1.0, 1.0, 1.0, 1.0, 1.15, 1.15, 1.15), 1.0)
    for chance in (0.7, 0.7, 0.7):
        worth.add(chance)
    alone = choose_branches(worth, [(5,), (), (9,)], (9,), 7, RIGHT)
    assert alone == (), "one may branch alone"
    assert choose_branches(worth, [(5,)] * 3, (9,), 7, RIGHT) == (2, 1, 0)
    with_branches, counts = in_world("stationary-gpu-0.5", adaptive)
    without, none = in_world("stationary-gpu-0.5", chains)
    assert counts["caught"] > 100
    assert none["branched"] == 0
    plain = plain_seconds(build("stationary-gpu-0.5", 0))[-1]
    assert without.seconds[-1] > 1.1 * with_branches.seconds[-1]
    assert plain > 1.5 * with_branches.seconds[-1]


@pytest.mark.parametrize("hit", [True, False])
def test_how_often_second_choices_are_right_is_learnt_of_every_rejection(*, hit: bool) -> None:
    right, draft, token = RIGHT, Draft((1,), (0.5,), "model", (1.0,), ((2, 3),)), 2 if hit else 3
    for _ in range(40):
        right = right_after(right, Round(draft, Verdict(0, token), (token,)))
    assert right > 0.55 if hit else right < 0.35
    assert right_after(right, Round(draft, Verdict(1, 5), (1, 5))) == right


def proven(branches: int, longest: int = 9) -> tuple[AdaptivePolicy, CachedModel]:
    """Return a policy that has seen what passes take, and drafts of a draft model, on a machine where width is free."""
    model = CachedModel(random_table(5, 12, window=64, kind="flat"), 200)
    drafter = ModelDrafter(model, SharedIds(12), eog=(3,), costs=CHEAP)
    drafter.expect({2: (0.7, 200.0)})
    policy = AdaptivePolicy(FREE, longest, [drafter], branches)
    policy.begin([1, 2, 4], GREEDY)
    for _ in range(6):
        policy.learn(Round(Draft(), Verdict(0, 7), (7,), Spent(verify_s=0.01)))
    for _ in range(9):  # of ever longer drafts
        policy.plan([1, 2, 4], 100)
        draft = Draft((5,), (0.5,), "model", (6.0,), ((),), (), 1)
        policy.learn(Round(draft, Verdict(1, 7), (5, 7), Spent(draft_s=0.0001, verify_s=0.01)))
    return policy, model


def test_a_draft_model_branches_into_its_second_choices_where_a_policy_weighs_it() -> None:
    policy, model = proven(branches=7, longest=12)
    plan = policy.plan([1, 2, 4], room=100)
    draft = propose(plan.drafter, model, [1, 2, 4], plan)
    assert draft.branches
    assert len(draft.tokens) + len(draft.branches) <= plan.draft_length
    assert draft.branches == tuple(sorted(set(draft.branches), reverse=True))
    second_choices = [draft.alternatives[at][0] for at in draft.branches]
    assert 3 not in second_choices, "nothing follows an end"
    without, model = proven(branches=0)
    fixed = FixedPolicy(ModelDrafter(model, SharedIds(12), ()), 5)
    for other in (without, fixed):
        plan = other.plan([1, 2, 4], room=100)
        draft = propose(plan.drafter, model, [1, 2, 4], plan)
        assert draft.tokens
        assert draft.branches == ()


def test_the_pass_after_a_branch_leaves_room_for_it() -> None:
    """Where widths are bounded, as under `exact`, what is evaluated again counts."""
    policy, _ = proven(branches=3, longest=4)
    text, draft = [1, 2, 4], Draft((5,), (0.5,), "model", (1.0,), ((6, 7),), (0,))
    assert policy.plan(text, room=100).draft_length == 4
    policy.learn(Round(draft, Verdict(0, 8, branch=6), (6, 8), Spent(verify_s=0.01)))
    assert policy.plan([*text, 6, 8], room=100).draft_length <= 3
    policy.learn(Round(Draft(), Verdict(0, 9), (9,), Spent(verify_s=0.01)))
    assert policy.plan([*text, 6, 8, 9], room=100).draft_length == 4


def in_world(name: str, contender: Contender) -> tuple[Run, Counter[str]]:
    counts: Counter[str] = Counter()

    def watched(world: World, draft_model: VirtualModel) -> Policy:
        policy = contender(world, draft_model)
        learn = policy.learn

        def counted(done: Round) -> None:
            counts.update(drafted=done.drafted, branched=done.branched, caught=done.caught)
            learn(done)

        policy.learn = counted  # type: ignore[method-assign]
        return policy

    return run(build(name, 0), watched), counts
