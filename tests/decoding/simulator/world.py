"""World: everything in a simulation that does not depend on who drafts, by position in the text.

The text that the target says whatever the prefix, where the draft model agrees, how far apart its
two best scores lie, what each pass really takes, and what calibration had measured of that.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from localspec.decoding.choose import Chooser
from localspec.decoding.costs import PassCosts
from localspec.decoding.model import Role
from localspec.decoding.noise import Noise
from localspec.options import SamplingParams

MARGIN = 130  # drafts may look this far beyond the end of the text


@dataclass(frozen=True, slots=True)
class GapLaw:
    """How the gap between the draft model's two best perturbed scores is distributed: by shape and scale of a gamma distribution."""

    agree: tuple[float, float] = (2.0, 1.5)  # where the target agrees
    disagree: tuple[float, float] = (1.0, 0.8)

    def draw(self, rng: np.random.Generator, n: int) -> tuple[NDArray[np.float64], ...]:
        """Return a gap for either case at each of n positions."""
        return tuple(np.maximum(rng.gamma(*law, n), 0.01) for law in (self.agree, self.disagree))


@dataclass(frozen=True, slots=True)
class TrueCosts:
    """What passes really take, in seconds by width."""

    target: PassCosts
    draft: PassCosts
    target_growth: float = 0.0  # share that each token of depth adds
    draft_growth: float = 0.0
    jitter: float = 0.05  # relative spread of what the clock shows, log-normal

    def of(self, role: Role, width: int, depth: int) -> float:
        """Return the expected seconds of a pass that ends at `depth` tokens."""
        if role is Role.TARGET:
            return self.target.of(width) * (1 + self.target_growth * depth)
        return self.draft.of(width) * (1 + self.draft_growth * depth)


class Adversary:
    """Changes what is to come, knowing what was done."""

    def before(self, world: "World", drafted: Sequence[int], n_confirmed: int) -> None:
        """Change the world before the target sees what was drafted."""

    def after(self, world: "World", drafted: bool, n_confirmed: int) -> None:
        """Change the world from position `n_confirmed` on; `drafted` says what the round was."""


@dataclass(slots=True, eq=False)
class World:
    """One simulated world; arrays go by position in the sequence, prompt included."""

    name: str
    seed: int  # fixes all its coins
    n_vocab: int  # ids of both models
    text: list[int]  # what the target says, and what users said between
    turns: tuple[tuple[int, int], ...]  # where each reply begins and ends
    regimes: NDArray[np.int64]  # which stretch is of which kind; the clairvoyant knows it
    agreement: NDArray[np.float64]  # chance that the draft model agrees, before any gap is seen
    costs: TrueCosts
    tables: tuple[PassCosts, PassCosts]  # target's and draft model's, as calibration measured them
    gap_law: GapLaw  # of the draft model's scores
    slowness: list[float]  # factor on all costs while a position is the next
    temperature: float
    copies: bool = False  # whether there is anything to find by lookup
    adversary: Adversary | None = None  # acts after every round
    said_before: tuple[list[int], ...] = ()  # texts of other conversations in a store
    has_heads: bool = False  # whether heads of the target draft in place of a draft model
    coins: NDArray[np.float64] = field(init=False)
    gaps: tuple[NDArray[np.float64], ...] = field(init=False)
    wrong: list[int] = field(init=False)
    seconds_right: NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        rng = np.random.default_rng((self.seed, 1))
        n = len(self.text)
        self.coins = rng.random(n)
        self.gaps = self.gap_law.draw(rng, n)
        shift = rng.integers(1, self.n_vocab, n)
        self.wrong = ((np.array(self.text) + shift) % self.n_vocab).tolist()
        self.seconds_right = rng.random(n) < 0.42  # where the first choice is not

    def agrees(self, position: int) -> bool:
        return bool(self.coins[position] < self.agreement[position])

    def gap(self, position: int) -> float:
        return float(self.gaps[0 if self.agrees(position) else 1][position])

    def chooser(self) -> Chooser:
        """Return a chooser that never cuts either of the draft model's two best scores."""
        params = SamplingParams(self.temperature, top_k=8, top_p=1, min_p=0)
        return Chooser(params, Noise(self.seed))

    def seconds(self, role: Role, width: int, depth: int, n_confirmed: int) -> float:
        """Return the expected seconds of a pass while `n_confirmed` tokens are confirmed."""
        return self.costs.of(role, width, depth) * self.slowness[n_confirmed]


Build = Callable[[int], World]
"""Builds a world of one kind from a seed."""
