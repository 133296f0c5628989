"""ModelDrafter: a small language model proposes, choosing under the target's own noise.

What it has evaluated, and how it catches up with a text, is its own business.
"""

from bisect import bisect
from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import replace

from localspec.decoding.choose import Chooser
from localspec.decoding.costs import PassCosts, RunningCosts
from localspec.decoding.drafters.backoff import DRAFT_ROWS, Backoff, own_of
from localspec.decoding.drafters.change import TextKinds
from localspec.decoding.drafters.drafter import Plan, Terms
from localspec.decoding.drafters.early_stopping import EarlyStopping
from localspec.decoding.drafters.estimator import Estimator
from localspec.decoding.drafters.growing_draft import GrowingDraft
from localspec.decoding.drafters.register import Material
from localspec.decoding.drafters.spelling import Spelling
from localspec.decoding.drafters.window import Window
from localspec.decoding.model import LanguageModel, Logits, Pass, Role
from localspec.decoding.round import GAPS, Draft, Round

# Counted over 100 answers of a real pair, by the gap's bucket: docs/measurements/drafting-policy.md.
_GREEDY = (0.35, 0.41, 0.53, 0.73, 0.89, 0.96, 0.985, 0.99, 0.995, 0.995)
_SAMPLED = (0.30, 0.43, 0.50, 0.66, 0.76, 0.85, 0.92, 0.93, 0.95, 0.98)
_GAP_WEIGHT, _GAP_MEMORY, _GAP_DRIFT = 30.0, 60.0, 0.15
_MOST_EARNED = 300.0
"""Tokens that what was earned in earlier conversations counts as at most."""
_KNOWN, _GOOD = 50.0, 0.6
"""Tokens of earlier conversations, and the share of them accepted, that need not be shown again."""
_OFTEN = (0.06, 0.05, 0.09, 0.12, 0.09, 0.08, 0.11, 0.11, 0.22, 0.07)
"""How often each gap comes up at first; followed as some 64 tokens show."""
_OFTEN_KEPT = 1 - 1 / 64
_SMALL_LAG = 16
"""Tokens up to which catching up is a part of the round, and not a prefill."""
_HORIZON = 128
"""Tokens over which evaluating a long text with the draft model has to pay."""
_TRIES_LEAVE, _EARNED_LEAVE = 7.5, 2.0
"""Plain steps that are not spent on trying again, so that copying can still afford a round; and where the draft model has earned them."""
_WORTH_GOING_ON = 1.0
"""What a draft model that is being asked has to yield: what it costs to stop is to miss a change."""
_EXPECTED_YIELD, _EXPECTED_STEPS = 1.5, 8.0
"""What a try is expected to yield, and how many plain steps of evidence that is worth."""
_SECOND_RIGHT, _SECOND_WEIGHT, _SECOND_MEMORY = 0.42, 30.0, 200.0
"""How often the second choice is right where the first is not, at first; as counted on a real pair."""
_ROUNDS = 32
"""Rounds after which a yield of the past counts 1/e."""


