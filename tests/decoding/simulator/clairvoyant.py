"""The clairvoyant: knows true costs, chances and regimes, not the coins."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from localspec.decoding.model import Role
from tests.decoding.simulator.loop import WARM_UP
from tests.decoding.simulator.replay import Choice, Replay
from tests.decoding.simulator.world import TrueCosts

MODEL_LENGTHS = (1, 2, 3, 4, 5, 6, 7, 9, 11, 15, 23, 31)
COPY_LENGTHS = (1, 3, 5, 7, 15, 31)
MIN_MATCHES = (2, 4)


def expected_rate(costs: TrueCosts, agreement: float, length: int, depth: int) -> float:
    """Return confirmed tokens per second when every round drafts `length` tokens.

    Exact by renewal and reward: a round that accepts all leaves the draft model two tokens
    behind, and the next begins with a pass of width 2.
    """
    seconds = costs.of(Role.TARGET, length + 1, depth)
    if length == 0:
        return 1 / seconds
    step = costs.of(Role.DRAFT_MODEL, 1, depth)
    behind = agreement**length
    seconds += length * step + behind * (costs.of(Role.DRAFT_MODEL, 2, depth) - step)
    return sum(agreement**i for i in range(length + 1)) / seconds


def best_length(costs: TrueCosts, agreement: float, depth: int) -> int:
    """Return the draft length with the highest expected rate; 0 is plain decoding."""
    return max((0, *MODEL_LENGTHS), key=lambda k: expected_rate(costs, agreement, k, depth))


def best_choices(training: Sequence[Replay]) -> dict[int, Choice]:
    """Return the best choice by regime: exact lengths for the draft model, the rest by replay.

    Args:
        training: worlds of one kind, with the costs and chances of any other of that kind; their
            coins serve to rank settings.
    """
    models = model_choices(training)
    chosen = min(_nested(models, training), key=lambda choices: _late(training, choices))
    if not training[0].world.copies:
        return chosen
    options = {}
    for regime, model in models.items():
        drafting = {Choice(), model}
        options[regime] = [*drafting, *_copying(drafting)]
    starts = (chosen, dict.fromkeys(models, Choice()))
    found = [_descend(start, options, training) for start in starts]
    return min(found, key=lambda choices: _late(training, choices))


def _descend(
    start: Mapping[int, Choice], options: Mapping[int, list[Choice]], training: Sequence[Replay]
) -> dict[int, Choice]:
    """Improve one regime after the other, twice."""
    chosen = dict(start)
    for regime in 2 * sorted(options):
        chosen[regime] = min(
            [chosen[regime], *options[regime]],
            key=lambda option: _late(training, {**chosen, regime: option}),
        )
    return chosen


def agreements(training: Sequence[Replay]) -> dict[int, tuple[float, int]]:
    """Return the draft model's agreement and the mean depth, by regime."""
    regimes = np.concatenate([replay.world.regimes for replay in training])
    agreement = np.concatenate([replay.world.agreement for replay in training])
    depth = np.concatenate([np.arange(len(replay.world.text)) for replay in training])
    return {
        regime: (float(agreement[where].mean().round(4)), int(depth[where].mean()))
        for regime in sorted(set(regimes.tolist()))
        for where in [regimes == regime]
    }


def model_choices(training: Sequence[Replay]) -> dict[int, Choice]:
    """Return how far to draft with the model, by regime, if it is used at all."""
    costs = training[0].world.costs
    return {
        regime: Choice(best_length(costs, agreement, depth))
        for regime, (agreement, depth) in agreements(training).items()
    }


def _nested(models: Mapping[int, Choice], training: Sequence[Replay]) -> list[dict[int, Choice]]:
    """Return the settings that draft in the regimes of highest agreement only: none, one, two and so on.

    Entering a regime costs catching up, so that drafting may not pay where its rate would.
    """
    known = agreements(training)
    ranked = sorted(models, key=lambda regime: -known[regime][0])
    return [
        {r: models[r] if ranked.index(r) < used else Choice() for r in models}
        for used in range(len(ranked) + 1)
    ]


def _copying(drafting: Iterable[Choice]) -> list[Choice]:
    return [
        replace(choice, copy_length=length, min_match=match)
        for choice in drafting
        for match in MIN_MATCHES
        for length in COPY_LENGTHS
    ]


def _late(replays: Sequence[Replay], choices: Mapping[int, Choice]) -> float:
    """Return the seconds from the 300th token on."""
    taken = [replay.seconds(choices) for replay in replays]
    return float(sum(seconds[-1] - seconds[WARM_UP] for seconds in taken))
