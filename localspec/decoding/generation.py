"""Generation: one sequence, from prompt to stop, round after round.

It asks for passes and makes none itself, and knows neither llama.cpp nor text nor time: the
target, the policy and the clock are handed in.
"""

from collections.abc import Callable, Collection, Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from localspec.decoding.cancel import Cancelled
from localspec.decoding.choose import Chooser
from localspec.decoding.drafters.drafter import PLAIN, Plan
from localspec.decoding.model import LanguageModel, Logits, Pass, Passed, Role
from localspec.decoding.policy import Policy
from localspec.decoding.round import PROMPT, Draft, Round, Spent, StopReason
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
            repeated[cycle] = repeated[cycle] + 1 if tokens[-cycle] == token else 0
            looped = looped or repeated[cycle] >= max(_TIMES * cycle, _LEAST_REPEATED)
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


@dataclass(eq=False)
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

    prompt: Sequence[int]
    target: LanguageModel
    policy: Policy
    chooser: Chooser
    limits: Limits
    clock: Callable[[], float]
    stop_reason: StopReason | None = field(default=None, init=False)
    prefill_tokens: int = field(default=0, init=False)
    prefill_s: float = field(default=0.0, init=False)
    decode_s: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self._tokens = list(self.prompt)
        most, n_ctx = self.limits.max_tokens, self.target.n_ctx
        self._end = n_ctx if most is None else min(len(self.prompt) + most, n_ctx)
        self._loops = LoopGuard() if self.limits.stop_loops else None
        self._looped = False
        self._decoding_since: float | None = None
        self._round_ended = 0.0

    def advance(self) -> Generator[Pass, Passed, Round | None]:
        """Return the first token's round, then one round after the other; None at the end.

        The first is a plain one: the prompt's own last row gives its token without a pass of its own.
        """
        self.stop_reason = self._ended()
        if self.stop_reason is not None:
            return None
        tokens, stages = self._tokens, _Stages(self.clock)
        if len(tokens) == len(self.prompt):
            self._round_ended, plan = self.clock(), PLAIN
            self.prefill_tokens = max(1, len(tokens) - self.target.common_prefix(tokens))
        else:
            plan = self._plan()
        try:
            draft, verdict = yield from stages.timed(speculative_round(tokens, plan, self.chooser))
        except Cancelled:
            self.stop_reason = StopReason.CANCELLED
            self.prefill_s = self.prefill_s or self.clock() - self._round_ended
            return None
        confirmed = self._until_end((*draft.tokens[: verdict.accepted], *verdict.choices))
        self._tokens += confirmed
        if self._decoding_since is None:
            spent, self.prefill_tokens = stages.spent(), stages.evaluated
            self.prefill_s = spent.round_s
            return Round(Draft(drafter=PROMPT), verdict, confirmed, spent)
        before, self._round_ended = self._round_ended, self.clock()
        self.decode_s = self._round_ended - self._decoding_since
        done = Round(draft, verdict, confirmed, stages.spent(self._round_ended - before))
        self.policy.learn(done)
        return done

    def _ended(self) -> StopReason | None:
        generated = len(self._tokens) - len(self.prompt)
        if generated and self._tokens[-1] in self.limits.eog:
            return StopReason.EOG
        if self._looped:
            return StopReason.LOOP
        if len(self._tokens) < self._end:
            return None
        full = generated != self.limits.max_tokens
        return StopReason.CONTEXT_FULL if full else StopReason.LENGTH

    def _plan(self) -> Plan:
        """Return what the policy plans, as far as there is room."""
        tokens, room = self._tokens, self._end - len(self._tokens)
        if self._decoding_since is None:
            self.policy.begin(tokens, self.chooser)
            self._decoding_since = self._round_ended = self.clock()
        plan = self.policy.plan(tokens, room)
        if 0 <= plan.draft_length < room:
            return plan
        return replace(plan, draft_length=max(0, min(plan.draft_length, room - 1)))

    def _until_end(self, tokens: tuple[int, ...]) -> tuple[int, ...]:
        """Return the tokens up to the one that ends the generation."""
        for index, token in enumerate(tokens):
            self._looped = self._loops is not None and self._loops.feed(token)
            if self._looped or token in self.limits.eog:
                return tokens[: index + 1]
        return tokens


class _Stages:
    """Where the time of one round goes."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._draft_prefill_s = self._draft_s = self._verify_s = self._sample_s = 0.0
        self._truncate_s = self._waited_s = 0.0
        self.evaluated = 0

    def timed(self, passes: Generator[Pass, Logits, T]) -> Generator[Pass, Passed, T]:
        """Request the passes of one round, and count each of them and what lies between."""
        start = self._clock()
        request = next(passes)
        self._draft_s += self._clock() - start  # looking up
        while True:
            passed = yield request
            if request.role is Role.TARGET:
                self._verify_s += passed.seconds
                self.evaluated = passed.evaluated
            elif request.rows:
                self._draft_s += passed.seconds
            else:
                self._draft_prefill_s += passed.seconds
            self._truncate_s += passed.truncate_s
            self._waited_s += passed.waited_s
            self._sample_s += passed.more_s
            start = self._clock()
            try:
                request = passes.send(passed.logits)
            except StopIteration as finished:
                value: T = finished.value
                return value
            finally:
                self._sample_s += self._clock() - start

    def spent(self, wall_s: float = 0.0) -> Spent:
        """Return the stages; what of `wall_s` is in none of them, nor other sequences', is other."""
        stages = (self._draft_prefill_s, self._draft_s, self._verify_s, self._sample_s)
        own_s = sum(stages) + self._truncate_s + self._waited_s
        return Spent(*stages, self._truncate_s, max(0.0, wall_s - own_s))