class ModelDrafter:
    """Proposes what the draft model would choose, one pass a token.

    Args:
        model: the draft model's sequence; only its sizes and what it has cached are asked for, the
            passes are made by whoever drives the round.
        spelling: what its ids mean to the target.
        eog: ids that end a generation; nothing useful follows them.
        costs: of the draft model's passes; None if they are not known, and nothing is promised.
        fresh: tokens of a long text that it starts with; None evaluates all that its context holds.
        most_rows: rows of logits that a pass of the draft model may ask for.
    """

    name = "model"
    shares_passes = True

    def __init__(
        self,
        model: LanguageModel,
        spelling: Spelling,
        eog: Collection[int],
        costs: PassCosts | None = None,
        fresh: int | None = None,
        most_rows: int = DRAFT_ROWS,
    ) -> None:
        self._window = Window(model, model.n_ctx if fresh is None else fresh)
        self._n_ctx = model.n_ctx
        self._spelling = spelling
        self._eog = eog
        # A window may begin with half of what a small context holds.
        self._most_rows = max(1, min(most_rows, model.n_ctx // 2))
        self._costs = None if costs is None else RunningCosts(costs)
        self._by_gap = {
            greedy: Estimator(dict(enumerate(prior)), _GAP_WEIGHT, _GAP_MEMORY, _GAP_DRIFT)
            for greedy, prior in ((True, _GREEDY), (False, _SAMPLED))
        }
        self._second_right = {
            greedy: Estimator({0: _SECOND_RIGHT}, _SECOND_WEIGHT, _SECOND_MEMORY)
            for greedy in (True, False)
        }
        self._often = {greedy: list(_OFTEN) for greedy in (True, False)}
        self._greedy = True
        self._backoff = Backoff()
        self._change = TextKinds()
        self._seen = False
        self._last: GrowingDraft | None = None
        self._stopping: EarlyStopping | None = None
        self._last_late_s = 0.0
        self._tokens = self._steps = 0.0
        self._start_afresh()

    def expect(self, earned: Mapping[int, tuple[float, float]], *, greedy: bool) -> None:
        """Start from what drafts earned before; see `StartsFromRecords`."""
        usual = dict(enumerate(_GREEDY if greedy else _SAMPLED))
        for bucket, (rate, tokens) in earned.items():
            weight = min(tokens, _MOST_EARNED)
            usual[bucket] = (_GAP_WEIGHT * usual[bucket] + weight * rate) / (_GAP_WEIGHT + weight)
        self._by_gap[greedy].expect(usual)
        tokens = sum(count for _, count in earned.values())
        if sum(rate * count for rate, count in earned.values()) > _GOOD * max(tokens, _KNOWN):
            self._backoff.prove()

    def begin(self, tokens: Sequence[int], chooser: Chooser) -> None:  # noqa: ARG002 - the protocol's signature
        """Start a reply; see `Drafter`."""
        self._greedy = chooser.greedy
        self._backoff.begin()
        self._spelling.begin()

    def promise(self, tokens: Sequence[int], terms: Terms) -> Plan | None:
        """Return how far to draft at most, by what drafts yielded lately; see `Drafter`."""
        if self._costs is None:
            return None
        read = self._read(tokens)
        if read is None:
            return None
        lag = self._window.lag(read)
        compared = self._backoff.look_back(lag)
        if compared is None:
            return None
        step_s, late_s = self._costs.of(1), self._late_s(lag)
        # A table may be wrong; before the first pass here says so, three times as much is allowed for.
        caution = 1.0 if self._seen else 3.0
        leave = _EARNED_LEAVE if self._backoff.earned else _TRIES_LEAVE
        budget = terms.budget - (leave if self._backoff.failed else 0.0)
        affordable_s = (1 + budget) * terms.plain_s
        length = next(
            k
            for k in range(terms.most, -1, -1)
            if k == 0 or terms.verify_s[k] + caution * (k * step_s + late_s) <= affordable_s
        )
        if length == 0:
            return None
        rate = self._yield(fresh=bool(compared)) / terms.plain_s
        stopping = EarlyStopping(
            usual=self._usual(),
            step_s=step_s,
            verify_s=terms.verify_s[: length + 1],
            rate=max(rate, 1 / terms.plain_s),
            compared=compared,
            branches=terms.branches,
            second_right=self._second_right[self._greedy].chance(0),
        )
        if compared and not self._seen and not stopping.could_begin:
            return None
        # A long text is evaluated once, and has to pay over many rounds.
        spread_s = late_s / _HORIZON if lag > _SMALL_LAG else 0.0
        return Plan(self, length, rate / (1 + rate * spread_s), stopping)

    def propose(
        self, tokens: Sequence[int], plan: Plan, chooser: Chooser
    ) -> Generator[Pass, Logits, Draft]:
        """Propose tokens; fewer if one of them ends the generation, or the next is not worth its pass."""
        self._stopping = stopping = plan.stopping
        read = self._read(tokens)
        visible, lag = ([], 0) if read is None else self._window.open(read)
        self._last_late_s = self._late_s(lag)
        if stopping is not None and stopping.compared:
            self._start_afresh()
            stopping = replace(stopping, usual=self._usual())
        places: list[tuple[int, int]] = []
        if visible and stopping is not None and stopping.compared:
            most_back = min(len(visible), self._most_rows) - 1
            stopping, places = self._look_back(tokens, stopping, most_back)
        room = self._n_ctx - len(visible) if visible else 0
        most = plan.draft_length if room > 0 else 0
        self._last = draft = GrowingDraft(
            tokens,
            most,
            room,
            self._spelling,
            self._eog,
            chooser,
            stopping,
            self._chance,
            places,
            visible,
        )
        if most > 0:
            back = max((ids for _, ids in places), default=0)
            if lag > _SMALL_LAG:
                yield Pass(Role.DRAFT_MODEL, visible[: len(visible) - 1 - back], rows=0)
            yield Pass(Role.DRAFT_MODEL, visible, rows=1 + back, more=draft)
        return draft.for_target(self.name)

    def foreseen_s(self) -> float:
        """Return what the last proposal should have taken; see `Drafter`."""
        if self._costs is None or self._last is None:
            return 0.0
        return self._last_late_s + self._last.passes * self._costs.of(1)

    def learn(self, done: Round, steps: float) -> None:
        """Take in what became of a draft; see `Drafter`."""
        last, accepted = self._last, done.verdict.accepted
        if done.draft.drafter != self.name or last is None:
            self._backoff.pass_over(accepted)
            return
        self._seen = True
        compared = own_of(last.hindsight, last.compared) if last.hindsight else []
        if compared:
            self._see([(each.gap, each.hit) for each in compared])
        confirmed = done.verdict.confirmed
        self._backoff.settle(steps - confirmed)
        if not self._backoff.proven:
            if not last.gaps:
                self._backoff.fail(blind=not any(each.hit for each in compared))
                return
            self._backoff.prove()  # what it took to find that out does not count against it
        self._see(list(zip(last.gaps, _hits(last.tokens, done), strict=False)))
        if accepted < done.drafted:
            self._second_right[self._greedy].add(0, hit=done.correction_rank == 2)
        spent = done.spent
        if self._costs is not None and last.gaps and not last.hindsight:
            late_s = 0.0 if spent.draft_prefill_s else self._last_late_s
            self._costs.add(1, (spent.draft_s - late_s) / last.passes)
        kept = 1 - 1 / _ROUNDS
        self._tokens = self._tokens * kept + confirmed
        self._steps = self._steps * kept + steps * (1 - spent.draft_prefill_s / spent.round_s)
        if self._tokens < self._steps * _WORTH_GOING_ON or self._is_over():
            self._backoff.fail()

    def _read(self, tokens: Sequence[int]) -> Sequence[int] | None:
        """Return a text in the draft model's ids; None where it can propose nothing after it."""
        return self._spelling.read(tokens)

    def _look_back(
        self, tokens: Sequence[int], stopping: EarlyStopping, most: int
    ) -> tuple[EarlyStopping, list[tuple[int, int]]]:
        """Return what is compared of the latest tokens, and where: those that begin with an id of the draft model's.

        Args:
            tokens: confirmed so far.
            stopping: what is to be compared.
            most: ids that are looked back at.
        """
        own = stopping.compared
        since = self._spelling.since(tokens, len(own))
        begins = len(tokens) - len(since)
        places = [(at, ids) for at, ids in enumerate(since, begins) if 0 < ids <= most]
        compared = tuple(own[at - len(tokens)] for at, _ in places)
        return replace(stopping, compared=compared), places

    def _late_s(self, lag: int) -> float:
        """Return the seconds of catching up with so many tokens, beyond a step's own."""
        return 0.0 if self._costs is None or lag <= 1 else self._costs.of(lag) - self._costs.of(1)

    def _see(self, seen: Sequence[tuple[float, bool]]) -> None:
        """Take in what became of some tokens, each chosen by a gap."""
        by_gap, kept = self._by_gap[self._greedy], _OFTEN_KEPT ** len(seen)
        self._often[self._greedy] = often = [share * kept for share in self._often[self._greedy]]
        for gap, hit in seen:
            bucket = bisect(GAPS, gap)
            self._change.see(by_gap.add(bucket, hit=hit), hit=hit)
            kept /= _OFTEN_KEPT
            often[bucket] += kept * (1 - _OFTEN_KEPT)

    def _usual(self) -> float:
        """Return the chance of a token that is not drafted yet, as the text is now."""
        return self._by_gap[self._greedy].mean(self._often[self._greedy])

    def _is_over(self) -> bool:
        """Return whether the text has become one that does not pay, however well it paid before."""
        if self._stopping is None or not self._change.worse:
            return False
        often, usual = self._often[self._greedy], self._by_gap[self._greedy].usual
        now = self._change.chance
        return not self._stopping.pays(
            sum([share * now(usual(bucket)) for bucket, share in enumerate(often)])
        )

    def _chance(self, gap: float) -> float:
        """Return the chance that a token is accepted, by the gap that it was chosen with."""
        return self._by_gap[self._greedy].chance(bisect(GAPS, gap))

    def _yield(self, *, fresh: bool) -> float:
        """Return the tokens that a plain step's time yields, as expected of a fresh try or as seen."""
        return _EXPECTED_YIELD if fresh else self._tokens / self._steps

    def _start_afresh(self) -> None:
        """Expect what makes a try worth while, and let a few rounds correct it."""
        self._by_gap[self._greedy].hope()
        self._change.forget()
        self._steps = _EXPECTED_STEPS
        self._tokens = _EXPECTED_STEPS * _EXPECTED_YIELD


def _hits(proposed: Sequence[int], done: Round) -> list[bool]:
    """Return of each proposed token whose fate is known whether the target said the same."""
    accepted, next_token = done.verdict.accepted, done.verdict.next_token
    hits = [True] * accepted
    if accepted < len(proposed):
        hits.append(accepted == done.drafted and proposed[accepted] == next_token)
    return hits


def make(material: Material) -> ModelDrafter:
    """Return the register's drafter."""
    assert material.draft_model is not None, "it needs a draft model"  # noqa: S101
    assert material.spelling is not None, "which has ids"  # noqa: S101
    return ModelDrafter(
        material.draft_model,
        material.spelling,
        material.eog,
        None if material.fixed else material.draft_costs,
        material.fresh,
    )
