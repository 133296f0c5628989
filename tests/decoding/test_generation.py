from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from localspec.decoding.drafter import Draft, Drafter, NoDrafter
from localspec.decoding.generate import (
    Confirmed,
    Limits,
    StopReason,
    drive,
    speculative_round,
)
from localspec.decoding.model_drafter import ModelDrafter
from localspec.decoding.pacing import Pacing
from localspec.decoding.timings import Timings
from localspec.decoding.verify import Verdict
from numpy.typing import NDArray

from localspec.decoding.choose import Chooser
from localspec.decoding.model import LanguageModel, Role
from localspec.decoding.noise import Noise
from localspec.decoding.policy import FixedPolicy, Plan
from localspec.decoding.round import Round, Spent
from localspec.options import SamplingParams
from tests.toy import (
    CachedModel,
    Countdown,
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
    models: dict[Role, LanguageModel] = {Role.TARGET: CachedModel(counting(), N_CTX)}
    policy = FixedPolicy(drafter, draft_length)
    return run_to_end(prompt, models, policy, GREEDY, Limits(max_tokens, eog))


def handed_out(reply: Reply) -> list[tuple[int, ...]]:
    return [confirmed.tokens for confirmed in reply.rounds]


def test_round_asks_the_target_once_for_draft_and_one_row_more() -> None:
    asking = speculative_round([1, 2], Plan(ScriptedDrafter((3, 4)), 2), GREEDY)
    request = next(asking)
    assert request.role is Role.TARGET
    assert list(request.tokens) == [1, 2, 3, 4]
    assert request.rows == 3
    logits = np.eye(10, dtype=np.float32)[[3, 4, 5]]
    with pytest.raises(StopIteration) as finished:
        asking.send(logits)
    assert finished.value.value == Round(Draft((3, 4), (0.5, 0.5), "scripted"), Verdict(2, 5))


def test_round_confirms_the_accepted_tokens_and_the_next_one() -> None:
    draft = Draft((3, 4, 5), (1, 1, 1))
    assert Round(draft, Verdict(0, 9)).confirmed == (9,)
    assert Round(draft, Verdict(2, 9)).confirmed == (3, 4, 9)
    assert Round(draft, Verdict(3, 9)).confirmed == (3, 4, 5, 9)


def test_first_token_comes_from_the_prompt_and_has_no_round() -> None:
    reply = count_from([1, 2], ScriptedDrafter((9,)), 1, max_tokens=2)
    assert reply.rounds[0] == Confirmed((3,), None)
    assert reply.rounds[1].round is not None


def test_each_round_hands_out_what_it_confirmed() -> None:
    reply = count_from([1], ScriptedDrafter((3, 4, 9)), 3, max_tokens=6)
    # The script is right once, for its first two tokens.
    assert handed_out(reply) == [(2,), (3, 4, 5), (6,), (7,)]
    assert reply.stop_reason is StopReason.LENGTH


@pytest.mark.parametrize("max_tokens", range(7))
def test_length_limit_holds_to_the_token(max_tokens: int) -> None:
    reply = count_from([1], ScriptedDrafter((3, 4, 5, 6)), 4, max_tokens)
    assert reply.tokens == tuple(range(2, 2 + max_tokens))
    assert reply.stop_reason is StopReason.LENGTH


@pytest.mark.parametrize("eog", range(2, 8))
def test_end_of_generation_is_the_last_token_handed_out(eog: int) -> None:
    reply = count_from([1], ScriptedDrafter((3, 4, 5, 6)), 4, eog=[eog])
    assert reply.tokens == tuple(range(2, eog + 1))
    assert reply.stop_reason is StopReason.EOG


def test_end_of_generation_at_the_limit_is_end_of_generation() -> None:
    assert count_from([1], NoDrafter(), 0, max_tokens=3, eog=[4]).stop_reason is StopReason.EOG
    assert count_from([1], NoDrafter(), 0, max_tokens=1, eog=[2]).stop_reason is StopReason.EOG


def test_end_of_generation_in_the_prompt_ends_nothing() -> None:
    assert count_from([4, 4], NoDrafter(), 0, max_tokens=2, eog=[4]).tokens == (5, 6)


@pytest.mark.parametrize("draft_length", [0, 3, 1000])
@pytest.mark.parametrize("n_prompt", [1, N_CTX - 1, N_CTX])
def test_text_and_prompt_fill_the_context_and_no_more(n_prompt: int, draft_length: int) -> None:
    reply = count_from([1] * n_prompt, ScriptedDrafter(tuple(range(3, 10)) * 9), draft_length)
    assert len(reply.tokens) == N_CTX - n_prompt
    assert reply.stop_reason is StopReason.CONTEXT_FULL


def test_limit_within_the_context_is_a_limit_of_length() -> None:
    """Where both end at the same token, it is the limit that was asked for."""
    assert count_from([1], NoDrafter(), 0, max_tokens=N_CTX - 1).stop_reason is StopReason.LENGTH
    reply = count_from([1], NoDrafter(), 0, max_tokens=N_CTX)
    assert reply.stop_reason is StopReason.CONTEXT_FULL


@pytest.mark.parametrize("draft_length", [-5, 0, 1, 2, 1000])
def test_planned_length_is_cut_to_what_may_be_confirmed(draft_length: int) -> None:
    asked: list[int] = []

    class Nosy(NoDrafter):
        def propose(self, tokens, draft_length, chooser):  # type: ignore[no-untyped-def]
            asked.append(draft_length)
            return super().propose(tokens, draft_length, chooser)

    count_from([1], Nosy(), draft_length, max_tokens=4)
    room = [3, 2, 1]  # the first of four comes from the prompt
    assert asked == [max(0, min(draft_length, left - 1)) for left in room]


def test_policy_is_told_where_it_is_and_how_much_room_is_left() -> None:
    told: list[tuple[int, int]] = []

    class Listening(FixedPolicy):
        def plan(self, tokens: Sequence[int], room: int, lag: int) -> Plan:
            told.append((len(tokens), room))
            return super().plan(tokens, room, lag)

    models: dict[Role, LanguageModel] = {Role.TARGET: CachedModel(counting(), N_CTX)}
    policy = Listening(ScriptedDrafter((3, 4)), 2)
    run_to_end([0, 1], models, policy, GREEDY, Limits(5, ()))
    assert told == [(3, 4), (6, 1)]


def test_pass_of_a_round_is_never_wider_than_draft_and_one() -> None:
    target, draft = CachedModel(counting(), N_CTX), CachedModel(counting(), N_CTX)
    models: dict[Role, LanguageModel] = {Role.TARGET: target, Role.DRAFT_MODEL: draft}
    policy = FixedPolicy(ModelDrafter(N_CTX, 10, ()), 3, uses_draft_model=True)
    run_to_end([1] * 9, models, policy, GREEDY, Limits(13, ()))
    assert [(asked.rows, asked.evaluated) for asked in target.asked] == [(1, 9)] + [(4, 4)] * 3
    assert [asked.evaluated for asked in draft.asked][:4] == [9, 1, 1, 1]


def test_follow_up_evaluates_only_what_is_new() -> None:
    target = CachedModel(counting(), N_CTX)
    models: dict[Role, LanguageModel] = {Role.TARGET: target}
    policy = FixedPolicy(ScriptedDrafter((3, 4, 9)), 3)
    first = run_to_end([1] * 9, models, policy, GREEDY, Limits(4, ()))
    timings = Timings(clock=Stopwatch())
    follow_up = [*[1] * 9, *first.tokens, 7, 7]
    target.asked.clear()
    run_to_end(follow_up, models, policy, GREEDY, Limits(1, ()), timings)
    # The last token handed out was never evaluated, and two are new.
    assert [asked.evaluated for asked in target.asked] == [3]
    assert timings.prefill_tokens == 3


def test_prompt_that_is_cached_already_costs_one_token() -> None:
    """Its last row is not kept, so its last token is evaluated again."""
    target = CachedModel(counting(), N_CTX)
    models: dict[Role, LanguageModel] = {Role.TARGET: target}
    for evaluated in (9, 1, 1):
        timings = Timings(clock=Stopwatch())
        policy = FixedPolicy(NoDrafter(), 0)
        run_to_end([1] * 9, models, policy, GREEDY, Limits(3, ()), timings)
        assert timings.prefill_tokens == evaluated


@pytest.mark.parametrize("passes", range(5))
def test_cancelled_pass_ends_the_text_where_it_was(passes: int) -> None:
    models: dict[Role, LanguageModel] = {
        Role.TARGET: CachedModel(counting(), N_CTX, Countdown(passes))
    }
    policy = FixedPolicy(NoDrafter(), 0)
    reply = run_to_end([1], models, policy, GREEDY, Limits(8, ()))
    assert reply.stop_reason is StopReason.CANCELLED
    assert reply.tokens == tuple(range(2, 2 + passes))


def test_draft_model_that_is_cancelled_leaves_the_first_token() -> None:
    """The prompt's evaluation by the draft model comes after the first token is out."""
    models: dict[Role, LanguageModel] = {
        Role.TARGET: CachedModel(counting(), N_CTX),
        Role.DRAFT_MODEL: CachedModel(counting(), N_CTX, Countdown(0)),
    }
    policy = FixedPolicy(ModelDrafter(N_CTX, 10, ()), 3, uses_draft_model=True)
    reply = run_to_end([1, 1], models, policy, GREEDY, Limits(8, ()))
    assert reply == Reply((Confirmed((2,), None),), StopReason.CANCELLED)


def test_draft_model_is_not_asked_when_the_first_token_is_the_last() -> None:
    draft = CachedModel(counting(), N_CTX)
    models: dict[Role, LanguageModel] = {
        Role.TARGET: CachedModel(counting(), N_CTX),
        Role.DRAFT_MODEL: draft,
    }
    policy = FixedPolicy(ModelDrafter(N_CTX, 10, ()), 3, uses_draft_model=True)
    run_to_end([1], models, policy, GREEDY, Limits(1, ()))
    run_to_end([1], models, policy, GREEDY, Limits(None, (2,)))
    assert draft.asked == []


def test_draft_model_never_sees_an_id_that_it_has_not_nor_more_than_its_context() -> None:
    draft = CachedModel(random_table(0, n_vocab=6), n_ctx=4)
    models: dict[Role, LanguageModel] = {
        Role.TARGET: CachedModel(counting(), N_CTX),
        Role.DRAFT_MODEL: draft,
    }
    policy = FixedPolicy(ModelDrafter(4, 6, ()), 3, uses_draft_model=True)
    for prompt in ([1, 7, 1], [9, 1], [1] * 9):
        assert len(run_to_end(prompt, models, policy, GREEDY, Limits(4, ())).tokens) == 4


@dataclass(slots=True)
class LooksBack:
    """Drafts three tokens in the first round, having looked back four."""

    drafter: ModelDrafter
    drafter_name = "looks back"
    uses_draft_model = True
    done: bool = False

    def begin(self, *, greedy: bool) -> None: ...

    def plan(self, tokens: Sequence[int], room: int, lag: int) -> Plan:
        return Plan(NoDrafter(), 0) if self.done else Plan(self.drafter, 3, True, 4)

    def learn(self, done: Round, spent: Spent) -> None:
        self.done = True


def test_what_is_looked_back_at_is_evaluated_once() -> None:
    draft = CachedModel(counting(), N_CTX)
    models: dict[Role, LanguageModel] = {
        Role.TARGET: CachedModel(counting(), N_CTX),
        Role.DRAFT_MODEL: draft,
    }
    stopping = Pacing(3, lambda _: 0.99, 0.99, 0.01, lambda _: 1.0, 1.0, (True,) * 4)
    policy = LooksBack(ModelDrafter(N_CTX, 10, (), stopping, most_rows=9))
    prompt = [1, 2, 3, 4, 5, 6, 7, 8]
    run_to_end(prompt, models, policy, GREEDY, Limits(6, ()))
    prefill, first, *rest = draft.asked
    assert (prefill.n_tokens, prefill.rows) == (4, 0)  # of nine: four to look back at, and the last
    assert (first.n_tokens, first.rows) == (9, 5)
    assert [each.rows for each in rest] == [1, 1]


def test_prompt_is_not_changed_and_nothing_runs_before_it_is_asked_for() -> None:
    target = CachedModel(counting(), N_CTX)
    prompt = [1, 2]
    models: dict[Role, LanguageModel] = {Role.TARGET: target}
    policy = FixedPolicy(NoDrafter(), 0)
    generation = drive(prompt, models, policy, GREEDY, Limits(5, ()), Timings(clock=Stopwatch()))
    assert target.asked == []
    next(generation)
    generation.close()
    assert prompt == [1, 2]
    assert len(target.asked) == 1
