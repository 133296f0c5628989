"""Predicted against measured: what the textbook says drafting is worth, and why it was worth less.

The textbook knows the chance that a drafted token is accepted, taken to be the same everywhere,
and the cost of a draft step. It is led to what was measured in steps, each of which puts one
measured thing in place of an assumption; the step that changes most is the reason.

Source: Leviathan, Kalman and Matias 2023, arXiv:2211.17192, theorem 3.8, over the draft lengths
that there were.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from localspec.bench.trial import Trial
from localspec.decoding.costs import PassCosts
from localspec.decoding.round import Round
from localspec.decoding.stats import expected_confirmed

WORTH_A_REASON = 0.10


@dataclass(frozen=True, slots=True)
class Costs:
    """What was measured in the runs themselves.

    Args:
        target: a target pass by width.
        draft_step_s: a drafted token by drafter.
    """

    target: PassCosts
    draft_step_s: dict[str, float]


@dataclass(frozen=True, slots=True)
class Prediction:
    """Speed-ups over plain decoding.

    Args:
        textbook: from acceptance and draft cost, as if a pass of any width cost one step.
        with_widths: likewise, with the measured cost of each width.
        measured: what it came to.
        reason: what parts textbook and measurement, where more than 10 % do; else empty.
    """

    textbook: float
    with_widths: float
    measured: float
    reason: str


def measured_costs(trials: Iterable[Trial]) -> Costs | None:
    """Return the median costs of passes; None where no pass of a single token was made."""
    by_width: dict[int, list[float]] = {}
    by_drafter: dict[str, list[float]] = {}
    for trial in trials:
        for each in trial.rounds:
            by_width.setdefault(each.width, []).append(each.spent.verify_s)
            if each.drafted:
                step_s = each.spent.draft_s / each.drafted
                by_drafter.setdefault(each.draft.drafter, []).append(step_s)
    if 1 not in by_width:
        return None
    widths = sorted(by_width)
    target = PassCosts(tuple(widths), tuple(median(by_width[width]) for width in widths))
    return Costs(target, {drafter: median(steps) for drafter, steps in by_drafter.items()})


def chance_of_acceptance(rounds: Sequence[Round]) -> float:
    """Return the chance that a drafted token is accepted, given that all before it were.

    This is not accepted over drafted: what follows a rejected token was never judged.
    """
    accepted = sum(each.verdict.accepted for each in rounds)
    rejected = sum(each.verdict.accepted < each.drafted for each in rounds)
    return accepted / (accepted + rejected) if accepted + rejected else 0.0


def predict(
    runs: Sequence[Trial], off: Sequence[Trial], costs: Costs, measured: float
) -> Prediction:
    """Predict the speed-up of runs over plain ones.

    Args:
        runs: of one mode on one kind of text.
        off: their neighbours.
        costs: of passes and draft steps.
        measured: the ratio that was measured.
    """
    rounds = [each for run in runs for each in run.rounds]
    if not any(each.drafted for each in rounds):
        return Prediction(1.0, 1.0, measured, "")
    ladder = _ladder(runs, off, rounds, costs)
    steps = [*(value for value, _ in ladder), measured]
    reasons = [reason for _, reason in ladder[1:]]
    reasons.append(_rest(measured / ladder[-1][0]))
    reason = ""
    if abs(measured / steps[0] - 1) > WORTH_A_REASON:
        sign = math.copysign(1, math.log(measured / steps[0]))
        changes = [sign * math.log(after / before) for before, after in pairwise(steps)]
        reason = reasons[changes.index(max(changes))]
    return Prediction(steps[0], steps[1], measured, reason)


def _ladder(
    runs: Sequence[Trial], off: Sequence[Trial], rounds: Sequence[Round], costs: Costs
) -> list[tuple[float, str]]:
    """Return speed-ups, each with one assumption less, and what made it differ from the one before."""
    step_s = costs.target.of(1)
    chances = {
        drafter: chance_of_acceptance([each for each in rounds if each.draft.drafter == drafter])
        for drafter in {each.draft.drafter for each in rounds}
    }
    expected = sum(expected_confirmed(chances[each.draft.drafter], each.drafted) for each in rounds)
    confirmed = sum(len(each.confirmed) for each in rounds)
    draft_s = _total(rounds, lambda r: r.drafted * costs.draft_step_s.get(r.draft.drafter, 0.0))
    spent_drafting_s = _total(rounds, lambda r: r.spent.draft_s + r.spent.draft_prefill_s)
    widths_s = _total(rounds, lambda r: costs.target.of(r.width))
    decode_s = widths_s + spent_drafting_s
    prefill_s = sum(run.prefill_s for run in runs)
    plain_prefill_s = prefill_s if not off else len(runs) * median(run.prefill_s for run in off)
    width = sum(each.width for each in rounds) / len(rounds)
    return [
        (expected * step_s / (len(rounds) * step_s + draft_s), ""),
        (
            expected * step_s / (widths_s + draft_s),
            f"a pass of {width:.1f} tokens costs {widths_s / len(rounds) / step_s:.1f} steps",
        ),
        (
            confirmed * step_s / (widths_s + draft_s),
            f"acceptance is uneven: {confirmed / expected:.2f} of the expected tokens a round",
        ),
        (
            confirmed * step_s / decode_s,
            f"drafting took {spent_drafting_s / max(draft_s, 1e-9):.1f} times its usual steps",
        ),
        (
            (plain_prefill_s + confirmed * step_s) / (prefill_s + decode_s),
            f"prefill is {prefill_s / (prefill_s + decode_s):.0%} of the time",
        ),
    ]


def _rest(change: float) -> str:
    return f"passes, sampling and all else took {1 / change:.2f} times what their medians say"


def _total(rounds: Sequence[Round], seconds: Callable[[Round], float]) -> float:
    return sum(map(seconds, rounds))
