"""Drafts of a draft model: chosen under the shared noise, within its own context and vocabulary, as far as they are worth it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from localspec.decoding.choose import Chooser, choose
from localspec.decoding.costs import PassCosts
from localspec.decoding.drafters.drafter import Drafter, Plan
from localspec.decoding.drafters.heads import HeadsDrafter
from localspec.decoding.drafters.model import ModelDrafter
from localspec.decoding.drafters.vocab_map import SharedIds
from localspec.decoding.generation import Limits
from localspec.decoding.model import Role
from localspec.decoding.noise import Noise
from localspec.decoding.policy import FixedPolicy
from localspec.decoding.round import Draft, Round, Spent, Verdict
from localspec.decoding.sampling import candidates
from localspec.llama.token_map import TokenMap
from localspec.options import SamplingParams
from tests.support.checks import there
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
from tests.toy_vocabulary import ToyTokens

CHOOSER = Chooser(SamplingParams(temperature=1, top_k=0, top_p=1, min_p=0), Noise(3))
CHEAP = PassCosts((1, 32), (0.001, 0.002))


@dataclass(frozen=True)
class PlanWith(Plan):
    judged: object = None

    def worth(self) -> Any:
        return self.judged


def propose(
    drafter: Drafter,
    model: Model,
    tokens: Sequence[int],
    plan: Plan | int,
    chooser: Chooser = GREEDY,
) -> Draft:
    """Make the passes that a proposal asks for; those without rows go to the cache."""
    plan = Plan(drafter, plan) if isinstance(plan, int) else plan
    passes = drafter.propose(tokens, plan, chooser)
    try:
        request = next(passes)
        while True:
            assert request.role is Role.DRAFT_MODEL
            if request.rows == 0:
                model.prefill(request.tokens)
            text, logits = list(request.tokens), np.empty((0, 0), dtype=np.float32)
            while request.rows:
                logits = model.logits(text, 1 if text[len(request.tokens) :] else request.rows)
                token = None if request.more is None else request.more(logits)
                if token is None:
                    break
                text.append(token)
            request = passes.send(logits)
    except StopIteration as finished:
        draft = finished.value
        assert isinstance(draft, Draft)
        return draft


def proposed(model: Model, tokens: Sequence[int], draft_length: int, n_vocab: int = 8) -> Draft:
    drafter = ModelDrafter(model, SharedIds(n_vocab), ())
    return propose(drafter, model, tokens, draft_length, CHOOSER)


def always(token: int, n_vocab: int = 6) -> Table:
    rows = np.zeros((61, n_vocab), dtype=np.float32)
    rows[:, token] = 50
    return Table(rows, window=1)


@given(st.integers(0, 1 << 16), st.integers(0, 6), st.integers(1, 4))
@settings(max_examples=100, deadline=None)
def test_tokens_are_chosen_under_shared_noise(seed: int, draft_length: int, n_tokens: int) -> None:
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
    after: int
    most_kept: int
    length: int = 0
    verify: tuple[float, ...] = ()

    def add(self, _: float) -> bool:
        self.length += 1
        return self.length < self.after

    @property
    def n_verified(self) -> int:
        return min(self.most_kept, self.length)


@pytest.mark.parametrize(("after", "kept"), [(1, 1), (3, 3), (3, 1), (3, 0), (9, 9)])
def test_what_is_not_worth_it_is_kept_back(after: int, kept: int) -> None:
    model = UncachedModel(random_table(5, n_vocab=8), 40)
    whole = proposed(model, [1, 2], 6)
    model.asked.clear()
    drafter = ModelDrafter(model, SharedIds(8), (), CHEAP)
    plan = PlanWith(drafter, 6, judged=Stopping(after, kept))
    draft = propose(drafter, model, [1, 2], plan, CHOOSER)
    assert draft == replace(whole.until(kept), passes=min(after, 6))
    assert len(model.asked) == draft.passes


@pytest.mark.parametrize(("n_tokens", "prefilled"), [(16, False), (17, True)])
def test_a_long_text_is_evaluated_in_a_pass_of_its_own(n_tokens: int, prefilled: bool) -> None:
    model = CachedModel(always(3), 60)
    propose(ModelDrafter(model, SharedIds(6), ()), model, [3] * n_tokens, 2)
    assert (model.asked[0].rows == 0) is prefilled
    assert sum(each.evaluated for each in model.asked) == n_tokens + 1
    model.asked.clear()
    propose(ModelDrafter(model, SharedIds(6), ()), model, [3] * 40, 0)
    assert model.asked == [], "nothing is evaluated where nothing is to be drafted"
    # At most the last drafted token and the target's own are new in a round's first pass.
    target = random_table(3, n_vocab=8)
    draft = CachedModel(related_table(target, 5, 8, noise=1.0), 60)
    models: dict[Role, Model] = {Role.TARGET: CachedModel(target, 60), Role.DRAFT_MODEL: draft}
    policy = FixedPolicy(ModelDrafter(draft, SharedIds(8), ()), 4)
    run_to_end([1, 2], models, policy, CHOOSER, Limits(40, ()))
    first, *later = [asked.evaluated for asked in draft.asked if asked.rows > 0]
    assert first == 3, "the prompt, and the first token"
    assert set(later) == {1, 2}


BANNED = Chooser(SamplingParams(logit_bias=tuple((id_, -np.inf) for id_ in range(5))), Noise(0))


@pytest.mark.parametrize(
    ("says", "n_vocab", "chooser", "tokens", "passes"),
    [
        (4, 6, GREEDY, (4,), 1),  # the end of a generation
        (5, 5, GREEDY, (0, 0, 0), 3),  # 5 is not shared
        (5, 5, BANNED, (), 1),  # nor may anything else follow
        (2, 1, GREEDY, (), 0),  # after an id that is not shared
    ],
)
def test_what_ends_a_draft(
    says: int, n_vocab: int, chooser: Chooser, tokens: tuple[int, ...], passes: int
) -> None:
    model = UncachedModel(always(says), 40)
    made = propose(ModelDrafter(model, SharedIds(n_vocab), {4}), model, [1], 3, chooser)
    assert (made.tokens, made.confidences) == (tokens, (1.0,) * len(tokens))
    assert made.passes == passes == len(model.asked)


# Which part of a long text it sees: a window of ten tokens, in a context of forty.


@pytest.fixture
def model() -> CachedModel:
    return CachedModel(random_table(3, n_vocab=8, window=64), 40)


def in_window(model: CachedModel) -> ModelDrafter:
    return ModelDrafter(model, SharedIds(8), (), CHEAP, fresh=10)


def lag(drafter: ModelDrafter, tokens: Sequence[int]) -> int:
    """Return by how many tokens the draft model is behind, as its forecast charges them."""
    start_s = there(drafter.forecast(tokens)).start_s
    return next(n for n in range(1, 400) if CHEAP.of(n) - CHEAP.of(1) == pytest.approx(start_s))


def sees(drafter: ModelDrafter, model: CachedModel, tokens: Sequence[int]) -> int:
    """Let it propose one token; return how many of the text it saw, and chose by."""
    draft = propose(drafter, model, tokens, 1, GREEDY)
    if not draft.tokens:  # the context is full
        return 0
    seen = min(len(tokens), model.asked[-1].n_tokens)
    assert draft.tokens == (int(model.table.row(tokens[-seen:]).argmax()),)
    return seen


def text_of(length: int, seed: int = 1) -> list[int]:
    random = Random(seed)
    return [random.randrange(8) for _ in range(length)]


@pytest.mark.parametrize(("length", "seen"), [(5, 5), (10, 10), (11, 10), (300, 10)])
def test_of_a_long_text_the_end_is_seen(model: CachedModel, length: int, seen: int) -> None:
    drafter, tokens = in_window(model), text_of(length)
    assert lag(drafter, tokens) == seen
    assert sees(drafter, model, tokens) == seen
    assert lag(drafter, [*tokens, 1]) == 1


def test_the_window_grows_with_the_text_and_nothing_else_moves_it(model: CachedModel) -> None:
    drafter, tokens = in_window(model), text_of(100)
    sees(drafter, model, [*tokens, 1, 2, 3])
    for other in ([1] * 90, tokens[:50], [*tokens, *[1] * 40]):
        assert lag(drafter, other) > 1
    sees(drafter, model, [*tokens, 4])
    assert model.asked[-1].evaluated == 1
    model.asked.clear()
    for more in range(60):
        tokens.append(more % 8)
        sees(drafter, model, tokens)
    assert max(asked.n_tokens for asked in model.asked) == 39
    assert sum(asked.evaluated for asked in model.asked) < 110, "begun again only now and then"
    random = Random(5)
    for _ in range(50):  # another text gets another window
        sees(drafter, model, text_of(random.randint(1, 120), random.randrange(99)))
    sees(drafter, model, tokens := text_of(50, 6))
    for left, behind in ((5, 5), (0, 10)):
        model.truncate(left)
        assert lag(drafter, tokens) == behind, "what was forgotten is behind"


# What it forecasts.


def drafting(costs: PassCosts | None = CHEAP) -> ModelDrafter:
    drafter = ModelDrafter(CachedModel(always(3), 200), SharedIds(6), (), costs)
    drafter.begin([3], GREEDY)
    return drafter


def settled(drafter: ModelDrafter, accepted: int, count: int = 30, pass_s: float = 0.001) -> None:
    draft = Draft((3, 3, 3), (0.9,) * 3, "model", (1.6,) * 3, ((),) * 3, (), 3)
    for _ in range(count):
        confirmed = (*draft.tokens[:accepted], 4)
        drafter.learn(Round(draft, Verdict(accepted, 4), confirmed, Spent(0.0, 3 * pass_s, 1.0)))


class Heads(CachedModel):
    fresh = longest = 4
    in_one_pass = False

    def knows(self, tokens: Sequence[int]) -> bool:
        return len(tokens) > 2


@pytest.mark.parametrize("in_one_pass", [False, True])
def test_heads_draft_no_further_than_they_can_and_a_block_counts_as_one_pass(
    in_one_pass: bool,
) -> None:
    heads = Heads(always(3), 200)
    heads.in_one_pass = in_one_pass
    drafter = HeadsDrafter(heads, SharedIds(6), (), CHEAP)
    assert drafter.forecast([3] * 2) is None
    forecast = there(drafter.forecast([3] * 20))
    assert len(forecast.chances) == heads.longest
    assert [forecast.passes(length) for length in (0, 1, 4)] == [0, 1, 1 if in_one_pass else 4]
    worth = there(Plan(drafter, 4, 900.0, forecast, [0.001] * 5).worth())
    assert worth.add(0.5) is in_one_pass, "a further token of a block takes no pass"
    draft = propose(drafter, heads, [3] * 20, 9)
    assert draft.tokens == (3,) * heads.longest
    assert draft.passes == forecast.passes(4)
    assert propose(drafter, heads, [3] * 2, 9).passes == 0


def test_a_forecast_is_of_the_chances_as_the_text_is() -> None:
    drafter = drafting()
    first = there(drafter.forecast([3] * 20))
    assert first == drafter.forecast([3] * 20), "no side effects"
    assert first.step_s == CHEAP.of(1)
    assert first.start_s == pytest.approx(CHEAP.of(20) - CHEAP.of(1))
    settled(drafter, accepted=0, pass_s=0.004, count=60)
    later = there(drafter.forecast([3] * 20))
    assert later.chances[0] < 0.6 * first.chances[0]
    assert later.step_s == pytest.approx(0.004, rel=0.1)
    settled(drafter, accepted=3)
    assert there(drafter.forecast([3] * 20)).chances[0] > first.chances[0]
    assert drafting().forecast([*[3] * 19, 6]) is None, "after an id that is not shared"
    unknown = drafting(None)
    settled(unknown, accepted=1)
    assert unknown.forecast([3] * 20) is None, "without costs"
    # What drafts earned before is where chances start, by the ten buckets in which conversations are recorded.
    drafter = drafting()
    usual = drafter.chance(1.6)
    drafter.expect({3: (0.99, 1000.0)})
    assert drafter.chance(1.6) > 0.9 > usual
    drafter.expect({})
    assert drafter.chance(1.6) == pytest.approx(usual)


# What is proposed. The target writes `(self ba`, as [(self][ b][a]; the draft model as [(][self][ ba].

TARGET = ToyTokens([b"", b"a", b"b", b" ", b"(", b"self", b"(self", b" b"], {0: "<end>"}, eog=[0])
DRAFT = ToyTokens([b"self", b"(", b"b", b"a", b" ", b" ba", b""], {6: "<end>"}, eog=[6])
TEXT, READ = [6, 7, 1] * 4, [1, 0, 5] * 4


@dataclass(frozen=True, slots=True, eq=False)
class Recites(Table):
    text: Sequence[int] = ()

    def row(self, context: Sequence[int]) -> NDArray[np.float32]:
        row = np.zeros(self.n_vocab, dtype=np.float32)
        row[[*self.text, 6][len(context)]] = 20
        return row


@pytest.mark.parametrize(
    ("said", "length", "proposed"),
    [
        (1, 1, (7,)),
        (1, 3, (7, 1, 4)),  # nobody asks whether it goes on
        (1, 4, (7, 1, 6, 7)),
        (3, 2, (6, 7)),
        (6, 5, (6, 7, 1, 6, 7)),
        (9, 9, (6, 7, 1, 0)),
    ],
)
def test_drafts_are_in_the_targets_ids(said: int, length: int, proposed: tuple[int, ...]) -> None:
    model = UncachedModel(Recites(np.zeros((1, 7), dtype=np.float32), 40, READ), 40)
    drafter = ModelDrafter(model, TokenMap(TARGET, DRAFT).spelling(), TARGET.eog)
    draft = propose(drafter, model, TEXT[:said], length, GREEDY)
    assert draft.tokens == proposed
    assert {len(draft.gaps), len(draft.confidences), len(draft.alternatives)} == {len(proposed)}
    assert all(0 < each <= 1 for each in draft.confidences)
