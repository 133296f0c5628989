from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.decoding.choose import Chooser, choose
from localspec.decoding.costs import PassCosts
from localspec.decoding.drafters.backoff import Hindsight
from localspec.decoding.drafters.drafter import Plan, Terms
from localspec.decoding.drafters.early_stopping import EarlyStopping
from localspec.decoding.drafters.model import ModelDrafter, make
from localspec.decoding.drafters.register import Material
from localspec.decoding.drafters.spelling import SharedIds
from localspec.decoding.generation import Limits
from localspec.decoding.model import Role
from localspec.decoding.noise import Noise
from localspec.decoding.policy import FixedPolicy
from localspec.decoding.round import Draft, Round, Spent, Verdict
from localspec.decoding.sampling import candidates
from localspec.options import SamplingParams
from tests.toy import (
    GREEDY,
    Asked,
    CachedModel,
    Model,
    Table,
    UncachedModel,
    random_table,
    related_table,
    run_to_end,
)

CHOOSER = Chooser(SamplingParams(temperature=1, top_k=0, top_p=1, min_p=0), Noise(3))
CHEAP = PassCosts((1, 32), (0.001, 0.002))


def propose(
    drafter: ModelDrafter,
    model: Model,
    tokens: Sequence[int],
    draft_length: int,
    chooser: Chooser = CHOOSER,
    stopping: object = None,
) -> Draft:
    """Make the passes that a proposal asks for; those without rows go to the cache."""
    plan = Plan(drafter, draft_length, stopping=stopping)  # type: ignore[arg-type]
    asking = drafter.propose(tokens, plan, chooser)
    try:
        request = next(asking)
        while True:
            assert request.role is Role.DRAFT_MODEL
            if request.rows == 0:
                model.prefill(request.tokens)
                request = asking.send(np.empty((0, 0), dtype=np.float32))
            else:
                tokens, rows = list(request.tokens), request.rows
                while True:
                    logits = model.logits(tokens, rows)
                    token = None if request.more is None else request.more(logits)
                    if token is None:
                        break
                    tokens.append(token)
                    rows = 1
                request = asking.send(logits)
    except StopIteration as finished:
        draft = finished.value
        assert isinstance(draft, Draft)
        return draft


def proposed(model: Model, tokens: Sequence[int], draft_length: int, n_vocab: int = 8) -> Draft:
    return propose(ModelDrafter(model, SharedIds(n_vocab), ()), model, tokens, draft_length)


def always(token: int, n_vocab: int = 6) -> Table:
    rows = np.zeros((61, n_vocab), dtype=np.float32)
    rows[:, token] = 50
    return Table(rows, window=1)


@given(st.integers(0, 1 << 16), st.integers(0, 6), st.integers(1, 4))
@settings(max_examples=100, deadline=None)
def test_drafted_tokens_are_what_the_draft_model_chooses_under_the_shared_noise(
    seed: int, draft_length: int, n_tokens: int
) -> None:
    table = random_table(seed, n_vocab=8)
    tokens = [Random(seed).randrange(8) for _ in range(n_tokens)]
    drafted = proposed(UncachedModel(table, 40), tokens, draft_length)
    text = list(tokens)
    sure = []
    for _ in range(draft_length):
        kept = candidates(table.row(text), text, CHOOSER.params)
        text.append(choose(kept, Noise(3), len(text)))
        sure.append(kept.probabilities()[text[-1]])
    assert drafted.tokens == tuple(text[n_tokens:])
    assert drafted.confidences == pytest.approx(tuple(sure))
    assert len(drafted.gaps) == len(drafted.alternatives) == draft_length
    for token, others in zip(drafted.tokens, drafted.alternatives, strict=True):
        assert len({token, *others}) == 3, "its second and third choice"


@dataclass(frozen=True)
class Stopping:
    """Stops after so many tokens, and keeps so many of them."""

    after: int
    kept: int
    compared: tuple[bool, ...] = ()
    branches: int = 0
    usual: float = 0.5
    seen: list[Hindsight] = field(default_factory=list)

    def begins(self, hindsight: Sequence[Hindsight]) -> bool:
        self.seen[:] = hindsight
        return sum(each.hit for each in hindsight) > 1

    def grow(self) -> "Growing":
        return Growing(self)


@dataclass
class Growing:
    stopping: Stopping
    length: int = 0

    def goes_on(self, _: float) -> bool:
        self.length += 1
        return self.length < self.stopping.after

    @property
    def kept(self) -> int:
        return min(self.stopping.kept, self.length)


