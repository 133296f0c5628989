"""What drafts are worth by what passes cost here: before anything is made, and on recorded answers.

Pure: knows no model and no clock.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, log

from localspec.decoding.costs import PassCosts
from localspec.decoding.lengths import WORTH_TRYING
from localspec.decoding.stats import expected_confirmed, expected_speed_up

ACCEPTANCES = (0.7, 0.8, 0.9, 0.96)
STEPS = (0.0, 0.1, 0.2, 0.3, 0.5)
_USUAL = 0.9
"""What good draft models reach on text that suits them; beyond it are mostly copies, which cost nothing to look up."""
_NEARLY_FREE = 0.1
_LONGEST = 31


def speed_up(target: PassCosts, acceptance: float, step: float) -> float:
    """Return how many times as fast the best draft length makes a target, 1 where none does.

    Args:
        target: costs of its passes.
        acceptance: chance that a drafted token is accepted.
        step: what drafting one costs, in plain steps of the target.
    """
    steps = {width: target.of(width) / target.of(1) for width in range(1, _LONGEST + 2)}
    lengths = range(1, _LONGEST + 1)
    return max(1.0, *(expected_speed_up(acceptance, each, step, steps) for each in lengths))


def most_step(target: PassCosts, acceptance: float) -> float:
    """Return what drafting a token may cost, in plain steps, to win by a tenth; below 0 where not even free drafts do."""
    return max(
        (expected_confirmed(acceptance, each) / WORTH_TRYING - target.of(each + 1) / target.of(1))
        / each
        for each in range(1, _LONGEST + 1)
    )


def could_pay(target: PassCosts) -> bool:
    """Say whether a draft model could win here that is not nearly free."""
    return most_step(target, _USUAL) >= _NEARLY_FREE


def what_could_pay(target: PassCosts) -> str:
    """Return what a draft model may cost to pay, in a phrase."""
    most = most_step(target, _USUAL)
    return f"a draft model that is right {_USUAL:.0%} of the time would pay if a token of it cost up to {most:.2f} of a step"


def why_not(target: PassCosts) -> str:
    """Return why nothing pays that is not nearly free, in a sentence."""
    most = most_step(target, _USUAL)
    limit = f"may cost {most:.2f} of a step" if most > 0 else "would not pay if it were free"
    return (
        f"nothing that is not nearly free pays here: a pass of 4 tokens takes {target.of(4) / target.of(1):.1f} steps,"
        f" so a draft model that is right {_USUAL:.0%} of the time {limit}"
    )


@dataclass(frozen=True, slots=True)
class Replayed:
    """What drafting would have made of recorded answers.

    Args:
        speed: times as fast as plain decoding, with the draft length that suits each kind of text; 1 where none gains.
        by_kind: likewise, for each kind of text.
    """

    speed: float
    by_kind: Mapping[str, float]


def replayed(
    hits: Mapping[str, Sequence[Sequence[bool]]], target: PassCosts, draft_model: PassCosts
) -> Replayed:
    """Return what a draft model would have earned on greedy answers of its target.

    That is exact but for its window: what follows accepted tokens is the recorded text.

    Args:
        hits: by kind of text, for each answer, whether the draft model foretold each of its tokens.
        target: costs of passes.
        draft_model: likewise, of widths 1 and 2.
    """
    by_kind = {
        kind: max(1.0, *(_speed(answers, each, target, draft_model) for each in range(1, _LONGEST)))
        for kind, answers in hits.items()
    }
    mean = exp(sum(map(log, by_kind.values())) / len(by_kind))
    return Replayed(mean, by_kind)


def _speed(
    answers: Sequence[Sequence[bool]], length: int, target: PassCosts, draft_model: PassCosts
) -> float:
    """Return the speed-up of drafts of one length."""
    plain_s = spent_s = 0.0
    for hits in answers:
        at, behind = 1, 1  # the first token comes with the prompt
        plain_s += (len(hits) - 1) * target.of(1)
        while at < len(hits):
            drafted = min(length, len(hits) - at - 1)
            right = next((n for n in range(drafted) if not hits[at + n]), drafted)
            spent_s += target.of(drafted + 1)
            if drafted:
                spent_s += draft_model.of(behind) + (drafted - 1) * draft_model.of(1)
            # Of a draft that was accepted as a whole, it has not evaluated the last token.
            behind = 2 if right == drafted else 1
            at += right + 1
    return plain_s / spent_s if spent_s else 1.0
