"""Generation: one sequence, from prompt to stop, round after round.

It asks for passes and makes none itself, and knows neither llama.cpp nor text nor time: the
target, the policy and the clock are handed in.
"""

from collections.abc import Callable, Collection, Generator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from localspec.decoding.cancel import Cancelled
from localspec.decoding.choose import Chooser
from localspec.decoding.model import LanguageModel, Logits, Pass, Passed, Role
from localspec.decoding.policy import Policy
from localspec.decoding.round import PROMPT, Draft, Round, Spent, StopReason, Verdict
from localspec.decoding.speculative import speculative_round

_LONGEST = 128
_LEAST_REPEATED = 48
_TIMES = 3


class LoopGuard:
    """Watches a text grow.

    A loop is a cycle of up to 128 tokens that is said once and then three times more, and for 48 tokens more at least.
    """

    def __init__(self) -> None:
        self._tokens: list[int] = []
        # How many of the last tokens are each the same as the one that is so many before it.
        self._repeated = [0] * (_LONGEST + 1)

    def feed(self, token: int) -> bool:
        """Take the next token, and return whether it makes a loop whole."""
        tokens, repeated = self._tokens, self._repeated
        looped = False
        for cycle in range(1, min(_LONGEST, len(tokens)) + 1):
            if tokens[-cycle] == token:
                repeated[cycle] += 1
                looped = looped or repeated[cycle] >= max(_TIMES * cycle, _LEAST_REPEATED)
            else:
                repeated[cycle] = 0
        tokens.append(token)
        return looped


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Limits:
    """Where a generation ends.

    Args:
        max_tokens: most tokens to generate, 0 or more; None leaves only the context as a limit.
        eog: ids that end it; the first of them is the last token that is handed out.
        stop_loops: whether it ends where it goes round in circles.
    """

    max_tokens: int | None
    eog: Collection[int]
    stop_loops: bool = False


