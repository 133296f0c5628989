"""Draft modes by the names that users give them, and the policies that they come to."""

from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path

import pytest

from localspec.decoding.costs import PairCosts, PassCosts, best_yield
from localspec.decoding.draft_mode import DraftMode, draft_mode
from localspec.decoding.drafters.forced import ForcedDrafter
from localspec.decoding.drafters.lookup import LookupDrafter
from localspec.decoding.drafters.model import ModelDrafter
from localspec.decoding.drafters.vocab_map import SharedIds
from localspec.decoding.drafting import Drafting
from localspec.decoding.policy import AdaptivePolicy
from localspec.decoding.round import Draft, Round, Spent, Verdict
from localspec.errors import UsageError
from localspec.llama.safe_widths import SafeWidths, consecutive
from localspec.models.architectures import Heads
from localspec.options import LoadOptions
from localspec.plan.load_plan import LoadPlan
from localspec.plan.settle import exact_drafts, settle
from tests.toy import GREEDY, CachedModel, ToySequences, random_table

OWN = ("lookup", "model", "heads", "forced")
NOTHING = "exact: nothing is drafted, as passes of two tokens round otherwise than those of one"
CHEAP = PairCosts(PassCosts((1, 32), (1.0, 1.1)), PassCosts((1, 32), (0.05, 0.1)))


def drafting(
    costs: PairCosts | None = CHEAP, longest: int = 31, *, model: bool = True, count: int = 1
) -> Drafting:
    views = [CachedModel(random_table(1, n_vocab=8), 60) for _ in range(count)]
    draft_models = ToySequences(views) if model else None
    ids = partial(SharedIds, 8) if model else None
    return Drafting(count, draft_models, ids, (), costs, longest)


def adaptive(costs: PairCosts = CHEAP, count: int = 1, slot: int = 0) -> AdaptivePolicy:
    policy = drafting(costs, count=count).policy("auto", slot)
    assert isinstance(policy, AdaptivePolicy)
    return policy


def test_heads_that_were_measured_are_expected_to_yield_no_more_than_they_may() -> None:
    measured = replace(CHEAP, at_best=0.5)
    bests = [adaptive(costs).best_yield for costs in (CHEAP, measured)]
    assert bests == [inf, best_yield(measured, 31)]


def test_auto_weighs_a_draft_model_where_it_may_pay() -> None:
    policy = adaptive()
    assert [*map(type, policy.drafters)][:3] == [LookupDrafter, ModelDrafter, ForcedDrafter]
    policy.begin(range(3), GREEDY)
    for n in range(3, 10):  # rounds without a draft show what they take
        plan = policy.plan([token % 8 for token in range(n)], 50)
        token = n % 8
        policy.learn(Round(Draft(), Verdict(0, token), (token,), Spent(verify_s=0.01)))
    assert isinstance(plan.drafter, ModelDrafter)
    # Each sequence drafts for itself; one that pays alone, but not beside three others, is not asked.
    made = drafting(count=3)
    policies = [made.policy("auto", slot) for slot in range(3)]
    assert len({id(each) for each in policies}) == 3
    dear = PairCosts(PassCosts((1, 96), (1.0, 60.0)), PassCosts((1, 96), (0.05, 5.0)))
    for costs, names in ((CHEAP, ["lookup", "model", "forced"]), (dear, ["lookup", "forced"])):
        drafters = [each.name for each in adaptive(costs, 3, 1).drafters]
        assert [each for each in drafters if each in OWN] == names
    assert drafting(costs=None).policy("auto").name == "lookup"
    with pytest.raises(UsageError, match="'model:3' needs a draft model: no draft model is loaded"):
        drafting(model=False).policy("model")


@pytest.mark.parametrize(
    ("text", "length", "mode"),
    [
        ("off", None, DraftMode("off")),
        ("auto", 7, DraftMode("auto")),
        ("lookup", None, DraftMode("lookup", 15)),
        ("lookup", 4, DraftMode("lookup", 4)),
        ("lookup:8", 4, DraftMode("lookup", 8)),
        ("model", None, DraftMode("model", 3)),
        ("model:63", None, DraftMode("model", 63)),
    ],
)
def test_a_mode_is_a_kind_and_for_some_a_length(
    text: str, length: int | None, mode: DraftMode
) -> None:
    assert draft_mode(text, length) == mode
    assert draft_mode(mode.name) == mode


