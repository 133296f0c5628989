"""AdaptivePolicy: drafts as far as it pays, by measured costs and what the text has shown.

Every round it compares plain decoding with what each drafter promises, by expected confirmed
tokens and seconds, and takes the best that its budget can bear.
"""

from collections.abc import Sequence

from localspec.decoding.choose import Chooser
from localspec.decoding.costs import PassCosts, RunningCosts
from localspec.decoding.drafters.drafter import PLAIN, BoundsItself, Drafter, Plan, Terms
from localspec.decoding.policy.budget import Budget
from localspec.decoding.round import Round

LONGEST_DRAFT = 31
"""Wider passes gain next to nothing, and their logits take memory."""
MOST_BRANCHES = 7
"""Most second choices beside a draft: each is a sequence more of llama.cpp's, which it has to keep books on."""
_DISTURBED = 1.4
"""How many times what was foreseen a round counts at most."""
MOST_LOST, OVER_TOKENS = 14.5, 500
"""Plain steps that drafting may lose over so many tokens: 2.9 % of them."""
_SAMPLE_MEMORY = 8


class AdaptivePolicy:
    """Chooses drafter and draft length anew every round; 0 is plain decoding.

    Args:
        target: costs of the target's passes.
        longest: most tokens of a draft.
        drafters: whoever may propose; of equal promises the first is taken.
        branches: most second choices that a pass may verify beside a draft.
    """

    name = "auto"
    _merges = False
    """Whether drafters that share passes are weighed on terms of their own."""

    def __init__(
        self,
        target: PassCosts,
        longest: int,
        drafters: Sequence[Drafter],
        branches: int = 0,
    ) -> None:
        self.drafters = tuple(drafters)
        self._target = RunningCosts(target)
        self._longest = longest
        self._branches = branches
        # Tokens that the next pass evaluates again: an accepted branch, which the cache does not keep.
        self._again = 0
        self._by_name = {drafter.name: drafter for drafter in drafters}
        # Asked once: whether an object has all that a protocol names takes longer than to learn from a round.
        self._bounded = {each.name for each in drafters if isinstance(each, BoundsItself)}
        self._budget = Budget(MOST_LOST, OVER_TOKENS)
        self._sample_s = 0.0

    def begin(self, tokens: Sequence[int], chooser: Chooser) -> None:
        """Start a reply: what was learnt is kept, the text is another."""
        self._again = 0
        for drafter in self.drafters:
            drafter.begin(tokens, chooser)

    def plan(self, tokens: Sequence[int], room: int) -> Plan:
        """Plan the round that promises most; see `Policy`."""
        most = min(room - 1, self._longest - self._again)
        best, rate = PLAIN, 1 / self._verify_s(self._again, None)
        by_joint: dict[bool, Terms] = {}
        for drafter in self.drafters if most > 0 else ():
            joint = self._merges and drafter.shares_passes
            if joint not in by_joint:
                by_joint[joint] = self._terms(most, joint=joint)
            terms = by_joint[joint]
            promised = drafter.promise(tokens, terms) if terms.most > 0 else None
            if promised is not None and promised.rate > rate:
                best, rate = promised, promised.rate
        return best

    def learn(self, done: Round) -> None:
        """Take in what the round confirmed and cost."""
        drafter = self._by_name.get(done.draft.drafter)
        confirmed, width, steps = done.verdict.confirmed, done.width + self._again, 1.0
        if drafter is None or not (done.drafted or drafter.shares_passes):
            self._sample_s += (done.spent.sample_s - self._sample_s) / _SAMPLE_MEMORY
        else:
            foreseen_s = self._verify_s(width - 1, drafter) + drafter.foreseen_s()
            # What takes the machine for a moment is no fault of the draft.
            took_s = max(done.spent.round_s, foreseen_s / _DISTURBED)
            steps = min(took_s, foreseen_s * _DISTURBED) / self._verify_s(0, drafter)
        shared = min(steps, confirmed) if done.draft.drafter in self._bounded else steps
        self._budget.settle(confirmed, shared)
        for each in self.drafters:
            each.learn(done, steps if each is drafter else shared)
        self._target.add(width, done.spent.verify_s)
        self._again = int(done.verdict.branch is not None)

    def end(self) -> None:
        """End a reply: nothing is to be done."""

    def _terms(self, most: int, *, joint: bool) -> Terms:  # noqa: ARG002 - by batches
        """Return on what terms drafters may draft; `joint` are those whose passes are merged."""
        verify_s = self._target.upto(most + 1, self._again, self._sample_s)
        return Terms(verify_s, self._budget.steps, self._branches)

    def _verify_s(self, drafted: int, drafter: Drafter | None) -> float:  # noqa: ARG002 - likewise
        """Return the seconds of verifying so many tokens of a drafter's; of none, those of a plain round."""
        return self._target.of(drafted + 1) + self._sample_s * (drafted + 1)
