"""ModelDrafter: a small language model proposes, choosing under the target's own noise.

What it has evaluated, and how it catches up with a text, is its own business.
"""

from bisect import bisect
from collections.abc import Collection, Generator, Mapping, Sequence

from localspec.decoding.choose import Chooser
from localspec.decoding.costs import PassCosts, RunningCosts
from localspec.decoding.drafters.branches import Branches
from localspec.decoding.drafters.drafter import DraftForecast, Plan
from localspec.decoding.drafters.estimator import Estimator
from localspec.decoding.drafters.growing_draft import GrowingDraft
from localspec.decoding.drafters.register import Material
from localspec.decoding.drafters.spelling import Spelling
from localspec.decoding.model import LanguageModel, Logits, Pass, Role
from localspec.decoding.round import GAPS, Draft, Round

_GAPS = (0.5, 1.0, 2.0, 4.0)
"""Bounds of the buckets of gaps by which chances are learnt."""
_CHANCES = (0.38, 0.52, 0.72, 0.92, 0.985)
"""Counted over 100 answers of a real pair: docs/measurements/drafting-policy.md."""
_OFTEN = (0.11, 0.09, 0.12, 0.21, 0.47)
"""How often each gap comes up at first; followed as some 64 tokens show."""
_OFTEN_DECAY = 1 - 1 / 64
_WEIGHT, _MEMORY, _DRIFT = 30.0, 60.0, 0.15
_MOST_EARNED = 300.0
"""Tokens that what was earned in earlier conversations counts as at most."""
_SMALL_LAG = 16
"""Tokens up to which catching up is a part of the round, and not a prefill."""
_MOST = 31