@pytest.mark.parametrize(
    ("text", "words"),
    [
        *((each, r"choose off, auto, lookup, model, heads, forced(, \w+)* or \w+; a drafter") for each in ("", "on", "auto:3", "off:")),
        *((each, "choose off, auto, lookup, model") for each in ("model:", "model:x", "model:-1")),
        *((each, "must be from 1 to 63") for each in ("model:0", "lookup:64", "model:99999")),
    ],
)  # fmt: skip
def test_a_text_that_is_no_mode_is_refused(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        draft_mode(text)


@pytest.mark.parametrize("text", ["off", "lookup", "lookup:5", "model", "model:2"])
def test_fixed_modes_plan_their_own_length(text: str) -> None:
    plan = drafting().policy(text).plan([1, 2, 3], 50)
    assert plan.draft_length == (draft_mode(text).draft_length or 0)
    assert plan.drafter.name == text.partition(":")[0]
    plan.drafter.begin([1, 2, 3], GREEDY)
    assert plan.drafter.forecast([1, 2, 3]) is None, "nobody weighs what always drafts"


@pytest.mark.parametrize("text", ["auto", "lookup:9", "model:9"])
def test_no_mode_drafts_further_than_the_pair_allows(text: str) -> None:
    tokens = [*range(8), *range(8)] * 3
    policy = drafting(longest=3).policy(text)
    policy.begin(tokens, GREEDY)
    assert policy.plan(tokens, 50).draft_length <= 3
    assert drafting(longest=0).policy(text).name == "off"


@pytest.mark.parametrize(
    ("widths", "last"), [((1,), 1), ((1, 2, 3, 4), 4), ((1, 2, 3, 5, 6), 3), ((1, 3), 1)]
)
def test_only_widths_without_a_gap_are_of_use(widths: tuple[int, ...], last: int) -> None:
    assert consecutive(widths) == last
    assert SafeWidths(widths, {}).longest == last
    assert SafeWidths(widths, {}, fixed=2, most=9).longest == 9


@pytest.mark.parametrize(
    ("exact", "line"),
    [
        (SafeWidths((1, 2, 3), {}), "exact: drafts of up to 2 tokens"),
        (SafeWidths((1,), {}, 2, 16, 1.1), "exact: drafts of up to 2 tokens, in passes of 2 tokens or more"),
        (SafeWidths((1,), {}, price=1.8), f"{NOTHING}, and padding them to two would make each take 1.8 times as long"),
        (SafeWidths((1,), {}), NOTHING),
    ],
)  # fmt: skip
def test_a_line_says_what_exact_leaves_of_drafts(exact: SafeWidths, line: str) -> None:
    assert exact_drafts(2, exact) == line


def test_passes_that_are_padded_cost_what_those_of_the_least_width_do() -> None:
    plan = LoadPlan(Path("t"), None, {}, (DraftMode("auto"),), 0, LoadOptions())
    costs = PairCosts(PassCosts((1, 2, 3, 4, 8, 16), (1.0, 1.3, 1.5, 1.8, 3.0, 6.0)))
    for exact, widths, seconds in (
        (SafeWidths((1,), {}, 2, 8), (1, 2, 3, 4, 8), (1.3, 1.3, 1.5, 1.8, 3.0)),
        (SafeWidths((1,), {}, 4, 4), (1, 4), (1.8, 1.8)),
    ):
        padded = settle(plan, plan.options, costs, exact, on_gpu=False).costs
        assert padded is not None
        assert padded.target == PassCosts(widths, seconds)
        assert settle(plan, plan.options, None, exact, on_gpu=False).costs is None


HEADS = Heads(count=2)


@pytest.mark.parametrize(
    ("modes", "exact", "heads", "longest"),
    [
        (("auto",), None, True, 63),
        (("auto",), SafeWidths((1, 2, 3), {}), True, 2),
        (("auto",), SafeWidths((1,), {}, 4, 4), False, 3),  # they do not read padded rows
        (("heads",), SafeWidths((1,), {}, 4, 4), True, 0),
    ],
)
def test_heads_give_way_where_passes_are_padded_unless_they_are_wanted(
    modes: tuple[str, ...], exact: SafeWidths | None, heads: bool, longest: int
) -> None:
    kinds = tuple(draft_mode(each) for each in modes)
    plan = LoadPlan(Path("t"), None, {}, kinds, 0, LoadOptions(max_rows=32), heads=HEADS)
    settled = settle(plan, plan.options, None, exact, on_gpu=True)
    assert (settled.plan.heads is HEADS) is heads
    assert settled.longest == longest


WIDE = PairCosts(PassCosts((1, 2, 5, 64), (1.0, 1.1, 1.2, 60.0)))
DEAR = PairCosts(PassCosts((1, 64), (1.0, 64.0)), PassCosts((1, 64), (0.5, 32.0)))
PADDED = SafeWidths((1,), {}, 4, 4)


@pytest.mark.parametrize(
    ("costs", "wanted", "exact", "on_gpu", "count", "rows", "drafts"),
    [
        (WIDE, None, None, False, 5, 64, False),  # beside five, drafts make too wide passes
        (WIDE, 2, None, False, 2, 64, True),
        (WIDE, None, SafeWidths((1, 2), {}), False, 2, 2, True),
        (WIDE, None, PADDED, False, 1, 4, True),
        (WIDE, 3, PADDED, True, 3, 1, False),  # where padded passes were measured alone
        (WIDE, 3, PADDED, False, 3, 4, False),
        (DEAR, 3, None, False, 3, 64, False),
        (DEAR, None, None, False, 1, 64, False),
    ],
)
def test_as_many_sequences_as_pay(
    costs: PairCosts,
    wanted: int | None,
    exact: SafeWidths | None,
    on_gpu: bool,
    count: int,
    rows: int,
    drafts: bool,
) -> None:
    options = LoadOptions(max_rows=32)
    plan = LoadPlan(Path("t"), Path("d"), {}, (DraftMode("auto"),), 9, options)
    paired = replace(costs, draft_model=costs.draft_model or PassCosts((1, 64), (0.05, 0.5)))
    plan = replace(plan, parallel=wanted)
    settled = settle(plan, options, paired, exact, on_gpu=on_gpu)
    assert (settled.plan.parallel, settled.most_rows) == (count, rows)
    assert (settled.plan.draft_model is not None) is drafts
