"""Policy: which drafter, and how far, round by round. Nothing here can change the text, only the speed."""

from bisect import bisect
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from math import inf
from typing import Protocol

from localspec.decoding.choose import Chooser
from localspec.decoding.costs import PassCosts, RunningCosts, shared_s
from localspec.decoding.drafters.draft_length import best_length
from localspec.decoding.drafters.drafter import PLAIN, Drafter, DraftForecast, Plan
from localspec.decoding.round import Round

LONGEST_DRAFT = 31
"""Wider passes gain next to nothing, and their logits take memory."""
MOST_LOST, OVER_TOKENS = 14.2, 500
"""Plain steps that drafting may lose over so many tokens: 2.8 % of them."""
_DISTURBED = 1.4
"""How many times what was foreseen a round counts at most: what takes the machine for a moment is no fault of the draft."""
_SAMPLE_MEMORY = 8
_EXPECTED, _EXPECTED_STEPS = 1.5, 12.0
"""Tokens that a plain step of a first try is expected to yield, and how many steps of evidence that is worth."""
_ROUNDS = 32
"""Rounds after which a yield of the past counts 1/e."""
_CHECKED = 6
"""Plain rounds before a draft model's first try: they show what passes take now."""
_OLD = 64
"""Tokens without a plain round after which a reply begins with plain rounds again."""
_MOST_LATE = 4.0
"""Plain steps that a draft model may take to catch up with a text: one that takes longer is too slow to pay."""
_MOST_WAIT = 1.0
"""Plain steps that a round may wait for what somebody else drafts."""
_WORTH_A_TRY = 1.1
"""Tokens that a copied draft has to promise for each plain step that it takes: one that breaks off early has lost all of a wide pass."""
_FRUITLESS = 5
"""Rounds in a row without any accepted token after which a drafter pauses: the text has changed."""
_PAUSE, _MOST_FAILURES = 8, 6
"""Tokens of a pause for each plain step that was lost; doubled with every failure, so often at most."""
_BORNE = 0.02
"""Of the time of a sequence that does not draft, what drafts of others may take; answers are to keep 97 % of their speed."""
_MOST_BORNE = 4.0
"""Plain rounds that are remembered of what a sequence may still lose, or has lost."""
_SHARING_MEMORY, _SELDOM = 4, 0.2
"""Rounds after which what one did counts 1/e; and the share of them in which one drafts that bears drafts of others as its own."""
_AT_BEST = tuple(accumulate(0.9**place for place in range(LONGEST_DRAFT + 1)))
"""Tokens by the length of a draft, on text that a draft model knows well: where not even those would pay, none is drafted."""


class Policy(Protocol):
    """Decides before each round of one sequence, and may learn from every one."""

    @property
    def name(self) -> str:
        """One word for figures and screens: what it may draft with."""

    def begin(self, tokens: Sequence[int], chooser: Chooser) -> None:
        """Start a reply; what was learnt from earlier ones may be kept.

        Args:
            tokens: the prompt and the reply's first token.
            chooser: fixes every choice of the reply.
        """

    def plan(self, tokens: Sequence[int], room: int) -> Plan:
        """Plan a round, without side effects.

        Args:
            tokens: confirmed so far, prompt included; within a reply they only grow.
            room: most tokens that the round may confirm.
        """

    def learn(self, done: Round) -> None:
        """Take in what came of the round that was planned last."""

    def end(self) -> None:
        """End a reply, however it ended."""


