"""The catalogue of simulated worlds: adversaries, worlds, and what else may draft in them.

What an adversary does to a world depends on what was drafted. An offer is what the program would offer beside: a store of
what was said before, or heads. A store changes neither text nor costs, so whoever knows all and asks no store is still the
one to compare with: regret says what the store costs where it misleads, and is negative where it helps.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tests.decoding.simulator.costs import (
    ACROSS,
    DEAR,
    DIPS,
    EIGHTH,
    F16,
    GPU,
    PUBLISHED,
    Q4_K_M,
    TABLES,
)
from tests.decoding.simulator.texts import (
    Stretch,
    adversarial,
    bimodal,
    drifting,
    measured_under_load,
    miscalibrated,
    repetitive,
    short_replies,
    slow_midway,
    stationary,
)
from tests.decoding.simulator.world import Adversary, Build, GapLaw, TrueCosts, World

_LENGTH = 20
"""Tokens that an adversary changes."""
_PIECE, _GOES_ON = 4, 24
"""Tokens of a misleading piece that are the text's own, as many as the store looks for, and how many others follow."""
UNINFORMATIVE = GapLaw((1.0, 1.5), (1.0, 1.5))
CONFIDENTLY_WRONG = GapLaw((1.0, 1.5), (2.0, 1.5))
CODE, CREATIVE = Stretch(0, 0, 0.97), Stretch(0, 1, 0.3)
COPIED, NEW = Stretch(0, 0, 0.97, edits=0.03), Stretch(0, 1, 0.5)


class CollapseAfterDraft(Adversary):
    """After any drafted round the draft model is wrong for the next tokens."""

    def after(self, world: World, drafted: bool, n_confirmed: int) -> None:
        if drafted:
            world.agreement[n_confirmed : n_confirmed + _LENGTH] = 0.0


@dataclass
class Honeymoon(Adversary):
    """Drafting goes well for a few rounds, then fails until it was given up for a while."""

    rounds: int = 6
    recovers: int = 40
    drafted_rounds: int = 0
    last: int = 0

    def after(self, world: World, drafted: bool, n_confirmed: int) -> None:
        if n_confirmed - self.last > self.recovers:
            self.drafted_rounds = 0
        if not drafted:
            return
        self.last = n_confirmed
        self.drafted_rounds += 1
        if self.drafted_rounds >= self.rounds:
            world.agreement[n_confirmed : n_confirmed + self.recovers] = 0.0


class DivergeAfterCopy(Adversary):
    """What is copied goes on as before, until a draft bets on it."""

    def after(self, world: World, drafted: bool, n_confirmed: int) -> None:
        if drafted:
            rng = np.random.default_rng((world.seed, n_confirmed))
            new: list[int] = rng.integers(0, world.n_vocab, _LENGTH).tolist()
            end = world.turns[-1][1]
            new = new[: max(0, end - n_confirmed)]
            world.text[n_confirmed : n_confirmed + len(new)] = new


class BreakBets(Adversary):
    """Whatever is drafted, the text says something else: at once, or one token later."""

    def before(self, world: World, drafted: Sequence[int], n_confirmed: int) -> None:
        if drafted:
            at = min(n_confirmed % 2, len(drafted) - 1)
            world.text[n_confirmed + at] = (drafted[at] + 1) % world.n_vocab


def _deep(costs: TrueCosts) -> TrueCosts:
    return replace(costs, target_growth=1 / 3000, draft_growth=1 / 1500)


