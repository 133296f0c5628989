"""The fit: what of a pair goes where, in how much context, so that it fits the free memory.

Pure: headers, options and free memory in, a plan out, with what was given up and why.

The order in which things are given up: the draft model's place on a GPU, layers of the target on a
GPU, the draft model altogether (it changes the speed and never the text), and then context, if
no size of it was given. The type of the caches is never changed by itself, since that changes
the text.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from localspec.errors import MemoryShort, ModelFileError, ModelLoadError, NoRoom, PairMismatch
from localspec.llama.devices import REMOTE, Device, placed_on
from localspec.messages import Held
from localspec.models.architectures import Heads, heads_of
from localspec.models.gguf import GgufHeader
from localspec.models.shape import ModelShape, heads_shape, model_shape, target_rows_bytes
from localspec.options import QUANTISED_KV_TYPES, LaunchOptions, LoadOptions
from localspec.plan.memory import predict, split_layers
from localspec.resources import Usage
from localspec.storage.files import size_text

_LEAST_N_CTX = 1024
_ROOMY = (16384, 8192)
_OF_WHAT_IS_LEFT = 0.25

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

    def with_more(self, more_bytes: int) -> "Place":
        """Return the place with so many more bytes free."""
        return replace(self, free_bytes=max(0, self.free_bytes + more_bytes))


Places = tuple[Place, ...]
"""Free memory: the RAM, and then the GPUs that layers of either model may go to."""


def usable_bytes(places: Places) -> int:
    """Return what may be filled of all memories, each counted once."""
    return sum(each.usable_bytes for each in places if not each.shares_ram)


@dataclass(frozen=True, slots=True)
class FreeMemory:
    """One look at this machine.

    Args:
        ram_bytes: free RAM; None where the system does not tell.
        devices: that llama.cpp knows, with what is free of each.
    """

    ram_bytes: int | None
    devices: tuple[Device, ...] = ()

    def places(self, *options: LoadOptions | None) -> Places | None:
        """Return what is free, of those devices that layers of models may go to that are loaded so; None where that is unknown.

        Raises:
            UsageError: the options name a device that is not there.
        """
        if self.ram_bytes is None:
            return None
        used = [gpu for each in options if each is not None for gpu in self.gpus(each)]
        gpus = (
            Place(each.name, each.free_bytes, GPU_HEADROOM_BYTES, each.shares_ram) for each in used
        )
        return (Place("RAM", self.ram_bytes, RAM_HEADROOM_BYTES), *dict.fromkeys(gpus))

    def names(self, options: LoadOptions) -> tuple[str, ...]:
        """Return their names; raises as `places` does."""
        return tuple(device.name for device in self.gpus(options))

    def gpus(self, options: LoadOptions) -> list[Device]:
        """Return the GPUs that share the layers of a model that is loaded so; raises as `places` does."""
        return placed_on(options, self.devices)

    def draft_load(self, launch: LaunchOptions, options: LoadOptions) -> LoadOptions:
        """Return how a draft model is loaded beside a target that is loaded so; raises as `places` does.

        What nobody placed stays on this machine: from a worker each token of a draft would take a round trip.
        """
        load, gpus = launch.draft_load(options), self.gpus(options)
        here = tuple(each.name for each in gpus if each.backend != REMOTE)
        placed = launch.draft_devices or launch.draft_gpu_layers is not None
        if placed or len(here) == len(gpus):
            return load
        return replace(load, devices=here) if here else replace(load, gpu_layers=0)


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
        n_ctx = self.options.context
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

    def usages(self, layers: int, places: Places) -> list[Usage]:
        """Return what the model takes of each place, with so many layers on its GPUs."""
        options, n_ctx = self.options, max(self.n_ctx, 2)
        if options.n_ctx != n_ctx:
            options = replace(options, n_ctx=n_ctx)
        names = [each.name for each in places]
        numbers = [names.index(name, 1) for name in self.gpus]
        shares = options.shares if numbers else ()
        if options.split == "tensor" and layers:
            # Each GPU has a part of every layer, and the scratch of a whole pass.
            ram, whole = predict(self.shape, options, (layers,))
            parts = shares or [1.0] * len(numbers)
            on_gpus = [whole.part(each / sum(parts)) for each in parts]
        else:
            weights = shares or [places[number].free_bytes for number in numbers]
            ram, *on_gpus = predict(self.shape, options, split_layers(layers, weights))
        usages = [ram, *([Usage()] * len(names[1:]))]
        for number, usage in zip(numbers, on_gpus, strict=True):
            usages[number] = usage
        usages[numbers[0] if layers else 0] += Usage(weights_bytes=self.encoder_bytes)
        return usages

    def layer_counts(self) -> list[int]:
        """Return the numbers of layers on GPUs to try, best first."""
        if self.most_layers == 0 or self.options.gpu_layers is not None:
            return [self.most_layers]
        # With the last projection alone, a GPU would wait for all else.
        return [*range(self.most_layers, 1, -1), 0]


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

    @property
    def needed_bytes(self) -> int:
        """What it takes of all memories."""
        return sum(use.needed_bytes for use in self.uses)

    def lines(self) -> list[str]:
        """Return the plan in sentences."""
        needs = [
            f"{use.place.name}: {size_text(use.needed_bytes)} of {size_text(use.place.free_bytes)} free"
            for use in self.uses
            if use.needed_bytes
        ]
        first = f"needs {', '.join(needs)} (context {self.n_ctx} in {self.kv_type})"
        return [first, *([self.placed] if self.placed else []), *self.given_up]


@dataclass(frozen=True, slots=True)
class PairLoad:
    """What is to be loaded together. Headers suffice, so it can be planned before it is downloaded.

    Args:
        target: the target's shape; None where its header leaves out, or garbles, its sizes.
        draft_model: that of the draft model, or of what heads take beside the target; None without one, and as above.
        options: how the target is loaded.
        draft_options: how the draft model is, if its layers go elsewhere.
        heads: of the target, which draft.
        drafts: whether there is a draft model, or heads.
        encoder_bytes: what the target's encoders take.
        shrinks: whether the context may be smaller than the options say, as where they say nothing.
    """

    target: ModelShape | None
    draft_model: ModelShape | None = None
    options: LoadOptions = field(default_factory=LoadOptions)
    draft_options: LoadOptions | None = None
    heads: Heads | None = None
    drafts: bool = False
    encoder_bytes: int = 0
    shrinks: bool = False

    @classmethod
    def of(
        cls,
        target: GgufHeader,
        draft_model: GgufHeader | None = None,
        options: LoadOptions | None = None,
        draft_options: LoadOptions | None = None,
        heads: Heads | None = None,
    ) -> "PairLoad":
        """Return what files are as a pair, by their headers; the heads, if there are any, are in the draft model's file or the target's."""
        big = model_shape(target, mtp=heads is not None and heads.is_mtp)
        small = None if draft_model is None else model_shape(draft_model)
        if heads is not None:
            small = heads_shape(target, heads, draft_model)
        drafts = draft_model is not None or heads is not None
        return cls(big, small, options or LoadOptions(), draft_options, heads, drafts)

    def undrafted(self) -> "PairLoad":
        """Return the target alone."""
        return replace(self, draft_model=None, draft_options=None, heads=None, drafts=False)

    def fit(self, free: FreeMemory, places: Places | None = None) -> FitPlan | None:
        """Return how it fits into what is free; its `lines()` tell it to people.

        Args:
            free: what is free, of which devices.
            places: what counts instead as free of the same devices.

        Returns:
            None where it cannot be said: the system does not tell what is free, or a header not how large its model is.

        Raises:
            MemoryShort: the target does not fit, even without the draft model.
            UsageError: the options name a device that is not there.
        """
        places = places or free.places(self.options, self.draft_options)
        loads = self._loads(free)
        if places is None or loads is None:
            return None
        big, small = replace(loads[0], encoder_bytes=self.encoder_bytes), loads[1]
        if self.options.cpu_moe:  # the experts of a layer go to a GPU for the passes of a prompt
            more = max((layer.experts_bytes for layer in big.shape.layers), default=0)
            gpus = (replace(each, headroom_bytes=each.headroom_bytes + more) for each in places[1:])
            places = (places[0], *gpus)
        return best_fit(big, small, places, shrinks=self.shrinks or self.options.n_ctx is None)

    def _loads(self, free: FreeMemory) -> tuple[ModelLoad, ModelLoad | None] | None:
        """Return the loads of the target and of what drafts; None where a header does not say how large its model is."""
        if self.target is None or (self.drafts and self.draft_model is None):
            return None
        big = ModelLoad(self.target, self.options, free.names(self.options))
        if self.draft_model is None:
            return big, None
        options = self.draft_options or self.options
        small = ModelLoad(self.draft_model, options, free.names(options))
        return big, small if self.heads is None else load_of_heads(small, self.heads)

    def roomy_context(self, free: FreeMemory) -> int | None:
        """Return how many tokens of context a conversation of no given size gets: as many as cost it little; None for the usual ones.

        What they take beyond the usual context is a quarter at most of the memory that this leaves free, and nothing is
        given up for it. Raises as `fit` does.
        """
        pair = replace(self, shrinks=False)
        usual, shape = pair.fit(free), self.target
        if usual is None or usual.shrunk or shape is None:
            return None
        layers = (usual.target_layers, usual.draft_layers)
        left = usable_bytes(tuple(use.place for use in usual.uses)) - usual.needed_bytes
        for n_ctx in sorted({min(each, shape.n_ctx_train or 0) for each in _ROOMY}, reverse=True):
            if n_ctx <= usual.n_ctx:
                break
            with suppress(ModelLoadError):
                plan = replace(pair, options=replace(self.options, n_ctx=n_ctx)).fit(free)
                if plan is None or (plan.target_layers, plan.draft_layers) != layers:
                    continue
                if plan.needed_bytes - usual.needed_bytes <= _OF_WHAT_IS_LEFT * left:
                    return n_ctx
        return None

    def sequences(self, free: FreeMemory, places: Places | None = None) -> int | None:
        """Return how many sequences the memory holds, all weights but those of a file of heads being loaded; None if it cannot be said.

        The context of the options is that of each sequence.
        """
        places = places or free.places(self.options, self.draft_options)
        loads = self._loads(free)
        if places is None or loads is None:
            return None
        big, small = loads
        left, for_each = [each.usable_bytes for each in places], [0] * len(places)
        if self.heads is not None:
            for_each[0] = target_rows_bytes(big.shape, self.heads)
            left[0] += for_each[0]  # the shape of heads has those of one sequence
        for load in filter(None, (big, small)):
            alike = load.with_context(load.n_ctx, kv_type=self.options.kv_type)
            for at, use in enumerate(alike.usages(alike.most_layers, places)):
                left[at] -= use.compute_bytes + use.output_bytes
                left[at] -= use.weights_bytes if load.heads else 0
                for_each[at] += use.kv_bytes
        for at, gpu in enumerate(places[1:], 1):
            if gpu.shares_ram:
                left[0] -= gpu.usable_bytes - left[at]
                for_each[0] += for_each[at]
        counts = [free // each for free, each in zip(left, for_each, strict=True) if each]
        return max(0, min(counts, default=0))

    def extent(self, free: FreeMemory, places: Places, parallel: int) -> tuple[int | None, ...]:
        """Return how much of it a memory holds: context, layers on GPUs, and of so many sequences how many."""
        plan = self.fit(free, places)
        if plan is None:
            return ()
        without_weights = tuple(
            use.place.with_more(
                -use.target.weights_bytes - use.draft_model.weights_bytes * (self.heads is None)
            )
            for use in plan.uses
        )
        pair = self if plan.draft_layers is not None else self.undrafted()
        pair = replace(pair, options=replace(self.options, n_ctx=plan.n_ctx))
        count = pair.sequences(free, without_weights)
        sequences = parallel if count is None else min(count, parallel)
        return plan.n_ctx, plan.target_layers, plan.draft_layers, sequences

    def require_room(self, free: FreeMemory, others: Held, parallel: int) -> None:
        """Require that what is free holds as much of it as there would be without what others hold.

        Args:
            free: what is free.
            others: what others hold that could be let go.
            parallel: how many sequences there are to be.

        Raises:
            NoRoom: it does not.
            ModelLoadError: it would not fit without the others either.
        """
        places = free.places(self.options, self.draft_options)
        if places is None:
            return
        now = (places[0].with_more(-others.mapped_bytes), *places[1:])
        ram, *gpus = (each.with_more(others.places.get(each.name, 0)) for each in now)
        shared = sum(others.places.get(gpu.name, 0) for gpu in gpus if gpu.shares_ram)
        most = self.extent(free, (ram.with_more(shared), *gpus), parallel)
        try:
            fits = self.extent(free, now, parallel) == most
        except ModelLoadError as error:
            raise NoRoom(str(error)) from None
        if not fits and self.target is not None:
            raise NoRoom(f"{self.target.name} has less room than if nothing else were loaded")


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
    draft_model: GgufHeader | None,
    options: LoadOptions,
    draft_options: LoadOptions | None,
    free: FreeMemory,
    encoder_bytes: int = 0,
) -> Outlook:
    """Return what is to be expected of a target and what comes with it, judged by headers: of tokenizers, and of memory."""
    problems = []
    if draft_model is not None:
        from localspec.models.pairs import require_compatible  # noqa: PLC0415 - needs a pair

        try:
            require_compatible(target, draft_model)
        except (PairMismatch, ModelFileError) as error:
            problems.append(str(error))
    heads = heads_of(target, draft_model)
    if heads is not None and heads.is_mtp:
        draft_model = None  # as a plan has it, see `decide`
    pair = PairLoad.of(target, draft_model, options, draft_options, heads)
    try:
        plan = replace(pair, encoder_bytes=encoder_bytes).fit(free)
    except ModelLoadError as error:
        return Outlook((), (*problems, str(error)))
    unknown = "takes an unknown amount of memory: the header or this system does not say"
    return Outlook((unknown,) if plan is None else tuple(plan.lines()), tuple(problems))


def load_of_heads(load: ModelLoad, heads: Heads) -> ModelLoad:
    """Return heads as they are loaded."""
    own = load.options.for_heads()
    if heads.shares_cache or heads.block is not None:  # see `llama.block_heads`
        own = replace(own, max_rows=heads.block.size if heads.block else 1)
    return replace(load, options=own, heads=True, follows=heads.is_mtp)


def best_fit(
    target: ModelLoad, draft_model: ModelLoad | None, places: Places, *, shrinks: bool = True
) -> FitPlan:
    """Return the best plan that fits.

    Args:
        target: the target; the draft model shares context and type of its cache.
        draft_model: the draft model, if there is one.
        places: what is free.
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
            plan = _place(big, drafter, places)
            if plan is not None:
                notes = tuple(_notes(plan, big, small, places, full))
                placed = _placed(plan, big, drafter)
                return replace(plan, given_up=notes, shrunk=n_ctx < full, placed=placed)
    raise MemoryShort(_refusal(target.with_context(full), draft_model is not None, places))


