from collections.abc import Sequence
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from localspec.decoding.drafter import Draft, Hindsight
from localspec.decoding.generate import Limits
from localspec.decoding.model_drafter import ModelDrafter

from localspec.decoding.choose import Chooser, choose
from localspec.decoding.model import Role
from localspec.decoding.noise import Noise
from localspec.decoding.policy import FixedPolicy
from localspec.decoding.sampling import candidates
from localspec.options import SamplingParams
from tests.toy import CachedModel, Table, UncachedModel, random_table, related_table, run_to_end

CHOOSER = Chooser(SamplingParams(temperature=1, top_k=0, top_p=1, min_p=0), Noise(3))


def propose(
    drafter: ModelDrafter,
    model: UncachedModel | CachedModel,
    tokens: list[int],
    draft_length: int,
    chooser: Chooser = CHOOSER,
) -> Draft:
    asking = drafter.propose(tokens, draft_length, chooser)
    try:
        request = next(asking)
        while True:
            assert request.role is Role.DRAFT_MODEL
            request = asking.send(model.logits(request.tokens, request.rows))
    except StopIteration as finished:
        draft = finished.value
        assert isinstance(draft, Draft)
        return draft


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
    drafted = propose(ModelDrafter(40, 8, ()), UncachedModel(table, 40), tokens, draft_length)
    text = list(tokens)
    sure = []
    for _ in range(draft_length):
        kept = candidates(table.row(text), text, CHOOSER.params)
        text.append(choose(kept, Noise(3), len(text)))
        sure.append(kept.probabilities()[text[-1]])
    assert drafted.tokens == tuple(text[n_tokens:])
    assert drafted.confidences == pytest.approx(tuple(sure))
    assert len(drafted.gaps) == draft_length
    assert drafted.withheld == ()


class Stopping:
    """Stops after so many tokens, and keeps so many of them."""

    def __init__(self, after: int, kept: int, look_back: int = 0) -> None:
        self.after, self.kept, self.look_back = after, kept, look_back
        self.hindsight: Sequence[Hindsight] = ()

    def begins(self, hindsight: Sequence[Hindsight]) -> bool:
        self.hindsight = hindsight
        return sum(each.hit for each in hindsight) > 1

    def goes_on(self, gaps: Sequence[float]) -> bool:
        return len(gaps) < self.after

    def keeps(self, gaps: Sequence[float]) -> int:
        return min(self.kept, len(gaps))


@pytest.mark.parametrize(("after", "kept"), [(1, 1), (3, 3), (3, 1), (3, 0), (9, 9)])
def test_drafting_stops_where_it_is_told_and_withholds_what_is_not_worth_it(
    after: int, kept: int
) -> None:
    table = random_table(5, n_vocab=8)
    whole = propose(ModelDrafter(40, 8, ()), UncachedModel(table, 40), [1, 2], 6)
    drafter = ModelDrafter(40, 8, (), Stopping(after, kept))
    draft = propose(drafter, UncachedModel(table, 40), [1, 2], 6)
    proposed = min(after, 6)
    assert draft.tokens == whole.tokens[: min(kept, 6)]
    assert draft.tokens + draft.withheld == whole.tokens[:proposed]
    assert draft.gaps == whole.gaps[:proposed]
    assert len(draft.confidences) == len(draft.tokens)
    assert len(draft.rankings) == proposed
    ranks = zip((*draft.tokens, *draft.withheld), draft.rankings, strict=True)
    assert all(ranking.rank(token) == 1 for token, ranking in ranks)


def test_looking_back_tells_which_tokens_would_have_been_proposed() -> None:
    model = UncachedModel(random_table(5, n_vocab=8), 40)
    said = [1, 2, *propose(ModelDrafter(40, 8, ()), model, [1, 2], 6).tokens]
    said[4] = (said[4] + 1) % 8  # the target said something else there
    stopping = Stopping(3, 3, look_back=4)
    draft = propose(ModelDrafter(40, 8, (), stopping, most_rows=9), model, said, 6)
    alone = [propose(ModelDrafter(40, 8, ()), model, said[:at], 1) for at in range(4, 8)]
    assert draft.hindsight == tuple(stopping.hindsight)
    assert [each.gap for each in draft.hindsight] == [each.gaps[0] for each in alone]
    assert [each.hit for each in draft.hindsight] == [
        each.tokens[0] == token for each, token in zip(alone, said[4:], strict=True)
    ]
    assert not draft.hindsight[0].hit


def test_nothing_is_proposed_where_looking_back_speaks_against_it() -> None:
    model = UncachedModel(always(3), 40)
    drafter = ModelDrafter(40, 6, (), Stopping(3, 3, look_back=4), most_rows=9)
    assert propose(drafter, model, [1, 2, 2, 2, 3, 2], 5).tokens == ()
    assert propose(drafter, model, [1, 2, 2, 3, 3, 2], 5).tokens == (3, 3, 3)


def test_it_looks_back_no_further_than_a_pass_has_rows() -> None:
    model, stopping = UncachedModel(always(3), 40), Stopping(3, 3, look_back=9)
    propose(ModelDrafter(40, 6, (), stopping, most_rows=4), model, [3] * 12, 5)
    assert len(stopping.hindsight) == 3
    propose(ModelDrafter(40, 6, (), stopping, most_rows=40), model, [3] * 4, 5)
    assert len(stopping.hindsight) == 3


