"""ModelDrafter: a small language model proposes, choosing under the target's own noise.

What it has evaluated, and how it catches up with a text, is its own business.
"""

from bisect import bisect
from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, field

from localspec.decoding.choose import Chooser
from localspec.decoding.costs import PassCosts, RunningCosts
from localspec.decoding.drafters.branches import RIGHT, choose_branches, right_after
from localspec.decoding.drafters.draft_length import Estimator, Worth
from localspec.decoding.drafters.drafter import DraftForecast, Plan
from localspec.decoding.drafters.register import DrafterContext
from localspec.decoding.drafters.vocab_map import VocabMap
from localspec.decoding.model import LanguageModel, Logits, Pass, Role
from localspec.decoding.round import GAPS, Draft, Round
from localspec.errors import PassFailed

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


@dataclass(slots=True, eq=False)
class GrowingDraft:
    """Takes the rows of one pass after the other, and returns the token with which the next goes on; see `Pass.more`.

    Args:
        drafter: whose it is.
        prefix: confirmed so far, a list of its own: it grows by what is proposed.
        most: tokens by which it may grow.
        most_passes: passes that the draft model has room for.
        chooser: the reply's.
        worth: decides whether the next token is worth its pass; None goes on.

    Attributes:
        proposed: each token, how sure it is, its gap and its alternatives, see `Draft`.
        passes: how many were made.
    """

    drafter: "ModelDrafter"
    prefix: list[int]
    most: int
    most_passes: int
    chooser: Chooser
    worth: Worth | None
    proposed: list[tuple[int, float, float, tuple[int, ...]]] = field(default_factory=list)
    passes: int = 0

    def __call__(self, rows: Logits) -> int | None:
        """Propose a token, and return the draft model's own if another is to follow."""
        prefix, row, spelling = self.prefix, rows[-1], self.drafter.spelling
        self.passes += 1
        try:
            chosen = self.chooser.propose(spelling.row(row), prefix)
        except PassFailed:
            return None  # no shared id may follow, or the row is unusable: the target goes on alone
        token, confidence, gap, _ = chosen
        own = spelling.next(row, token)
        before = prefix[-1] if self.proposed else None
        spelled = spelling.spell(before, own)
        if spelled == ((token,) if before is None else (before, token)):
            goes_on = self._append(*chosen)
        else:
            goes_on = self._respell(spelled, confidence, gap)
        return own if goes_on and self.passes < self.most_passes else None

    def _append(
        self, token: int, confidence: float, gap: float, others: tuple[int, ...] = ()
    ) -> bool:
        """Propose a token; return whether to propose another."""
        self.prefix.append(token)
        self.proposed.append((token, confidence, gap, others))
        goes_on = self.worth is None or self.worth.add(self.drafter.chance(gap))
        return goes_on and len(self.proposed) < self.most and token not in self.drafter.eog

    def _respell(self, spelled: tuple[int, ...], confidence: float, gap: float) -> bool:
        """Let the target's spelling take the place of the last proposed token; return whether to propose another.

        What a chooser did not choose itself may be what a constraint forbids.
        """
        prefix = self.prefix
        if self.proposed:
            first, *others = spelled
            if first != prefix[-1]:
                if not self.chooser.admitted(prefix[:-1], (first,)):
                    return False
                _, sure, lead, _ = self.proposed[-1]
                prefix[-1] = first
                self.proposed[-1] = (first, sure * confidence, min(lead, gap), ())
            spelled = tuple(others)
        return all(
            self.chooser.admitted(prefix, (token,)) and self._append(token, confidence, gap)
            for token in spelled
        )

    def for_target(self, most_branches: int) -> Draft:
        """Return what is worth verifying of it."""
        drafter, proposed, worth = self.drafter, self.proposed, self.worth
        places = tuple[int, ...]()
        if worth is not None:
            others = [each for *_, each in proposed]
            places = choose_branches(worth, others, drafter.eog, most_branches, drafter.right)
            proposed = proposed[: worth.n_verified]
        tokens, sure, gaps, alternatives = zip(*proposed, strict=True) if proposed else ((),) * 4
        return Draft(tokens, sure, drafter.name, gaps, alternatives, places, self.passes)


