"""What the adaptive policy plans; `test_adaptive_worlds` shows what comes of it."""

import pytest
from localspec.decoding.adaptive import AdaptivePolicy, adaptive_policy
from localspec.decoding.drafter import Draft, Hindsight, NoDrafter, ReadyDrafter
from localspec.decoding.model_drafter import ModelDrafter
from localspec.decoding.verify import Verdict

from localspec.decoding.break_even import could_win
from localspec.decoding.costs import PassCosts
from localspec.decoding.policy import Plan
from localspec.decoding.round import Round, Spent

WIDTHS = (1, 2, 3, 4, 5, 6, 8, 12, 16, 32)
Q4_K_M = PassCosts(
    WIDTHS,
    (0.0227, 0.0415, 0.0558, 0.0685, 0.0837, 0.0984, 0.1149, 0.1434, 0.1377, 0.2503),
)
GPU = PassCosts(WIDTHS, (0.01, 0.01, 0.01, 0.011, 0.011, 0.011, 0.012, 0.014, 0.015, 0.02))
DEAR = PassCosts((1, 32), (0.0142, 0.1543))
CHEAP = PassCosts((1, 32), (0.001, 0.002))
DRAFTER = ModelDrafter(1000, 1000, ())
COPIED = [*range(100, 140), 7, *range(100, 120)]


def policy(target: PassCosts, draft_model: PassCosts | None = None) -> AdaptivePolicy:
    made = adaptive_policy(target, (), 31, DRAFTER, draft_model)
    made.begin(greedy=True)
    return made


def learn(made: AdaptivePolicy, plan: Plan, accepted: int, seconds: float) -> None:
    """Let a model's round, of a draft as long as planned, end so; it looked back first and was right."""
    drafted = tuple(range(plan.draft_length))
    gaps = (5.0,) * len(drafted)
    hindsight = (Hindsight(5.0, True),) * plan.look_back
    name = "model" if drafted else "off"
    draft = Draft(drafted, gaps, name, gaps, hindsight=hindsight)
    made.learn(Round(draft, Verdict(accepted, 0)), Spent(0.0, 0.0, seconds, 0.0))


def begun(made: AdaptivePolicy, target: PassCosts, n: int = 8) -> AdaptivePolicy:
    """Let a reply have begun with tokens that nobody drafted."""
    for end in range(2, 2 + n):
        made.plan(range(900, 900 + end), 500, end)
        made.learn(Round(Draft(), Verdict(0, 900 + end)), Spent(0.0, 0.0, target.of(1), 0.0))
    return made


def looked_back(plan: Plan, right: int) -> Round:
    """Return a round in which the draft model was right about so many tokens, and proposed nothing."""
    hindsight = tuple(Hindsight(3.0, each < right) for each in range(plan.look_back))
    return Round(Draft((), (), "model", hindsight=hindsight), Verdict(0, 1))


def test_a_text_without_repetition_is_decoded_plainly() -> None:
    plan = policy(Q4_K_M).plan(range(100), 500, 0)
    assert plan == Plan(NoDrafter(), 0) or plan.draft_length == 0


def shown(made: AdaptivePolicy, tokens: list[int], target: PassCosts, plain: int = 8) -> list[int]:
    """Let the last tokens of a text be confirmed plainly; return the text."""
    for end in range(len(tokens) - plain, len(tokens)):
        made.plan(tokens[:end], 500, 0)
        made.learn(Round(Draft(), Verdict(0, tokens[end])), Spent(0.0, 0.0, target.of(1), 0.0))
    return tokens


def test_a_long_match_is_copied_as_far_as_its_record_says_that_it_pays() -> None:
    made = policy(Q4_K_M)
    plan = made.plan(shown(made, COPIED, Q4_K_M), 500, 0)
    assert isinstance(plan.drafter, ReadyDrafter)
    assert plan.drafter.draft.tokens == tuple(range(120, 120 + plan.draft_length))
    assert plan.drafter.name == "lookup"
    assert plan.draft_length >= 7


def test_no_more_is_planned_than_there_is_room_for() -> None:
    made = policy(GPU)
    assert made.plan(COPIED, 4, 0).draft_length == 3
    assert made.plan(COPIED, 1, 0).draft_length == 0


def test_a_copy_ends_with_the_generation() -> None:
    made = adaptive_policy(GPU, eog={123}, longest=31)
    made.begin(greedy=True)
    plan = made.plan(COPIED, 500, 0)
    assert isinstance(plan.drafter, ReadyDrafter)
    assert plan.drafter.draft.tokens == (120, 121, 122, 123)


def test_what_the_text_shows_is_learnt_without_drafting() -> None:
    """A source that is wrong again and again is no longer believed, though it cost nothing."""
    made = policy(Q4_K_M)
    text = list(range(100, 140))
    plans = []
    for wrong in range(500, 512):  # eight tokens of the source, and then another one
        for token in (*range(100, 108), wrong):
            text.append(token)
            plans.append(made.plan(text, 500, 0).draft_length)
            made.learn(Round(Draft(), Verdict(0, token)), Spent(0.0, 0.0, Q4_K_M.of(1), 0.0))
    assert max(plans[-18:]) < max(plans)


