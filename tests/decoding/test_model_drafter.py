from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.decoding.choose import Chooser, choose
from localspec.decoding.costs import PassCosts
from localspec.decoding.drafters.drafter import Plan
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


@dataclass(frozen=True)
class PlanWith(Plan):
    """A plan whose drafts are judged by something else."""

    judged: object = None

    def worth(self) -> Any:
        return self.judged


def propose(
    drafter: ModelDrafter,
    model: Model,
    tokens: Sequence[int],
    draft_length: int,
    chooser: Chooser = CHOOSER,
    worth: object = None,
) -> Draft:
    """Make the passes that a proposal asks for; those without rows go to the cache."""
    plan = PlanWith(drafter, draft_length, judged=worth)
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


@dataclass
class Stopping:
    """Stops after so many tokens, and keeps so many of them."""

    after: int
    most_kept: int
    length: int = 0

    def add(self, _: float) -> bool:
        self.length += 1
        return self.length < self.after

    @property
    def n_verified(self) -> int:
        return min(self.most_kept, self.length)


@pytest.mark.parametrize(("after", "kept"), [(1, 1), (3, 3), (3, 1), (3, 0), (9, 9)])
def test_drafting_stops_where_it_is_told_and_what_is_not_worth_it_is_kept_back(
    after: int, kept: int
) -> None:
    model = UncachedModel(random_table(5, n_vocab=8), 40)
    whole = proposed(model, [1, 2], 6)
    model.asked.clear()
    drafter = ModelDrafter(model, SharedIds(8), (), CHEAP)
    draft = propose(drafter, model, [1, 2], 6, worth=Stopping(after, kept))
    assert len(model.asked) == min(after, 6)
    assert draft.tokens == whole.tokens[: min(kept, 6)]
    assert draft.gaps == whole.gaps[: len(draft.tokens)]
    assert draft.alternatives == whole.alternatives[: len(draft.tokens)]
    assert draft.confidences == whole.confidences[: len(draft.tokens)]
    assert draft.passes == min(after, 6)


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
    assert drafted == Draft(drafter="model", passes=1)


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


# What it forecasts.


def drafting(costs: PassCosts | None = CHEAP) -> ModelDrafter:
    drafter = ModelDrafter(CachedModel(always(3), 200), SharedIds(6), (), costs)
    drafter.begin([3], GREEDY)
    return drafter


def settled(drafter: ModelDrafter, accepted: int, count: int = 30, pass_s: float = 0.001) -> None:
    """Let so many rounds of three drafted tokens end with so many accepted."""
    draft = Draft((3, 3, 3), (0.9,) * 3, "model", (1.6,) * 3, ((),) * 3, (), 3)
    for _ in range(count):
        confirmed = (*draft.tokens[:accepted], 4)
        drafter.learn(Round(draft, Verdict(accepted, 4), confirmed, Spent(0.0, 3 * pass_s, 1.0)))


def test_nothing_is_forecast_while_it_is_not_known_what_passes_cost() -> None:
    assert drafting(None).forecast([3] * 20) is None


def test_nothing_is_forecast_after_an_id_that_the_models_do_not_share() -> None:
    assert drafting().forecast([*[3] * 19, 6]) is None


def test_a_forecast_is_of_the_chances_as_the_text_is_and_of_what_passes_take_now() -> None:
    drafter = drafting()
    first = drafter.forecast([3] * 20)
    assert first is not None
    assert first == drafter.forecast([3] * 20), "no side effects"
    assert first.step_s == CHEAP.of(1)
    assert first.start_s == pytest.approx(CHEAP.of(20) - CHEAP.of(1))
    settled(drafter, accepted=0, pass_s=0.004, count=60)
    later = drafter.forecast([3] * 20)
    assert later is not None
    assert later.chances[0] < 0.6 * first.chances[0]
    assert later.step_s == pytest.approx(0.004, rel=0.1)
    settled(drafter, accepted=3)
    again = drafter.forecast([3] * 20)
    assert again is not None
    assert again.chances[0] > first.chances[0]


def test_a_model_for_which_passes_are_not_known_learns_all_the_same() -> None:
    settled(drafting(None), accepted=1)


def test_what_drafts_earned_before_is_where_chances_start() -> None:
    """By the ten buckets in which conversations are recorded; what is learnt here counts beside it."""
    drafter = drafting()
    usual = drafter._chance(1.6)
    drafter.expect({3: (0.99, 1000.0)})
    assert drafter._chance(1.6) > 0.9 > usual
    drafter.expect({})
    assert drafter._chance(1.6) == pytest.approx(usual)


def test_the_registers_drafter_forecasts_unless_it_always_drafts() -> None:
    for fixed in (True, False):
        model = CachedModel(always(3), 200)
        drafter = make(Material((), model, SharedIds(6), CHEAP, fresh=50, fixed=fixed))
        drafter.begin([3], GREEDY)
        assert (drafter.forecast([3] * 20) is None) is fixed
