"""BatchWidths: sequences that share passes, and what drafting costs one of them beside the others.

A drafted row widens the same pass that a further sequence would, so both are weighed by one table of
costs. Several sequences give tokens at a rate R without a draft; k more rows pay where they are
expected to confirm more than R times the seconds that they add. Said as costs of one sequence alone,
which is what a policy knows: a plain pass costs its share of the pass of all, and a draft what it
adds to that. A draft model's passes are merged, too, so they are cheap if the others draft as well.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from localspec.decoding.choose import Chooser
from localspec.decoding.costs import PairCosts, PassCosts
from localspec.decoding.drafters.drafter import Drafter, Terms
from localspec.decoding.lengths import WORTH_TRYING
from localspec.decoding.policy.adaptive import AdaptivePolicy
from localspec.decoding.round import Round
from localspec.decoding.stats import could_win

_MOST_KNOWN = 1000
"""Of what passes cost beside others, so many answers are remembered: of each up to 32 numbers."""


@dataclass(frozen=True, slots=True, eq=False)
class BatchWidths:
    """How wide the pass of each running sequence was last, and which of them drafted with the draft model.

    Args:
        target: costs of the target's passes of one sequence, by their width.
        draft_model: of the draft model's; None without one.
    """

    target: PassCosts
    draft_model: PassCosts | None = None
    _widths: dict[int, int] = field(default_factory=dict)
    _alone: set[int] = field(default_factory=set)
    _could_pay: dict[tuple[int, int], bool] = field(default_factory=dict)
    _known: dict[tuple[tuple[int, ...], int], list[float]] = field(default_factory=dict)

    def begin(self, slot: int) -> None:
        """Say that a sequence begins; everybody is expected to try the draft model again."""
        self._widths[slot] = 1
        self._alone.clear()

    def pass_made(self, slot: int, width: int, *, by_draft_model: bool) -> None:
        """Say how wide the pass of a sequence was, and whether the draft model drafted for it."""
        self._widths[slot] = width
        (self._alone.discard if by_draft_model else self._alone.add)(slot)

    def leave(self, slot: int) -> None:
        """Say that a sequence has ended."""
        self._widths.pop(slot, None)
        self._alone.discard(slot)

    def seconds(self, slot: int, width: int) -> list[float]:
        """Return what passes of 1 to `width` tokens cost one sequence, beside what the others do."""
        others = sorted(each for other, each in self._widths.items() if other != slot)
        # Mostly nobody drafts, and each asks several times a round, while no pass is made.
        key = tuple(others), width
        if key not in self._known:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[key] = self._beside(others, width)
        return self._known[key]

    def _beside(self, others: Sequence[int], width: int) -> list[float]:
        """Return what passes cost one sequence, by the widths of the others."""
        costs = self.target
        plain_s, widest = merged_s(costs, [*others, 1]), max(others, default=0)
        # What is wider than all others is a pass of its own behind theirs.
        joined_s = merged_s(costs, [*others, widest]) if others else 0.0
        passes_s = [merged_s(costs, [*others, each]) for each in range(1, min(widest, width + 1))]
        passes_s += [
            joined_s + (costs.of(each - widest) if each > widest else 0.0)
            for each in range(max(1, widest), width + 1)
        ]
        share_s = plain_s / (len(others) + 1)
        # Costs have dips, but nobody is paid for drafting.
        return [share_s + max(0.0, each - plain_s) for each in passes_s]

    def joint_s(self, slot: int, width: int) -> list[float]:
        """Return likewise what they cost if those who use the draft model draft as much."""
        costs, count, joint = self.target, max(1, len(self._widths)), self._joint(slot)
        share_s, joint_plain_s = merged_s(costs, [1] * count) / count, costs.of(joint)
        passes_s = [costs.of(each * joint) for each in range(1, width + 1)]
        return [share_s + max(0.0, each - joint_plain_s) / joint for each in passes_s]

    def draft_costs(self, slot: int) -> "SharedDraftCosts":
        """Return what passes of the draft model cost one sequence; there has to be one."""
        assert self.draft_model is not None, "there is a draft model"  # noqa: S101
        return SharedDraftCosts(self.draft_model.widths, self.draft_model.seconds, self, slot)

    def could_pay(self, longest: int) -> bool:
        """Say whether a draft of up to `longest` tokens could pay beside as many others as there are now."""
        key = max(1, len(self._widths)), longest
        if key not in self._could_pay:
            self._could_pay[key] = could_pay(self.target, *key)
        return self._could_pay[key]

    def _joint(self, slot: int) -> int:
        """Return how many are expected to draft with the draft model if this one does."""
        return 1 + len(self._widths.keys() - self._alone - {slot})


@dataclass(frozen=True, slots=True)
class SharedDraftCosts(PassCosts):
    """What passes of the draft model cost one sequence of a batch, as of now.

    Args:
        batch: all of them.
        slot: of the one.
    """

    batch: BatchWidths
    slot: int

    def of(self, width: int) -> float:
        """Return this sequence's share of a pass of this width of all that draft."""
        count = self.batch._joint(self.slot)  # noqa: SLF001 - a view of it
        return PassCosts.of(self, width * count) / count