@given(st.integers(0, 1 << 16))
@settings(max_examples=50, deadline=None)
def test_draft_model_that_equals_the_target_is_always_accepted(seed: int) -> None:
    table = random_table(seed, n_vocab=8)
    models = {Role.TARGET: CachedModel(table, 60), Role.DRAFT_MODEL: CachedModel(table, 60)}
    params = SamplingParams(temperature=1.2, repeat_penalty=1.2, penalty_last_n=8)
    policy = FixedPolicy(ModelDrafter(60, 8, ()), 3, uses_draft_model=True)
    chooser = Chooser(params, Noise(seed))
    reply = run_to_end([1, 2], models, policy, chooser, Limits(21, ()))
    rounds = [confirmed.round for confirmed in reply.rounds if confirmed.round is not None]
    assert [each.verdict.accepted for each in rounds] == [3] * 5


def test_shared_noise_is_accepted_oftener_than_a_greedy_draft_or_noise_of_its_own() -> None:
    """The reason for the design: of three ways to draft, sharing the noise agrees most often."""

    class Greedy(ModelDrafter):
        def propose(self, tokens, draft_length, chooser):  # type: ignore[no-untyped-def]
            greedy = Chooser(SamplingParams(temperature=0), chooser.noise)
            return super().propose(tokens, draft_length, greedy)

    class Independent(ModelDrafter):
        def propose(self, tokens, draft_length, chooser):  # type: ignore[no-untyped-def]
            other = Chooser(chooser.params, Noise(chooser.noise.seed + 1))
            return super().propose(tokens, draft_length, other)

    rates = {}
    for kind in (ModelDrafter, Greedy, Independent):
        accepted = rounds = 0
        for seed in range(30):
            target = random_table(seed, n_vocab=8, kind="flat")
            draft = related_table(target, seed, 8, noise=0.2)
            models = {
                Role.TARGET: CachedModel(target, 60),
                Role.DRAFT_MODEL: CachedModel(draft, 60),
            }
            policy = FixedPolicy(kind(60, 8, ()), 1, uses_draft_model=True)
            reply = run_to_end(
                [1], models, policy, Chooser(CHOOSER.params, Noise(seed)), Limits(40, ())
            )
            for confirmed in reply.rounds:
                if confirmed.round is not None and confirmed.round.draft.tokens:
                    rounds += 1
                    accepted += confirmed.round.verdict.accepted
        rates[kind] = accepted / rounds
    assert rates[ModelDrafter] > 0.8
    assert rates[Greedy] < 0.4
    assert rates[Independent] < 0.4


def test_draft_stops_at_end_of_generation() -> None:
    drafted = propose(ModelDrafter(40, 6, {4}), UncachedModel(always(4), 40), [1], 5)
    assert drafted.tokens == (4,)


@pytest.mark.parametrize("n_tokens", [8, 9, 10, 11, 12, 30])
def test_draft_stays_within_its_own_context(n_tokens: int) -> None:
    model = UncachedModel(always(2), 10)
    drafted = propose(ModelDrafter(10, 6, ()), model, [1] * n_tokens, 5)
    assert len(drafted.tokens) == max(0, 10 - n_tokens)
    assert all(asked.n_tokens <= 10 for asked in model.asked)


def test_ids_beyond_the_shared_ones_are_never_drafted() -> None:
    model = UncachedModel(always(5), 40)
    greedy = Chooser(SamplingParams(temperature=0), Noise(0))
    assert propose(ModelDrafter(40, 5, ()), model, [1], 3, greedy).tokens == (0, 0, 0)


def test_nothing_is_proposed_after_an_id_that_the_models_do_not_share() -> None:
    model = UncachedModel(always(2), 40)
    assert propose(ModelDrafter(40, 6, ()), model, [1, 6, 1], 3) == Draft(drafter="model")
    assert model.asked == []


def test_nothing_is_proposed_where_no_shared_id_may_follow() -> None:
    banned = SamplingParams(logit_bias=tuple((token, -np.inf) for token in range(5)))
    model = UncachedModel(always(5), 40)
    drafted = propose(ModelDrafter(40, 5, ()), model, [1], 3, Chooser(banned, Noise(0)))
    assert drafted == Draft(drafter="model")


def test_accepted_tokens_stay_in_the_draft_models_cache() -> None:
    """At most the last drafted token and the target's own are new in a round's first pass."""
    target = random_table(3, n_vocab=8)
    draft = CachedModel(related_table(target, 5, 8, noise=1.0), 60)
    models = {Role.TARGET: CachedModel(target, 60), Role.DRAFT_MODEL: draft}
    run_to_end(
        [1, 2],
        models,
        FixedPolicy(ModelDrafter(60, 8, ()), 4, uses_draft_model=True),
        CHOOSER,
        Limits(40, ()),
    )
    passes = [asked.evaluated for asked in draft.asked if asked.rows > 0]
    assert set(passes) == {1, 2}


def test_confirmed_tokens_are_not_changed() -> None:
    tokens = [1, 2]
    propose(ModelDrafter(40, 6, ()), UncachedModel(always(2), 40), tokens, 3)
    assert tokens == [1, 2]