@dataclass(eq=False)
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

    model: LanguageModel
    spelling: VocabMap
    eog: Collection[int]
    costs: PassCosts | None = None
    fresh: int | None = None
    name = "model"
    reserve = 5.0

    def __post_init__(self) -> None:
        self.forget_costs()
        self._by_gap = Estimator(_CHANCES, _WEIGHT, _MEMORY, _DRIFT)
        self._often = list(_OFTEN)
        self._late_s = 0.0
        self._skipped: list[int] = []
        self.right = RIGHT

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

    def forget_costs(self) -> None:
        """Expect passes to take what was measured: what disturbed them may be gone, and without passes nothing would tell."""
        self._costs = None if self.costs is None else RunningCosts(self.costs)

    def begin(self, tokens: Sequence[int], chooser: Chooser) -> None:  # noqa: ARG002 - the protocol's signature
        """Start a reply, whose first passes check the costs; see `Drafter`."""
        self.spelling.begin()
        if self._costs is not None:
            self._costs.check()

    def forecast(self, tokens: Sequence[int]) -> DraftForecast | None:
        """Return the chance of a token that is not drafted yet, and what passes take; see `Drafter`."""
        read = None if self._costs is None else self._read(tokens)
        if self._costs is None or read is None:
            return None
        usual = self._by_gap.mean(self._often)
        late_s = self._catch_up_s(self._window(read)[1])
        return DraftForecast((usual,) * _MOST, self._costs.of(1), late_s)

    def propose(
        self, tokens: Sequence[int], plan: Plan, chooser: Chooser
    ) -> Generator[Pass, Logits, Draft]:
        """Propose tokens; fewer if one of them ends the generation, or the next is not worth its pass."""
        read = self._read(tokens)
        visible, lag = ([], 0) if read is None else self._open(read)
        self._late_s = self._catch_up_s(lag)
        room = self.model.n_ctx - len(visible) if visible else 0
        most = plan.draft_length if room > 0 else 0
        draft = GrowingDraft(self, list(tokens), most, room, chooser, plan.worth())
        if most > 0:
            if lag > _SMALL_LAG:
                yield Pass(Role.DRAFT_MODEL, visible[:-1], rows=0)
            yield Pass(Role.DRAFT_MODEL, visible, rows=1, more=draft)
        return draft.for_target(plan.branches)

    def learn(self, done: Round) -> None:
        """Take in what became of a draft; see `Drafter`."""
        draft, accepted, spent = done.draft, done.verdict.accepted, done.spent
        if draft.drafter != self.name:
            return
        often = self._often
        for place, gap in enumerate(draft.gaps[: accepted + 1]):
            bucket = bisect(_GAPS, gap)
            self._by_gap.add(bucket, hit=place < accepted)
            often[:] = [share * _OFTEN_DECAY for share in often]
            often[bucket] += 1 - _OFTEN_DECAY
        self.right = right_after(self.right, done)
        if self._costs is not None and draft.passes:
            late_s = 0.0 if spent.draft_prefill_s else self._late_s
            self._costs.add(1, (spent.draft_s - late_s) / draft.passes)

    def _read(self, tokens: Sequence[int]) -> Sequence[int] | None:
        """Return a text in the draft model's ids; None where it can propose nothing after it."""
        return self.spelling.read(tokens)

    def _open(self, tokens: Sequence[int]) -> tuple[list[int], int]:
        """Return what the model is to see of `tokens`, and its lag; keep the window where that begins."""
        start, lag = self._window(tokens)
        if start != len(self._skipped):
            self._skipped = list(tokens[:start])
        return list(tokens[start:] if start else tokens), lag

    def _window(self, tokens: Sequence[int]) -> tuple[int, int]:
        """Return where the window begins, and what it lacks: where it did, if that is little.

        What a draft model has not followed costs a pass per chunk before it can propose anything, and a long text
        makes each of its passes slower. So a window of `fresh` tokens is started where more than that would have to
        be evaluated, and when the model's context is full. Its logits depend on where the window began, and so on
        the requests before: good for proposing, never for a target.
        """
        start, n_ctx = len(self._skipped), self.model.n_ctx
        most = n_ctx // 2 if self.fresh is None else min(self.fresh, n_ctx // 2)
        lag = len(tokens) - start - self.model.common_prefix(tokens[start:] if start else tokens)
        room = len(tokens) - start <= n_ctx
        # One token beyond it is left to every pass, and the whole context to none.
        if room and lag <= most and list(tokens[:start]) == self._skipped:
            return start, lag
        fresh = max(0, len(tokens) - most)
        return (fresh, len(tokens) - fresh) if fresh != start else (start, lag)

    def _catch_up_s(self, lag: int) -> float:
        """Return the seconds of catching up with so many tokens, beyond a step's own."""
        return 0.0 if self._costs is None or lag <= 1 else self._costs.of(lag) - self._costs.of(1)

    def chance(self, gap: float) -> float:
        """Return the chance that a token is accepted, by the gap that it was chosen with."""
        return self._by_gap.chance(bisect(_GAPS, gap))


def make(material: DrafterContext) -> ModelDrafter:
    """Return the register's drafter."""
    model, spelling = material.models()
    return ModelDrafter(model, spelling, material.eog, material.draft_costs, material.fresh)
