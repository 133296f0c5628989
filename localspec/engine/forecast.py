"""Why an answer was drafted as it was, and what a draft model would cost where it is off, by the costs that were measured on this machine."""

from collections.abc import Sequence

from localspec.decoding.costs import PairCosts, PassCosts, could_pay, draft_model_could_win
from localspec.decoding.draft_mode import AUTO
from localspec.decoding.drafters.register import WITHOUT_MODEL, uses_passes
from localspec.decoding.policy import LONGEST_DRAFT
from localspec.decoding.round import OFF, Round
from localspec.decoding.stats import AcceptanceCounts, expected_speed_up

# Where nothing was drafted yet: what drafts of a model are usually accepted with.
USUAL_CHANCE = 0.75
_LONGEST = 16
_WORTH_A_WORD = 0.01


def draft_note(rounds: Sequence[Round], costs: PairCosts | None, chance: float | None) -> str:
    """Return what the draft model would cost; empty where it drafted, or there is none, or costs are unknown.

    Args:
        rounds: of the reply.
        costs: measured before; None where they were not.
        chance: that a token of the draft model is accepted, from earlier replies; None without any.
    """
    return "" if costs is None or by_draft_model(rounds) else _note(costs, chance)


def reason(
    rounds: Sequence[Round],
    drafter: str,
    others: int,
    costs: PairCosts | None,
    chance: float | None,
) -> str:
    """Return why the rounds of one reply were drafted as they were, as one sentence.

    Args:
        rounds: of the reply.
        drafter: what was to draft, as `Reply` has it.
        others: how many others it mostly shared its passes with.
        costs: measured before; None where they were not.
        chance: as for `draft_note`.
    """
    drafted = [each for each in rounds if each.drafted]
    names = " and ".join(dict.fromkeys(each.draft.drafter for each in drafted))
    if drafted:
        return f"on: {names} drafted in {len(drafted)} of {len(rounds)} rounds"
    if drafter != OFF and all(each.is_first for each in rounds):
        return "off: it ended before anything could be drafted"
    short, detail = _why_idle(drafter, others, costs, chance)
    return f"off: {short}{detail}"


def no_drafting(
    counts: AcceptanceCounts, drafter: str, costs: PairCosts | None, others: int = 0
) -> str:
    """Return why nothing was drafted in one reply, in about five words; empty where something was, or no round was made.

    Args:
        counts: over the rounds of the reply.
        drafter: as for `reason`.
        costs: as for `reason`.
        others: as for `reason`.
    """
    if counts.drafted or not (counts.rounds or drafter == OFF):
        return ""
    return f"no drafting: {_why_idle(drafter, others, costs, None)[0]}"


def _why_idle(
    drafter: str, others: int, costs: PairCosts | None, chance: float | None
) -> tuple[str, str]:
    """Return why nothing was drafted, in a few words, and what a sentence says behind these."""
    kind = drafter.partition(":")[0]
    if kind == OFF:
        return "it is switched off", ", or the model cannot take drafts back"
    nothing = "nothing to look up", " that was worth it"
    sure = costs is None or costs.sure
    slower = "would be slower here" + " (measured while busy)" * (not sure)
    where = f"beside {others} other{'s'[: others > 1]} " if others else ""
    if costs is not None and not could_pay(costs.target, others + 1, LONGEST_DRAFT):
        return slower, f": {where}a draft costs more than it could confirm"
    if costs is None or costs.draft_model is None:
        looks_up = kind in {AUTO, WITHOUT_MODEL}
        return nothing if looks_up else (f"{kind} had nothing to draft", "")
    if not draft_model_could_win(costs, LONGEST_DRAFT, others + 1):
        detail = f"{where}a draft of this model costs more than it confirms, and there was {''.join(nothing)}"
        return slower, f": {detail}"
    note = "" if others else _note(costs, chance)
    return slower, f": {note or 'no draft promised to confirm more than it costs'}"


def chance_of_acceptance(rounds: Sequence[Round]) -> float | None:
    """Return the chance that a drafted token is accepted, given that those before it were; None without any.

    What follows a rejected token was never judged, so this is not accepted over drafted.
    """
    accepted = sum(each.verdict.accepted for each in rounds)
    judged = accepted + sum(each.verdict.accepted < each.drafted for each in rounds)
    return accepted / judged if judged else None


def by_draft_model(rounds: Sequence[Round]) -> list[Round]:
    """Return the rounds that asked the draft model."""
    return [each for each in rounds if uses_passes(each.draft.drafter)]


def _note(costs: PairCosts, chance: float | None) -> str:
    if costs.draft_model is None:
        return ""
    assumed = min(USUAL_CHANCE, costs.at_best) if chance is None else chance
    best = _best(costs, costs.draft_model, assumed)
    if best > 1 - _WORTH_A_WORD:
        return ""
    if not costs.sure:
        return (
            "draft model not used: the machine was busy when it was measured; "
            "it is measured again later"
        )
    basis = "the usual" if chance is None else "its"
    return (
        f"draft model not used: at {basis} {assumed:.0%} acceptance "
        f"it would slow this machine down by {1 - best:.0%}"
    )


def _best(costs: PairCosts, draft_model: PassCosts, chance: float) -> float:
    """Return the speed-up at the best draft length; below 1 where there is none."""
    step_s = costs.target.of(1)
    lengths = range(1, _LONGEST + 1)
    widths = {length + 1: costs.target.of(length + 1) / step_s for length in lengths}
    ratio = draft_model.of(1) / step_s
    return max(
        expected_speed_up(chance, each, costs.passes(each) / each * ratio, widths)
        for each in lengths
    )