class Budget:
    """Time that drafting may still lose against plain decoding, in plain steps.

    Rounds that gain refill it and rounds that lose draw on it. A round is allowed only while the
    budget covers its worst outcome; so over no `window` tokens, wherever they begin, does drafting
    lose more than `limit` steps, as far as costs are foreseen, and what was lost is forgiven when so many tokens have gone by.

    Args:
        limit: most steps that may be lost.
        window: tokens over which that holds.
    """

    def __init__(self, limit: float, window: int) -> None:
        self._limit = limit
        self._window = window
        self._tokens = 0
        self._gained = 0.0
        # What had been gained at each token of the window, as far as no later one had gained more.
        self._peaks = deque([(0, 0.0)])

    @property
    def left(self) -> float:
        """Steps that may be lost from here on."""
        return self._limit - (self._peaks[0][1] - self._gained)

    def settle(self, confirmed: int, steps: float) -> None:
        """Count a round.

        Args:
            confirmed: tokens that it confirmed, each worth a plain step.
            steps: what it took, in plain steps.
        """
        self._tokens += confirmed
        self._gained += confirmed - steps
        while self._peaks and self._peaks[-1][1] <= self._gained:
            self._peaks.pop()
        self._peaks.append((self._tokens, self._gained))
        while self._peaks[0][0] < self._tokens - self._window:
            self._peaks.popleft()


@dataclass(slots=True)
class _Sequence:
    """One that is answering; shares are of its last rounds."""

    able: float = 0.0
    drafts: float = 0.0
    left: float = 0.0  # plain rounds that drafts of others may still take of its time
    taken: float = 0.0  # by all drafts, as of its last round


class Sharing:
    """The sequences that share passes now, by their slots.

    A draft lengthens the pass of all. Those that draft themselves are not asked; from another one, drafts take a small share of its
    time, beyond what its own gained.
    """

    def __init__(self) -> None:
        self._running = dict[int, _Sequence]()
        self._taken = 0.0

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._running)

    def begin(self, slot: int, *, drafts: bool = False) -> None:
        """Let one share passes.

        Args:
            slot: its slot.
            drafts: whether it drafts whatever that costs.
        """
        self._running[slot] = _Sequence(float(drafts), float(drafts), taken=self._taken)

    def end(self, slot: int) -> None:
        """Let one share passes no more."""
        self._running.pop(slot, None)

    def able(self, slot: int) -> float:
        """Return how many are expected to have something to draft, this one among them."""
        return 1 + sum(each.able for each in self._others(slot))

    def drafting(self, slot: int) -> float:
        """Return how many are expected to draft, this one among them."""
        return 1 + sum(each.drafts for each in self._others(slot))

    def bearable(self, slot: int) -> float:
        """Return the plain rounds that a draft of one may take of the others' time."""
        asked = (each.left for each in self._others(slot) if each.drafts < _SELDOM)
        return min(asked, default=inf)

    def settle(
        self,
        slot: int,
        confirmed: int,
        rounds: float = 0.0,
        drafts: tuple[bool, bool] | None = None,
    ) -> None:
        """Count a round of one.

        Args:
            slot: its slot.
            confirmed: tokens that it confirmed.
            rounds: what its draft took of everybody's time, in plain rounds.
            drafts: whether it had something to draft, and whether that was found to pay if all drafted that are able to; None
                where that does not change.
        """
        if (one := self._running.get(slot)) is None:
            return
        self._taken += rounds
        gained = confirmed - 1 + _BORNE - (self._taken - one.taken)
        one.left = min(max(one.left + gained, -_MOST_BORNE), _MOST_BORNE)
        one.taken = self._taken
        if drafts is not None:
            one.able += (drafts[0] - one.able) / _SHARING_MEMORY
            one.drafts += (drafts[1] - one.drafts) / _SHARING_MEMORY

    def _others(self, slot: int) -> list[_Sequence]:
        return [each for other, each in self._running.items() if other != slot]