def could_pay(costs: PassCosts, count: int, longest: int) -> bool:
    """Say whether one of `count` sequences could gain by a draft of which every token is accepted."""
    plain = [1] * (count - 1)
    plain_s = merged_s(costs, [*plain, 1])
    return any(
        (count + length) * plain_s > WORTH_TRYING * count * merged_s(costs, [*plain, length + 1])
        for length in range(1, longest + 1)
    )


def draft_model_could_win(
    costs: PairCosts, longest: int, count: int = 1, by: float = WORTH_TRYING
) -> bool:
    """Say whether drafts of up to `longest` tokens by the draft model could ever pay.

    Args:
        costs: of the pair's passes.
        longest: most tokens of a draft.
        count: how many sequences share the passes, all of them drafting.
        by: the speed-up that they have to reach; see `could_win`.
    """
    if costs.draft_model is None:
        return False
    return could_win(_share(costs.target, count), _share(costs.draft_model, count), longest, by)


def _share(costs: PassCosts, count: int) -> PassCosts:
    """Return what passes cost one of `count` sequences that all ask for the same width."""
    seconds = tuple(costs.of(width * count) / count for width in costs.widths)
    return PassCosts(costs.widths, seconds)


def merged_s(costs: PassCosts, widths: Sequence[int]) -> float:
    """Return the seconds of a pass of several sequences.

    Equal widths make one pass; what some have more than others is evaluated after it, in a pass of its own.
    """
    seconds, done = 0.0, 0
    for width in sorted(set(widths)):
        seconds += costs.of(sum(each >= width for each in widths) * (width - done))
        done = width
    return seconds


def best_count(costs: PassCosts, most: int) -> int:
    """Return the least number of sequences that gives nearly the most tokens per second.

    Beyond the knee of the curve, more of them take memory and make every reply slower, for next to nothing.

    Args:
        costs: of passes by their width.
        most: that there may be, 1 or more; of those, only widths that were measured are considered.
    """
    rates = {count: count / costs.of(count) for count in costs.widths if count <= most}
    best = max(rates.values())
    return next(count for count, rate in rates.items() if rate >= _NEARLY * best)


_NEARLY = 0.95


class BatchPolicy(AdaptivePolicy):
    """Drafts as far as it pays beside the other sequences of a batch.

    The time of a pass is everybody's, so what a round took is taken to be what was foreseen.

    Args:
        batch: all sequences.
        slot: which of them this is.
        longest: most tokens of a draft.
        drafters: whoever may propose for it.
    """

    _merges = True

    def __init__(
        self,
        batch: BatchWidths,
        slot: int,
        longest: int,
        drafters: Sequence[Drafter],
    ) -> None:
        super().__init__(batch.target, longest, drafters)
        self._batch = batch
        self._slot = slot

    def begin(self, tokens: Sequence[int], chooser: Chooser) -> None:
        """Start a reply beside the others."""
        self._batch.begin(self._slot)
        super().begin(tokens, chooser)

    def end(self) -> None:
        """Leave the batch."""
        self._batch.leave(self._slot)

    def learn(self, done: Round) -> None:
        """Take in what came of the round; it took what was foreseen, which nobody asks of a plain one."""
        drafter = self._by_name.get(done.draft.drafter)
        if drafter is not None:
            foreseen_s = self._verify_s(done.drafted, drafter)
            done = replace(done, spent=replace(done.spent, verify_s=foreseen_s))
        by_draft_model = drafter is not None and drafter.shares_passes
        self._batch.pass_made(self._slot, done.drafted + 1, by_draft_model=by_draft_model)
        super().learn(done)

    def _terms(self, most: int, *, joint: bool) -> Terms:
        if not self._batch.could_pay(self._longest):
            most = 0
        return Terms(self._passes_s(most, joint=joint), self._budget.steps)

    def _verify_s(self, drafted: int, drafter: Drafter | None) -> float:
        joint = drafter is not None and drafter.shares_passes
        return self._passes_s(drafted, joint=joint)[-1]

    def _passes_s(self, drafted: int, *, joint: bool) -> list[float]:
        """Return the seconds of verifying drafts of up to so many tokens, from 0 on."""
        seconds = self._batch.joint_s if joint else self._batch.seconds
        passes_s = seconds(self._slot, drafted + 1)
        return [each + self._sample_s * width for width, each in enumerate(passes_s, start=1)]
