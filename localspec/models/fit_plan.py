"""What a plan is made of: places and their free memory, a wish, and what became of it. Values only."""

from dataclasses import dataclass

from localspec.models.memory import Settings, Usage
from localspec.models.space import size_text

RAM_HEADROOM_BYTES = 192 << 20
"""For Python, llama.cpp's own tables and other programs."""
GPU_HEADROOM_BYTES = 512 << 20
"""For the driver's context and the kernels' workspace."""


@dataclass(frozen=True, slots=True)
class Place:
    """A memory that models can be in: the machine's own, or a GPU's. Sizes in bytes."""

    name: str
    free_bytes: int
    headroom_bytes: int

    @property
    def usable_bytes(self) -> int:
        """What may be filled."""
        return max(self.free_bytes - self.headroom_bytes, 0)


@dataclass(frozen=True, slots=True)
class Machine:
    """Free memory; `gpus` are those that layers may go to."""

    ram: Place
    gpus: tuple[Place, ...] = ()


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to be loaded.

    Args:
        settings: of the target; the draft model shares them, with one row.
        gpu_layers: what llama.cpp is told for both models; None is as many as fit.
        n_ctx_asked: whether somebody asked for this context, so that it must not shrink.
    """

    settings: Settings
    gpu_layers: int | None = None
    n_ctx_asked: bool = False


@dataclass(frozen=True, slots=True)
class PlaceUse:
    """What a plan takes of one place, in bytes."""

    place: Place
    target: Usage
    draft_model: Usage

    @property
    def needed_bytes(self) -> int:
        """Both models together."""
        return self.target.total_bytes + self.draft_model.total_bytes

    @property
    def fits(self) -> bool:
        """Whether there is room."""
        return self.needed_bytes <= self.place.usable_bytes


@dataclass(frozen=True, slots=True)
class FitPlan:
    """What to load, and where.

    Args:
        n_ctx: tokens of context.
        shrunk: whether that is less than was wished for.
        kv_type: type of the caches.
        target_layers: layers of the target on GPUs.
        draft_layers: likewise of the draft model; None where it is dropped, or there was none.
        uses: what it takes of the RAM, and then of every GPU.
        given_up: what differs from the wish and why, a sentence each.
    """

    n_ctx: int
    kv_type: str
    target_layers: int
    draft_layers: int | None
    uses: tuple[PlaceUse, ...]
    given_up: tuple[str, ...] = ()
    shrunk: bool = False

    @property
    def gpus(self) -> bool:
        """Whether there are GPUs that layers may go to."""
        return len(self.uses) > 1

    @property
    def fits(self) -> bool:
        """Whether every place has room."""
        return all(use.fits for use in self.uses)

    def lines(self) -> list[str]:
        """Return the plan as it is told to people."""
        shown = [
            f"{use.place.name}: {size_text(use.needed_bytes)} of {size_text(use.place.free_bytes)} free"
            for use in self.uses
            if use.needed_bytes
        ]
        where = f", {self.target_layers} layers on the GPU" if self.target_layers else ""
        cache = f"context {self.n_ctx} in {self.kv_type}{where}"
        return [f"needs {', '.join(shown)} ({cache})", *self.given_up]
