"""Adversaries: what they do to a world depends on what was drafted."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lab.simulator.world import World


@dataclass(slots=True)
class CollapseAfterDraft:
    """After any drafted round the draft model is wrong for the next tokens."""

    length: int = 20

    def before(self, world: World, drafted: Sequence[int], n_confirmed: int) -> None:
        pass

    def after(self, world: World, drafted: bool, n_confirmed: int) -> None:
        if drafted:
            world.agreement[n_confirmed : n_confirmed + self.length] = 0.0


@dataclass(slots=True)
class Honeymoon:
    """Drafting goes well for a few rounds, then fails until it was given up for a while."""

    rounds: int = 6
    recovers: int = 40
    drafted_rounds: int = 0
    last: int = 0

    def before(self, world: World, drafted: Sequence[int], n_confirmed: int) -> None:
        pass

    def after(self, world: World, drafted: bool, n_confirmed: int) -> None:
        if n_confirmed - self.last > self.recovers:
            self.drafted_rounds = 0
        if not drafted:
            return
        self.last = n_confirmed
        self.drafted_rounds += 1
        if self.drafted_rounds >= self.rounds:
            world.agreement[n_confirmed : n_confirmed + self.recovers] = 0.0


@dataclass(slots=True, eq=False)
class DivergeAfterCopy:
    """What is copied goes on as before, until somebody bets on it."""

    length: int = 20

    def before(self, world: World, drafted: Sequence[int], n_confirmed: int) -> None:
        pass

    def after(self, world: World, drafted: bool, n_confirmed: int) -> None:
        if drafted:
            rng = np.random.default_rng((world.seed, n_confirmed))
            new: list[int] = rng.integers(0, world.n_vocab, self.length).tolist()
            end = world.turns[-1][1]
            new = new[: max(0, end - n_confirmed)]
            world.text[n_confirmed : n_confirmed + len(new)] = new


@dataclass(slots=True)
class BreakBets:
    """Whatever is drafted, the text says something else: at once, or one token later."""

    def before(self, world: World, drafted: Sequence[int], n_confirmed: int) -> None:
        if drafted:
            at = min(n_confirmed % 2, len(drafted) - 1)
            world.text[n_confirmed + at] = (drafted[at] + 1) % world.n_vocab

    def after(self, world: World, drafted: bool, n_confirmed: int) -> None:
        pass
