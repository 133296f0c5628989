"""What to propose where no model is chosen: the largest that fits and is fast enough, or one nearly as large and much faster.

Pure: a registry, and memories with their size and how fast they are read; proposals out. What happens to be
free at the moment changes no proposal. A pass of one token reads its weights once, and everything else of it
takes little time beside that. What heads add is foreseen from what passes of several tokens cost, and from how
often the heads are right, as others published it.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from msgspec.structs import asdict

from localspec.decoding.costs import DOUBT, WORTH_TRYING, PassCosts
from localspec.decoding.drafters.draft_length import best_length
from localspec.models.entries import Medium, ModelEntry, Purpose
from localspec.models.mmproj import takes
from localspec.models.registry import Registry

ENOUGH_PER_S = 8.0
"""Tokens per second; people read about as fast."""
MOST_OF_RAM = 0.5
"""The system and other programs want memory, too, and so does a longer context."""
MOST_OF_GPU = 0.85
"""Of a memory that nothing but a GPU uses."""
AT_ALL = 0.8
"""The share of a memory beyond which nothing is proposed."""
_BESIDE_WEIGHTS = 600 << 20
"""For the context and the buffers of passes."""
SPEED_COUNTS = 0.1
"""How much speed counts beside size: ten times the speed makes up for a fifth less size."""
UNKNOWN_PER_S = 100.0
"""A memory that was not measured is a GPU's, and fast."""
PROPOSALS = 3
LONGEST = 7
"""Tokens that heads are foreseen to draft: so many a recurrent state can be rolled back."""


ON_A_CPU = PassCosts(
    (1, 2, 4, 8, 16, 24, 32), (0.0278, 0.0486, 0.0792, 0.1288, 0.1625, 0.2422, 0.287)
)
"""Qwen2.5-Coder 1.5B on two cores (docs/measurements/pass-costs.md). Machines with more cores make cheaper passes."""
ON_A_GPU = PassCosts((1, 3, 6), (1.0, 1.36, 1.91))
"""Qwen3.6-27B on a V100, in passes of one token: from speeds and accepted shares at two lengths (bradrlaw/ai-server#12)."""


