from collections.abc import Generator, Sequence
from dataclasses import dataclass
from math import inf
from random import Random

import pytest

from localspec.decoding.choose import Chooser
from localspec.decoding.costs import PassCosts, RunningCosts
from localspec.decoding.drafters.draft_length import Worth, best_length
from localspec.decoding.drafters.drafter import DraftForecast, Plan
from localspec.decoding.model import Logits, Pass
from localspec.decoding.policy import (
    MOST_LOST,
    AdaptivePolicy,
    Budget,
    Policy,
    Sharing,
    plain_policy,
)
from localspec.decoding.round import Draft, Round, Spent, Verdict
from tests.toy import GREEDY, Unforeseen

STAIRS = PassCosts((1, 2, 3, 4, 8, 32), (1.0, 1.8, 2.4, 1.5, 2.0, 8.0))
FLAT = PassCosts((1, 32), (1.0, 1.31))
PLAIN_ROUND = Round(Draft(), Verdict(0, 2), (2,), Spent(verify_s=1.0))


@dataclass
class Knowing(Unforeseen):
    """Forecasts the same at every round, by passes of a draft model or without any; its rounds are made by hand."""

    name: str = "knowing"
    step_s: float = 0.0
    in_one_pass: bool = False
    reserve: float = 0.0

    def forecast(self, tokens: Sequence[int]) -> DraftForecast:
        return DraftForecast([0.9] * 31, self.step_s, 0.0, self.in_one_pass)

    def propose(
        self, tokens: Sequence[int], plan: Plan, chooser: Chooser
    ) -> Generator[Pass, Logits, Draft]:
        raise AssertionError("its rounds are made by hand")


def weighing(
    *drafters: Knowing, costs: PassCosts = FLAT, best_yield: float = inf
) -> AdaptivePolicy:
    policy = AdaptivePolicy(costs, 31, drafters, best_yield=best_yield)
    policy.begin([0, 0], GREEDY)
    return policy


@pytest.mark.parametrize(("second_s", "length"), [(1.8, 0), (1.65, 1)])
def test_a_copy_is_tried_where_it_promises_a_tenth_more_than_plain(
    second_s: float, length: int
) -> None:
    """1.9 tokens in the time of 1.8 plain steps gain too little for what a draft that fails loses."""
    costs = PassCosts((1, 2, 32), (1.0, second_s, 100.0))
    assert weighing(Knowing(), costs=costs).plan([0, 0], 20).draft_length == length


# The budget.


def test_losses_draw_on_it_gains_refill_it_and_time_forgives() -> None:
    budget = Budget(limit=5.0, window=100)
    for confirmed, steps, left in ((1, 2.5, 3.5), (16, 6.0, 5.0), (1, 4.0, 2.0)):
        budget.settle(confirmed, steps)
        assert budget.left == left
    for _ in range(99):
        budget.settle(confirmed=1, steps=1.0)
    assert budget.left == 2.0
    budget.settle(confirmed=1, steps=1.0)
    assert budget.left == 5.0


@pytest.mark.parametrize("seed", range(5))
def test_nobody_who_spends_only_what_is_there_loses_more_than_the_limit(seed: int) -> None:
    """Whatever a text does: rounds that lose all or gain, whenever the budget allows the worst."""
    random, budget = Random(seed), Budget(limit=14.5, window=500)
    marks = [0.0]  # what each token had cost by its end; a round's tokens come at its end
    while len(marks) < 6000:
        cost = random.uniform(1.0, 9.0)
        if cost - 1 > budget.left:
            cost = 1.0
        confirmed = random.choice((1, 1, 1, 1, 6)) if cost > 1 else 1
        budget.settle(confirmed, cost)
        marks += [marks[-1] + cost] * confirmed
    losses = [marks[at + 500] - marks[at] - 500 for at in range(len(marks) - 500)]
    assert max(losses) <= 14.5 + 5  # a window may begin within the tokens of a round
    assert max(losses) > 10


def test_every_length_is_looked_at_and_a_draft_grows_while_it_pays() -> None:
    verify_s = [STAIRS.of(width) for width in range(1, 33)]
    assert best_length([0.8] * 3, verify_s)[0] == 3
    assert best_length([0.8, 0.8], verify_s)[1] == pytest.approx(2.44 / 2.4)
    assert best_length([0.3] * 9, verify_s) == (0, 1.0)
    assert best_length([0.99] * 31, verify_s, affordable_s=1.6)[0] == 3
    assert best_length([], verify_s) == (0, 1.0)
    verify_s = [FLAT.of(width) for width in range(1, 33)]
    worth = Worth(0.9, 0.1, verify_s, 3.0)
    assert [worth.add(chance) for chance in (0.95, 0.95, 0.9)] == [True] * 3
    assert worth.n_verified == 3
    assert not worth.add(0.01)
    assert worth.n_verified == 3, "what is hardly right is not verified"
    nothing = Worth(0.5, 0.9, verify_s, 1.0)
    assert not nothing.add(0.001)
    assert nothing.n_verified == 0


