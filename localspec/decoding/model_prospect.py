"""ModelProspect: what the draft model promises, learnt from the rounds that it drafted."""

from bisect import bisect
from collections.abc import Callable, Mapping
from dataclasses import replace

from localspec.decoding.costs import PassCosts
from localspec.decoding.drafter import Draft, NoDrafter
from localspec.decoding.hit_rates import HitRates
from localspec.decoding.model_drafter import ModelDrafter
from localspec.decoding.pacing import Pacing
from localspec.decoding.policy import Plan
from localspec.decoding.round import Round, Spent
from localspec.decoding.running_costs import RunningCosts
from localspec.decoding.tries import Tries, own_of

# Counted over 100 answers of a real pair, by the gap's bucket: docs/measurements/drafting-policy.md.
_GAPS = (0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0)
_GREEDY = (0.35, 0.41, 0.53, 0.73, 0.89, 0.96, 0.985, 0.99, 0.995, 0.995)
_SAMPLED = (0.30, 0.43, 0.50, 0.66, 0.76, 0.85, 0.92, 0.93, 0.95, 0.98)
_GAP_WEIGHT, _GAP_MEMORY, _GAP_DRIFT = 30.0, 60.0, 0.15
_MOST_EARNED = 300.0
"""Tokens that what was earned in earlier conversations counts as at most."""
_KNOWN, _GOOD = 50.0, 0.6
"""Tokens of earlier conversations, and the share of them accepted, that need not be shown again."""
_OFTEN = (0.06, 0.05, 0.09, 0.12, 0.09, 0.08, 0.11, 0.11, 0.22, 0.07)
"""How often each gap comes up at first; followed as `_OFTEN_MEMORY` tokens show."""
_OFTEN_MEMORY = 64.0
_SMALL_LAG = 16
"""Tokens up to which catching up is a part of the round, and not a prefill."""
_HORIZON = 128
"""Tokens over which evaluating a long text with the draft model has to pay."""
_TRIES_LEAVE = 7.5
"""Plain steps that are not spent on trying again, so that copying can still afford a round."""
_WORTH_GOING_ON = 1.0
"""What a draft model that is being asked has to yield: what it costs to stop is to miss a change."""
_EXPECTED_YIELD, _EXPECTED_STEPS = 1.35, 8.0
"""What a try is expected to yield, and how many plain steps of evidence that is worth."""
_ROUNDS = 32
"""Rounds after which a yield of the past counts 1/e."""


