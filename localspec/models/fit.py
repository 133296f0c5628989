"""What of a pair goes where, in how much context, so that it fits the free memory.

Pure: shapes, options and free memory in, a plan out, with what was given up and why.

The order in which things are given up: the draft model's place on a GPU, layers of the target on a
GPU, the draft model altogether (it changes the speed and never the text), and then context, if
no size of it was given. The type of the caches is never changed by itself, since that changes
the text.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from localspec.errors import MemoryShort
from localspec.models.memory import ModelShape, context_of, predict
from localspec.options import QUANTISED_KV_TYPES, LoadOptions
from localspec.resources import Usage
from localspec.storage.files import size_text

_LEAST_N_CTX = 1024

RAM_HEADROOM_BYTES = 192 << 20
"""For Python, llama.cpp's own tables and other programs."""
GPU_HEADROOM_BYTES = 512 << 20
"""For the driver's context and the kernels' workspace."""


@dataclass(frozen=True, slots=True)
class Place:
    """A memory that models can be in: the machine's own, or a GPU's. Sizes in bytes.

    `shares_ram` says that a GPU has no memory of its own: what it holds, the RAM holds.
    """

    name: str
    free_bytes: int
    headroom_bytes: int
    shares_ram: bool = False

    @property
    def usable_bytes(self) -> int:
        """What may be filled."""
        return max(self.free_bytes - self.headroom_bytes, 0)


@dataclass(frozen=True, slots=True)
class Machine:
    """Free memory; `gpus` are those that layers of either model may go to."""

    ram: Place
    gpus: tuple[Place, ...] = ()

    @property
    def places(self) -> tuple[Place, ...]:
        """The RAM, and then every GPU."""
        return self.ram, *self.gpus

    @property
    def usable_bytes(self) -> int:
        """What may be filled of all memories, each counted once."""
        own = (gpu.usable_bytes for gpu in self.gpus if not gpu.shares_ram)
        return self.ram.usable_bytes + sum(own)


@dataclass(frozen=True, slots=True)
class ModelLoad:
    """A model that is to be loaded.

    Args:
        shape: its sizes.
        options: how it is loaded; `gpu_layers` None puts as many layers on GPUs as fit.
        gpus: names of the GPUs that its layers may go to, in llama.cpp's order.
        heads: in place of a draft model, whether they are heads of the target.
        follows: whether these are layers of the target's file, its last ones, which are where those are.
        encoder_bytes: of its encoders of pictures and sounds, which are on the first of its GPUs, if it has layers there.
    """

    shape: ModelShape
    options: LoadOptions
    gpus: tuple[str, ...] = ()
    heads: bool = False
    follows: bool = False
    encoder_bytes: int = 0

    @property
    def n_ctx(self) -> int:
        """Tokens of context: what the options say, or what the model was trained for if that is less."""
        n_ctx = context_of(self.options)
        return min(n_ctx, self.shape.n_ctx_train or n_ctx)

    @property
    def most_layers(self) -> int:
        """How many layers may be on GPUs, the last projection counted as one."""
        wanted, most = self.options.gpu_layers, len(self.shape.layers) + 1
        return (most if wanted is None else min(most, wanted)) if self.gpus else 0

    def with_context(self, n_ctx: int, **changes: str | int) -> "ModelLoad":
        """Return the same with another context, and other options changed."""
        options = replace(self.options, n_ctx=max(n_ctx, 2), **changes)  # type: ignore[arg-type]
        return replace(self, options=options)

    def usages(self, layers: int, machine: Machine) -> list[Usage]:
        """Return what the model takes of the RAM, and of every GPU of a machine, with so many layers on its GPUs."""
        options = replace(self.options, n_ctx=max(self.n_ctx, 2))
        names = [gpu.name for gpu in machine.gpus]
        numbers = [names.index(name) for name in self.gpus]
        shares = options.shares if numbers else ()
        if options.split == "tensor" and layers:
            # Each GPU has a part of every layer, and the scratch of a whole pass.
            ram, whole = predict(self.shape, options, (layers,))
            parts = shares or [1.0] * len(numbers)
            on_gpus = [whole.part(each / sum(parts)) for each in parts]
        else:
            weights = shares or [machine.gpus[number].free_bytes for number in numbers]
            ram, *on_gpus = predict(self.shape, options, split_layers(layers, weights))
        usages = [ram, *([Usage()] * len(names))]
        for number, usage in zip(numbers, on_gpus, strict=True):
            usages[1 + number] = usage
        usages[1 + numbers[0] if layers else 0] += Usage(weights_bytes=self.encoder_bytes)
        return usages

    def layer_counts(self) -> list[int]:
        """Return the numbers of layers on GPUs to try, best first."""
        if self.most_layers == 0 or self.options.gpu_layers is not None:
            return [self.most_layers]
        # With the last projection alone, a GPU would wait for all else.
        return [*range(self.most_layers, 1, -1), 0]