@pytest.mark.parametrize(("after", "kept"), [(1, 1), (3, 3), (3, 1), (3, 0), (9, 9)])
def test_drafting_stops_where_it_is_told_and_what_is_not_worth_it_is_kept_back(
    after: int, kept: int
) -> None:
    model = UncachedModel(random_table(5, n_vocab=8), 40)
    whole = proposed(model, [1, 2], 6)
    model.asked.clear()
    drafter = ModelDrafter(model, SharedIds(8), (), CHEAP)
    draft = propose(drafter, model, [1, 2], 6, stopping=Stopping(after, kept))
    assert len(model.asked) == min(after, 6)
    assert draft.tokens == whole.tokens[: min(kept, 6)]
    assert draft.gaps == whole.gaps[: len(draft.tokens)]
    assert draft.alternatives == whole.alternatives[: len(draft.tokens)]
    assert draft.confidences == whole.confidences[: len(draft.tokens)]
    late_s = CHEAP.of(2) - CHEAP.of(1)  # two tokens of the text were not evaluated before
    assert drafter.foreseen_s() == pytest.approx(late_s + min(after, 6) * CHEAP.of(1))


def test_looking_back_shows_which_tokens_would_have_been_proposed() -> None:
    model = UncachedModel(random_table(5, n_vocab=8), 40)
    said = [1, 2, *proposed(model, [1, 2], 6).tokens]
    said[4] = (said[4] + 1) % 8  # the target said something else there
    stopping = Stopping(3, 3, compared=(True,) * 4)
    propose(ModelDrafter(model, SharedIds(8), (), most_rows=9), model, said, 6, stopping=stopping)
    alone = [proposed(model, said[:at], 1) for at in range(4, 8)]
    assert [each.gap for each in stopping.seen] == [each.gaps[0] for each in alone]
    assert [each.hit for each in stopping.seen] == [
        each.tokens[0] == token for each, token in zip(alone, said[4:], strict=True)
    ]
    assert not stopping.seen[0].hit


def test_nothing_is_proposed_where_looking_back_speaks_against_it() -> None:
    model = UncachedModel(always(3), 40)
    drafter, stopping = ModelDrafter(model, SharedIds(6), ()), Stopping(3, 3, compared=(True,) * 4)
    assert propose(drafter, model, [1, 2, 2, 2, 3, 2], 5, stopping=stopping).tokens == ()
    assert propose(drafter, model, [1, 2, 2, 3, 3, 2], 5, stopping=stopping).tokens == (3, 3, 3)


def test_it_looks_back_no_further_than_a_pass_has_rows() -> None:
    model, stopping = UncachedModel(always(3), 40), Stopping(3, 3, compared=(True,) * 9)
    propose(
        ModelDrafter(model, SharedIds(6), (), most_rows=4), model, [3] * 12, 5, stopping=stopping
    )
    assert len(stopping.seen) == 3
    propose(
        ModelDrafter(model, SharedIds(6), (), most_rows=40), model, [3] * 4, 5, stopping=stopping
    )
    assert len(stopping.seen) == 3
    small = UncachedModel(always(3), 6)
    propose(
        ModelDrafter(small, SharedIds(6), (), most_rows=40), small, [3] * 12, 5, stopping=stopping
    )
    assert len(stopping.seen) == 2, "the window of a small context holds no more"


def test_what_is_looked_back_at_is_evaluated_once() -> None:
    model = CachedModel(always(3), 60)
    sure = EarlyStopping(0.99, 0.01, (1.0,) * 4, 1.0, (True,) * 4)
    propose(ModelDrafter(model, SharedIds(6), ()), model, [3] * 30, 3, stopping=sure)
    assert model.asked == [Asked(0, 25, 25), Asked(5, 30, 5), Asked(1, 31, 1), Asked(1, 32, 1)]


@pytest.mark.parametrize(("n_tokens", "prefilled"), [(16, False), (17, True)])
def test_a_long_text_is_evaluated_in_a_pass_of_its_own(n_tokens: int, prefilled: bool) -> None:
    model = CachedModel(always(3), 60)
    propose(ModelDrafter(model, SharedIds(6), ()), model, [3] * n_tokens, 2)
    assert (model.asked[0].rows == 0) is prefilled
    assert sum(each.evaluated for each in model.asked) == n_tokens + 1
    model.asked.clear()
    propose(ModelDrafter(model, SharedIds(6), ()), model, [3] * 40, 0)
    assert model.asked == [], "nothing is evaluated where nothing is to be drafted"


@given(st.integers(0, 1 << 16))
@settings(max_examples=30, deadline=None)
def test_draft_model_that_equals_the_target_is_always_accepted(seed: int) -> None:
    table = random_table(seed, n_vocab=8)
    draft = CachedModel(table, 60)
    models: dict[Role, Model] = {Role.TARGET: CachedModel(table, 60), Role.DRAFT_MODEL: draft}
    params = SamplingParams(temperature=1.2, repeat_penalty=1.2, penalty_last_n=8)
    policy, chooser = (
        FixedPolicy(ModelDrafter(draft, SharedIds(8), ()), 3),
        Chooser(params, Noise(seed)),
    )
    reply = run_to_end([1, 2], models, policy, chooser, Limits(21, ()))
    assert [each.accepted for each in reply.rounds[1:]] == [3] * 5


