"""Assessment: what a policy made of a world, beside the clairvoyant and plain decoding.

The noise of a figure is the spread over seeds: an assessment of several states its standard error.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from lab.simulator.catalogue import build
from lab.simulator.clairvoyant import best_choices
from lab.simulator.contenders import Contender, fixed_lookup
from lab.simulator.loop import WARM_UP, Run, Seconds, plain_seconds, regret, run, worst_window
from lab.simulator.replay import Choice, Replay

_TRAINING = (1000, 1001, 1002)  # seeds that only rank the clairvoyant's settings


@cache
def plain_of(name: str, seed: int) -> Seconds:
    """Return what plain decoding takes."""
    return plain_seconds(build(name, seed))


@cache
def clairvoyant(name: str, seed: int, *, sees_gaps: bool = False) -> Seconds:
    """Return what the best drafting by regime takes, where all but the coins is known.

    Args:
        name: of the world.
        seed: of its coins.
        sees_gaps: whether the draft model's scores are seen while it drafts.
    """
    if build(name, seed).adversary is not None:
        return _best_against_adversary(name, seed)
    return _replay(name, seed).seconds(_choices(name, sees_gaps=sees_gaps))


@cache
def _replay(name: str, seed: int) -> Replay:
    return Replay.of(build(name, seed))


@cache
def _choices(name: str, *, sees_gaps: bool) -> dict[int, Choice]:
    return best_choices(_training(name), sees_gaps=sees_gaps)


def _training(name: str) -> list[Replay]:
    return [_replay(name, seed) for seed in _TRAINING]


@cache
def _best_against_adversary(name: str, seed: int) -> Seconds:
    """Return the best of plain decoding and fixed lookups.

    An adversary's world depends on what was done, so that only what keeps to one setting has a
    meaning in hindsight. One that always drafts with the model is always collapsed, and loses.
    """
    taken = [plain_of(name, seed)]
    lengths = (3, 7, 15) if build(name, seed).copies else ()
    taken += [run(build(name, seed), fixed_lookup(length)).seconds for length in lengths]
    return min(taken, key=lambda seconds: float(seconds[-1] - seconds[WARM_UP]))


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """What a policy made of one world with one seed.

    Args:
        name: of the world.
        seed: of its coins.
        run: what it took.
    """

    name: str
    seed: int
    run: Run

    @property
    def regret(self) -> float:
        """Against the clairvoyant, from the 300th token on."""
        return regret(self.run.seconds, clairvoyant(self.name, self.seed))

    @property
    def gap_regret(self) -> float:
        """Against the clairvoyant that sees gaps."""
        return regret(self.run.seconds, clairvoyant(self.name, self.seed, sees_gaps=True))

    @property
    def window(self) -> float:
        """The lowest speed over any 500 tokens, in plain decoding's."""
        return worst_window(self.run.seconds, plain_of(self.name, self.seed))

    @property
    def speed(self) -> float:
        """Over everything, in plain decoding's."""
        return float(plain_of(self.name, self.seed)[-1] / self.run.seconds[-1])


def assess(name: str, seed: int, contender: Contender) -> Outcome:
    """Let a contender without memories run in a world of its own."""
    world = build(name, seed)
    return Outcome(name, seed, run(world, contender))


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean over seeds, and its standard error."""
    spread = float(np.std(values, ddof=1)) if len(values) > 1 else float("nan")
    return float(np.mean(values)), spread / len(values) ** 0.5
