"""Whether llama.cpp took more memory than was planned.

Weights are left out: they are what the file's header says, and of a mapped file llama.cpp logs the whole range that it
maps, parts of which may be weights that are on a GPU.
"""

from collections.abc import Iterator, Mapping, Sequence

from localspec.models.fit import PlaceUse
from localspec.resources import Usage
from localspec.storage.files import size_text


def unforeseen(planned: Sequence[PlaceUse], allocated: Mapping[str, Usage]) -> Iterator[str]:
    """Yield where more was taken than planned and kept free, a sentence each.

    Args:
        planned: what a plan takes of each place.
        allocated: what llama.cpp logged, by the same names.
    """
    for use in planned:
        taken = _beside_weights(allocated.get(use.place.name, Usage()))
        expected = _beside_weights(use.target) + _beside_weights(use.draft_model)
        if taken > expected + use.place.headroom_bytes:
            yield (
                f"caches and scratch take {size_text(taken)} of {use.place.name}, and {size_text(expected)} were planned: "
                "if memory runs short, use a smaller --ctx or --gpu-layers"
            )


def _beside_weights(taken: Usage) -> int:
    return taken.total_bytes - taken.weights_bytes