@dataclass(frozen=True, slots=True)
class Memory:
    """A memory that a model can be in.

    Args:
        name: `RAM`, or a device's name.
        total_bytes: its size.
        bytes_per_s: how fast passes read it; None where it was not measured.
        most: the share of it that a model may take.
        free_bytes: what is free at the moment; None where that is not known.
        passes: costs of models that were measured in it on a quiet machine, by sha256.
        usual: what passes of other models cost by width, in any unit; None where they may be of any kind.
        is_usual_measured: whether those were measured in it, too.
    """

    name: str
    total_bytes: int
    bytes_per_s: float | None
    most: float = MOST_OF_RAM
    free_bytes: int | None = None
    passes: Mapping[str, PassCosts] = field(default_factory=dict)
    usual: PassCosts | None = None
    is_usual_measured: bool = False


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
        drafter: the model whose heads draft for it, which may be the target; None without any.
        with_mmproj: whether its mmproj file counts, too.
    """

    pair: str
    memory: Memory
    target: ModelEntry
    suits: Suits
    drafter: ModelEntry | None = None
    with_mmproj: bool = False

    @property
    def needed_bytes(self) -> int:
        """What it takes of the memory, without what can be left out: a draft model, and the mmproj file unless that counts."""
        return _needed(self.target, self.with_mmproj)

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
        return self.target.sha256 in self.memory.passes

    @property
    def with_heads(self) -> Mapping[str, float] | None:
        """Tokens per second with its heads by the kind of text, where they pay; None where no figures say that.

        None is also what lies between: where costs that were not measured here leave open whether they pay at all.
        """
        heads = None if self.drafter is None else self.drafter.heads
        speed, memory = self.tokens_per_s, self.memory
        costs, is_sure = memory.passes.get(self.target.sha256), True
        # How many experts a wide pass reads is not known before it was measured.
        if costs is None and self.target.active is None:
            costs, is_sure = memory.usual, memory.is_usual_measured
        if self.drafter is None or heads is None or speed is None or costs is None:
            return None
        step = heads.step
        if step is None and heads.target is not None and self.drafter.is_known:
            step = self.drafter.read_bytes / self.target.read_bytes
        if step is None:
            return None
        # A pass of theirs drafts a token, one of a block drafter all of them.
        passes = [min(n, 1) if heads.in_one_pass else n for n in range(LONGEST + 1)]
        rounds = [costs.of(n + 1) / costs.of(1) + passes[n] * step for n in range(LONGEST + 1)]
        gains = {
            kind: best_length([chance] * LONGEST, rounds)[1]
            for kind, chance in asdict(heads.chances).items()
            if chance is not None
        }
        doubt = 1.0 if is_sure else DOUBT
        pays = {k: speed * gain for k, gain in gains.items() if gain >= WORTH_TRYING * doubt}
        is_open = any(gain > WORTH_TRYING / doubt for gain in gains.values())
        return pays if pays or (gains and not is_open) else None


def recommend(
    registry: Registry,
    memories: Sequence[Memory],
    purpose: Purpose = "chat",
    media: Collection[Medium] = (),
) -> tuple[Recommendation, ...]:
    """Return what to propose, best first: of what suits well, the largest, or one nearly as large and much faster.

    Where too little suits well, what is too slow follows, the fastest first, and then what takes most
    of the memory, the smallest first. Empty where nothing fits.

    Args:
        registry: which pairs are worth it says `recommend` of each.
        memories: the preferred one first; a model is in the first that it suits best.
        purpose: what the model is for.
        media: what it has to take beside text; then its mmproj file counts, too.
    """
    proposals = [
        suited
        for pair in registry.pairs.values()
        if pair.suits(purpose)
        and (target := registry.find(pair.target)) is not None
        and set(media) <= set(takes(target))
        and (suited := best(pair.name, target, memories, registry.drafter_of(pair), bool(media)))
    ]
    return tuple(sorted(proposals, key=_rank)[:PROPOSALS])


def best(
    name: str,
    target: ModelEntry,
    memories: Iterable[Memory],
    drafter: ModelEntry | None = None,
    with_mmproj: bool = False,
) -> Recommendation | None:
    """Return how a model would run in the memory that it suits best; None where it fits into none.

    Args:
        name: of its pair, or its own.
        target: the model.
        memories: as for `recommend`.
        drafter: the model whose heads draft for it; None without any.
        with_mmproj: whether its mmproj file counts, too.
    """
    found = []
    for memory in memories if target.is_known else ():
        needed, speed = _needed(target, with_mmproj), _speed(target, memory)
        if needed > max(memory.most, AT_ALL) * memory.total_bytes:
            continue
        suits = Suits.WELL
        if needed > memory.most * memory.total_bytes:
            suits = Suits.TIGHT
        elif speed is not None and speed < ENOUGH_PER_S:
            suits = Suits.SLOW
        found.append(Recommendation(name, memory, target, suits, drafter, with_mmproj))
    return min(found, key=lambda each: each.suits, default=None)


def needed_bytes(size_bytes: int) -> int:
    """Return about what a model takes, in the usual context, of whose file only the size is known; else see `plan.fit`."""
    return size_bytes + _BESIDE_WEIGHTS


def _needed(target: ModelEntry, with_mmproj: bool) -> int:
    return needed_bytes(target.loaded_bytes if with_mmproj else target.size_bytes)


def _speed(target: ModelEntry, memory: Memory) -> float | None:
    measured = memory.passes.get(target.sha256)
    if measured is not None:
        return 1 / measured.of(1)
    return None if memory.bytes_per_s is None else memory.bytes_per_s / target.read_bytes


def _rank(proposal: Recommendation) -> tuple[int, float]:
    size = proposal.target.size_bytes
    match proposal.suits:
        case Suits.WELL:
            return proposal.suits, -size * (proposal.tokens_per_s or UNKNOWN_PER_S) ** SPEED_COUNTS
        case Suits.SLOW:
            return proposal.suits, -(proposal.tokens_per_s or 0)
        case _:
            return proposal.suits, size