class Generation:
    """One sequence, round after round.

    The prompt is evaluated in the same chunks whatever is drafted afterwards: cached keys and
    values carry the width that computed them.

    Args:
        prompt: token ids, at least one and fewer than the target's `n_ctx`.
        target: the target's sequence; asked for nothing but its size and what it has cached.
        policy: plans every round.
        chooser: fixes every choice.
        limits: where to end.
        clock: seconds, monotonic.

    Attributes:
        stop_reason: why it ended; None before it has.
        prefill_tokens: tokens of the prompt that were neither cached nor copied from another sequence.
        prefill_s: evaluating them, and choosing the first token.
        decode_s: from the end of prefill to the last confirmed token.
    """

    def __init__(
        self,
        prompt: Sequence[int],
        target: LanguageModel,
        policy: Policy,
        chooser: Chooser,
        limits: Limits,
        clock: Callable[[], float],
    ) -> None:
        self._tokens = list(prompt)
        self._n_prompt = len(prompt)
        self._target = target
        self._policy = policy
        self._chooser = chooser
        self._limits = limits
        self._clock = clock
        most = limits.max_tokens
        self._end = target.n_ctx if most is None else min(self._n_prompt + most, target.n_ctx)
        self._loops = LoopGuard() if limits.stop_loops else None
        self._looped = False
        self._decoding_since: float | None = None
        self._round_ended = 0.0
        self.stop_reason: StopReason | None = None
        self.prefill_tokens = 0
        self.prefill_s = self.decode_s = 0.0

    def advance(self) -> Generator[Pass, Passed, Round | None]:
        """Return the first token's round, then one round after the other; None at the end."""
        try:
            self.stop_reason = self._ended()
            if self.stop_reason is not None:
                return None
            if len(self._tokens) == self._n_prompt:
                return (yield from self._first_token())
            return (yield from self._next_round())
        except Cancelled:
            self.stop_reason = StopReason.CANCELLED
            return None

    def _ended(self) -> StopReason | None:
        generated = len(self._tokens) - self._n_prompt
        if generated and self._tokens[-1] in self._limits.eog:
            return StopReason.EOG
        if self._looped:
            return StopReason.LOOP
        if len(self._tokens) < self._end:
            return None
        return (
            StopReason.LENGTH if generated == self._limits.max_tokens else StopReason.CONTEXT_FULL
        )

    def _first_token(self) -> Generator[Pass, Passed, Round]:
        """Evaluate the prompt; its own last row gives the first token without a pass of its own."""
        prompt, start = self._tokens, self._clock()
        self.prefill_tokens = max(1, len(prompt) - self._target.common_prefix(prompt))
        stages = _Stages(self._clock)
        try:
            passed = yield Pass(Role.TARGET, prompt, rows=1)
        except Cancelled:
            self.prefill_s = self._clock() - start
            raise
        self.prefill_tokens = passed.evaluated
        stages.count(Role.TARGET, 1, passed)
        choosing = self._clock()
        token = self._chooser.choose(passed.logits[0], prompt)
        stages.sample_s += self._clock() - choosing
        spent = stages.spent()
        self.prefill_s = spent.round_s
        prompt.append(*self._until_loop((token,)))
        return Round(Draft(drafter=PROMPT), Verdict(0, token), (token,), spent)

    def _next_round(self) -> Generator[Pass, Passed, Round]:
        if self._decoding_since is None:
            self._policy.begin(self._tokens, self._chooser)
            self._decoding_since = self._round_ended = self._clock()
        tokens, room = self._tokens, self._end - len(self._tokens)
        plan = self._policy.plan(tokens, room)
        if not 0 <= plan.draft_length < room:
            plan = replace(plan, draft_length=max(0, min(plan.draft_length, room - 1)))
        stages = _Stages(self._clock)
        asking = speculative_round(tokens, plan, self._chooser)
        draft, verdict = yield from stages.timed(asking)
        accepted = draft.tokens[: verdict.accepted]
        confirmed = self._until_loop(_until_eog((*accepted, *verdict.choices), self._limits.eog))
        self._tokens += confirmed
        before, self._round_ended = self._round_ended, self._clock()
        self.decode_s = self._round_ended - self._decoding_since
        done = Round(draft, verdict, confirmed, stages.spent(self._round_ended - before))
        self._policy.learn(done)
        return done

    def _until_loop(self, tokens: tuple[int, ...]) -> tuple[int, ...]:
        for index, token in enumerate(tokens):
            if self._loops is not None and self._loops.feed(token):
                self._looped = True
                return tokens[: index + 1]
        return tokens


class _Stages:
    """Where the time of one round goes."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.draft_prefill_s = self.draft_s = self.verify_s = self.sample_s = 0.0
        self._truncate_s = self._waited_s = 0.0

    def timed(self, asking: Generator[Pass, Logits, T]) -> Generator[Pass, Passed, T]:
        """Ask for the passes of one round, and count each of them and what lies between."""
        start = self._clock()
        request = next(asking)
        self.draft_s += self._clock() - start  # looking up
        while True:
            passed = yield request
            self.count(request.role, request.rows, passed)
            start = self._clock()
            try:
                request = asking.send(passed.logits)
            except StopIteration as finished:
                value: T = finished.value
                return value
            finally:
                self.sample_s += self._clock() - start

    def count(self, role: Role, rows: int, passed: Passed) -> None:
        """Count a pass; one of the draft model without rows is a prefill."""
        if role is Role.TARGET:
            self.verify_s += passed.seconds
        elif rows:
            self.draft_s += passed.seconds
        else:
            self.draft_prefill_s += passed.seconds
        self._truncate_s += passed.truncate_s
        self._waited_s += passed.waited_s
        self.sample_s += passed.more_s

    def spent(self, wall_s: float | None = None) -> Spent:
        """Return the stages; what of `wall_s` is in none of them, nor other sequences', is other."""
        stages = (self.draft_prefill_s, self.draft_s, self.verify_s, self.sample_s)
        other_s = 0.0
        if wall_s is not None:
            other_s = max(0.0, wall_s - sum(stages) - self._truncate_s - self._waited_s)
        return Spent(*stages, self._truncate_s, other_s)


def _until_eog(tokens: tuple[int, ...], eog: Collection[int]) -> tuple[int, ...]:
    for index, token in enumerate(tokens):
        if token in eog:
            return tokens[: index + 1]
    return tokens
