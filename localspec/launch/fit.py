"""Asks this machine for its free memory, and plans how a pair fits into it."""

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from localspec.errors import ModelFileError, ModelLoadError, NoRoom, PairMismatch
from localspec.llama.devices import placed_on
from localspec.models.architectures import Heads, heads_of
from localspec.models.fit import (
    GPU_HEADROOM_BYTES,
    RAM_HEADROOM_BYTES,
    FitPlan,
    Machine,
    ModelLoad,
    Place,
    fit,
)
from localspec.models.gguf import GgufHeader
from localspec.models.memory import heads_shape, model_shape, target_rows_bytes
from localspec.options import LoadOptions
from localspec.resources import free_ram_bytes

if TYPE_CHECKING:
    from localspec.engine.protocol import Held

_ROOMY = (16384, 8192)
_OF_WHAT_IS_LEFT = 0.25


def plan_fit(
    target: GgufHeader,
    draft_model: GgufHeader | None = None,
    options: LoadOptions | None = None,
    draft_options: LoadOptions | None = None,
    *,
    heads: Heads | None = None,
    adapter: GgufHeader | None = None,
    encoder_bytes: int = 0,
    shrinks: bool = False,
    machine: Machine | None = None,
) -> FitPlan | None:
    """Return how a pair fits into the memory that is free now; its `lines()` tell it to people.

    Headers suffice, so a pair can be planned before it is downloaded.

    Args:
        target: the target's header.
        draft_model: the draft model's; None without one.
        options: how the target is loaded.
        draft_options: how the draft model is, if its layers go elsewhere.
        heads: of the target, which draft; in the draft model's file, if they have one.
        adapter: header of the draft model's adapter.
        encoder_bytes: what the target's encoders take.
        shrinks: whether the context may be smaller than the options say, as where they say nothing.
        machine: what is free; None asks for that.

    Returns:
        None where it cannot be said: the system does not tell what is free, or a header leaves
        out, or garbles, the sizes of its model.

    Raises:
        ModelLoadError: the target does not fit, even without the draft model.
        UsageError: the options name a device that is not there.
    """
    options = options or LoadOptions()
    machine = machine or free_memory(options, draft_options)
    big = _load(target, options, mtp=heads is not None and heads.is_mtp)
    small = None
    if heads is not None:
        small = load_of_heads(target, draft_model, heads, draft_options or options)
    elif draft_model is not None:
        small = _load(draft_model, draft_options or options, adapter)
    drafts = draft_model is not None or heads is not None
    if machine is None or big is None or (small is None and drafts):
        return None
    big = replace(big, encoder_bytes=encoder_bytes)
    if options.cpu_moe:  # the experts of a layer go to a GPU for the passes of a prompt
        more = max((layer.experts_bytes for layer in big.shape.layers), default=0)
        gpus = (replace(gpu, headroom_bytes=gpu.headroom_bytes + more) for gpu in machine.gpus)
        machine = replace(machine, gpus=tuple(gpus))
    return fit(big, small, machine, shrinks=shrinks or options.n_ctx is None)


def context_with_room(
    target: GgufHeader,
    draft_model: GgufHeader | None,
    options: LoadOptions,
    draft_options: LoadOptions | None = None,
    heads: Heads | None = None,
    encoder_bytes: int = 0,
) -> int | None:
    """Return how many tokens of context a conversation of no given size gets: as many as cost it little.

    What they take beyond the usual context is a quarter at most of the memory that this leaves free, and nothing is
    given up for it.

    Args:
        target: the model's header.
        draft_model: the draft model's; None without one.
        options: how they are loaded, of the usual context.
        draft_options: how the draft model is, if its layers go elsewhere.
        heads: as in `plan_fit`.
        encoder_bytes: see there.

    Returns:
        None where the usual one it is.

    Raises:
        ModelLoadError: the target does not fit, even with the usual one.
    """
    planned = partial(plan_fit, target, draft_model, heads=heads, encoder_bytes=encoder_bytes)
    usual = planned(options, draft_options)
    shape = model_shape(target)
    if usual is None or usual.shrunk or shape is None:
        return None
    needed, left = _needed_and_left(usual)
    for n_ctx in sorted({min(each, shape.n_ctx_train or 0) for each in _ROOMY}, reverse=True):
        if n_ctx <= usual.n_ctx:
            break
        with suppress(ModelLoadError):
            larger = replace(options, n_ctx=n_ctx)
            plan = planned(larger, draft_options)
            layers = (usual.target_layers, usual.draft_layers)
            if plan is None or (plan.target_layers, plan.draft_layers) != layers:
                continue
            if _needed_and_left(plan)[0] - needed <= _OF_WHAT_IS_LEFT * left:
                return n_ctx
    return None


