"""Offers: what else may draft in a world, as the program would offer it: a store of what was said before, or heads.

A store changes neither text nor costs, so whoever knows all and asks no store is still the one to compare with: regret
says what the store costs where it misleads, and is negative where it helps.
"""

from collections.abc import Callable

import numpy as np

from lab.simulator.world import World

_PIECE, _GOES_ON = 4, 24
"""Tokens of a misleading piece that are the text's own, as many as the store looks for, and how many others follow."""


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