class Window:
    """Which part of a text a draft model evaluates.

    What a draft model has not followed costs a pass per chunk before it can propose anything, and
    a long text makes each of its passes slower. So a window of `fresh` tokens is started where more
    than that would have to be evaluated, and when the model's context is full. Its logits depend on
    where the window began, and so on the requests before: good for proposing, never for a target.

    Args:
        model: evaluates; only its sizes and what it has cached matter.
        fresh: tokens that a new window starts with.
    """

    def __init__(self, model: LanguageModel, fresh: int) -> None:
        self._model = model
        self._fresh = min(fresh, model.n_ctx // 2)
        self._skipped: list[int] = []

    def lag(self, tokens: Sequence[int]) -> int:
        """Return how many of `tokens` the model would have to evaluate."""
        return self._begin(tokens)[1]

    def open(self, tokens: Sequence[int]) -> tuple[list[int], int]:
        """Return what the model is to see of `tokens`, and its lag; keep the window where that begins."""
        start, lag = self._begin(tokens)
        if start != len(self._skipped):
            self._skipped = list(tokens[:start])
        return list(tokens[start:] if start else tokens), lag

    def _begin(self, tokens: Sequence[int]) -> tuple[int, int]:
        """Return where the window begins, and what it lacks: where it did, if that is little."""
        start = len(self._skipped)
        lag = len(tokens) - start - self._model.common_prefix(tokens[start:] if start else tokens)
        room = len(tokens) - start <= self._model.n_ctx
        # One token beyond it is left to every pass, and the whole context to none.
        if room and lag <= self._fresh and list(tokens[:start]) == self._skipped:
            return start, lag
        fresh = max(0, len(tokens) - self._fresh)
        return (fresh, len(tokens) - fresh) if fresh != start else (start, lag)


class ModelDrafter:
    """Proposes what the draft model would choose, one pass a token.

    Args:
        model: the draft model's sequence; only its sizes and what it has cached matter, the
            scheduler makes the passes.
        spelling: what its ids mean to the target.
        eog: ids that end a generation; nothing useful follows them.
        costs: of the draft model's passes; None if they are not known, and nothing is forecast.
        fresh: tokens of a long text that it starts with; None evaluates all that its context holds.
    """

    name = "model"
    reserve = 5.0

    def __init__(
        self,
        model: LanguageModel,
        spelling: Spelling,
        eog: Collection[int],
        costs: PassCosts | None = None,
        fresh: int | None = None,
    ) -> None:
        self._window = Window(model, model.n_ctx if fresh is None else fresh)
        self._n_ctx = model.n_ctx
        self._spelling = spelling
        self._eog = eog
        self._costs = None if costs is None else RunningCosts(costs)
        self._by_gap = Estimator(_CHANCES, _WEIGHT, _MEMORY, _DRIFT)
        self._often = list(_OFTEN)
        self._branches = Branches()
        self._late_s = 0.0

    def expect(self, earned: Mapping[int, tuple[float, float]]) -> None:
        """Start from what drafts earned in earlier conversations.

        Args:
            earned: by bucket of the gap, see `GAPS`, the share that was accepted, and how many tokens say so.
        """
        hits = [_WEIGHT * chance for chance in _CHANCES]
        tokens = [_WEIGHT] * len(_CHANCES)
        for bucket, (rate, count) in earned.items():
            own = bisect(_GAPS, GAPS[bucket - 1] if bucket else 0.0)
            weight = min(count, _MOST_EARNED)
            hits[own] += weight * rate
            tokens[own] += weight
        self._by_gap.expect([hit / count for hit, count in zip(hits, tokens, strict=True)])

    def begin(self, tokens: Sequence[int], chooser: Chooser) -> None:  # noqa: ARG002 - the protocol's signature
        """Start a reply, whose first passes check the costs; see `Drafter`."""
        self._spelling.begin()
        if self._costs is not None:
            self._costs.check()

    def forecast(self, tokens: Sequence[int]) -> DraftForecast | None:
        """Return the chance of a token that is not drafted yet, and what passes take; see `Drafter`."""
        read = None if self._costs is None else self._read(tokens)
        if self._costs is None or read is None:
            return None
        usual = self._by_gap.mean(self._often)
        late_s = self._catch_up_s(self._window.lag(read))
        return DraftForecast((usual,) * _MOST, self._costs.of(1), late_s)

    def propose(
        self, tokens: Sequence[int], plan: Plan, chooser: Chooser
    ) -> Generator[Pass, Logits, Draft]:
        """Propose tokens; fewer if one of them ends the generation, or the next is not worth its pass."""
        read = self._read(tokens)
        visible, lag = ([], 0) if read is None else self._window.open(read)
        self._late_s = self._catch_up_s(lag)
        room = self._n_ctx - len(visible) if visible else 0
        most = plan.draft_length if room > 0 else 0
        text, worth, end = list(tokens), plan.worth(), len(tokens) + most
        draft = GrowingDraft(
            text, end, room, self._spelling, self._eog, chooser, worth, self._chance
        )
        if most > 0:
            if lag > _SMALL_LAG:
                yield Pass(Role.DRAFT_MODEL, visible[:-1], rows=0)
            yield Pass(Role.DRAFT_MODEL, visible, rows=1, more=draft)
        return draft.for_target(self.name, self._branches, plan.branches)

    def learn(self, done: Round) -> None:
        """Take in what became of a draft; see `Drafter`."""
        draft, accepted, spent = done.draft, done.verdict.accepted, done.spent
        if draft.drafter != self.name:
            return
        hits = [True] * accepted + [False] * (accepted < done.drafted)
        for gap, hit in zip(draft.gaps, hits, strict=False):
            bucket = bisect(_GAPS, gap)
            self._by_gap.add(bucket, hit=hit)
            self._often = [share * _OFTEN_DECAY for share in self._often]
            self._often[bucket] += 1 - _OFTEN_DECAY
        self._branches.learn(done)
        if self._costs is not None and draft.passes:
            late_s = 0.0 if spent.draft_prefill_s else self._late_s
            self._costs.add(1, (spent.draft_s - late_s) / draft.passes)

    def _read(self, tokens: Sequence[int]) -> Sequence[int] | None:
        """Return a text in the draft model's ids; None where it can propose nothing after it."""
        return self._spelling.read(tokens)

    def _catch_up_s(self, lag: int) -> float:
        """Return the seconds of catching up with so many tokens, beyond a step's own."""
        return 0.0 if self._costs is None or lag <= 1 else self._costs.of(lag) - self._costs.of(1)

    def _chance(self, gap: float) -> float:
        """Return the chance that a token is accepted, by the gap that it was chosen with."""
        return self._by_gap.chance(bisect(_GAPS, gap))


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
