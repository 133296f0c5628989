"""Assessment: what a policy made of a world, beside the clairvoyant and plain decoding."""

from dataclasses import dataclass
from functools import cache

from tests.decoding.simulator.catalogue import build
from tests.decoding.simulator.clairvoyant import best_choices
from tests.decoding.simulator.contenders import Contender, fixed_lookup
from tests.decoding.simulator.loop import (
    WARM_UP,
    Run,
    Seconds,
    plain_seconds,
    regret,
    run,
    worst_window,
)
from tests.decoding.simulator.replay import Choice, Replay

_TRAINING = (1000, 1001, 1002)  # seeds that only rank the clairvoyant's settings


@cache
def plain_of(name: str, seed: int) -> Seconds:
    """Return what plain decoding takes."""
    return plain_seconds(build(name, seed))


@cache
def clairvoyant(name: str, seed: int) -> Seconds:
    """Return what the best drafting by regime takes, where all but the coins is known."""
    if build(name, seed).adversary is not None:
        return _best_against_adversary(name, seed)
    return _replay(name, seed).seconds(_choices(name))


@cache
def _replay(name: str, seed: int) -> Replay:
    return Replay.of(build(name, seed))


@cache
def _choices(name: str) -> dict[int, Choice]:
    return best_choices([_replay(name, seed) for seed in _TRAINING])


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
    """What a policy made of one world with one seed."""

    name: str
    seed: int
    run: Run

    @property
    def regret(self) -> float:
        """Against the clairvoyant, from the 300th token on."""
        return regret(self.run.seconds, clairvoyant(self.name, self.seed))

    @property
    def window(self) -> float:
        """The lowest speed over any 500 tokens, in plain decoding's."""
        return worst_window(self.run.seconds, plain_of(self.name, self.seed))


def assess(name: str, seed: int, contender: Contender) -> Outcome:
    """Let a contender without memories run in a world of its own."""
    world = build(name, seed)
    return Outcome(name, seed, run(world, contender))
