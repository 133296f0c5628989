"""speculative_round: the algorithm. Generation: one sequence, round after round. drive: its passes, made.

None of them knows llama.cpp, text or time: models, policy and clock are handed in.
"""

from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from localspec.decoding.cancel import Cancelled
from localspec.decoding.choose import Chooser
from localspec.decoding.model import LanguageModel, Logits, Pass, Role
from localspec.decoding.policy import Plan, Policy
from localspec.decoding.round import Round, Spent
from localspec.decoding.serve import serve
from localspec.decoding.timed import timed
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


class Generation:
    """One sequence, round after round: asks for passes and makes none itself.

    The prompt is evaluated in the same chunks whatever is drafted afterwards: cached keys and
    values carry the width that computed them.

    Args:
        prompt: token ids, at least one and fewer than the target's `n_ctx`.
        models: the target, and the draft model where the policy may use one; asked for nothing but
            their sizes and what they have cached.
        policy: plans every round.
        chooser: fixes every choice.
        limits: where to end.
        timings: filled while running; its clock is the only one.

    Attributes:
        stop_reason: why it ended; None before it has.
    """

    def __init__(
        self,
        prompt: Sequence[int],
        models: Mapping[Role, LanguageModel],
        policy: Policy,
        chooser: Chooser,
        limits: Limits,
        timings: Timings,
    ) -> None:
        self._tokens = list(prompt)
        self._n_prompt = len(prompt)
        self._models = models
        self._policy = policy
        self._chooser = chooser
        self._limits = limits
        self._timings = timings
        most, n_ctx = limits.max_tokens, models[Role.TARGET].n_ctx
        self._end = n_ctx if most is None else min(self._n_prompt + most, n_ctx)
        self._begun = False
        self.stop_reason: StopReason | None = None

    def advance(self) -> Generator[Pass, Logits, Confirmed | None]:
        """Return the first token, then what one round more confirms; None when it has ended."""
        try:
            self.stop_reason = self._ended()
            if self.stop_reason is not None:
                return None
            if len(self._tokens) == self._n_prompt:
                return (yield from self._first_token())
            return (yield from self._next_round())
        except Cancelled:
            self._timings.drop_unconfirmed()
            self.stop_reason = StopReason.CANCELLED
            return None

    def _ended(self) -> StopReason | None:
        generated = len(self._tokens) - self._n_prompt
        if generated and self._tokens[-1] in self._limits.eog:
            return StopReason.EOG
        if len(self._tokens) < self._end:
            return None
        return (
            StopReason.LENGTH if generated == self._limits.max_tokens else StopReason.CONTEXT_FULL
        )

    def _first_token(self) -> Generator[Pass, Logits, Confirmed]:
        """Evaluate the prompt; its own last row gives the first token without a pass of its own."""
        prompt, timings = self._tokens, self._timings
        timings.lap()
        evaluated = max(1, len(prompt) - self._models[Role.TARGET].common_prefix(prompt))
        try:
            logits = yield Pass(Role.TARGET, prompt, rows=1)
            token = self._chooser.choose(logits[0], prompt)
        finally:
            timings.add_prefill(Role.TARGET, evaluated)
        prompt.append(token)
        return Confirmed((token,), None)

    def _next_round(self) -> Generator[Pass, Logits, Confirmed]:
        if not self._begun:
            self._begun = True
            self._timings.start_decode()
            self._policy.begin(greedy=self._chooser.params.temperature == 0)
        done, spent = yield from self._planned_round()
        confirmed = _until_eog(done.confirmed, self._limits.eog)
        self._tokens += confirmed
        self._timings.mark_confirmed()
        self._policy.learn(done, spent)
        return Confirmed(confirmed, done)

    def _planned_round(self) -> Generator[Pass, Logits, tuple[Round, Spent]]:
        """Run one round as the policy plans it; return it and what it took."""
        tokens, timings, room = self._tokens, self._timings, self._end - len(self._tokens)
        draft_model, before = self._models.get(Role.DRAFT_MODEL), timings.stages()
        lag = 0 if draft_model is None else len(tokens) - draft_model.common_prefix(tokens)
        plan = self._policy.plan(tokens, room, lag)
        plan = replace(plan, draft_length=max(0, min(plan.draft_length, room - 1)))
        if plan.draft_prefill and plan.draft_length > 0 and draft_model is not None:
            left = 1 + plan.look_back
            yield from _prefill_draft(tokens[:-left], draft_model, timings)
        done = yield from timed(speculative_round(tokens, plan, self._chooser), timings)
        spent = (after - earlier for after, earlier in zip(timings.stages(), before, strict=True))
        return done, Spent(*spent)


def drive(
    prompt: Sequence[int],
    models: Mapping[Role, LanguageModel],
    policy: Policy,
    chooser: Chooser,
    limits: Limits,
    timings: Timings,
) -> Generator[Confirmed, None, StopReason]:
    """Generate after `prompt`, yielding what each round confirms, and return why it ended.

    Args are those of `Generation`; the passes are made by `models`, one after the other.
    """
    generation = Generation(prompt, models, policy, chooser, limits, timings)
    while (confirmed := serve(generation.advance(), models)) is not None:
        yield confirmed
    assert generation.stop_reason is not None, "it has ended"  # noqa: S101
    return generation.stop_reason


def _prefill_draft(
    tokens: Sequence[int], draft_model: LanguageModel, timings: Timings
) -> Generator[Pass, Logits, None]:
    """Evaluate what the draft model has to know before it can propose."""
    # Nothing is proposed beyond a draft model's context, nor after an id that it has not.
    known = next((i for i, t in enumerate(tokens) if t >= draft_model.n_vocab), len(tokens))
    timings.lap()
    end = min(known, draft_model.n_ctx - 1)
    try:
        yield Pass(Role.DRAFT_MODEL, tokens[:end], rows=0)
    finally:
        timings.add_prefill(Role.DRAFT_MODEL, 0)


def _until_eog(tokens: tuple[int, ...], eog: Collection[int]) -> tuple[int, ...]:
    for index, token in enumerate(tokens):
        if token in eog:
            return tokens[: index + 1]
    return tokens
