from collections.abc import Callable, Sequence
from dataclasses import astuple
from itertools import starmap

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from localspec.decoding.choose import Chooser
from localspec.decoding.drafters.drafter import PLAIN, Drafter, NoDrafter, Plan
from localspec.decoding.drafters.lookup import LookupDrafter
from localspec.decoding.drafters.model import ModelDrafter
from localspec.decoding.drafters.spelling import SharedIds
from localspec.decoding.generation import Generation, Limits, LoopGuard
from localspec.decoding.model import Logits, Role
from localspec.decoding.noise import Noise
from localspec.decoding.policy import FixedPolicy, plain_policy
from localspec.decoding.round import PROMPT, Draft, Round, Spent, StopReason, Verdict
from localspec.options import SamplingParams
from tests.examples import examples
from tests.toy import (
    CachedModel,
    Countdown,
    Model,
    Reply,
    ScriptedDrafter,
    Stopwatch,
    Table,
    random_table,
    run_to_end,
)

GREEDY = Chooser(SamplingParams(temperature=0), Noise(0))
N_CTX = 30


def counting() -> Table:
    """Return a model of ten ids that counts: 4 follows 3, and 0 follows 9."""
    rows: NDArray[np.float32] = np.zeros((61, 10), dtype=np.float32)
    rows[np.arange(1, 11), np.arange(1, 11) % 10] = 5  # with a window of 1, row i + 1 follows i
    return Table(rows, window=1)


def count_from(
    prompt: Sequence[int],
    drafter: Drafter,
    draft_length: int,
    max_tokens: int | None = None,
    eog: Sequence[int] = (),
) -> Reply:
    models: dict[Role, Model] = {Role.TARGET: CachedModel(counting(), N_CTX)}
    policy = FixedPolicy(drafter, draft_length)
    return run_to_end(prompt, models, policy, GREEDY, Limits(max_tokens, eog))


def handed_out(reply: Reply) -> list[tuple[int, ...]]:
    return [done.confirmed for done in reply.rounds]


def test_first_token_comes_from_the_prompt_in_a_round_of_its_own() -> None:
    reply = count_from([1, 2], ScriptedDrafter((9,)), 1, max_tokens=2)
    first, second = reply.rounds
    assert first.draft == Draft(drafter=PROMPT)
    assert (first.verdict, first.confirmed) == (Verdict(0, 3), (3,))
    assert first.is_first
    assert not second.is_first


def test_each_round_hands_out_what_it_confirmed() -> None:
    reply = count_from([1], ScriptedDrafter((3, 4, 9)), 3, max_tokens=6)
    # The script is right once, for its first two tokens.
    assert handed_out(reply) == [(2,), (3, 4, 5), (6,), (7,)]
    assert reply.stop_reason is StopReason.LENGTH


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
    assert count_from(prompt, PLAIN.drafter, 0, max_tokens, eog).stop_reason is reason


class Listening(FixedPolicy):
    """Writes down what it is given."""

    def __init__(self, drafter: Drafter, draft_length: int) -> None:
        super().__init__(drafter, draft_length)
        self.begun: list[object] = []
        self.planned: list[tuple[int, int]] = []
        self.learnt: list[Round] = []

    def begin(self, tokens: Sequence[int], chooser: Chooser) -> None:
        self.begun.append((list(tokens), chooser.params.temperature))

    def plan(self, tokens: Sequence[int], room: int) -> Plan:
        self.planned.append((len(tokens), room))
        return super().plan(tokens, room)

    def learn(self, done: Round) -> None:
        self.learnt.append(done)


@pytest.mark.parametrize("draft_length", [-5, 0, 1, 2, 1000])
def test_planned_length_is_cut_to_what_may_be_confirmed(draft_length: int) -> None:
    lengths: list[int] = []

    class Nosy(NoDrafter):
        def propose(self, tokens, plan, chooser):  # type: ignore[no-untyped-def]
            lengths.append(plan.draft_length)
            return super().propose(tokens, plan, chooser)

    count_from([1], Nosy(), draft_length, max_tokens=4)
    room = [3, 2, 1]  # the first of four comes from the prompt
    assert lengths == [max(0, min(draft_length, left - 1)) for left in room]


@pytest.mark.parametrize("temperature", [0.0, 0.5])
def test_policy_begins_with_the_first_token_plans_and_learns_every_round(
    temperature: float,
) -> None:
    models: dict[Role, Model] = {Role.TARGET: CachedModel(counting(), N_CTX)}
    policy = Listening(ScriptedDrafter((3, 4)), 2)
    chooser = Chooser(SamplingParams(temperature=temperature, top_k=1), Noise(0))
    reply = run_to_end([0, 1], models, policy, chooser, Limits(5, ()))
    assert policy.begun == [([0, 1, 2], temperature)]
    assert policy.planned == [(3, 4), (6, 1)]
    assert policy.learnt == [*reply.rounds[1:]]
    unasked = Listening(ScriptedDrafter((3, 4)), 2)
    run_to_end([0, 1], models, unasked, chooser, Limits(1, ()))
    assert not unasked.begun, "there was nothing to plan"