def test_shared_noise_is_accepted_oftener_than_a_greedy_draft_or_noise_of_its_own() -> None:
    """The reason for the design: of three ways to draft, sharing the noise agrees most often."""

    class Greedy(ModelDrafter):
        def propose(self, tokens, plan, chooser):  # type: ignore[no-untyped-def]
            greedy = Chooser(SamplingParams(temperature=0), chooser.noise)
            return super().propose(tokens, plan, greedy)

    class Independent(ModelDrafter):
        def propose(self, tokens, plan, chooser):  # type: ignore[no-untyped-def]
            other = Chooser(chooser.params, Noise(chooser.noise.seed + 1))
            return super().propose(tokens, plan, other)

    rates = {}
    for kind in (ModelDrafter, Greedy, Independent):
        accepted = drafted = 0
        for seed in range(30):
            target = random_table(seed, n_vocab=8, kind="flat")
            draft = CachedModel(related_table(target, seed, 8, noise=0.2), 60)
            models: dict[Role, Model] = {
                Role.TARGET: CachedModel(target, 60),
                Role.DRAFT_MODEL: draft,
            }
            chooser = Chooser(CHOOSER.params, Noise(seed))
            policy = FixedPolicy(kind(draft, SharedIds(8), ()), 1)
            reply = run_to_end([1], models, policy, chooser, Limits(40, ()))
            accepted += sum(each.verdict.accepted for each in reply.rounds)
            drafted += sum(each.drafted for each in reply.rounds)
        rates[kind] = accepted / drafted
    assert rates[ModelDrafter] > 0.8
    assert rates[Greedy] < 0.4
    assert rates[Independent] < 0.4


def test_draft_stops_at_end_of_generation() -> None:
    model = UncachedModel(always(4), 40)
    assert propose(ModelDrafter(model, SharedIds(6), {4}), model, [1], 5).tokens == (4,)


@pytest.mark.parametrize(
    ("n_tokens", "length"), [(1, 8), (3, 7), (9, 1), (10, 0), (11, 5), (300, 5)]
)
def test_draft_stays_within_its_own_context_and_of_a_longer_text_the_end_is_seen(
    n_tokens: int, length: int
) -> None:
    model = CachedModel(always(2), 10)
    model.cells = [1] * min(n_tokens, 10)
    drafted = propose(ModelDrafter(model, SharedIds(6), ()), model, [1] * n_tokens, 8)
    assert len(drafted.tokens) == length
    assert all(asked.n_tokens <= 10 for asked in model.asked)


def test_ids_beyond_the_shared_ones_are_never_drafted() -> None:
    model = UncachedModel(always(5), 40)
    greedy = Chooser(SamplingParams(temperature=0), Noise(0))
    assert propose(ModelDrafter(model, SharedIds(5), ()), model, [1], 3, greedy).tokens == (0, 0, 0)


def test_nothing_is_proposed_after_an_id_that_the_models_do_not_share() -> None:
    model = UncachedModel(always(2), 40)
    assert proposed(model, [1, 6, 1], 3, n_vocab=6) == Draft(drafter="model")
    assert model.asked == []


def test_nothing_is_proposed_where_no_shared_id_may_follow() -> None:
    banned = SamplingParams(logit_bias=tuple((token, -np.inf) for token in range(5)))
    model = UncachedModel(always(5), 40)
    drafted = propose(
        ModelDrafter(model, SharedIds(5), ()), model, [1], 3, Chooser(banned, Noise(0))
    )
    assert drafted == Draft(drafter="model")


def test_accepted_tokens_stay_in_the_draft_models_cache() -> None:
    """At most the last drafted token and the target's own are new in a round's first pass."""
    target = random_table(3, n_vocab=8)
    draft = CachedModel(related_table(target, 5, 8, noise=1.0), 60)
    models: dict[Role, Model] = {Role.TARGET: CachedModel(target, 60), Role.DRAFT_MODEL: draft}
    policy = FixedPolicy(ModelDrafter(draft, SharedIds(8), ()), 4)
    run_to_end([1, 2], models, policy, CHOOSER, Limits(40, ()))
    first, *later = [asked.evaluated for asked in draft.asked if asked.rows > 0]
    assert first == 3, "the prompt, and the first token"
    assert set(later) == {1, 2}


def test_confirmed_tokens_are_not_changed() -> None:
    tokens = [1, 2]
    proposed(UncachedModel(always(2), 40), tokens, 3, n_vocab=6)
    assert tokens == [1, 2]