def split_layers(count: int, weights: Sequence[float]) -> tuple[int, ...]:
    """Share layers out among GPUs in proportion to some weights, as llama.cpp does, in single precision.

    Args:
        count: layers, the last projection counted as one.
        weights: of each GPU; its free memory by default.
    """
    if not weights:
        return ()
    ends = np.cumsum(np.array(weights if any(weights) else [1] * len(weights), np.float32))
    bounds = (ends / ends[-1]).tolist()
    shares = [0] * len(weights)
    for layer in range(count):
        shares[bisect_right(bounds, float(np.float32(layer) / np.float32(count)))] += 1
    return tuple(shares)


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
        kv_type: type of the caches.
        target_layers: layers of the target on GPUs, the last projection counted as one.
        draft_layers: those of the draft model; None where it is dropped, or there was none.
        uses: what it takes of the RAM, and then of every GPU.
        given_up: what differs from what was asked for and why, a sentence each.
        shrunk: whether the context is smaller than that.
        placed: which layers are where, in words; empty where there is no GPU.
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
        """Return the plan in sentences."""
        needs = [
            f"{use.place.name}: {size_text(use.needed_bytes)} of {size_text(use.place.free_bytes)} free"
            for use in self.uses
            if use.needed_bytes
        ]
        first = f"needs {', '.join(needs)} (context {self.n_ctx} in {self.kv_type})"
        return [first, *([self.placed] if self.placed else []), *self.given_up]