def pair(draft: CachedModel, target: CachedModel | None = None) -> dict[Role, Model]:
    return {Role.TARGET: target or CachedModel(counting(), N_CTX), Role.DRAFT_MODEL: draft}


def drafting(draft: Model, draft_length: int = 3, n_vocab: int = 10) -> FixedPolicy:
    return FixedPolicy(ModelDrafter(draft, SharedIds(n_vocab), ()), draft_length)


def test_pass_of_a_round_is_never_wider_than_draft_and_one() -> None:
    target, draft = CachedModel(counting(), N_CTX), CachedModel(counting(), N_CTX)
    run_to_end([1] * 9, pair(draft, target), drafting(draft), GREEDY, Limits(13, ()))
    assert [(asked.rows, asked.evaluated) for asked in target.asked] == [(1, 9)] + [(4, 4)] * 3
    assert [asked.evaluated for asked in draft.asked][:4] == [10, 1, 1, 2]


def test_follow_up_evaluates_only_what_is_new() -> None:
    target = CachedModel(counting(), N_CTX)
    models: dict[Role, Model] = {Role.TARGET: target}
    policy = FixedPolicy(ScriptedDrafter((3, 4, 9)), 3)
    first = run_to_end([1] * 9, models, policy, GREEDY, Limits(4, ()))
    follow_up = [*[1] * 9, *first.tokens, 7, 7]
    target.asked.clear()
    second = run_to_end(follow_up, models, policy, GREEDY, Limits(1, ()))
    # The last token handed out was never evaluated, and two are new.
    assert [asked.evaluated for asked in target.asked] == [3]
    assert second.generation.prefill_tokens == 3


def test_prompt_that_is_cached_already_costs_one_token() -> None:
    """Its last row is not kept, so its last token is evaluated again."""
    models: dict[Role, Model] = {Role.TARGET: CachedModel(counting(), N_CTX)}
    for evaluated in (9, 1, 1):
        reply = run_to_end([1] * 9, models, plain_policy(), GREEDY, Limits(3, ()))
        assert reply.generation.prefill_tokens == evaluated


@pytest.mark.parametrize("passes", range(5))
def test_cancelled_pass_ends_the_text_where_it_was(passes: int) -> None:
    target = CachedModel(counting(), N_CTX, Countdown(passes))
    reply = run_to_end([1], {Role.TARGET: target}, plain_policy(), GREEDY, Limits(8, ()))
    assert reply.stop_reason is StopReason.CANCELLED
    assert reply.tokens == tuple(range(2, 2 + passes))


def test_draft_model_that_is_cancelled_leaves_the_first_token() -> None:
    """The prompt's evaluation by the draft model comes after the first token is out."""
    draft = CachedModel(counting(), N_CTX, Countdown(0))
    for prompt in ([1, 1], [1] * 25):
        reply = run_to_end(prompt, pair(draft), drafting(draft), GREEDY, Limits(4, ()))
        assert reply.tokens == (2,)
        assert reply.stop_reason is StopReason.CANCELLED
        draft.cancel = Countdown(0)


def test_draft_model_is_not_asked_when_the_first_token_is_the_last() -> None:
    draft = CachedModel(counting(), N_CTX)
    run_to_end([1], pair(draft), drafting(draft), GREEDY, Limits(1, ()))
    run_to_end([1], pair(draft), drafting(draft), GREEDY, Limits(None, (2,)))
    assert draft.asked == []


def test_prompt_is_not_changed_and_nothing_runs_before_it_is_asked_for() -> None:
    target, prompt, looks = CachedModel(counting(), N_CTX), [1, 2], Stopwatch()
    generation = Generation(prompt, target, plain_policy(), GREEDY, Limits(5, ()), looks)
    asking = generation.advance()
    request = next(asking)
    assert (list(request.tokens), request.rows) == ([1, 2], 1)
    asking.close()
    assert prompt == [1, 2]
    assert target.asked == []


class SlowModel(CachedModel):
    """Takes `seconds` for every token that it evaluates, and a tenth of one to remove some."""

    __slots__ = ("seconds", "watch")

    def slowed(self, watch: Stopwatch, seconds: float) -> "SlowModel":
        self.watch, self.seconds = watch, seconds
        return self

    def truncate(self, n_past: int) -> None:
        if n_past < len(self.cells):
            self.watch.now_s += 0.125
            self.truncate_s += 0.125
        super().truncate(n_past)

    def _decode(self, tokens: list[int], rows: int) -> Logits:  # type: ignore[override]
        self.watch.now_s += self.seconds * len(tokens)
        return super()._decode(tokens, rows)