COSTS = {**TABLES, **PUBLISHED, **EIGHTH}
WORLDS: dict[str, Build] = {
    **{
        f"stationary-{name}-{agreement}": stationary(costs, agreement)
        for name, costs in COSTS.items()
        for agreement in (0.5, 0.7, 0.85, 0.95, 0.99)
    },
    **{f"drifting-{name}": drifting(COSTS[name]) for name in ("f16", "gpu", "four-times")},
    **{
        f"{kind}-{name}": adversarial(COSTS[name], adversary, *more)
        for kind, names, adversary, *more in (
            ("adversarial", "q4_k_m f16 gpu", CollapseAfterDraft),
            ("honeymoon", "f16 gpu", Honeymoon),
            ("adversarial-copy", "q4_k_m gpu", DivergeAfterCopy, 0.0, 0.0),
            ("breaking-copy", "q4_k_m gpu", BreakBets, 0.0, 0.0),
        )
        for name in names.split()
    },
    **{
        f"{kind}-{name}": bimodal(COSTS[name], one, other)
        for kind, names, one, other in (
            ("bimodal", "f16 gpu four-times rtx3090-q4_0 metal-q8_0", CODE, CREATIVE),
            ("bimodal", "eighth-q4_k_m eighth-f16", CODE, CREATIVE),
            ("bimodal-copy", "q4_k_m f16 gpu rtx3090-q4_0", COPIED, NEW),
        )
        for name in names.split()
    },
    "edit-q4_k_m": bimodal(Q4_K_M, COPIED, replace(COPIED, edits=0.08)),
    **{
        f"hopeless-{name}": stationary(COSTS[name], 0.0)
        for name in ("eighth-q4_k_m", "q4_k_m", "f16", "gpu", "rtx3090-q4_0", "metal-q4_k")
    },
    "staircase": stationary(DIPS, 0.85),
    "staircase-copy": bimodal(DIPS, COPIED, NEW),
    "hopeless-confident-gpu": stationary(GPU, 0.0, gap_law=CONFIDENTLY_WRONG),
    "gaps-say-nothing-gpu": stationary(GPU, 0.7, gap_law=UNINFORMATIVE),
    "gaps-mislead-f16": bimodal(F16, CODE, CREATIVE, gap_law=CONFIDENTLY_WRONG),
    "dear": stationary(DEAR, 0.99),
    "dear-copy": bimodal(DEAR, COPIED, NEW),
    "deep-f16": stationary(_deep(F16), 0.9, 2500),
    "deep-gpu": stationary(_deep(GPU), 0.9, 2500),
    "miscalibrated-target-dearer": miscalibrated(stationary(F16, 0.9), 1.3, 0.7),
    "miscalibrated-draft-dearer": miscalibrated(stationary(F16, 0.9), 0.7, 1.3),
    "miscalibrated-wide-dearer": miscalibrated(stationary(GPU, 0.6), 1.0, 1.0, 1.4),
    **{
        f"table-under-load-{agreement}": measured_under_load(stationary(Q4_K_M, agreement))
        for agreement in (0.0, 0.5, 0.7, 0.85, 0.95)
    },
    "table-under-load-short-replies": measured_under_load(
        short_replies(Q4_K_M, 0.7, length=120, n=10)
    ),
    "table-under-load-copy": measured_under_load(bimodal(Q4_K_M, COPIED, NEW)),
    "slow-midway-f16": slow_midway(stationary(F16, 0.85)),
    "slow-midway-gpu": slow_midway(stationary(GPU, 0.85)),
    "short-replies-f16": short_replies(F16, 0.85),
    "short-replies-gpu": short_replies(GPU, 0.7),
    "short-replies-across-0.5": short_replies(ACROSS, 0.5, length=64, n=20),
    "stationary-across-0.7": stationary(ACROSS, 0.7),
    "repetitive-q4_k_m": repetitive(Q4_K_M, 0.7),
    "repetitive-gpu": repetitive(GPU, 0.7),
}


def version(world: World) -> None:
    """Keep an earlier version of what will be said, of which a tenth of the tokens is another."""
    rng, text = np.random.default_rng((world.seed, 5)), _replies(world)
    changed = rng.random(len(text)) < 0.1
    others = rng.integers(0, max(text) + 1, len(text))
    world.said_before = (np.where(changed, others, text).tolist(),)


def misleading(world: World) -> None:
    """Keep texts that begin with all that the store looks for of what will be said, and go on differently at once."""
    rng, text = np.random.default_rng((world.seed, 6)), _replies(world)
    starts = range(0, len(text) - _PIECE, _PIECE)
    pieces = [text[start : start + _PIECE] for start in starts]
    world.said_before = tuple(
        [*piece, *rng.integers(0, max(text) + 1, _GOES_ON).tolist()] for piece in pieces
    )


def heads(world: World) -> None:
    """Let heads of the target draft in place of the draft model, at its costs and as often right."""
    world.has_heads = True


OFFERS: dict[str, Callable[[World], None]] = {
    "version": version,
    "misleading": misleading,
    "heads": heads,
}
"""By what follows a world's name and a plus."""


def _replies(world: World) -> list[int]:
    return [token for start, end in world.turns for token in world.text[start:end]]


def build(name: str, seed: int) -> World:
    """Build a world of the catalogue; `NAME+OFFER` has more that may draft, see `OFFERS`."""
    kind, *offers = name.split("+")
    world = WORLDS[kind](seed)
    world.name = name
    for offer in offers:
        OFFERS[offer](world)
    return world