class DraftLedger:
    """What the drafts of one drafter earned, and when it is tried again after they did not pay.

    Args:
        expected: tokens that a plain step of a try yields, before it shows.
    """

    def __init__(self, expected: float) -> None:
        self.gained, self._expected = 0.0, expected
        self.failures = self.pause = 0
        self._start()

    def _start(self) -> None:
        self.rounds = self._fruitless = 0
        self._lost = 0.0
        self.tokens, self.steps = self._expected * _EXPECTED_STEPS, _EXPECTED_STEPS

    def begin(self) -> None:
        """Start a reply: it may be of a kind that drafts better."""
        self.gained = 0.0
        self.failures = min(self.failures, 1)
        self.pause = min(self.pause, 2 * _PAUSE)

    def settle(self, confirmed: int, steps: float) -> None:
        """Count a round whose draft took passes; pause if they do not pay any more."""
        decay = 1 - 1 / _ROUNDS
        self.rounds += 1
        self.tokens = self.tokens * decay + confirmed
        self.steps = self.steps * decay + steps
        self._lost += steps - confirmed
        self._fruitless = self._fruitless + 1 if confirmed == 1 else 0
        if self.tokens < self.steps or self._fruitless >= _FRUITLESS:
            self.failures = 0 if self._lost < 0 else self.failures
            self.pause = int(_PAUSE * max(1.0, self._lost)) << self.failures
            self.failures = min(self.failures + 1, _MOST_FAILURES)
            self._start()


