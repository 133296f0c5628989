"""Asks this machine for its free memory, and plans how a pair fits into it."""

from contextlib import suppress
from dataclasses import dataclass, replace

from localspec.errors import ModelFileError, ModelLoadError, PairMismatch
from localspec.llama.devices import devices
from localspec.models.fit import (
    GPU_HEADROOM_BYTES,
    RAM_HEADROOM_BYTES,
    FitPlan,
    Machine,
    Place,
    Wish,
    fit,
    split_layers,
)
from localspec.models.gguf import GgufHeader
from localspec.models.memory import Settings, model_shape, predict
from localspec.options import LoadOptions
from localspec.resources import free_ram_bytes

_USUAL_N_CTX = 4096  # what LoadOptions means by None
_ROOMY = (16384, 8192)
_OF_WHAT_IS_LEFT = 0.25
_MAPPED = {"mmap", "mlock"}


def plan_fit(
    target: GgufHeader,
    draft_model: GgufHeader | None = None,
    options: LoadOptions | None = None,
) -> FitPlan | None:
    """Return how a pair fits into the memory that is free now; its `lines()` tell it to people.

    Headers suffice, so a pair can be planned before it is downloaded.

    Returns:
        None where it cannot be said: the system does not tell what is free, or a header leaves
        out, or garbles, the sizes of its model.

    Raises:
        ModelLoadError: the target does not fit, even without the draft model.
        UsageError: the options name a device that is not there.
    """
    options = options or LoadOptions()
    machine = free_memory(options)
    shape = model_shape(target)
    small = None if draft_model is None else model_shape(draft_model)
    if machine is None or shape is None or (small is None and draft_model is not None):
        return None
    return fit(shape, small, _wish(options, on_gpu=bool(machine.gpus)), machine)


def context_with_room(
    target: GgufHeader, draft_model: GgufHeader | None, options: LoadOptions
) -> int | None:
    """Return how many tokens of context a conversation gets that nobody gave a size: as many as cost it little.

    What they take beyond the usual context is a quarter at most of the memory that this leaves free, and nothing is
    given up for it.

    Args:
        target: the model's header.
        draft_model: the draft model's; None without one.
        options: how they are loaded, of the usual context.

    Returns:
        None where the usual one it is.

    Raises:
        ModelLoadError: the target does not fit, even with the usual one.
    """
    usual, shape = plan_fit(target, draft_model, options), model_shape(target)
    if usual is None or usual.shrunk or shape is None:
        return None
    needed, left = _needed_and_left(usual)
    for n_ctx in sorted({min(each, shape.n_ctx_train or 0) for each in _ROOMY}, reverse=True):
        if n_ctx <= usual.n_ctx:
            break
        with suppress(ModelLoadError):
            plan = plan_fit(target, draft_model, replace(options, n_ctx=n_ctx))
            layers = (usual.target_layers, usual.draft_layers)
            if plan is None or (plan.target_layers, plan.draft_layers) != layers:
                continue
            if _needed_and_left(plan)[0] - needed <= _OF_WHAT_IS_LEFT * left:
                return n_ctx
    return None


def _needed_and_left(plan: FitPlan) -> tuple[int, int]:
    """Return the bytes that a plan takes, and those that it leaves free, of all memories."""
    needed = sum(use.needed_bytes for use in plan.uses)
    return needed, sum(use.place.usable_bytes for use in plan.uses) - needed


def sequences_that_fit(
    target: GgufHeader, options: LoadOptions, draft_model: GgufHeader | None = None
) -> int | None:
    """Return how many sequences the memory holds that is free now, the weights being loaded already.

    Args:
        target: the model's header.
        options: how the contexts are made; `n_ctx` is that of each sequence.
        draft_model: the draft model's header, if it has as many sequences.

    Returns:
        None if it cannot be said.
    """
    machine = free_memory(options)
    shapes = [model_shape(each) for each in (target, draft_model) if each is not None]
    if machine is None or None in shapes:
        return None
    places = (machine.ram, *machine.gpus)
    free, for_each = [place.usable_bytes for place in places], [0] * len(places)
    wish = _wish(options, on_gpu=bool(machine.gpus)).settings
    for shape in shapes:
        assert shape is not None, "looked for above"  # noqa: S101
        split: tuple[int, ...] = ()
        if machine.gpus:
            layers = len(shape.layers)
            on_gpus = layers if options.gpu_layers is None else min(options.gpu_layers, layers)
            split = split_layers(on_gpus, machine.gpus)
        settings = replace(wish, n_ctx=min(wish.n_ctx, shape.n_ctx_train or wish.n_ctx))
        for at, use in enumerate(predict(shape, settings, split)):
            free[at] -= use.compute_bytes + use.output_bytes
            for_each[at] += use.kv_bytes
    counts = [left // each for left, each in zip(free, for_each, strict=True) if each]
    return max(0, min(counts, default=0))


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
        plan = plan_fit(target, draft_model, options)
    except ModelLoadError as error:
        return Outlook((), (*problems, str(error)))
    unknown = "takes an unknown amount of memory: the header or this system does not say"
    return Outlook((unknown,) if plan is None else tuple(plan.lines()), tuple(problems))


def free_memory(options: LoadOptions) -> Machine | None:
    """Return what is free, of those devices that the options allow; None where nobody tells."""
    ram = free_ram_bytes()
    if ram is None:
        return None
    allowed = {name.lower() for name in options.devices}
    gpus = tuple(
        Place(device.name, device.free_bytes, GPU_HEADROOM_BYTES)
        for device in ([] if options.gpu_layers == 0 else devices())
        if device.is_gpu and (not allowed or device.name.lower() in allowed)
    )
    return Machine(Place("RAM", ram, RAM_HEADROOM_BYTES), gpus)


def _wish(options: LoadOptions, *, on_gpu: bool) -> Wish:
    mapped = options.load_mode in _MAPPED or (options.load_mode is None and on_gpu)
    settings = Settings(
        n_ctx=options.n_ctx or _USUAL_N_CTX,
        n_batch=options.chunk(on_gpu=on_gpu),
        rows=options.max_rows,
        snapshots=options.snapshots,
        kv_type=options.kv_type,
        flash_attention=options.attention(on_gpu=on_gpu) is not False,
        mapped_and_repacked=mapped and options.repack,
    )
    return Wish(settings, options.gpu_layers, n_ctx_asked=options.n_ctx is not None)