def fit(
    target: ModelLoad, draft_model: ModelLoad | None, machine: Machine, *, shrinks: bool = True
) -> FitPlan:
    """Return the best plan that fits.

    Args:
        target: the target; the draft model shares context and type of its cache.
        draft_model: the draft model, if there is one.
        machine: what is free.
        shrinks: whether the context may be smaller than the target's options say.

    Raises:
        ModelLoadError: not even the least does; the line names what is missing and what would help.
    """
    full = target.n_ctx
    sizes = [full]
    while shrinks and sizes[-1] // 2 >= _LEAST_N_CTX:
        sizes.append(sizes[-1] // 2)
    for n_ctx in sizes:
        big, small = target.with_context(n_ctx), None
        if draft_model is not None:
            rows = draft_model.options.max_rows if draft_model.heads else 1
            small = draft_model.with_context(n_ctx, kv_type=target.options.kv_type, max_rows=rows)
        for drafter in (small, None) if small else (None,):
            plan = _place(big, drafter, machine)
            if plan is not None:
                notes = tuple(_notes(plan, big, small, machine, full))
                placed = _placed(plan, big, drafter)
                return replace(plan, given_up=notes, shrunk=n_ctx < full, placed=placed)
    raise MemoryShort(_refusal(target.with_context(full), draft_model is not None, machine))


def _place(target: ModelLoad, draft_model: ModelLoad | None, machine: Machine) -> FitPlan | None:
    """Return the plan with most layers of the target on GPUs, then most of the draft model; None where none fits."""
    draft_counts: Sequence[int | None] = [None]
    if draft_model is not None:  # all on a GPU or not at all: half of one would wait for its rest
        counts = draft_model.layer_counts()
        draft_counts = [counts[0], counts[-1]]
    for target_layers in target.layer_counts():
        big = target.usages(target_layers, machine)
        # The draft model is loaded when the target is.
        left = tuple(
            replace(gpu, free_bytes=max(0, gpu.free_bytes - used.total_bytes))
            for gpu, used in zip(machine.gpus, big[1:], strict=True)
        )
        if draft_model is not None and draft_model.follows:
            # llama.cpp counts them with the target's, right before the last projection.
            most = len(draft_model.shape.layers) + 1
            draft_counts = [most if target_layers >= most else 0]
        for draft_layers in draft_counts:
            small = [Usage()] * len(big)
            if draft_model is not None and draft_layers is not None:
                small = draft_model.usages(draft_layers, replace(machine, gpus=left))
            uses = tuple(PlaceUse(*each) for each in zip(machine.places, big, small, strict=True))
            options = target.options
            plan = FitPlan(target.n_ctx, options.kv_type, target_layers, draft_layers, uses)
            if plan.fits:
                return plan
    return None


def _placed(plan: FitPlan, target: ModelLoad, draft_model: ModelLoad | None) -> str:
    """Return which layers are where; empty where there is no GPU."""
    parts = []
    for who, load, layers in (
        ("the target has", target, plan.target_layers),
        ("the draft model", draft_model, plan.draft_layers),
    ):
        if load is not None and layers is not None and plan.gpus and not load.follows:
            share = f"{layers} of {len(load.shape.layers) + 1} layers on {' and '.join(load.gpus)}"
            parts.append(f"{who} {share if layers else 'all layers on the CPU'}")
    return ", ".join(parts)


def _notes(
    plan: FitPlan, target: ModelLoad, small: ModelLoad | None, machine: Machine, full: int
) -> Iterator[str]:
    """Yield what differs from what was wanted and why, a sentence each.

    Args:
        plan: the plan.
        target: the target.
        small: the draft model, be it dropped.
        machine: what is free.
        full: tokens of context that were wanted.
    """
    if small is not None and plan.draft_layers is None:
        needed = size_text(predict(small.shape, small.options)[0].total_bytes)
        what, need = ("its heads", "they need") if small.heads else ("the draft model", "it needs")
        yield (
            f"running without {what}, which costs speed but changes no text: {need} "
            f"{needed} more, and {machine.ram.name} has {size_text(machine.ram.free_bytes)} free in total"
        )
    if plan.n_ctx < full:
        yield f"the context is {plan.n_ctx} tokens instead of {full}: no more fits free memory"
    if target.options.gpu_layers is None and plan.target_layers < target.most_layers:
        on_gpu = f"{plan.target_layers} of {target.most_layers} layers of the target are on the GPU"
        yield f"{on_gpu}: {_free(target, machine)}"
    free_draft = (
        small is not None and small.gpus and small.options.gpu_layers is None and not small.follows
    )
    if small is not None and free_draft and plan.draft_layers == 0:
        yield f"the draft model runs on the CPU: {_free(small, machine)}"


def _free(load: ModelLoad, machine: Machine) -> str:
    """Return what bounds layers on GPUs; where those share the RAM, that may be the RAM."""
    ram, gpus = machine.ram, [gpu for gpu in machine.gpus if gpu.name in load.gpus]
    bounds = [
        ram if gpu.shares_ram and ram.usable_bytes < gpu.usable_bytes else gpu for gpu in gpus
    ]
    each_once = dict.fromkeys(bounds)
    return ", ".join(f"{each.name} has {size_text(each.free_bytes)} free" for each in each_once)


def _refusal(target: ModelLoad, had_draft_model: bool, machine: Machine) -> str:
    usages = target.usages(target.layer_counts()[-1], machine)
    uses = [PlaceUse(*each, Usage()) for each in zip(machine.places, usages, strict=True)]
    tight = next((use for use in uses if not use.fits), uses[0])
    needed = needed_in_ram(uses) if tight is uses[0] else tight.needed_bytes
    smaller = (2**power for power in range(20, 8, -1) if 2**power < target.n_ctx)
    fitting = (each for each in smaller if _place(target.with_context(each), None, machine))
    remedies = [f"--ctx {n_ctx}" for n_ctx in (next(fitting, None),) if n_ctx]
    kinds, own = list(QUANTISED_KV_TYPES), target.options.kv_type
    narrower = kinds[kinds.index(own) + 1 :] if own in kinds else kinds
    packed = (target.with_context(target.n_ctx, kv_type=kind) for kind in narrower)
    widest = next((load for load in packed if _place(load, None, machine)), None)
    remedies += [f"--kv-type {widest.options.kv_type}"] if widest else []
    if target.encoder_bytes and _place(replace(target, encoder_bytes=0), None, machine):
        remedies.append("--mmproj off")
    advice = f"try {' or '.join(remedies)}" if remedies else "choose a smaller model"
    what = "without its draft model" if had_draft_model else f"at a context of {target.n_ctx}"
    return (
        f"{target.shape.name} does not fit, even {what}: it needs {size_text(needed)} and "
        f"{tight.place.name} has {size_text(tight.place.usable_bytes)} to spare: {advice}, "
        "or free memory (--no-fit loads it anyway)"
    )
