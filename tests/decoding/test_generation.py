from collections.abc import Sequence
from dataclasses import astuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.decoding.choose import Chooser
from localspec.decoding.drafters.drafter import Plan
from localspec.decoding.drafters.lookup import LookupDrafter
from localspec.decoding.drafters.model import ModelDrafter
from localspec.decoding.drafters.vocab_map import SharedIds
from localspec.decoding.generation import Limits, LoopGuard
from localspec.decoding.model import Logits, Role
from localspec.decoding.noise import Noise
from localspec.decoding.policy import FixedPolicy, plain_policy
from localspec.decoding.round import Round, Spent, StopReason
from localspec.options import SamplingParams
from tests.examples import examples
from tests.toy import (
    GREEDY,
    SAMPLED,
    CachedModel,
    Countdown,
    Model,
    Reply,
    ScriptedDrafter,
    Stopwatch,
    counting,
    random_table,
    run_to_end,
)

N_CTX = 30


def target_model() -> CachedModel:
    return CachedModel(counting(10), N_CTX)


@pytest.mark.parametrize(
    ("prompt", "max_tokens", "eog", "reason"),
    [
        ([1], 3, [4], StopReason.EOG),  # also at the limit
        ([1], 1, [2], StopReason.EOG),
        ([4, 4], 2, [4], StopReason.LENGTH),  # one in the prompt ends nothing
        ([1], N_CTX - 1, [], StopReason.LENGTH),  # of two that end at the same token
        ([1], N_CTX, [], StopReason.CONTEXT_FULL),
        ([1], 0, [], StopReason.LENGTH),
    ],
)
def test_which_of_several_ends_it_is(
    prompt: list[int], max_tokens: int, eog: list[int], reason: StopReason
) -> None:
    models, limits = {Role.TARGET: target_model()}, Limits(max_tokens, eog)
    assert run_to_end(prompt, models, plain_policy(), GREEDY, limits).stop_reason is reason


class Listening(FixedPolicy):
    def __init__(self) -> None:
        super().__init__(ScriptedDrafter((3, 4)), 2)
        self.begun, self.planned, self.learnt = list[object](), list[object](), list[Round]()

    def begin(self, tokens: Sequence[int], chooser: Chooser) -> None:
        self.begun.append((list(tokens), chooser.params.temperature))

    def plan(self, tokens: Sequence[int], room: int) -> Plan:
        self.planned.append((len(tokens), room))
        return super().plan(tokens, room)

    def learn(self, done: Round) -> None:
        self.learnt.append(done)


def test_a_policy_plans_and_learns_every_round() -> None:
    models: dict[Role, Model] = {Role.TARGET: target_model()}
    policy, unasked = Listening(), Listening()
    chooser = Chooser(SamplingParams(temperature=0.5, top_k=1), Noise(0))
    reply = run_to_end([0, 1], models, policy, chooser, Limits(5, ()))
    assert policy.begun == [([0, 1, 2], 0.5)]
    assert policy.planned == [(3, 4), (6, 1)]
    assert policy.learnt == [*reply.rounds[1:]]
    run_to_end([0, 1], models, unasked, chooser, Limits(1, ()))
    assert not unasked.begun, "there was nothing to plan"


def drafting(draft: Model, draft_length: int = 3, n_vocab: int = 10) -> FixedPolicy:
    return FixedPolicy(ModelDrafter(draft, SharedIds(n_vocab), ()), draft_length)


def test_follow_up_evaluates_only_what_is_new_and_one_token_of_a_prompt_that_is_cached() -> None:
    target = target_model()
    models: dict[Role, Model] = {Role.TARGET: target}
    policy = FixedPolicy(ScriptedDrafter((3, 4, 9)), 3)
    first = run_to_end([1] * 9, models, policy, GREEDY, Limits(4, ()))
    follow_up = [*[1] * 9, *first.tokens, 7, 7]
    target.asked.clear()
    # The last token handed out was never evaluated, and two are new; then the last row, which is not kept.
    for evaluated in (3, 1, 1):
        reply = run_to_end(follow_up, models, plain_policy(), GREEDY, Limits(1, ()))
        assert target.asked[-1].evaluated == reply.generation.prefill_tokens == evaluated


def test_draft_model_that_is_cancelled_or_not_needed_leaves_the_first_token() -> None:
    """The prompt's evaluation by the draft model comes after the first token is out."""
    draft = target_model()
    models = {Role.TARGET: target_model(), Role.DRAFT_MODEL: draft}
    for limits in (Limits(1, ()), Limits(None, (2,))):
        run_to_end([1], models, drafting(draft), GREEDY, limits)
    assert draft.asked == []
    for prompt in ([1, 1], [1] * 25):
        draft.cancel = Countdown(0)
        reply = run_to_end(prompt, models, drafting(draft), GREEDY, Limits(4, ()))
        assert (reply.tokens, reply.stop_reason) == ((2,), StopReason.CANCELLED)