@dataclass(eq=False)
class AdaptivePolicy:
    """Chooses drafter and draft length before every round, as far as it pays; 0 is plain decoding.

    Compares plain decoding with what each drafter forecasts, by expected confirmed tokens and measured seconds, and
    takes the best that the budget can bear.

    Args:
        target: costs of the target's passes.
        longest: most tokens of a draft.
        drafters: of equal rates the first is taken.
        branches: most second choices that a pass may verify beside a draft.
        sharing: the sequences that share passes now, this one among them while it answers.
        slot: of this sequence.
        best_yield: tokens that a plain step's time of draft passes yields at best: no try is expected to yield more.
    """

    target: PassCosts
    longest: int
    drafters: Sequence[Drafter]
    branches: int = 0
    sharing: Sharing = field(default_factory=Sharing)
    slot: int = 0
    best_yield: float = inf
    name = "auto"

    def __post_init__(self) -> None:
        self._costs = RunningCosts(self.target)
        self._ledgers = {
            each.name: DraftLedger(min(_EXPECTED, self.best_yield)) for each in self.drafters
        }
        self._budget = Budget(MOST_LOST, OVER_TOKENS)
        self._sample_s = 0.0
        self._planned, self._verified_s, self._drafts = PLAIN, [0.0], (False, False)
        # Tokens that the next pass evaluates again: an accepted branch, which the cache does not keep.
        self._again = self._checked = self._since_plain = 0

    def begin(self, tokens: Sequence[int], chooser: Chooser) -> None:
        """Start a reply: what was learnt is kept, the text is another, and its first passes check the costs.

        Where no plain round was made for long, the first one asks no draft model: wide passes cannot tell its price.
        """
        self._again, self._budget = 0, Budget(MOST_LOST, OVER_TOKENS)
        if self._since_plain > _OLD:
            self._checked = min(self._checked, _CHECKED - 1)
        self.sharing.begin(self.slot)
        self._costs.check()
        for ledger in self._ledgers.values():
            ledger.begin()
        for drafter in self.drafters:
            drafter.begin(tokens, chooser)

    def plan(self, tokens: Sequence[int], room: int) -> Plan:
        """Plan the round that promises most; see `Policy`."""
        self._planned, self._drafts = PLAIN, (False, False)
        most = min(room - 1, self.longest - self._again)
        if most <= 0:
            return PLAIN
        forecasts, sharing, bearable = self._forecasts(tokens), self.sharing, inf
        drafting = 1.0
        if self._shares:
            self._verified_s = self._verify_s(most, drafting=sharing.able(self.slot))
            wants = self._best(forecasts, bearable).draft_length > 0
            self._drafts = bool(forecasts), wants
            if not wants:
                return PLAIN
            drafting = sharing.drafting(self.slot)
            bearable = len(sharing) * sharing.bearable(self.slot)
        self._verified_s = self._verify_s(most, self._again, drafting)
        self._planned = self._best(forecasts, bearable)
        return self._planned

    def _forecasts(self, tokens: Sequence[int]) -> list[tuple[Drafter, DraftForecast]]:
        """Return what the drafters expect that do not pause."""
        able = [each for each in self.drafters if self._ledgers[each.name].pause <= 0]
        forecasts = ((each, each.forecast(tokens)) for each in able)
        return [(drafter, forecast) for drafter, forecast in forecasts if forecast is not None]

    def _best(self, forecasts: Sequence[tuple[Drafter, DraftForecast]], bearable: float) -> Plan:
        """Return what promises most, of what takes no more plain steps than are bearable, in which the budget has a say, too."""
        verify_s = self._verified_s
        best, rate, left = PLAIN, 1 / verify_s[0], self._budget.left
        for drafter, forecast in forecasts:
            ledger = self._ledgers[drafter.name]
            reserved = max(0.0, drafter.reserve - max(0.0, ledger.gained))
            steps = 1 + min(left - reserved, bearable)
            affordable_s = steps * verify_s[0] - forecast.start_s
            if forecast.step_s:
                plan = self._growing(drafter, forecast, verify_s, affordable_s)
            else:
                plan = self._copied(drafter, forecast, affordable_s, bearable)
            if plan.rate > rate and plan.draft_length:
                best, rate = plan, plan.rate
        return best

    def _copied(
        self, drafter: Drafter, forecast: DraftForecast, affordable_s: float, bearable: float
    ) -> Plan:
        """Return how far to draft where that takes no pass; what has to be waited for, only where nobody waits who does not draft."""
        seconds = verify_s = self._verified_s
        if forecast.late_s:
            most_s = _MOST_WAIT * verify_s[0] if bearable == inf else 0.0
            most = bisect(forecast.late_s, most_s)
            pairs = zip(verify_s[1:], forecast.late_s[:most], strict=False)
            seconds = [verify_s[0], *(pass_s + late_s for pass_s, late_s in pairs)]
        length, rate = best_length(forecast.chances, seconds, affordable_s)
        if rate * seconds[0] <= _WORTH_A_TRY:
            return PLAIN
        if not (forecast.late_s and forecast.late_s[length - 1]):
            return Plan(drafter, length, rate, forecast)
        # What comes meanwhile may be more than that, or less.
        most = max(n for n, pass_s in enumerate(verify_s) if pass_s <= affordable_s)
        forecast = replace(forecast, late_s=forecast.late_s[:length])
        return Plan(drafter, most, rate, forecast, verify_s[: most + 1])

    def _growing(
        self, drafter: Drafter, forecast: DraftForecast, verify_s: list[float], affordable_s: float
    ) -> Plan:
        """Return how far a draft may grow, with what such drafts yielded lately; no draft where none could pay."""
        ledger, step_s, plain_s = self._ledgers[drafter.name], forecast.step_s, verify_s[0]
        ready = self._checked >= _CHECKED or self._shares
        if not ready or forecast.start_s > _MOST_LATE * plain_s:
            return PLAIN
        verify_s = verify_s[: len(forecast.chances) + 1]
        most = min(len(verify_s) - 1, 1 << min(ledger.rounds, 6))
        while most and verify_s[most] + forecast.passes(most) * step_s > affordable_s:
            most -= 1
        for length, pass_s in enumerate(verify_s):
            if length and _AT_BEST[length] * plain_s > pass_s + forecast.passes(length) * step_s:
                rate = ledger.tokens / ledger.steps / plain_s
                return Plan(drafter, most, rate, forecast, verify_s[: most + 1], self.branches)
        return PLAIN

    def learn(self, done: Round) -> None:
        """Take in what the round confirmed and cost."""
        draft, spent, confirmed, steps = done.draft, done.spent, done.verdict.confirmed, 1.0
        ledger, forecast, own = self._ledgers.get(draft.drafter), self._planned.forecast, 0.0
        for each in self._ledgers.values():
            each.pause -= confirmed
            if done.accepted and each is not ledger and each.rounds:
                each.gained = min(each.gained, 0.0)
        waited = forecast is not None and bool(forecast.late_s)
        if ledger is None or forecast is None or not (done.drafted or draft.passes or waited):
            self._since_plain = -confirmed
            self._sample_s += (spent.sample_s - self._sample_s) / _SAMPLE_MEMORY
        else:
            verify_s, shares = self._verified_s, self._shares
            plain_s = self._verify_s(0)[0] if self._again else verify_s[0]
            start_s = spent.draft_s if waited else forecast.start_s
            expected_s = verify_s[done.width - 1] + start_s + draft.passes * forecast.step_s
            took_s = expected_s if shares else spent.round_s + self._costs.return_s
            steps = min(max(took_s, expected_s / _DISTURBED), expected_s * _DISTURBED) / plain_s
            own = expected_s / verify_s[0] - 1
            ledger.gained += confirmed - steps
            if draft.passes:
                ledger.settle(confirmed, steps * (1 - spent.draft_prefill_s / spent.round_s))
        self._checked += not draft.passes
        self._since_plain += confirmed
        self._budget.settle(confirmed, steps)
        rounds = own / len(self.sharing) if self._shares else 0.0
        self.sharing.settle(self.slot, confirmed, rounds, self._drafts)
        if not self._shares:
            self._costs.add(done.width + self._again, spent.verify_s)
        self._again = int(done.verdict.branch is not None)
        for drafter in self.drafters:
            drafter.learn(done)

    def end(self) -> None:
        """End a reply: its passes are no longer shared."""
        self.sharing.end(self.slot)

    @property
    def _shares(self) -> bool:
        """Whether others share its passes, whose time is everybody's."""
        return len(self.sharing) > 1

    def _verify_s(self, most: int, again: int = 0, drafting: float = 1.0) -> list[float]:
        """Return the seconds of verifying up to so many drafted tokens, from 0 on, where so many draft that share passes."""
        if self._shares:
            others = len(self.sharing) - 1
            return shared_s(self.target, others, most + 1, self._sample_s, drafting)
        return self._costs.upto(most + 1, again, self._sample_s)