def _place(target: ModelLoad, draft_model: ModelLoad | None, places: Places) -> FitPlan | None:
    """Return the plan with most layers of the target on GPUs, then most of the draft model; None where none fits."""
    draft_counts: Sequence[int | None] = [None]
    if draft_model is not None:  # all on a GPU or not at all: half of one would wait for its rest
        counts = draft_model.layer_counts()
        draft_counts = [counts[0], counts[-1]]
    for target_layers in target.layer_counts():
        big = target.usages(target_layers, places)
        # The draft model is loaded when the target is.
        gpus = zip(places[1:], big[1:], strict=True)
        left = (places[0], *(gpu.with_more(-used.total_bytes) for gpu, used in gpus))
        if draft_model is not None and draft_model.follows:
            # llama.cpp counts them with the target's, right before the last projection.
            most = len(draft_model.shape.layers) + 1
            draft_counts = [most if target_layers >= most else 0]
        for draft_layers in draft_counts:
            small = [Usage()] * len(big)
            if draft_model is not None and draft_layers is not None:
                small = draft_model.usages(draft_layers, left)
            uses = tuple(PlaceUse(*each) for each in zip(places, big, small, strict=True))
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
    plan: FitPlan, target: ModelLoad, small: ModelLoad | None, places: Places, full: int
) -> Iterator[str]:
    """Yield what differs from what was wanted and why, a sentence each.

    Args:
        plan: the plan.
        target: the target.
        small: the draft model, be it dropped.
        places: what is free.
        full: tokens of context that were wanted.
    """
    if small is not None and plan.draft_layers is None:
        needed = size_text(predict(small.shape, small.options)[0].total_bytes)
        what, need = ("its heads", "they need") if small.heads else ("the draft model", "it needs")
        yield (
            f"running without {what}, which costs speed but changes no text: {need} "
            f"{needed} more, and {places[0].name} has {size_text(places[0].free_bytes)} free in total"
        )
    if plan.n_ctx < full:
        yield f"the context is {plan.n_ctx} tokens instead of {full}: no more fits free memory"
    if target.options.gpu_layers is None and plan.target_layers < target.most_layers:
        on_gpu = f"{plan.target_layers} of {target.most_layers} layers of the target are on the GPU"
        yield f"{on_gpu}: {_free(target, places)}"
    free_draft = (
        small is not None and small.gpus and small.options.gpu_layers is None and not small.follows
    )
    if small is not None and free_draft and plan.draft_layers == 0:
        yield f"the draft model runs on the CPU: {_free(small, places)}"


