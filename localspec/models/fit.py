"""The plan: what of a pair goes where, in how much context, so that it fits the free memory.

Pure: shapes, wishes and free memory in, a plan out, with what was given up and why.

The order in which things are given up: the draft model's place on a GPU, layers of the target on a
GPU, the draft model altogether (it changes the speed and never the text), and then context, if
nobody asked for a size of it. The type of the caches is never changed unasked, since that changes
the text.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from localspec.errors import ModelLoadError
from localspec.models.memory import ModelShape, Settings, predict
from localspec.models.offload import Machine, Offload, Place, usages
from localspec.resources import Usage
from localspec.storage.files import size_text

_LEAST_N_CTX = 1024

RAM_HEADROOM_BYTES = 192 << 20
"""For Python, llama.cpp's own tables and other programs."""
GPU_HEADROOM_BYTES = 512 << 20
"""For the driver's context and the kernels' workspace."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to be loaded.

    Args:
        settings: of the target; the draft model shares context and type of the cache, if no more.
        target: where its layers are to go.
        draft_model: likewise.
        n_ctx_asked: whether somebody asked for this context, so that it must not shrink.
    """

    settings: Settings
    target: Offload = field(default_factory=Offload)
    draft_model: Offload = field(default_factory=Offload)
    n_ctx_asked: bool = False

    def settings_of(self, offload: Offload, layers: int) -> Settings:
        """Return how a model is loaded, given how many of its layers are on GPUs."""
        found = None if layers else offload.on_cpu
        found = found or offload.settings or self.settings
        return replace(found, n_ctx=self.settings.n_ctx, kv_type=self.settings.kv_type)


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


def needed_in_ram(uses: Sequence[PlaceUse]) -> int:
    """Return the bytes that a plan takes of the RAM, those of GPUs that share it among them."""
    ram, *gpus = uses
    return ram.needed_bytes + sum(use.needed_bytes for use in gpus if use.place.shares_ram)


@dataclass(frozen=True, slots=True)
class FitPlan:
    """What to load, and where.

    Args:
        n_ctx: tokens of context.
        shrunk: whether that is less than was wished for.
        kv_type: type of the caches.
        target_layers: layers of the target on GPUs, the last projection counted as one.
        draft_layers: likewise of the draft model; None where it is dropped, or there was none.
        uses: what it takes of the RAM, and then of every GPU.
        placed: which layers are where, in words; empty where there is no GPU.
        given_up: what differs from the wish and why, a sentence each.
    """

    n_ctx: int
    kv_type: str
    target_layers: int
    draft_layers: int | None
    uses: tuple[PlaceUse, ...]
    given_up: tuple[str, ...] = ()
    shrunk: bool = False
    placed: str = ""

    @property
    def gpus(self) -> bool:
        """Whether there are GPUs that layers may go to."""
        return len(self.uses) > 1

    @property
    def fits(self) -> bool:
        """Whether every place has room."""
        in_ram = needed_in_ram(self.uses)
        return all(use.fits for use in self.uses) and in_ram <= self.uses[0].place.usable_bytes

    def lines(self) -> list[str]:
        """Return the plan as it is told to people."""
        shown = [
            f"{use.place.name}: {size_text(use.needed_bytes)} of {size_text(use.place.free_bytes)} free"
            for use in self.uses
            if use.needed_bytes
        ]
        cache = f"context {self.n_ctx} in {self.kv_type}"
        needs = f"needs {', '.join(shown)} ({cache})"
        return [needs, *([self.placed] if self.placed else []), *self.given_up]


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
        counts = _offloads(draft_model, wish.draft_model, machine)
        small_offloads = [counts[0], counts[-1]]
    for target_layers in _offloads(target, wish.target, machine):
        for draft_layers in small_offloads:
            big = _of_target(target, wish, target_layers, machine)
            small = [Usage()] * len(big)
            if draft_model is not None and draft_layers is not None:
                small = _of_draft(draft_model, wish, draft_layers, machine, big)
            places = (machine.ram, *machine.gpus)
            plan = FitPlan(
                wish.settings.n_ctx,
                wish.settings.kv_type,
                target_layers,
                draft_layers,
                tuple(PlaceUse(*each) for each in zip(places, big, small, strict=True)),
            )
            if plan.fits:
                lost = tuple(_left_behind(plan, target, draft_model, wish, machine))
                told = _told(plan, target, draft_model, wish, machine)
                return replace(plan, given_up=lost, placed=told)
    return None