class FixedPolicy:
    """Always the same drafter and draft length.

    Args:
        drafter: proposes in every round.
        draft_length: how far.
        sharing: the sequences that share passes now.
        slot: of this sequence.
    """

    def __init__(
        self, drafter: Drafter, draft_length: int, sharing: Sharing | None = None, slot: int = 0
    ) -> None:
        self.drafter, self.name = drafter, drafter.name
        self._plan = Plan(drafter, draft_length)
        self._sharing, self._slot = Sharing() if sharing is None else sharing, slot

    def begin(self, tokens: Sequence[int], chooser: Chooser) -> None:
        """Start a reply."""
        self._sharing.begin(self._slot, drafts=self._plan.draft_length > 0)
        self.drafter.begin(tokens, chooser)

    def plan(self, tokens: Sequence[int], room: int) -> Plan:  # noqa: ARG002 - the protocol's signature
        """Plan the fixed length."""
        return self._plan

    def learn(self, done: Round) -> None:
        """Let the drafter follow the text."""
        self._sharing.settle(self._slot, done.verdict.confirmed)
        self.drafter.learn(done)

    def end(self) -> None:
        """End a reply: its passes are no longer shared."""
        self._sharing.end(self._slot)


def plain_policy(sharing: Sharing | None = None, slot: int = 0) -> FixedPolicy:
    """Return a policy that never drafts."""
    return FixedPolicy(PLAIN.drafter, 0, sharing, slot)