def played(
    policy: AdaptivePolicy, accepted: float, tokens: int, costs: PassCosts, step_s: float = 0.0
) -> tuple[int, float, int]:
    """Let a policy draft as it plans, with a share of each draft accepted; return tokens, seconds and drafted rounds."""
    said, seconds, drafted = 0, 0.0, 0
    while said < tokens:
        plan = policy.plan([0] * (said + 2), 1000)
        length = plan.draft_length
        by = plan.drafter
        passes = min(length, 1) if isinstance(by, Knowing) and by.in_one_pass else length
        name = by.name if length else "off"
        draft = Draft((1,) * length, (0.9,) * length, name, passes=passes if step_s else 0)
        right = int(accepted * length)
        spent = Spent(draft_s=passes * step_s, verify_s=costs.of(length + 1))
        policy.learn(Round(draft, Verdict(right, 2), (1,) * right + (2,), spent))
        said, seconds, drafted = said + right + 1, seconds + spent.round_s, drafted + bool(length)
    return said, seconds, drafted


@pytest.mark.parametrize("in_one_pass", [False, True])
def test_a_dear_pass_pays_where_it_gives_the_whole_draft(in_one_pass: bool) -> None:
    policy = weighing(Knowing(step_s=1.2, in_one_pass=in_one_pass))
    said, seconds, drafted = played(policy, 1.0, 300, FLAT, 1.2)
    assert (drafted > 0) is in_one_pass
    assert not in_one_pass or seconds < said / 2


def test_the_less_a_draft_model_can_yield_the_sooner_its_first_try_ends() -> None:
    lost = []
    for best in (inf, 1.1, 1.0):
        policy = weighing(Knowing(step_s=0.1), best_yield=best)
        said, seconds, _ = played(policy, 0.0, 60, FLAT, 0.1)
        lost.append(seconds - said)
    assert MOST_LOST >= lost[0] > lost[1] > lost[2] == pytest.approx(0)


def test_drafts_that_come_true_grow_and_beside_others_they_pay_a_pass() -> None:
    policy = weighing(Knowing(step_s=0.01))
    assert policy.plan([0, 0], 100).draft_length == 0, "the first rounds show what they take"
    played(policy, 1.0, 6, FLAT, 0.01)
    lengths = []
    for _ in range(6):
        lengths.append(policy.plan([0, 0], 100).draft_length)
        played(policy, 1.0, 1, FLAT, 0.01)
    assert (lengths[0], lengths, lengths[-1]) == (1, sorted(lengths), 31)
    answering = Sharing()
    first, *others = [AdaptivePolicy(FLAT, 31, [Knowing()], 0, answering, n) for n in range(3)]
    first.begin([0, 0], GREEDY)
    alone = first.plan([0, 0], 100).draft_length
    for each in others:
        each.begin([0, 0], GREEDY)
    beside = first.plan([0, 0], 100)
    assert beside.rate > 0 or beside.draft_length == 0
    played(first, 1.0, 50, PassCosts((1,), (1000.0,)))  # others' time is not its own
    for each in others:
        each.end()
    assert first.plan([0, 0], 100).draft_length == alone > 0


@pytest.mark.parametrize("costs", [FLAT, STAIRS])
def test_drafts_take_little_of_the_time_of_those_that_do_not_draft(costs: PassCosts) -> None:
    sharing = Sharing()
    plain = [plain_policy(sharing, slot) for slot in (0, 1)]
    drafting = [AdaptivePolicy(costs, 31, [Knowing()], 0, sharing, slot) for slot in (2, 3)]
    policies: list[Policy] = [*plain, *drafting]
    for policy in policies:
        policy.begin([0, 0], GREEDY)
    rounds, taken, widest = 400, 0.0, 0
    for _ in range(rounds):
        for silent in plain:
            silent.learn(PLAIN_ROUND)
        lengths = []
        for each in drafting:
            lengths.append(each.plan([0, 0], 1000).draft_length)
            played(each, 1.0, 1, costs)
        widest = max(widest, *lengths)
        taken += costs.of(sum(lengths)) / costs.of(4) if any(lengths) else 0.0
    assert widest > 0
    assert taken / rounds < 0.03
    plain[0].end()
    plain[1].end()
    assert min(each.plan([0, 0], 1000).draft_length for each in drafting) > 4, "nobody is asked"