def _offloads(shape: ModelShape, offload: Offload, machine: Machine) -> list[int]:
    """Return the numbers of layers on GPUs to try, best first."""
    most = offload.most_layers(shape, machine)
    if most == 0 or offload.layers is not None:
        return [most]
    # With the last projection alone, a GPU would wait for all else.
    return [*range(most, 1, -1), 0]


def _of_target(shape: ModelShape, wish: Wish, layers: int, machine: Machine) -> list[Usage]:
    settings = wish.settings_of(wish.target, layers)
    return usages(shape, settings, wish.target, layers, machine)


def _of_draft(
    shape: ModelShape, wish: Wish, layers: int, machine: Machine, target: Sequence[Usage]
) -> list[Usage]:
    """Return what the draft model takes, which is loaded when the target is."""
    settings = wish.settings_of(wish.draft_model, layers)
    settings = replace(settings, n_ctx=_at_most(settings.n_ctx, shape), rows=1)
    left = tuple(
        replace(gpu, free_bytes=max(0, gpu.free_bytes - used.total_bytes))
        for gpu, used in zip(machine.gpus, target[1:], strict=True)
    )
    return usages(shape, settings, wish.draft_model, layers, replace(machine, gpus=left))


def _at_most(n_ctx: int, shape: ModelShape) -> int:
    return min(n_ctx, shape.n_ctx_train or n_ctx)


def _dropped(draft_model: ModelShape, settings: Settings, machine: Machine) -> str:
    settings = replace(settings, n_ctx=_at_most(settings.n_ctx, draft_model))
    needed = size_text(predict(draft_model, settings)[0].total_bytes)
    return (
        "running without the draft model, which costs speed but changes no text: it needs "
        f"{needed} more, and {machine.ram.name} has {size_text(machine.ram.free_bytes)} free in total"
    )


def _told(
    plan: FitPlan,
    target: ModelShape,
    draft_model: ModelShape | None,
    wish: Wish,
    machine: Machine,
) -> str:
    """Return which layers are where; empty where there is no GPU."""
    if not machine.gpus:
        return ""
    told = [f"the target has {_where(plan.target_layers, target, wish.target, machine)}"]
    if draft_model is not None and plan.draft_layers is not None:
        where = _where(plan.draft_layers, draft_model, wish.draft_model, machine)
        told.append(f"the draft model {where}")
    return ", ".join(told)


def _where(layers: int, shape: ModelShape, offload: Offload, machine: Machine) -> str:
    names = [machine.gpus[number].name for number in offload.places(machine)]
    if layers == 0:
        return "all layers on the CPU"
    return f"{layers} of {len(shape.layers) + 1} layers on {' and '.join(names)}"


def _left_behind(
    plan: FitPlan,
    target: ModelShape,
    draft_model: ModelShape | None,
    wish: Wish,
    machine: Machine,
) -> Iterator[str]:
    """Yield what runs on the CPU that was wished for on a GPU, a sentence each."""
    if wish.target.layers is None and wish.target.places(machine):
        most = len(target.layers) + 1
        if plan.target_layers < most:
            told = f"{plan.target_layers} of {most} layers of the target are on the GPU"
            yield f"{told}: {_free(wish.target, machine)}"
    is_free = wish.draft_model.layers is None and wish.draft_model.places(machine)
    if is_free and draft_model is not None and plan.draft_layers == 0:
        yield f"the draft model runs on the CPU: {_free(wish.draft_model, machine)}"


def _free(offload: Offload, machine: Machine) -> str:
    """Return what bounds layers on GPUs; where those share the RAM, that may be less than what they tell."""
    ram, gpus = machine.ram, [machine.gpus[number] for number in offload.places(machine)]
    bounds = [
        ram if gpu.shares_ram and ram.usable_bytes < gpu.usable_bytes else gpu for gpu in gpus
    ]
    told = (f"{each.name} has {size_text(each.free_bytes)} free" for each in dict.fromkeys(bounds))
    return ", ".join(told)


def _refusal(
    target: ModelShape, draft_model: ModelShape | None, wish: Wish, machine: Machine
) -> str:
    least = _offloads(target, wish.target, machine)[-1]
    usages = _of_target(target, wish, least, machine)
    places = (machine.ram, *machine.gpus)
    uses = [PlaceUse(*each, Usage()) for each in zip(places, usages, strict=True)]
    tight = next((use for use in uses if not use.fits), uses[0])
    needed = needed_in_ram(uses) if tight is uses[0] else tight.needed_bytes
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
        f"{target.name} does not fit, even {what}: it needs {size_text(needed)} and "
        f"{tight.place.name} has {size_text(tight.place.usable_bytes)} to spare: {advice}, "
        "or free memory (--no-fit loads it anyway)"
    )