def slow_pair(watch: Stopwatch, like: int = 1) -> dict[Role, Model]:
    """Return two models that say the same where the tables are alike."""
    tables = random_table(1, n_vocab=8), random_table(like, n_vocab=8)
    target, draft = starmap(SlowModel, ((table, 60) for table in tables))
    return {Role.TARGET: target.slowed(watch, 10.0), Role.DRAFT_MODEL: draft.slowed(watch, 1.0)}


def slowly(
    prompt: Sequence[int],
    max_tokens: int,
    *,
    step_s: float = 0.0,
    like: int = 1,
    draft_length: int = 3,
    before: Callable[[dict[Role, Model]], None] = lambda _: None,
) -> Reply:
    watch = Stopwatch(step_s)
    models = slow_pair(watch, like)
    before(models)
    policy = drafting(models[Role.DRAFT_MODEL], draft_length, 8)
    chooser = Chooser(SamplingParams(), Noise(0))
    return run_to_end(prompt, models, policy, chooser, Limits(max_tokens, ()), watch)


def test_every_stage_of_a_round_is_timed() -> None:
    reply = slowly([1, 2, 3] * 6, 9)
    first, one, other = reply.rounds  # two rounds of four tokens
    assert first.spent == Spent(verify_s=180.0)
    assert one.spent == Spent(draft_prefill_s=18.0, draft_s=3.0, verify_s=40.0)
    assert other.spent == Spent(draft_s=4.0, verify_s=40.0)  # of the draft two tokens are new
    generation = reply.generation
    assert (generation.prefill_s, generation.prefill_tokens) == (180.0, 18)
    assert generation.decode_s == 105.0


def test_removing_rejected_tokens_is_timed_apart() -> None:
    reply = slowly([1, 2, 3], 12, like=2)
    assert any(done.accepted < done.drafted for done in reply.rounds)
    rejected = [done.accepted < done.drafted for done in reply.rounds[:-1]]
    removed = [done.spent.truncate_s > 0 for done in reply.rounds[1:]]
    assert removed == rejected, "when the next pass begins"
    for done in reply.rounds[1:]:
        assert done.spent.verify_s == 10.0 * (done.drafted + 1)


def test_stages_do_not_overlap_and_leave_nothing_out() -> None:
    """With a clock that moves at every look, each look falls into one stage or into the rest."""
    reply = slowly([1] * 20, 10, step_s=1.0, draft_length=2)
    spent = [done.spent for done in reply.rounds[1:]]
    assert sum(each.wall_s for each in spent) == reply.generation.decode_s
    assert min(min(each.draft_s, each.verify_s, each.sample_s, each.other_s) for each in spent) > 0
    assert spent[0].draft_prefill_s > 0
    assert reply.rounds[0].spent.round_s == reply.generation.prefill_s
    assert slowly([1, 2], 1).generation.decode_s == 0
    assert all(part >= 0 for each in spent for part in astuple(each))


@pytest.mark.parametrize("passes", range(6))
def test_cancelled_reply_has_times_of_what_was_confirmed(passes: int) -> None:
    countdown = Countdown(passes)

    def cancelling(models: dict[Role, Model]) -> None:
        for model in models.values():
            assert isinstance(model, CachedModel)
            model.cancel = countdown

    reply = slowly([1, 2], 9, draft_length=2, before=cancelling)
    assert reply.stop_reason is StopReason.CANCELLED
    generation = reply.generation
    assert generation.prefill_s == 20
    assert generation.prefill_tokens == 2
    assert generation.decode_s == sum(done.spent.wall_s for done in reply.rounds[1:])


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
    chooser = Chooser(SamplingParams(temperature=0), Noise(0))
    limits = Limits(400, (), stop_loops=True)
    replies = [
        run_to_end([1, 2], {Role.TARGET: CachedModel(table, 600)}, policy, chooser, limits)
        for policy in (plain_policy(), FixedPolicy(LookupDrafter(()), length))
    ]
    plain, drafted = replies
    assert plain.stop_reason is StopReason.LOOP  # greedy and of a short memory: it must
    assert drafted.stop_reason is StopReason.LOOP
    assert drafted.tokens == plain.tokens
    assert first_loop(plain.tokens) == len(plain.tokens)
    free = run_to_end(
        [1, 2],
        {Role.TARGET: CachedModel(table, 600)},
        plain_policy(),
        chooser,
        Limits(len(plain.tokens) + 20, ()),
    )
    assert free.stop_reason is StopReason.LENGTH
    assert free.tokens[: len(plain.tokens)] == plain.tokens