def _free(load: ModelLoad, places: Places) -> str:
    """Return what bounds layers on GPUs; where those share the RAM, that may be the RAM."""
    ram, gpus = places[0], [gpu for gpu in places[1:] if gpu.name in load.gpus]
    bounds = [
        ram if gpu.shares_ram and ram.usable_bytes < gpu.usable_bytes else gpu for gpu in gpus
    ]
    each_once = dict.fromkeys(bounds)
    return ", ".join(f"{each.name} has {size_text(each.free_bytes)} free" for each in each_once)


def _refusal(target: ModelLoad, had_draft_model: bool, places: Places) -> str:
    usages = target.usages(target.layer_counts()[-1], places)
    uses = [PlaceUse(*each, Usage()) for each in zip(places, usages, strict=True)]
    tight = next((use for use in uses if not use.fits), uses[0])
    needed = needed_in_ram(uses) if tight is uses[0] else tight.needed_bytes
    smaller = (2**power for power in range(20, 8, -1) if 2**power < target.n_ctx)
    fitting = (each for each in smaller if _place(target.with_context(each), None, places))
    remedies = [f"--ctx {n_ctx}" for n_ctx in (next(fitting, None),) if n_ctx]
    kinds, own = list(QUANTISED_KV_TYPES), target.options.kv_type
    narrower = kinds[kinds.index(own) + 1 :] if own in kinds else kinds
    packed = (target.with_context(target.n_ctx, kv_type=kind) for kind in narrower)
    widest = next((load for load in packed if _place(load, None, places)), None)
    remedies += [f"--kv-type {widest.options.kv_type}"] if widest else []
    if target.encoder_bytes and _place(replace(target, encoder_bytes=0), None, places):
        remedies.append("--mmproj off")
    advice = f"try {' or '.join(remedies)}" if remedies else "choose a smaller model"
    what = "without its draft model" if had_draft_model else f"at a context of {target.n_ctx}"
    return (
        f"{target.shape.name} does not fit, even {what}: it needs {size_text(needed)} and "
        f"{tight.place.name} has {size_text(tight.place.usable_bytes)} to spare: {advice}, "
        "or free memory (--no-fit loads it anyway)"
    )