# What it promises. Plain rounds of a second, each drafted row a twentieth more.


def terms(most: int = 8, budget: float = 14.5) -> Terms:
    return Terms([1 + 0.05 * drafted for drafted in range(most + 1)], budget)


def drafting(costs: PassCosts | None = CHEAP) -> ModelDrafter:
    """Return a drafter in the midst of a reply, of which nothing was drafted."""
    drafter = ModelDrafter(CachedModel(always(3), 200), SharedIds(6), (), costs)
    drafter.begin([3], GREEDY)
    for _ in range(20):
        drafter.learn(Round(Draft(), Verdict(0, 3), (3,), Spent(verify_s=1.0)), 1.0)
    return drafter


def drafted(plan: Plan, text: list[int], accepted: int, steps: float = 1.0) -> None:
    """Let the plan's drafter propose as it plans, and learn that so many tokens were accepted."""
    drafter = plan.drafter
    assert isinstance(drafter, ModelDrafter)
    model = drafter._window._model
    assert isinstance(model, CachedModel)
    draft = propose(drafter, model, text, plan.draft_length, stopping=plan.stopping)
    confirmed = (*draft.tokens[:accepted], 3)
    spent = Spent(0.0, 0.001 * len(draft.tokens), 1.0)
    drafter.learn(Round(draft, Verdict(accepted, 3), confirmed, spent), steps)


def test_nothing_is_promised_while_it_is_not_known_what_passes_cost() -> None:
    assert drafting(None).promise([3] * 20, terms()) is None


def test_a_first_try_begins_with_a_comparison_and_whoever_was_right_needs_no_other() -> None:
    drafter, text = drafting(), [3] * 40
    plan = drafter.promise(text, terms())
    assert plan is not None
    assert plan.stopping is not None
    assert plan.stopping.compared == (True,) * 10
    drafted(plan, text, accepted=8)
    again = drafter.promise([3] * 49, terms())
    assert again is not None
    assert again.stopping is not None
    assert again.stopping.compared == ()
    drafter.begin([3], GREEDY)
    assert drafter.promise([3] * 60, terms()) is not None, "it has shown what it is good for"


def test_who_was_wrong_about_what_was_said_proposes_nothing_and_rests() -> None:
    drafter, text = drafting(), [2] * 40
    plan = drafter.promise(text, terms())
    assert plan is not None
    drafted(plan, text, accepted=0)
    assert drafter.promise(text, terms()) is None
    assert drafter.foreseen_s() > 0, "the comparison took a pass"


def test_nothing_is_promised_after_an_id_that_the_models_do_not_share() -> None:
    assert drafting().promise([*[3] * 19, 6], terms()) is None


def test_promising_has_no_side_effects() -> None:
    drafter, text, usual = drafting(), [3] * 40, terms()
    first = drafter.promise(text, usual)
    drafter.promise([3] * 90, terms(most=2))
    assert drafter.promise(text, usual) == first


def test_a_long_text_has_to_pay_over_many_rounds() -> None:
    near, far = drafting(), drafting()
    short, long = near.promise([3] * 15, terms()), far.promise([3] * 150, terms())
    assert short is not None
    assert long is not None
    assert long.rate < short.rate


def test_what_the_budget_does_not_cover_is_not_promised() -> None:
    dear = PassCosts((1, 16, 32), (0.1, 0.2, 30.0))  # catching up takes 30 plain rounds
    assert drafting(dear).promise([3] * 32, terms()) is None
    assert drafting(dear).promise([3] * 12, terms()) is not None
    assert drafting(dear).promise([3] * 12, terms(budget=0.0)) is None


def test_before_the_first_pass_three_times_the_cost_has_to_be_covered() -> None:
    dear = PassCosts((1, 32), (0.5, 1.0))
    lengths = []
    for seen in (False, True):
        drafter, text = drafting(dear), [3] * 12
        if seen:
            first = drafter.promise(text, terms(budget=9.0))
            assert first is not None
            drafted(first, text, accepted=3)
        plan = drafter.promise([3] * 15, terms(budget=3.0))
        lengths.append(0 if plan is None else plan.draft_length)
    assert lengths[1] > 2 * lengths[0]


def test_who_drafts_for_a_fixed_length_is_made_without_costs() -> None:
    model = CachedModel(always(3), 40)
    for fixed in (True, False):
        drafter = make(Material((), model, SharedIds(6), CHEAP, fixed=fixed))
        drafter.begin([3], GREEDY)
        for _ in range(20):
            drafter.learn(Round(Draft(), Verdict(0, 3), (3,), Spent(verify_s=1.0)), 1.0)
        assert (drafter.promise([3] * 20, terms()) is None) is fixed