class SlowModel(CachedModel):
    """Takes `seconds` for every token that it evaluates, and an eighth of one to remove some."""

    __slots__ = ("seconds", "watch")
    seconds: float
    watch: Stopwatch

    def truncate(self, n_past: int) -> None:
        if n_past < len(self.cells):
            self.watch.now_s += 0.125
            self.truncate_s += 0.125
        super().truncate(n_past)

    def _decode(self, tokens: list[int], rows: int) -> Logits:  # type: ignore[override]
        self.watch.now_s += self.seconds * len(tokens)
        return super()._decode(tokens, rows)


def slowly(
    prompt: Sequence[int], max_tokens: int, *, step_s: float = 0.0, like: int = 1, length: int = 3
) -> Reply:
    watch, models = Stopwatch(step_s), dict[Role, Model]()
    for role, table, seconds in ((Role.TARGET, 1, 10.0), (Role.DRAFT_MODEL, like, 1.0)):
        model = models[role] = SlowModel(random_table(table, n_vocab=8), 60)
        model.watch, model.seconds = watch, seconds
    policy = drafting(models[Role.DRAFT_MODEL], length, 8)
    return run_to_end(prompt, models, policy, SAMPLED, Limits(max_tokens, ()), watch)


def test_every_stage_of_a_round_is_timed_and_none_overlaps() -> None:
    reply = slowly([1, 2, 3] * 6, 9)
    first, one, other = reply.rounds  # two rounds of four tokens
    assert first.spent == Spent(verify_s=180.0)
    assert one.spent == Spent(draft_prefill_s=18.0, draft_s=3.0, verify_s=40.0)
    assert other.spent == Spent(draft_s=4.0, verify_s=40.0)  # of the draft two tokens are new
    generation = reply.generation
    assert (generation.prefill_s, generation.prefill_tokens) == (180.0, 18)
    assert generation.decode_s == 105.0
    reply = slowly([1, 2, 3], 12, like=2)
    assert any(done.accepted < done.drafted for done in reply.rounds)
    rejected = [done.accepted < done.drafted for done in reply.rounds[:-1]]
    removed = [done.spent.truncate_s > 0 for done in reply.rounds[1:]]
    assert removed == rejected, "when the next pass begins"
    for done in reply.rounds[1:]:
        assert done.spent.verify_s == 10.0 * (done.drafted + 1)
    # With a clock that moves at every look, each look falls into one stage or into the rest.
    reply = slowly([1] * 20, 10, step_s=1.0, length=2)
    spent = [done.spent for done in reply.rounds[1:]]
    assert sum(each.wall_s for each in spent) == reply.generation.decode_s
    assert min(min(each.draft_s, each.verify_s, each.sample_s, each.other_s) for each in spent) > 0
    assert spent[0].draft_prefill_s > 0
    assert reply.rounds[0].spent.round_s == reply.generation.prefill_s
    assert slowly([1, 2], 1).generation.decode_s == 0
    assert all(part >= 0 for each in spent for part in astuple(each))


# Loops.


def first_loop(tokens: Sequence[int]) -> int | None:
    guard = LoopGuard()
    return next((count for count, token in enumerate(tokens, 1) if guard.feed(token)), None)


@pytest.mark.parametrize(
    ("cycle", "tokens"), [(1, 49), (2, 50), (12, 60), (16, 64), (20, 80), (128, 512)]
)
def test_a_cycle_is_a_loop_when_it_came_four_times(cycle: int, tokens: int) -> None:
    assert first_loop([0, 1, 2, *(list(range(10, 10 + cycle)) * 60)]) == 3 + tokens


@pytest.mark.parametrize(
    "tokens",
    [
        list(range(1000)),
        [7] * 48,
        [*range(30), *range(30), *range(30), 99] * 2,
        [each for row in range(200) for each in (1, 2, 3, 100 + row, 4)],
        list(range(129)) * 9,
    ],
)
def test_what_is_no_loop(tokens: Sequence[int]) -> None:
    assert first_loop(tokens) is None


@given(st.integers(0, 200), st.integers(1, 6))
@examples(50)
def test_drafting_does_not_move_the_end(seed: int, length: int) -> None:
    table = random_table(seed, 6, window=2)

    def reply(policy: FixedPolicy, limits: Limits) -> Reply:
        return run_to_end([1, 2], {Role.TARGET: CachedModel(table, 600)}, policy, GREEDY, limits)

    policies = plain_policy(), FixedPolicy(LookupDrafter(()), length)
    plain, drafted = (reply(each, Limits(400, (), stop_loops=True)) for each in policies)
    # Greedy and of a short memory: it must.
    assert plain.stop_reason is drafted.stop_reason is StopReason.LOOP
    assert drafted.tokens == plain.tokens
    assert first_loop(plain.tokens) == len(plain.tokens)
    free = reply(policies[0], Limits(len(plain.tokens) + 20, ()))
    assert free.stop_reason is StopReason.LENGTH
    assert free.tokens[: len(plain.tokens)] == plain.tokens