@pytest.mark.parametrize(
    ("target", "draft_model", "wins"),
    [(Q4_K_M, DEAR, False), (GPU, CHEAP, True), (GPU, GPU, False), (Q4_K_M, CHEAP, True)],
)
def test_a_draft_model_that_could_not_win_is_never_asked(
    target: PassCosts, draft_model: PassCosts, wins: bool
) -> None:
    assert could_win(target, draft_model, 31) is wins
    made = begun(policy(target, draft_model), target)
    assert made.uses_draft_model is wins
    asked = [made.plan(range(n), 500, 20).draft_length for n in range(10, 60)]
    assert any(asked) is wins


def test_a_draft_model_that_is_wrong_is_asked_rarely() -> None:
    made = begun(policy(GPU, CHEAP), GPU)
    asked = []
    for n in range(10, 1810):
        plan = made.plan(range(n), 500, 20)
        asked.append(plan.draft_length > 0)
        learn(made, plan, 0, GPU.of(plan.draft_length + 1) + 0.001 * plan.draft_length)
    assert 0 < sum(asked) < 60
    assert sum(asked[1200:]) < 30


def test_a_draft_model_that_is_right_is_asked_every_round() -> None:
    made = begun(policy(GPU, CHEAP), GPU)
    for n in range(10, 200):
        plan = made.plan(range(n), 500, 20 if n == 10 else 1)
        assert plan.draft_length > 0
        learn(made, plan, plan.draft_length, GPU.of(plan.draft_length + 1) + 0.02)


def test_a_long_text_is_evaluated_by_the_draft_model_in_a_prefill_of_its_own() -> None:
    assert begun(policy(GPU, CHEAP), GPU).plan(range(300), 500, 60).draft_prefill
    assert not begun(policy(GPU, CHEAP), GPU).plan(range(300), 500, 12).draft_prefill


def test_a_draft_model_is_first_compared_with_what_the_target_said() -> None:
    made = policy(GPU, CHEAP)
    assert made.plan(range(300), 500, 300).draft_length == 0
    plan = begun(made, GPU).plan(range(300), 500, 300)
    assert plan.draft_length > 0
    assert plan.look_back == 9  # the reply's first token comes from the prompt's own evaluation
    learn(made, plan, plan.draft_length, GPU.of(plan.draft_length + 1))
    assert made.plan(range(320), 500, 1).look_back == 0
    made.begin(greedy=True)
    assert made.plan(range(340), 500, 20).draft_length > 0, "it has shown what it is good for"


@pytest.mark.parametrize("right", [0, 2])
def test_a_draft_model_that_was_right_about_little_rests(right: int) -> None:
    made = begun(policy(GPU, CHEAP), GPU)
    plan = made.plan(range(300), 500, 300)
    made.learn(looked_back(plan, right), Spent(0.03, 0.01, GPU.of(1), 0.0))
    rested = []
    for n in range(300, 900):
        plan = made.plan(range(n), 500, 20)
        rested.append(plan.draft_length == 0)
        made.learn(Round(Draft(), Verdict(0, n)), Spent(0.0, 0.0, GPU.of(1), 0.0))
    least, most = (150, 250) if right == 0 else (20, 50)
    assert least <= rested.index(False) <= most


def test_what_was_copied_does_not_speak_for_a_draft_model() -> None:
    made = policy(GPU, CHEAP)
    for _ in range(9):
        made.plan(range(300), 500, 300)
        copied = Draft((1,) * 9, (), "lookup")
        made.learn(Round(copied, Verdict(9, 1)), Spent(0.0, 0.0, GPU.of(10), 0.0))
    assert made.plan(range(300), 500, 300).draft_length == 0


def test_what_the_credit_does_not_cover_is_not_tried() -> None:
    dear = PassCosts((1, 16, 32), (0.001, 0.002, 0.3))  # catching up takes 60 plain steps
    made = begun(policy(GPU, dear), GPU)
    assert made.plan(range(300), 500, 64).draft_length == 0
    assert made.plan(range(300), 500, 12).draft_length > 0


def test_no_text_makes_it_spend_more_than_its_credit() -> None:
    made, plain_s = policy(GPU, CHEAP), GPU.of(1)
    spent, tokens = 0.0, list(COPIED)
    for n in range(500):
        plan = made.plan(tokens, 500, 1)
        wrong = 1000 + n
        tokens += [*range(100, 106), wrong] if n % 7 == 0 else [wrong]
        seconds = GPU.of(plan.draft_length + 1) + 0.001 * plan.draft_length
        spent += seconds
        name = "off" if not plan.draft_length else plan.drafter.name
        drafted = tuple([-1] * plan.draft_length)
        made.learn(
            Round(Draft(drafted, (), name, (0.0,) * len(drafted)), Verdict(0, wrong)),
            Spent(0.0, 0.0, seconds, 0.0),
        )
    assert spent <= 500 / 0.97 * plain_s


def test_a_reply_that_has_shown_nothing_yet_is_copied_into_with_care() -> None:
    fresh, told = policy(Q4_K_M), policy(Q4_K_M)
    careful = fresh.plan(COPIED, 500, 0).draft_length
    bold = told.plan(shown(told, COPIED, Q4_K_M), 500, 0).draft_length
    assert careful < bold
    told.begin(greedy=False)
    assert told.plan(COPIED, 500, 0).draft_length == careful
