"""What a plan gives up, and why, a sentence each."""

from collections.abc import Iterator

from localspec.models.fit_plan import FitPlan, Machine, Wish
from localspec.models.memory import Usage
from localspec.models.shape import ModelShape
from localspec.models.space import size_text


def left_behind(plan: FitPlan, target: ModelShape, wish: Wish, machine: Machine) -> Iterator[str]:
    """Yield what runs on the CPU that was wished for on a GPU."""
    if not machine.gpus or wish.gpu_layers is not None:
        return
    names = ", ".join(f"{gpu.name} has {size_text(gpu.free_bytes)} free" for gpu in machine.gpus)
    if plan.target_layers < len(target.layers):
        yield (
            f"{plan.target_layers} of {len(target.layers)} layers of the target are on the GPU: "
            f"{names}"
        )
    if plan.draft_layers == 0:
        yield f"the draft model runs on the CPU: {names}"


def smaller_context(asked: int, n_ctx: int) -> str:
    """Return that the context is smaller than was wished for."""
    return (
        f"the context is {n_ctx} tokens instead of {asked}: the memory that is free holds no more"
    )


def dropped(usage: Usage, machine: Machine) -> str:
    """Return that the draft model is left out, which would take `usage` of the RAM."""
    return (
        f"the draft model is left out, which costs speed and changes no text: it needs "
        f"{size_text(usage.total_bytes)} more, and {machine.ram.name} has "
        f"{size_text(machine.ram.free_bytes)} free in all"
    )