def test_who_gained_by_drafts_bears_those_of_others() -> None:
    sharing = Sharing()
    policies = [AdaptivePolicy(FLAT, 31, [Knowing()], 0, sharing, slot) for slot in (0, 1)]
    for each in policies:
        each.begin([0, 0], GREEDY)
    first, other = policies
    for _ in range(9):
        other.learn(PLAIN_ROUND)
    assert first.plan([0, 0], 1000).draft_length == 0, "the other one does not draft"
    played(other, 1.0, 30, FLAT)
    for _ in range(12):
        other.learn(PLAIN_ROUND)
    assert first.plan([0, 0], 1000).draft_length > 4


def test_proposals_are_waited_for_where_all_draft() -> None:
    class Coming(Knowing):
        def forecast(self, tokens: Sequence[int]) -> DraftForecast:
            return DraftForecast([0.9] * 31, late_s=[0.01] * 31)

    sharing = Sharing()
    first, other = (AdaptivePolicy(FLAT, 31, [Coming()], 0, sharing, slot) for slot in (0, 1))
    first.begin([0, 0], GREEDY)
    assert first.plan([0, 0], 1000).draft_length > 4
    other.begin([0, 0], GREEDY)
    assert first.plan([0, 0], 1000).draft_length == 0, "the other one would wait"
    for _ in range(2):
        for each in (first, other):
            each.plan([0, 0], 1000)
            each.learn(PLAIN_ROUND)
    assert first.plan([0, 0], 1000).draft_length > 4


def test_the_first_of_equals_leaves_others_its_reserve() -> None:
    lengths, costs, nearly_all = {}, PassCosts((1, 32), (1.0, 8.0)), MOST_LOST - 0.5
    for reserve in (0.0, nearly_all):
        drafters = (Knowing("one", reserve=reserve), Knowing("other", reserve=reserve))
        policy = weighing(*drafters, costs=costs)
        plan = policy.plan([0, 0], 100)
        lengths[reserve] = plan.draft_length
        assert plan.drafter.name == "one"
    played(policy, 1.0, 60, costs)
    assert policy.plan([0, 0], 100).draft_length == lengths[0.0] > lengths[nearly_all]


def test_what_one_reply_lost_the_next_may_lose_again() -> None:
    costs = PassCosts((1, 32), (1.0, 8.0))
    policy = weighing(Knowing(), costs=costs)
    first = policy.plan([0, 0], 100).draft_length
    for _ in range(12):
        plan = policy.plan([0, 0], 100)
        length = plan.draft_length
        draft = Draft((1,) * length, (0.9,) * length, "knowing")
        policy.learn(Round(draft, Verdict(0, 2), (2,), Spent(verify_s=costs.of(1 + length))))
    assert policy.plan([0, 0], 100).draft_length < first
    policy.end()
    policy.begin([0, 0], GREEDY)
    assert policy.plan([0, 0], 100).draft_length == first


def test_a_draft_model_that_is_too_dear_is_let_go_of() -> None:
    """By the table it pays; the first drafts, which are short, show that it does not."""
    said = PassCosts((1, 2, 4, 32), (1.0, 1.05, 1.2, 3.0))
    true = PassCosts((1, 2, 4, 32), (1.0, 1.9, 2.9, 11.0))

    class Measuring(Knowing):
        def __init__(self) -> None:
            super().__init__("model", step_s=0.1)
            self.costs = RunningCosts(PassCosts((1,), (0.2,)))

        def forecast(self, tokens: Sequence[int]) -> DraftForecast:
            return DraftForecast([0.9] * 31, self.costs.of(1))

        def learn(self, done: Round) -> None:
            if done.draft.passes:
                self.costs.add(1, done.spent.draft_s / done.draft.passes)

    policy = weighing(Measuring(), costs=said)
    tokens, seconds, drafted = played(policy, 0.4, 200, true, 0.65)
    assert 0 < drafted < 15
    assert seconds - tokens < 21.75, "one and a half budgets, as far as costs were foreseen"
    tokens, seconds, _ = played(policy, 0.4, 800, true, 0.65)
    assert seconds < tokens / 0.98


@pytest.mark.parametrize("speed", [2.0, 0.5])
def test_drafts_are_judged_by_what_a_plain_pass_takes_now(speed: float) -> None:
    """Wide passes show that the machine has another speed; of a plain pass only plain ones do."""
    policy = weighing(Knowing(step_s=0.01))
    changed = PassCosts(FLAT.widths, tuple(seconds / speed for seconds in FLAT.seconds))
    for costs, step_s in ((FLAT, 0.01),) * 2 + ((changed, 0.01 / speed),) * 5:
        policy.begin([0, 0], GREEDY)
        _, _, drafted = played(policy, 1.0, 60 * 32, costs, step_s)
        assert 59 <= drafted <= 66, "nearly always"
    assert policy._verify_s(31) == pytest.approx(RunningCosts(changed).upto(32), rel=0.15)
