"""The plan: what of a pair goes where, in how much context, so that it fits the free memory.

Pure: shapes, wishes and free memory in, a plan out, with what was given up and why.

The order in which things are given up: the draft model's place on a GPU, layers of the target on a
GPU, the draft model altogether (it changes the speed and never the text), and then context, if
nobody asked for a size of it. The type of the caches is never changed unasked, since that changes
the text.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from localspec.decoding.drafters.backoff import DRAFT_ROWS
from localspec.errors import ModelLoadError
from localspec.models.memory import ModelShape, Settings, Usage, predict
from localspec.storage.files import size_text

_LEAST_N_CTX = 1024

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


def fit(
    target: ModelShape, draft_model: ModelShape | None, wish: Wish, machine: Machine
) -> FitPlan:
    """Return the best plan that fits.

    Raises:
        ModelLoadError: not even the least does; the line says what is missing and what would help.
    """
    asked = replace(wish.settings, n_ctx=_at_most(wish.settings.n_ctx, target))
    wish = replace(wish, settings=asked)
    for n_ctx in _contexts(wish):
        settings = replace(asked, n_ctx=n_ctx)
        shrunk = n_ctx < asked.n_ctx
        for small in (draft_model, None) if draft_model else (None,):
            plan = _placed(target, small, replace(wish, settings=settings), machine)
            if plan is None:
                continue
            notes = plan.given_up
            if shrunk:
                smaller = f"the context is {n_ctx} tokens instead of {asked.n_ctx}"
                notes = (f"{smaller}: no more fits free memory", *notes)
            if small is None and draft_model is not None:
                notes = (_dropped(draft_model, settings, machine), *notes)
            return replace(plan, given_up=notes, shrunk=shrunk)
    raise ModelLoadError(_refusal(target, draft_model, wish, machine))


def _contexts(wish: Wish) -> Iterator[int]:
    n_ctx = wish.settings.n_ctx
    yield n_ctx
    while not wish.n_ctx_asked and n_ctx // 2 >= _LEAST_N_CTX:
        n_ctx //= 2
        yield n_ctx


def _placed(
    target: ModelShape, draft_model: ModelShape | None, wish: Wish, machine: Machine
) -> FitPlan | None:
    """Return the plan with most layers of the target on GPUs, then most of the draft model."""
    small_offloads: Sequence[int | None] = [None]
    if draft_model is not None:  # all on a GPU or not at all: half of one would wait for its rest
        counts = _offloads(draft_model, wish, machine)
        small_offloads = [counts[0], counts[-1]]
    for target_layers in _offloads(target, wish, machine):
        for draft_layers in small_offloads:
            plan = FitPlan(
                wish.settings.n_ctx,
                wish.settings.kv_type,
                target_layers,
                draft_layers,
                _uses(target, draft_model, wish, machine, (target_layers, draft_layers or 0)),
            )
            if plan.fits:
                return replace(plan, given_up=tuple(_left_behind(plan, target, wish, machine)))
    return None


def _offloads(shape: ModelShape, wish: Wish, machine: Machine) -> list[int]:
    """Return the numbers of layers on GPUs to try, best first."""
    most = len(shape.layers)
    if not machine.gpus:
        return [0]
    if wish.gpu_layers is not None:
        return [min(max(wish.gpu_layers - 1, 0), most)]
    return list(range(most, -1, -1))


def _uses(
    target: ModelShape,
    draft_model: ModelShape | None,
    wish: Wish,
    machine: Machine,
    layers: tuple[int, int],
) -> tuple[PlaceUse, ...]:
    places = (machine.ram, *machine.gpus)
    nothing = [Usage()] * len(places)
    big = predict(target, wish.settings, split_layers(layers[0], machine.gpus))
    small = nothing
    if draft_model is not None:
        n_ctx = _at_most(wish.settings.n_ctx, draft_model)
        settings = replace(wish.settings, n_ctx=n_ctx, rows=DRAFT_ROWS)
        small = predict(draft_model, settings, split_layers(layers[1], machine.gpus))
    return tuple(PlaceUse(*each) for each in zip(places, big, small, strict=True))


def split_layers(count: int, gpus: Sequence[Place]) -> tuple[int, ...]:
    """Share layers out among GPUs in proportion to their free memory, as llama.cpp does."""
    total = sum(gpu.free_bytes for gpu in gpus)
    shares, taken, seen = [], 0, 0
    for gpu in gpus:
        seen += gpu.free_bytes
        upto = round(count * seen / total) if total else count
        shares.append(upto - taken)
        taken = upto
    return tuple(shares)


def native_count(layers: int) -> int:
    """Return what llama.cpp calls so many layers on GPUs: it counts the output projection, too."""
    return layers + 1 if layers else 0


def _at_most(n_ctx: int, shape: ModelShape) -> int:
    return min(n_ctx, shape.n_ctx_train or n_ctx)


def _dropped(draft_model: ModelShape, settings: Settings, machine: Machine) -> str:
    settings = replace(settings, n_ctx=_at_most(settings.n_ctx, draft_model))
    needed = size_text(predict(draft_model, settings)[0].total_bytes)
    return (
        "running without the draft model, which costs speed but changes no text: it needs "
        f"{needed} more, and {machine.ram.name} has {size_text(machine.ram.free_bytes)} free in total"
    )


def _left_behind(plan: FitPlan, target: ModelShape, wish: Wish, machine: Machine) -> Iterator[str]:
    """Yield what runs on the CPU that was wished for on a GPU, a sentence each."""
    if not machine.gpus or wish.gpu_layers is not None:
        return
    names = ", ".join(f"{gpu.name} has {size_text(gpu.free_bytes)} free" for gpu in machine.gpus)
    most = len(target.layers)
    if plan.target_layers < most:
        yield f"{plan.target_layers} of {most} layers of the target are on the GPU: {names}"
    if plan.draft_layers == 0:
        yield f"the draft model runs on the CPU: {names}"


def _refusal(
    target: ModelShape, draft_model: ModelShape | None, wish: Wish, machine: Machine
) -> str:
    uses = _uses(target, None, wish, machine, (_offloads(target, wish, machine)[-1], 0))
    tight = next((use for use in uses if not use.fits), uses[0])
    remedies = []
    for n_ctx in (2**power for power in range(20, 8, -1)):
        smaller = replace(wish, settings=replace(wish.settings, n_ctx=n_ctx), n_ctx_asked=True)
        if n_ctx < wish.settings.n_ctx and _placed(target, None, smaller, machine):
            remedies.append(f"--ctx {n_ctx}")
            break
    if wish.settings.kv_type != "q8_0":
        packed = replace(wish, settings=replace(wish.settings, kv_type="q8_0"))
        if _placed(target, None, packed, machine):
            remedies.append("--kv-type q8_0")
    advice = f"try {' or '.join(remedies)}" if remedies else "choose a smaller model"
    what = "without its draft model" if draft_model else f"at a context of {wish.settings.n_ctx}"
    return (
        f"{target.name} does not fit, even {what}: it needs {size_text(tight.needed_bytes)} and "
        f"{tight.place.name} has {size_text(tight.place.usable_bytes)} to spare: {advice}, "
        "or free memory (--no-fit loads it anyway)"
    )
