"""Which layers a model can do without: a greedy search that asks as seldom as it can.

Pure: knows no model. What a set of layers is worth is asked for.
"""

from collections.abc import Callable, Iterator
from functools import cache

_AGAIN = 4


def dispensable(
    n_layers: int, most: int, worth: Callable[[tuple[int, ...]], float], again: int = _AGAIN
) -> Iterator[tuple[tuple[int, ...], float]]:
    """Yield sets of layers that a model does without best, each with one layer more than the one before, and its worth.

    Args:
        n_layers: of the model.
        most: layers that may be left out in the end.
        worth: of the model without some layers, ascending; more is better.
        again: layers at most that are asked for anew before one of them goes: what leaving one out does, beside
            others, is much like what it does alone.

    Source: greedy choice with postponed evaluations, Minoux 1978; for layers, Zhang et al. 2024, arXiv:2309.08168.
    """
    worth = cache(worth)
    gone, now = tuple[int, ...](), worth(())
    harm = {layer: now - worth((layer,)) for layer in range(n_layers)} if most else {}
    for _ in range(min(most, n_layers)):
        fresh = dict[
            int, float
        ]()  # what is left without each of these, and without those that are gone
        while True:
            layer = min(harm, key=harm.__getitem__)
            if layer in fresh or len(fresh) == again:
                break
            fresh[layer] = worth(tuple(sorted((*gone, layer))))
            harm[layer] = now - fresh[layer]
        layer = max(fresh, key=fresh.__getitem__)
        gone, now = tuple(sorted((*gone, layer))), fresh[layer]
        del harm[layer]
        yield gone, now
