"""speculative_round: the algorithm. drive: one sequence, one round after the other.

Neither knows llama.cpp, text or time: models, policy and clock are handed in.
"""

from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from localspec.decoding.cancel import Cancelled
from localspec.decoding.choose import Chooser
from localspec.decoding.model import LanguageModel, Logits, Pass, Role
from localspec.decoding.policy import Plan, Policy
from localspec.decoding.round import Round, Spent
from localspec.decoding.timings import Timings
from localspec.decoding.verify import verify


class StopReason(Enum):
    """Why a generation ended."""

    EOG = "eog"
    LENGTH = "length"
    STOP_STRING = "stop_string"
    CANCELLED = "cancelled"
    CONTEXT_FULL = "context_full"


@dataclass(frozen=True, slots=True)
class Confirmed:
    """What is added to the text, cut at the end of the generation.

    Args:
        tokens: never empty.
        round: the round that confirmed them; None for the first token, which the prompt's own
            evaluation gives.
    """

    tokens: tuple[int, ...]
    round: Round | None


@dataclass(frozen=True, slots=True)
class Limits:
    """Where a generation ends.

    Args:
        max_tokens: most tokens to generate, 0 or more; None leaves only the context as a limit.
        eog: ids that end it; the first of them is the last token that is handed out.
    """

    max_tokens: int | None
    eog: Collection[int]


def speculative_round(
    tokens: Sequence[int], plan: Plan, chooser: Chooser
) -> Generator[Pass, Logits, Round]:
    """Propose, evaluate the target once, verify; asks for passes and makes none itself."""
    draft = yield from plan.drafter.propose(tokens, plan.draft_length, chooser)
    assert len(draft.tokens) <= plan.draft_length, f"{draft.drafter} overshoots"  # noqa: S101
    logits = yield Pass(Role.TARGET, [*tokens, *draft.tokens], rows=len(draft.tokens) + 1)
    verdict = verify(tokens, draft, logits, chooser)
    return Round(draft, verdict)


def drive(
    prompt: Sequence[int],
    models: Mapping[Role, LanguageModel],
    policy: Policy,
    chooser: Chooser,
    limits: Limits,
    timings: Timings,
) -> Generator[Confirmed, None, StopReason]:
    """Generate after `prompt`, yielding what each round confirms, and return why it ended.

    The prompt is evaluated in the same chunks whatever is drafted afterwards: cached keys and
    values carry the width that computed them.

    Args:
        prompt: token ids, at least one and fewer than the target's `n_ctx`.
        models: the target, and the draft model where the policy may use one.
        policy: plans every round.
        chooser: fixes every choice.
        limits: where to end.
        timings: filled while running; its clock is the only one.
    """
    tokens = list(prompt)
    n_ctx = models[Role.TARGET].n_ctx
    end = n_ctx if limits.max_tokens is None else min(len(tokens) + limits.max_tokens, n_ctx)
    try:
        if len(tokens) < end:
            tokens.append(_first_token(tokens, models[Role.TARGET], chooser, timings))
            yield Confirmed((tokens[-1],), None)
            if tokens[-1] in limits.eog:
                return StopReason.EOG
        timings.start_decode()
        policy.begin(greedy=chooser.params.temperature == 0)
        while (room := end - len(tokens)) > 0:
            done, spent = _planned_round(tokens, room, models, policy, chooser, timings)
            confirmed = _until_eog(done.confirmed, limits.eog)
            tokens += confirmed
            timings.mark_confirmed()
            policy.learn(done, spent)
            yield Confirmed(confirmed, done)
            if confirmed[-1] in limits.eog:
                return StopReason.EOG
    except Cancelled:
        timings.drop_unconfirmed()
        return StopReason.CANCELLED
    if len(tokens) - len(prompt) == limits.max_tokens:
        return StopReason.LENGTH
    return StopReason.CONTEXT_FULL


def _first_token(
    prompt: Sequence[int], target: LanguageModel, chooser: Chooser, timings: Timings
) -> int:
    """Evaluate the prompt; its own last row gives the first token without a pass of its own."""
    timings.lap()
    evaluated = max(1, len(prompt) - target.common_prefix(prompt))
    try:
        return chooser.choose(target.logits(prompt, rows=1)[0], prompt)
    finally:
        timings.add_prefill(Role.TARGET, evaluated)


def _planned_round(
    tokens: Sequence[int],
    room: int,
    models: Mapping[Role, LanguageModel],
    policy: Policy,
    chooser: Chooser,
    timings: Timings,
) -> tuple[Round, Spent]:
    """Run one round as the policy plans it; return it and what it took."""
    draft_model, before = models.get(Role.DRAFT_MODEL), timings.stages()
    lag = 0 if draft_model is None else len(tokens) - draft_model.common_prefix(tokens)
    plan = policy.plan(tokens, room, lag)
    plan = replace(plan, draft_length=max(0, min(plan.draft_length, room - 1)))
    if plan.draft_prefill and plan.draft_length > 0 and draft_model is not None:
        _prefill_draft(tokens, draft_model, timings)
    done = _run(speculative_round(tokens, plan, chooser), models, timings)
    spent = (after - earlier for after, earlier in zip(timings.stages(), before, strict=True))
    return done, Spent(*spent)


def _prefill_draft(tokens: Sequence[int], draft_model: LanguageModel, timings: Timings) -> None:
    """Evaluate what the draft model has to know before it can propose."""
    # Nothing is proposed beyond a draft model's context, nor after an id that it has not.
    known = next((i for i, t in enumerate(tokens) if t >= draft_model.n_vocab), len(tokens))
    timings.lap()
    try:
        draft_model.prefill(tokens[: min(known, len(tokens) - 1, draft_model.n_ctx - 1)])
    finally:
        timings.add_prefill(Role.DRAFT_MODEL, 0)


def _run(
    asking: Generator[Pass, Logits, Round], models: Mapping[Role, LanguageModel], timings: Timings
) -> Round:
    """Serve the passes that one round asks for, and time what lies between them."""
    timings.lap()
    request = next(asking)
    timings.draft_s += timings.lap()
    while True:
        logits = models[request.role].logits(request.tokens, request.rows)
        timings.add_pass(request.role, timings.lap())
        try:
            request = asking.send(logits)
        except StopIteration as finished:
            done: Round = finished.value
            return done
        finally:
            timings.sample_s += timings.lap()


def _until_eog(tokens: tuple[int, ...], eog: Collection[int]) -> tuple[int, ...]:
    for index, token in enumerate(tokens):
        if token in eog:
            return tokens[: index + 1]
    return tokens
