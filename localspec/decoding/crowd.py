"""Crowd: sequences that share passes, and what drafting costs one of them beside the others.

A drafted row widens the same pass that a further sequence would, so both are weighed by one table of costs.
Several sequences give tokens at a rate R without a draft; k more rows pay where they are expected to confirm
more than R times the seconds that they add. Said as costs of one sequence alone, which is what a policy
knows: a plain pass costs its share of the pass of all, and a draft what it adds to that.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from localspec.decoding.adaptive import AdaptivePolicy
from localspec.decoding.break_even import WORTH_TRYING
from localspec.decoding.copy_prospect import CopyProspect
from localspec.decoding.costs import PassCosts
from localspec.decoding.drafter import NoDrafter
from localspec.decoding.policy import Plan, Policy
from localspec.decoding.round import Round, Spent


@dataclass(frozen=True, slots=True, eq=False)
class Crowd:
    """How wide the pass of each sequence is, as it was planned last.

    Args:
        costs: of passes of one sequence, by their width.
    """

    costs: PassCosts
    _widths: dict[int, int] = field(default_factory=dict)
    _could_pay: dict[tuple[int, int], bool] = field(default_factory=dict)

    def join(self, place: int, width: int = 1) -> None:
        """Say how wide the next pass of a sequence is."""
        self._widths[place] = width

    def leave(self, place: int) -> None:
        """Say that a sequence has ended."""
        self._widths.pop(place, None)

    def costs_of(self, place: int) -> "CrowdCosts":
        """Return what passes cost one sequence, beside whatever the others do."""
        return CrowdCosts(self.costs.widths, self.costs.seconds, self, place)

    def seconds(self, place: int, width: int) -> float:
        """Return what a pass of this width costs one sequence, beside the others."""
        others = [each for other, each in self._widths.items() if other != place]
        plain_s = merged_s(self.costs, [*others, 1])
        added_s = merged_s(self.costs, [*others, width]) - plain_s
        # Costs have dips, but nobody is paid for drafting.
        return plain_s / (len(others) + 1) + max(0.0, added_s)

    def could_pay(self, longest: int) -> bool:
        """Say whether a draft of up to `longest` tokens could pay beside as many others as there are now."""
        key = len(self._widths), longest
        if key not in self._could_pay:
            self._could_pay[key] = could_pay(self.costs, *key)
        return self._could_pay[key]


def could_pay(costs: PassCosts, count: int, longest: int) -> bool:
    """Say whether one of `count` sequences could gain by a draft of which every token is accepted."""
    plain = [1] * (count - 1)
    plain_s = merged_s(costs, [*plain, 1])
    return any(
        (count + length) * plain_s > WORTH_TRYING * count * merged_s(costs, [*plain, length + 1])
        for length in range(1, longest + 1)
    )


def merged_s(costs: PassCosts, widths: Sequence[int]) -> float:
    """Return the seconds of a pass of several sequences.

    Equal widths make one pass; what some have more than others is evaluated after it, in a pass of its own.
    """
    seconds, done = 0.0, 0
    for width in sorted(set(widths)):
        seconds += costs.of(sum(each >= width for each in widths) * (width - done))
        done = width
    return seconds


@dataclass(frozen=True, slots=True)
class CrowdCosts(PassCosts):
    """What passes cost one sequence of a crowd, as of now.

    Args:
        crowd: all of them.
        place: of the one.
    """

    crowd: Crowd
    place: int

    def of(self, width: int) -> float:
        """Return the seconds that a pass of this width costs the sequence."""
        return self.crowd.seconds(self.place, width)


class CrowdPolicy:
    """Copies from the text as far as it pays beside other sequences.

    Args:
        crowd: the others.
        place: which of them this is.
        eog: ids that end a generation.
        longest: most tokens of a draft.
    """

    drafter_name = "auto"
    uses_draft_model = False

    def __init__(self, crowd: Crowd, place: int, eog: Collection[int], longest: int) -> None:
        self._crowd = crowd
        self._place = place
        self._costs = crowd.costs_of(place)
        self._within: Policy = AdaptivePolicy(self._costs, longest, CopyProspect(eog))
        self._longest = longest
        self._drafting = False
        self._foreseen_s = 0.0

    def begin(self, *, greedy: bool) -> None:
        """Start a reply; see `Policy`."""
        self._crowd.join(self._place)
        self._within.begin(greedy=greedy)

    def plan(self, tokens: Sequence[int], room: int, lag: int) -> Plan:
        """Plan a round, and tell the crowd how wide it is; see `Policy`."""
        self._drafting = self._crowd.could_pay(self._longest)
        if not self._drafting:
            self._crowd.join(self._place)
            return Plan(NoDrafter(), 0)
        plan = self._within.plan(tokens, room, lag)
        self._foreseen_s = self._costs.of(plan.draft_length + 1)
        self._crowd.join(self._place, plan.draft_length + 1)
        return plan

    def learn(self, done: Round, spent: Spent) -> None:
        """Take in what came of the round; the time of the pass was everybody's, so its share is what was foreseen."""
        if self._drafting:
            self._within.learn(done, replace(spent, verify_s=self._foreseen_s))