def _needed_and_left(plan: FitPlan) -> tuple[int, int]:
    """Return the bytes that a plan takes, and those that it leaves free, of all memories."""
    needed = sum(use.needed_bytes for use in plan.uses)
    ram, *gpus = (use.place for use in plan.uses)
    return needed, Machine(ram, tuple(gpus)).usable_bytes - needed


def sequences_that_fit(
    target: GgufHeader,
    options: LoadOptions,
    draft_model: GgufHeader | None = None,
    draft_options: LoadOptions | None = None,
    heads: Heads | None = None,
    machine: Machine | None = None,
) -> int | None:
    """Return how many sequences the memory holds, all weights but those of a file of heads being loaded.

    Args:
        target: the model's header.
        options: how the contexts are made; `n_ctx` is that of each sequence.
        draft_model: the draft model's header, if it has as many sequences.
        draft_options: how it is loaded, if its layers go elsewhere.
        heads: of the target, which have as many sequences, too; in the draft model's file, if they have one.
        machine: what is free; None asks for that.

    Returns:
        None if it cannot be said.
    """
    machine = machine or free_memory(options, draft_options)
    loads = [_load(target, options)]
    if heads is not None:
        loads.append(load_of_heads(target, draft_model, heads, draft_options or options))
    elif draft_model is not None:
        loads.append(_load(draft_model, draft_options or options))
    if machine is None or None in loads:
        return None
    free, for_each = [place.usable_bytes for place in machine.places], [0] * len(machine.places)
    if heads is not None and loads[0] is not None:
        for_each[0] = target_rows_bytes(loads[0].shape, heads)
        free[0] += for_each[0]  # the shape of heads has those of one sequence
    for load in filter(None, loads):
        alike = load.with_context(load.n_ctx, kv_type=options.kv_type)
        for at, use in enumerate(alike.usages(alike.most_layers, machine)):
            free[at] -= use.compute_bytes + use.output_bytes
            free[at] -= use.weights_bytes if load.heads else 0
            for_each[at] += use.kv_bytes
    for at, gpu in enumerate(machine.gpus, 1):
        if gpu.shares_ram:
            free[0] -= gpu.usable_bytes - free[at]
            for_each[0] += for_each[at]
    counts = [left // each for left, each in zip(free, for_each, strict=True) if each]
    return max(0, min(counts, default=0))


@dataclass(frozen=True, slots=True)
class PairToFit:
    """A pair that is to be loaded: the arguments of `plan_fit` and `sequences_that_fit`.

    Args:
        target: the target's header.
        draft_model: the draft model's, if there is one.
        options: how the target is loaded.
        draft_options: how the draft model is.
        heads: as in `plan_fit`.
        adapter: see there.
        shrinks: see there.
        encoder_bytes: see there.
    """

    target: GgufHeader
    draft_model: GgufHeader | None
    options: LoadOptions
    draft_options: LoadOptions | None
    heads: Heads | None
    adapter: GgufHeader | None
    shrinks: bool
    encoder_bytes: int = 0

    def plan(self, machine: Machine | None = None) -> FitPlan | None:
        """Return how it fits into what is free, or into some memory; see `plan_fit`."""
        return plan_fit(
            self.target,
            self.draft_model,
            self.options,
            self.draft_options,
            heads=self.heads,
            adapter=self.adapter,
            encoder_bytes=self.encoder_bytes,
            shrinks=self.shrinks,
            machine=machine,
        )

    def extent(self, machine: Machine, parallel: int) -> tuple[int | None, ...]:
        """Return how much of it a memory holds: context, layers on GPUs, and of so many sequences how many."""
        plan = self.plan(machine)
        if plan is None:
            return ()
        drafts = plan.draft_layers is not None
        count = sequences_that_fit(
            self.target,
            replace(self.options, n_ctx=plan.n_ctx),
            self.draft_model if drafts else None,
            self.draft_options,
            self.heads if drafts else None,
            _without_weights(plan, of_draft_model=self.heads is None),
        )
        sequences = parallel if count is None else min(count, parallel)
        return plan.n_ctx, plan.target_layers, plan.draft_layers, sequences


def require_room(pair: PairToFit, others: "Held", parallel: int) -> None:
    """Require that the memory that is free now holds as much of a pair as it would without what others hold.

    Args:
        pair: what is to be loaded.
        others: what others hold that could be let go.
        parallel: how many sequences there are to be.

    Raises:
        NoRoom: it does not.
        ModelLoadError: it would not fit without the others either.
    """
    machine = free_memory(pair.options, pair.draft_options)
    if machine is None:
        return
    now = _more(machine.ram, -others.mapped_bytes)
    shared = sum(others.places.get(gpu.name, 0) for gpu in machine.gpus if gpu.shares_ram)
    alone = Machine(
        _more(now, others.places.get(now.name, 0) + shared),
        tuple(_more(gpu, others.places.get(gpu.name, 0)) for gpu in machine.gpus),
    )
    most = pair.extent(alone, parallel)
    try:
        fits = pair.extent(Machine(now, machine.gpus), parallel) == most
    except ModelLoadError as error:
        raise NoRoom(str(error)) from None
    if not fits:
        raise NoRoom(f"{pair.target.name} has less room than if nothing else were loaded")


def _without_weights(plan: FitPlan, *, of_draft_model: bool) -> Machine:
    """Return what a plan leaves free once its weights are loaded."""
    places = (
        _more(
            use.place,
            -use.target.weights_bytes - use.draft_model.weights_bytes * of_draft_model,
        )
        for use in plan.uses
    )
    ram, *gpus = places
    return Machine(ram, tuple(gpus))


def _more(place: Place, more_bytes: int) -> Place:
    """Return a place with so many more bytes free."""
    return replace(place, free_bytes=max(0, place.free_bytes + more_bytes))


@dataclass(frozen=True, slots=True)
class Outlook:
    """What is to be expected of a pair, or of a model alone, when it is loaded on this machine.

    Args:
        lines: what it takes of which memory, and what has to be given up, a sentence each.
        problems: why it will not run, or not as a pair, a sentence each.
    """

    lines: tuple[str, ...]
    problems: tuple[str, ...] = ()


def forecast(
    target: GgufHeader,
    draft_model: GgufHeader | None = None,
    options: LoadOptions | None = None,
    draft_options: LoadOptions | None = None,
    encoder_bytes: int = 0,
) -> Outlook:
    """Return what is to be expected, judged by headers: of tokenizers, and of memory."""
    problems = []
    if draft_model is not None:
        from localspec.models.pairs import require_compatible  # noqa: PLC0415 - needs a pair

        try:
            require_compatible(target, draft_model)
        except (PairMismatch, ModelFileError) as error:
            problems.append(str(error))
    try:
        heads = heads_of(target, draft_model)
        if heads is not None and heads.is_mtp:
            draft_model = None  # as a plan has it, see `launch.plan`
        plan = plan_fit(
            target, draft_model, options, draft_options, heads=heads, encoder_bytes=encoder_bytes
        )
    except ModelLoadError as error:
        return Outlook((), (*problems, str(error)))
    unknown = "takes an unknown amount of memory: the header or this system does not say"
    return Outlook((unknown,) if plan is None else tuple(plan.lines()), tuple(problems))


def free_memory(options: LoadOptions, draft_options: LoadOptions | None = None) -> Machine | None:
    """Return what is free, of those devices that layers of a target and a draft model may go to; None where that is unknown.

    Raises:
        UsageError: the options name a device that is not there.
    """
    ram = free_ram_bytes()
    if ram is None:
        return None
    used = [*placed_on(options), *([] if draft_options is None else placed_on(draft_options))]
    gpus = {
        each.name: Place(each.name, each.free_bytes, GPU_HEADROOM_BYTES, each.shares_ram)
        for each in used
    }
    return Machine(Place("RAM", ram, RAM_HEADROOM_BYTES), tuple(gpus.values()))


def _load(
    header: GgufHeader,
    options: LoadOptions,
    adapter: GgufHeader | None = None,
    *,
    mtp: bool = False,
) -> ModelLoad | None:
    """Return a model that is to be loaded; None where its header leaves out, or garbles, its sizes."""
    shape = model_shape(header, adapter, mtp=mtp)
    gpus = tuple(device.name for device in placed_on(options))
    return None if shape is None else ModelLoad(shape, options, gpus)


def load_of_heads(
    target: GgufHeader, file: GgufHeader | None, heads: Heads, options: LoadOptions
) -> ModelLoad | None:
    """Return heads that are to be loaded; None where a header leaves out, or garbles, their sizes."""
    shape = heads_shape(target, heads, file)
    gpus = tuple(device.name for device in placed_on(options))
    if shape is None:
        return None
    own = options.for_heads()
    if heads.shares_cache or heads.block is not None:  # see `llama.place_heads`
        own = replace(own, max_rows=heads.block.size if heads.block else 1)
    return ModelLoad(shape, own, gpus, heads=True, follows=heads.is_mtp)
