"""The plan: what of a pair goes where, in how much context, so that it fits the free memory.

Pure: shapes, wishes and free memory in, a plan out, with what was given up and why.

The order in which things are given up: the draft model's place on a GPU, layers of the target on a
GPU, the draft model altogether (it changes the speed and never the text), and then context, if
nobody asked for a size of it. The type of the caches is never changed unasked, since that changes
the text.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from localspec.decoding.drafters.backoff import DRAFT_ROWS
from localspec.errors import ModelLoadError
from localspec.models.fit_notes import dropped, left_behind, smaller_context
from localspec.models.fit_plan import FitPlan, Machine, Place, PlaceUse, Wish
from localspec.models.memory import Settings, Usage, predict
from localspec.models.shape import ModelShape
from localspec.models.space import size_text

_LEAST_N_CTX = 1024


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
                notes = (smaller_context(asked.n_ctx, n_ctx), *notes)
            if small is None and draft_model is not None:
                notes = (dropped(_on_cpu(draft_model, settings), machine), *notes)
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
                return replace(plan, given_up=tuple(left_behind(plan, target, wish, machine)))
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


def _on_cpu(shape: ModelShape, settings: Settings) -> Usage:
    return predict(shape, replace(settings, n_ctx=_at_most(settings.n_ctx, shape)))[0]


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
        "or free memory (--no-fit loads it all the same)"
    )