class ModelProspect:
    """How likely the target agrees with the draft model, and what asking it costs.

    Args:
        drafter: proposes.
        costs: of the draft model's passes.
    """

    def __init__(self, drafter: ModelDrafter, costs: PassCosts) -> None:
        self._drafter = drafter
        self._costs = RunningCosts(costs)
        self._by_gap = {
            greedy: HitRates(dict(enumerate(prior)), _GAP_WEIGHT, _GAP_MEMORY, _GAP_DRIFT)
            for greedy, prior in ((True, _GREEDY), (False, _SAMPLED))
        }
        self._often = {greedy: list(_OFTEN) for greedy in (True, False)}
        self._greedy = True
        self._tries = Tries()
        self._late_s = 0.0
        self._seen = False
        self._look_back: tuple[bool, ...] = ()
        self._tokens = self._steps = 0.0
        self._start_afresh()

    @property
    def name(self) -> str:
        """The drafter's name."""
        return self._drafter.name

    def expect(self, earned: Mapping[int, tuple[float, float]], *, greedy: bool) -> None:
        """Start from what drafts earned before on text of this kind.

        Args:
            earned: by bucket of the gap, the share that was accepted, and how many tokens say so.
            greedy: whether that was at temperature 0.
        """
        usual = dict(enumerate(_GREEDY if greedy else _SAMPLED))
        for bucket, (rate, tokens) in earned.items():
            weight = min(tokens, _MOST_EARNED)
            usual[bucket] = (_GAP_WEIGHT * usual[bucket] + weight * rate) / (_GAP_WEIGHT + weight)
        self._by_gap[greedy].expect(usual)
        tokens = sum(count for _, count in earned.values())
        if sum(rate * count for rate, count in earned.values()) > _GOOD * max(tokens, _KNOWN):
            self._tries.prove()

    def begin(self, *, greedy: bool) -> None:
        """Start a reply."""
        self._greedy = greedy
        self._tries.begin()

    def plan(
        self,
        most: int,
        lag: int,
        plain_s: float,
        verify_s: Callable[[int], float],
        affordable_s: float,
    ) -> tuple[float, Plan]:
        """Return the tokens per second that a round promises, and the plan for it.

        Args:
            most: longest draft.
            lag: tokens that the draft model has not evaluated.
            plain_s: seconds of a plain round.
            verify_s: seconds of a target pass by the number of drafted tokens.
            affordable_s: longest round that may be planned.
        """
        step_s = self._costs.of(1)
        self._late_s = self._costs.of(max(1, lag)) - step_s
        # A table may be wrong; before the first pass here says so, three times as much is allowed for.
        caution = 1.0 if self._seen else 3.0
        if self._tries.failed:
            affordable_s -= _TRIES_LEAVE * plain_s
        length = max(
            (
                k
                for k in range(1, most + 1)
                if verify_s(k) + caution * (k * step_s + self._late_s) <= affordable_s
            ),
            default=0,
        )
        look_back = self._tries.look_back(lag)
        if length == 0 or look_back is None:
            return 0.0, Plan(NoDrafter(), 0)
        self._look_back = look_back
        if look_back:
            self._start_afresh()
        rate = self._tokens / self._steps / plain_s
        pacing = Pacing(
            longest=length,
            chance_of=self._chance,
            usual=self._usual(),
            step_s=step_s,
            verify_s=verify_s,
            rate=max(rate, 1 / plain_s),
            compared=look_back,
        )
        # A long text is evaluated once, and has to pay over many rounds.
        spread_s = self._late_s / _HORIZON if lag > _SMALL_LAG else 0.0
        drafter = replace(self._drafter, stopping=pacing)
        return rate / (1 + rate * spread_s), Plan(drafter, length, lag > _SMALL_LAG, len(look_back))

    def pass_over(self, copied: int) -> None:
        """Count a round without the draft model, which confirmed so many tokens before the target's own."""
        self._tries.pass_over(copied)

    def foreseen_s(self, draft: Draft) -> float:
        """Return the seconds that a draft should have taken."""
        passes = max(len(draft.tokens) + len(draft.withheld), bool(draft.hindsight))
        return self._late_s + passes * self._costs.of(1)

    def learn(self, done: Round, spent: Spent, steps: float) -> None:
        """Take in what became of a draft of this drafter.

        Args:
            done: the round.
            spent: what it took.
            steps: the same in plain steps.
        """
        self._seen = True
        draft, accepted = done.draft, done.verdict.accepted
        compared = own_of(draft.hindsight, self._look_back)
        for each in compared:
            self._see(bisect(_GAPS, each.gap), hit=each.hit)
        self._tries.settle(steps - (accepted + 1))
        if not self._tries.proven:
            if not (draft.tokens or draft.withheld):
                self._tries.fail(blind=not any(each.hit for each in compared))
                return
            self._tries.prove()  # what it took to find that out does not count against it
        hits = [True] * accepted
        if accepted < len(draft.tokens):
            hits.append(False)
        elif draft.withheld:
            hits.append(draft.withheld[0] == done.verdict.next_token)
        for gap, hit in zip(draft.gaps, hits, strict=False):
            self._see(bisect(_GAPS, gap), hit=hit)
        late_s = 0.0 if spent.draft_prefill_s else self._late_s
        passes = len(draft.tokens) + len(draft.withheld)
        if passes and not draft.hindsight:
            self._costs.add(1, (spent.draft_s - late_s) / passes)
        kept = 1 - 1 / _ROUNDS
        self._tokens = self._tokens * kept + accepted + 1
        share = 1 - spent.draft_prefill_s / spent.total_s
        self._steps = self._steps * kept + steps * share
        if self._tokens < self._steps * _WORTH_GOING_ON:
            self._tries.fail()

    def _see(self, bucket: int, *, hit: bool) -> None:
        """Take in what became of one token."""
        self._by_gap[self._greedy].add(bucket, hit=hit)
        often = self._often[self._greedy]
        for each in range(len(often)):
            often[each] += ((each == bucket) - often[each]) / _OFTEN_MEMORY

    def _usual(self) -> float:
        """Return the chance of a token that is not drafted yet, as the text is now."""
        often, rates = self._often[self._greedy], self._by_gap[self._greedy]
        return sum(share * rates.chance(bucket) for bucket, share in enumerate(often))

    def _chance(self, gap: float) -> float:
        """Return the chance that a token is accepted, by the gap that it was chosen with."""
        return self._by_gap[self._greedy].chance(bisect(_GAPS, gap))

    def _start_afresh(self) -> None:
        """Expect what makes a try worth while, and let a few rounds correct it."""
        self._by_gap[self._greedy].hope()
        self._steps = _EXPECTED_STEPS
        self._tokens = _EXPECTED_STEPS * _EXPECTED_YIELD
