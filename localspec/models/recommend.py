"""What to propose where no model is chosen: the largest that fits and is fast enough, or one nearly as large and much faster.

Pure: a registry, and memories with their size and how fast they are read; proposals out. What happens to be
free at the moment changes no proposal. A pass of one token reads its weights once, and everything else of it
takes little time beside that.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from localspec.models.entries import ModelEntry, Purpose
from localspec.models.registry import Registry

ENOUGH_PER_S = 8.0
"""Tokens per second; people read about as fast."""
MOST_OF_RAM = 0.5
"""The system and other programs want memory, too, and so does a longer context."""
AT_ALL = 0.8
"""The share of a memory beyond which nothing is proposed."""
MOST_OF_GPU = 0.85
"""Of a memory that nothing but a GPU uses."""
OVERHEAD_BYTES = 600 << 20
"""For the context and the buffers of passes, beside the weights."""
SPEED_COUNTS = 0.1
"""How much speed counts beside size: ten times the speed makes up for a fifth less size."""
UNKNOWN_PER_S = 100.0
"""A memory that was not measured is a GPU's, and fast."""
PROPOSALS = 3


@dataclass(frozen=True, slots=True)
class Memory:
    """A memory that a model can be in.

    Args:
        name: `RAM`, or a device's name.
        total_bytes: its size.
        bytes_per_s: how fast passes read it; None where it was not measured.
        most: the share of it that a model may take.
        free_bytes: what is free at the moment; None where that is not known.
        tokens_per_s: how fast models are that were measured in it on a quiet machine, by sha256.
    """

    name: str
    total_bytes: int
    bytes_per_s: float | None
    most: float = MOST_OF_RAM
    free_bytes: int | None = None
    tokens_per_s: Mapping[str, float] = field(default_factory=dict)


class Suits(IntEnum):
    """How well a model suits a memory; the best first."""

    WELL = 0
    SLOW = 1
    TIGHT = 2


@dataclass(frozen=True, slots=True)
class Recommendation:
    """A pair that could be taken.

    Args:
        pair: its name.
        memory: where its target would be.
        target: what the registry says of it.
        suits: how well.
    """

    pair: str
    memory: Memory
    target: ModelEntry
    suits: Suits

    @property
    def needed_bytes(self) -> int:
        """What it takes of the memory, without a draft model: that is left out where it does not fit."""
        return self.target.size_bytes + OVERHEAD_BYTES

    @property
    def is_short(self) -> bool:
        """Whether less memory is free at the moment than it takes."""
        free = self.memory.free_bytes
        return free is not None and free < self.needed_bytes

    @property
    def tokens_per_s(self) -> float | None:
        """The speed without drafting, measured or estimated; None where nothing was measured."""
        return _speed(self.target, self.memory)

    @property
    def is_measured(self) -> bool:
        """Whether the speed was measured with this model; else it is estimated by how fast its memory is read."""
        return self.target.sha256 in self.memory.tokens_per_s


def recommend(
    registry: Registry, memories: Sequence[Memory], purpose: Purpose = "chat"
) -> tuple[Recommendation, ...]:
    """Return what to propose, best first: of what suits well, the largest, or one nearly as large and much faster.

    Where too little suits well, what is too slow follows, the fastest first, and then what takes most
    of the memory, the smallest first. Empty where nothing fits.

    Args:
        registry: which pairs are worth it says `recommend` of each.
        memories: the preferred one first; a model is in the first that it suits best.
        purpose: what the model is for.
    """
    proposals = [
        suited
        for pair in registry.pairs.values()
        if pair.recommend == purpose
        and (target := registry.find(pair.target)) is not None
        and (suited := best(pair.name, target, memories)) is not None
    ]
    return tuple(sorted(proposals, key=_rank)[:PROPOSALS])


def best(name: str, target: ModelEntry, memories: Iterable[Memory]) -> Recommendation | None:
    """Return how a model would run in the memory that it suits best; None where it fits into none.

    Args:
        name: of its pair, or its own.
        target: the model.
        memories: as for `recommend`.
    """
    proposals = _proposals(name, target, memories) if target.is_known else ()
    return min(proposals, key=lambda each: each.suits, default=None)


def _proposals(
    pair: str, target: ModelEntry, memories: Iterable[Memory]
) -> Iterator[Recommendation]:
    for memory in memories:
        needed, speed = target.size_bytes + OVERHEAD_BYTES, _speed(target, memory)
        if needed > max(memory.most, AT_ALL) * memory.total_bytes:
            continue
        suits = Suits.WELL
        if needed > memory.most * memory.total_bytes:
            suits = Suits.TIGHT
        elif speed is not None and speed < ENOUGH_PER_S:
            suits = Suits.SLOW
        yield Recommendation(pair, memory, target, suits)


def _speed(target: ModelEntry, memory: Memory) -> float | None:
    estimated = None if memory.bytes_per_s is None else memory.bytes_per_s / target.read_bytes
    return memory.tokens_per_s.get(target.sha256, estimated)


def _rank(proposal: Recommendation) -> tuple[int, float]:
    size = proposal.target.size_bytes
    match proposal.suits:
        case Suits.WELL:
            return proposal.suits, -size * (proposal.tokens_per_s or UNKNOWN_PER_S) ** SPEED_COUNTS
        case Suits.SLOW:
            return proposal.suits, -(proposal.tokens_per_s or 0)
        case _:
            return proposal.suits, size


def rounded(speed: float) -> str:
    """Return tokens per second with two digits, as people read them."""
    return f"{speed:.0f}" if speed >= 10 else f"{speed:.1f}"
