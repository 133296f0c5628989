"""AdaptivePolicy: drafts as far as it pays, by measured costs and what the text has shown.

Every round it compares plain decoding, copying from the text, and the draft model, by expected
confirmed tokens and seconds, and takes the best that its credit can bear.
"""

from collections.abc import Collection, Mapping, Sequence

from localspec.decoding.break_even import WORTH_TRYING, could_win
from localspec.decoding.copy_prospect import CopyProspect
from localspec.decoding.costs import PassCosts
from localspec.decoding.credit import Allowance, Credit
from localspec.decoding.drafter import NoDrafter, ReadyDrafter
from localspec.decoding.lengths import best_length
from localspec.decoding.model_drafter import ModelDrafter
from localspec.decoding.model_prospect import ModelProspect
from localspec.decoding.policy import Plan
from localspec.decoding.round import Round, Spent
from localspec.decoding.running_costs import RunningCosts

_DISTURBED = 1.4
"""How many times what was foreseen a round counts at most."""
_MOST_LOST, _OVER_TOKENS = 14.5, 500
"""Plain steps that drafting may lose over so many tokens: 2.9 % of them."""
_RISKED = 0.7
"""Share of the credit that one copy may risk, so that a few lost ones do not end all copying."""
_ALLOWED, _ALLOWED_PER_TOKEN = 1.0, 0.01
"""Plain steps that copying may lose in a reply before it has gained any."""
_TRUST, _DISTRUST = 0.5, 1.0
"""Steps more for every token that a match foretold, and less for one that it did not."""
_SHORT_COPY = 4


class AdaptivePolicy:
    """Chooses drafter and draft length anew every round; 0 is plain decoding.

    Args:
        target: costs of the target's passes.
        longest: most tokens of a draft.
        copying: what to copy from the text; None never does.
        model: the draft model, which could win; None where there is none.
    """

    def __init__(
        self,
        target: PassCosts,
        longest: int,
        copying: CopyProspect | None,
        model: ModelProspect | None = None,
    ) -> None:
        self._target = RunningCosts(target)
        self._longest = longest
        self._copying = copying
        self._model = model
        self._credit = Credit(_MOST_LOST, _OVER_TOKENS)
        self._allowance = Allowance(_ALLOWED, _ALLOWED_PER_TOKEN)
        self._sample_s = 0.0

    drafter_name = "auto"

    @property
    def uses_draft_model(self) -> bool:
        """Whether a round may ask for passes of the draft model."""
        return self._model is not None

    def expect(self, earned: Mapping[int, tuple[float, float]], *, greedy: bool) -> None:
        """Start from what the draft model earned before; see `ModelProspect.expect`."""
        if self._model is not None:
            self._model.expect(earned, greedy=greedy)

    def begin(self, *, greedy: bool) -> None:
        """Start a reply: what was learnt is kept, the text is another."""
        if self._copying is not None:
            self._copying.begin()
            self._allowance.begin()
        if self._model is not None:
            self._model.begin(greedy=greedy)

    def plan(self, tokens: Sequence[int], room: int, lag: int) -> Plan:
        """Plan the round that promises most; see `Policy`."""
        most = min(room - 1, self._longest)
        plan, rate = Plan(NoDrafter(), 0), 1 / self._plain_s()
        if self._copying is not None:
            right, wrong = self._copying.follow(tokens, self._short_matches())
            self._allowance.trust(_TRUST * right - _DISTRUST * wrong)
            steps = min(_RISKED * self._credit.steps, self._allowance.steps)
            affordable_s = (1 + steps) * self._plain_s()
            worth = best_length(self._copying.chances(most), self._verify_s, affordable_s)
            if worth is not None and worth.rate > WORTH_TRYING * rate:
                draft = self._copying.draft(worth.draft_length)
                plan, rate = Plan(ReadyDrafter(draft), worth.draft_length), worth.rate
        if self._model is not None:
            affordable_s = (1 + self._credit.steps) * self._plain_s()
            promised, drafting = self._model.plan(
                most, lag, self._plain_s(), self._verify_s, affordable_s
            )
            if promised > rate:
                plan = drafting
        return plan

    def learn(self, done: Round, spent: Spent) -> None:
        """Take in what the round confirmed and cost."""
        confirmed, drafted = len(done.confirmed), len(done.draft.tokens)
        model = self._model if self._model and done.draft.drafter == self._model.name else None
        if model is None and not drafted:
            self._settle(1, 1.0)
            self._sample_s += (spent.sample_s - self._sample_s) / 8
        else:
            foreseen_s = self._verify_s(drafted)
            if model is not None:
                foreseen_s += model.foreseen_s(done.draft)
            # What takes the machine for a moment is no fault of the draft.
            took_s = min(max(spent.total_s, foreseen_s / _DISTURBED), foreseen_s * _DISTURBED)
            steps = took_s / self._plain_s()
            self._settle(confirmed, steps)
            if model is not None:
                model.learn(done, spent, steps)
        if self._model is not None and model is None:
            self._model.pass_over(done.verdict.accepted)
        self._target.add(drafted + 1, spent.verify_s)

    def _short_matches(self) -> float:
        """Return what a short match counts, 0 to 1: the less, the dearer it is to try a short copy."""
        return min(1.0, 2 / (1 + self._verify_s(_SHORT_COPY) / self._plain_s()))

    def _settle(self, confirmed: int, steps: float) -> None:
        self._credit.settle(confirmed, steps)
        self._allowance.settle(confirmed, steps)

    def _plain_s(self) -> float:
        """Return the seconds of a plain round."""
        return self._target.of(1) + self._sample_s

    def _verify_s(self, drafted: int) -> float:
        """Return the seconds of verifying so many drafted tokens."""
        return self._target.of(drafted + 1) + self._sample_s * (drafted + 1)


def adaptive_policy(
    target: PassCosts,
    eog: Collection[int],
    longest: int,
    drafter: ModelDrafter | None = None,
    draft_model: PassCosts | None = None,
) -> AdaptivePolicy:
    """Return a policy without memories; a draft model that could not win is left out.

    Args:
        target: costs of the target's passes.
        eog: ids that end a generation.
        longest: most tokens of a draft.
        drafter: proposes with the draft model, if there is one.
        draft_model: costs of its passes.
    """
    model = None
    if drafter is not None and draft_model is not None and could_win(target, draft_model, longest):
        model = ModelProspect(drafter, draft_model)
    return AdaptivePolicy(target, longest, CopyProspect(eog), model)
