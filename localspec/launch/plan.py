"""Plan: names and flags become files that are here, sound, and fit each other; nothing is loaded yet."""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from localspec.calibration.calibrated import pair_costs, stored_costs, stored_heads_costs
from localspec.decoding.costs import (
    DOUBT,
    WORTH_TRYING,
    PairCosts,
    at_best_of,
    draft_model_could_win,
)
from localspec.decoding.drafters.register import WITHOUT_MODEL
from localspec.decoding.model import Role
from localspec.engine.protocol import Held
from localspec.errors import MemoryShort, ModelFileError, ModelLoadError, PairMismatch, UsageError
from localspec.launch.drafting import AUTO, DraftMode, draft_mode, draft_modes
from localspec.launch.fit import PairToFit, context_with_room, plan_fit, require_room
from localspec.launch.names import named_models
from localspec.llama.devices import offloads
from localspec.models.architectures import (
    Heads,
    corrections,
    heads_in,
    heads_of,
    mtp_layers,
    why_no_drafts,
    why_no_mtp,
    why_no_target,
)
from localspec.models.entries import ModelEntry
from localspec.models.fit import PlaceUse
from localspec.models.gguf import GgufHeader, read_header, read_model
from localspec.models.memory import USUAL_N_CTX, encoder_bytes, model_shape
from localspec.models.mmproj import mmproj_of, takes, why_no_mmproj
from localspec.models.names import look_up
from localspec.models.registry import Registry, load_registry
from localspec.models.store import Store
from localspec.models.transfer import Progress
from localspec.options import LaunchOptions, LoadOptions
from localspec.storage.files import size_text
from localspec.storage.paths import data_dir, shown

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_AGAIN_S = 0.5
_RPC = "localspec.llama.rpc"
TEXT_ONLY = "the target reads text only"


@dataclass(frozen=True, slots=True)
class EncoderPlan:
    """The encoders of pictures and sounds that a target is loaded with.

    Args:
        path: their file, `mmproj`; None for text only.
        size: what they take, in bytes.
        named: whether the user named that file.
        notes: why there are none, a sentence each.
        takes: how the target could be loaded to take pictures or sounds, by the kind; empty where it could not, or is.
    """

    path: Path | None = None
    size: int = 0
    named: bool = False
    notes: tuple[str, ...] = ()
    takes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """What to load: files that are here, sound, and fit each other.

    Args:
        target: file of the target.
        draft_model: file of the draft model; None if none is used.
        names: how the user calls each file.
        modes: what the models have to be ready for; the first is the assistant's.
        shared_vocab: ids that both vocabularies have; 0 without a draft model, and where it has another vocabulary.
        options: how to load, as they fit the memory that is free.
        exact: whether drafting may change no bit.
        fit: refuse what the free memory does not hold.
        draft_options: how to load the draft model; None as in `options`.
        notes: what was given up for want of memory, a sentence each.
        uses: what was planned to be taken of each place; empty where that is not known.
        draft_lora: file of an adapter for the draft model; None without one.
        left_out: costs of a pair whose draft model or heads are not loaded, since they never pay.
        heads: of the target, which draft instead of a draft model; in its file, where they are not MTP layers.
        corrections: what the headers of files should say instead, by keys.
        normal: which ids the headers of files call normal, and no end.
        encoder: of pictures and sounds.
    """

    target: Path
    draft_model: Path | None
    names: Mapping[Path, str]
    modes: tuple[DraftMode, ...]
    shared_vocab: int
    options: LoadOptions
    exact: bool = False
    fit: bool = True
    draft_options: LoadOptions | None = None
    notes: tuple[str, ...] = ()
    uses: tuple[PlaceUse, ...] = ()
    draft_lora: Path | None = None
    left_out: PairCosts | None = None
    heads: Heads | None = None
    corrections: Mapping[Path, Mapping[str, int]] = field(default_factory=dict)
    normal: "Mapping[Path, NDArray[np.bool_] | None]" = field(default_factory=dict, compare=False)
    encoder: EncoderPlan = field(default_factory=EncoderPlan)

    @property
    def needs_heads(self) -> bool:
        """Whether a mode cannot do without heads."""
        return any(mode.needs_heads for mode in self.modes)

    @property
    def longest_draft(self) -> int:
        """Most tokens of a draft that the draft model or the heads make."""
        longest = self.options.max_rows - 1
        if self.heads is not None and self.heads.count > 1:
            return min(longest, self.heads.count)
        return longest

    def undrafted(self) -> "LoadPlan":
        """Return this without its draft model, and without heads: looking up takes no memory to speak of."""
        lookup = draft_mode(WITHOUT_MODEL)
        modes = tuple(
            lookup if mode.needs_draft_model or mode.needs_heads else mode for mode in self.modes
        )
        options = replace(self.options, max_rows=max(mode.rows for mode in modes))
        return replace(
            self,
            draft_model=None,
            draft_lora=None,
            modes=modes,
            shared_vocab=0,
            options=options,
            draft_options=None,
            heads=None,
        )

    def name(self, role: Role) -> str:
        """Return how the user calls a model; empty if there is none."""
        file = self.target if role is Role.TARGET else self.draft_model
        return "" if file is None else self.names[file]


def make_plan(
    request: LaunchOptions,
    on_download: Callable[[Progress], None] = lambda _: None,
    *,
    parallel: int | None = 1,
    roomy: bool = False,
    least_ctx: int = 0,
    others: Held | None = None,
) -> LoadPlan:
    """Obtain and check what is to be loaded, all of it before the first, slow load begins.

    Args:
        request: what to load.
        on_download: called while a missing model is fetched.
        parallel: how many sequences there will be; None is decided by their costs.
        roomy: take a larger context than the usual one where no size is given and it costs little.
        least_ctx: tokens of context that are needed where no size is given; as many are taken as the memory holds.
        others: what others hold that could be let go, see `Load`.

    Raises:
        NoRoom: it would fit better without those others.
        ModelUnavailable: a model is not here and cannot be fetched.
        PairMismatch: draft model and target do not fit.
        ModelFileError: a file is no sound GGUF.
        ModelLoadError: the memory that is free does not hold the target.
        UsageError: the request contradicts itself.
    """
    if request.workers or _RPC in sys.modules:  # else there are none, and never were
        from localspec.llama.rpc import use_workers  # noqa: PLC0415 - few have some

        use_workers(request.workers)
    if request.server is not None:
        raise UsageError(
            f"a model of this machine is needed here, and server is set to {request.server}: set LOCALSPEC_SERVER=off"
        )
    modes = draft_modes(request)
    target, files, names, notes = _files(request, modes, on_download)
    headers = _headers(files, names)
    encoder = encoder_of(request, target, headers[0])
    headers, heads, about = _heads(request, headers, modes)
    notes = [*([] if heads is not None and heads.is_mtp else notes), *about, *encoder.notes]
    shared_vocab, across = _shared_vocab(headers, named=request.draft_model is not None)
    draft_model = files[1] if len(headers) > 1 else None
    adapter = _adapter(request, headers)
    options = _options(
        request, headers, heads, modes, parallel, encoder.size, roomy=roomy, least_ctx=least_ctx
    )
    plan = LoadPlan(
        files[0],
        draft_model,
        names,
        modes,
        shared_vocab,
        options,
        exact=request.exact,
        fit=request.fit,
        draft_options=None if draft_model is None else request.draft_load(options),
        notes=(*notes, *across),
        draft_lora=None if adapter is None else adapter[0],
        heads=heads,
        corrections=dict(zip(files, map(corrections, headers), strict=False)),
        normal=dict(zip(files, (each.normal_tokens for each in headers), strict=False)),
        encoder=encoder,
    )
    shrinks = request.load.n_ctx is None
    if others is not None and plan.fit:
        sure = plan if _never_pays(plan, parallel) is None else plan.undrafted()
        pair = _to_fit(sure, headers, adapter and adapter[1], shrinks=shrinks)
        require_room(pair, others, parallel or 1)
    fitted = _fitted(plan, headers, adapter and adapter[1], shrinks=shrinks)
    left_out = _never_pays(fitted, parallel)
    if left_out is None:
        return fitted
    return _fitted(replace(plan.undrafted(), left_out=left_out), headers[:1], shrinks=shrinks)


def _files(
    request: LaunchOptions, modes: Sequence[DraftMode], on_download: Callable[[Progress], None]
) -> tuple[ModelEntry | Path, list[Path], dict[Path, str], list[str]]:
    """Return the target, its file and that of the draft model, if there is one, their names, and notes about them."""
    registry = load_registry()
    references = _references(request, modes, registry)
    models = [look_up(each, registry, offline=request.offline) for each in references]
    notes: list[str] = []
    last = models[-1]
    in_file = isinstance(last, ModelEntry) and last.heads is not None
    named = request.draft_model is not None or any(
        mode.needs_draft_model or (mode.needs_heads and in_file) for mode in modes
    )
    if len(models) > 1 and not named:
        # Few starts have a draft model to judge.
        from localspec.launch.worth import without_draft_model  # noqa: PLC0415

        name = request.pair or registry.default_pair
        alone = without_draft_model(name, models[0], models[1], request.target_load)
        if alone is not None:
            references, models, notes = references[:1], models[:1], [alone] if alone else []
    if isinstance(models[0], ModelEntry) and models[0].older:
        from localspec.launch.worth import newer_file  # noqa: PLC0415 - few files are

        notes += newer_file(models[0], registry)
    store = Store(data_dir())
    files = [each if isinstance(each, Path) else store.path_of(each) for each in models]
    stored = [each for each in files if each is not None]
    learnt = any(isinstance(each, ModelEntry) and each.pin is not None for each in models)
    if learnt or len(stored) < len(models):
        # Few starts have something to fetch, or to learn.
        from localspec.models.pull import fetch  # noqa: PLC0415

        stored = fetch(models, offline=request.offline, progress=on_download)
    return models[0], stored, dict(zip(stored, references, strict=True)), notes


def _encoder_bytes(path: Path, target: GgufHeader) -> int:
    """Return what the encoders of a file take; raises PairMismatch where they are of another target."""
    mmproj = read_header(path)
    reason = why_no_mmproj(target, mmproj)
    if reason is not None:
        raise PairMismatch(f"{shown(path)} {reason}: give its own file with --mmproj, or off")
    return encoder_bytes(mmproj)


def encoder_of(
    request: LaunchOptions, target: ModelEntry | Path, header: GgufHeader
) -> EncoderPlan:
    """Return the encoders that a target is loaded with: those of the file that the user named, or of its own.

    Raises:
        ModelFileError: the named file is no sound GGUF.
        PairMismatch: it has no encoders for this target.
    """
    named = None if request.reads_text_only or request.mmproj is None else request.mmproj
    path = mmproj_of(target) if named is None else Path(named).expanduser()
    if path is None or request.reads_text_only:
        name = target.name if isinstance(target, ModelEntry) else header.name
        how = f"{name} without --mmproj off" if path else f"{name} after `localspec pull {name}`"
        return EncoderPlan(takes=dict.fromkeys(takes(target), how))
    if named is not None:
        return EncoderPlan(path, _encoder_bytes(path, header), named=True)
    try:
        size = _encoder_bytes(path, header)
    except (ModelFileError, PairMismatch) as error:
        return EncoderPlan(notes=(f"{TEXT_ONLY}: {error}",))
    try:
        if request.fit:
            plan_fit(header, None, request.target_load, encoder_bytes=size)
    except ModelLoadError:
        why = f"free memory does not hold its encoders of {size_text(size)} as well"
        return EncoderPlan(notes=(f"{TEXT_ONLY}: {why}",))
    return EncoderPlan(path, size)


def _references(
    request: LaunchOptions, modes: Sequence[DraftMode], registry: Registry
) -> list[str]:
    """Return the target, and the draft model where a mode may use one."""
    target, draft_model = named_models(request, registry)
    if draft_model is None:
        remedy = None
        if any(mode.needs_draft_model for mode in modes):
            remedy = f": name one with --draft-model, or use --draft {WITHOUT_MODEL}"
        elif request.draft_lora is not None:
            remedy = " to put an adapter on: name one with --draft-model"
        if remedy is not None:
            raise UsageError(f"{target} has no draft model{remedy}")
        return [target]
    return [target, draft_model] if any(mode.may_use_draft_model for mode in modes) else [target]


def _headers(files: Sequence[Path], names: Mapping[Path, str]) -> list[GgufHeader]:
    """Return the headers of the files, by the names that the user knows; raises PairMismatch where the first is no target."""
    headers = [replace(read_model(file), name=names[file]) for file in files]
    reason = why_no_target(headers[0])
    if reason is not None:
        raise PairMismatch(f"{headers[0].name} {reason}")
    return headers


def _options(
    request: LaunchOptions,
    headers: Sequence[GgufHeader],
    heads: Heads | None,
    modes: Sequence[DraftMode],
    parallel: int | None,
    encoder_size: int,
    *,
    roomy: bool,
    least_ctx: int,
) -> LoadOptions:
    """Return how the target is loaded, before the memory that is free is looked at."""
    options = request.target_load if parallel == 1 else _for_many(request.target_load)
    options = replace(options, max_rows=max(mode.rows for mode in modes))
    if roomy and request.fit and options.n_ctx is None:
        small = headers[1] if len(headers) > 1 else None
        draft_options = request.draft_load(options)
        n_ctx = context_with_room(headers[0], small, options, draft_options, heads, encoder_size)
        options = replace(options, n_ctx=n_ctx)
    if options.n_ctx is None and least_ctx > USUAL_N_CTX:
        shape = model_shape(headers[0])
        trained = shape.n_ctx_train if shape is not None else None
        options = replace(options, n_ctx=min(least_ctx, trained or least_ctx))
    return options


def _adapter(
    request: LaunchOptions, headers: Sequence[GgufHeader]
) -> tuple[Path, GgufHeader] | None:
    """Return the file of the draft model's adapter, which is one for such a model, and its header; None without either."""
    if request.draft_lora is None or len(headers) < 2:
        return None
    file = Path(request.draft_lora).expanduser()
    header, draft_model = read_header(file), headers[1]
    kind = header.text("adapter.type") if header.text("general.type") == "adapter" else None
    if kind != "lora":
        raise ModelFileError(
            f"{header.name} is not a LoRA adapter: --draft-lora takes a GGUF made by convert_lora_to_gguf.py"
        )
    if header.architecture != draft_model.architecture:
        raise PairMismatch(
            f"{header.name} is an adapter for {header.architecture}, and {draft_model.name} is {draft_model.architecture}: "
            "use one that was trained for this draft model"
        )
    return file, header


def _heads(
    request: LaunchOptions, headers: list[GgufHeader], modes: Sequence[DraftMode]
) -> tuple[list[GgufHeader], Heads | None, list[str]]:
    """Return the headers of what is loaded, the heads that are to draft, if any are, and notes about them.

    Those of the draft model's file go before MTP layers of the target's, which go before a draft model that was not named.

    Raises:
        UsageError: a mode needs heads, and there are none, or needs a draft model that is none.
    """
    target, notes = headers[0], list[str]()
    wanted = any(mode.needs_heads for mode in modes)
    auto = any(mode.kind == AUTO for mode in modes)
    needs_model = any(mode.needs_draft_model for mode in modes)
    named = request.draft_model is not None or request.draft_lora is not None
    file = headers[1] if len(headers) > 1 else None
    if wanted and not needs_model and not auto:
        _require_use(request, file)
    if file is not None and (in_file := heads_in(file)) is not None:
        if needs_model:
            raise UsageError(f"{file.name} holds heads of a target: use --draft heads")
        unfit = "" if named or wanted else _why_unfit(target, file)
        if not unfit:
            return headers, in_file, notes
        notes.append(f"{file.name} does not draft for {target.name}: {unfit}")
        headers, file = headers[:1], None
    reason = why_no_mtp(target, exact=request.exact)
    if wanted and reason is not None:
        raise UsageError(
            f"{target.name} {reason}: use --draft lookup, or a file of heads as --draft-model"
        )
    if wanted or (auto and not (file is not None and (named or needs_model))):
        if reason is None:
            return headers[:1], heads_of(target, exact=request.exact), notes
        if mtp_layers(target) and why_no_drafts(target) is None:
            notes.append(f"its MTP layers do not draft: {target.name} {reason}")
    return headers, None, notes


def _require_use(request: LaunchOptions, file: GgufHeader | None) -> None:
    """Raise UsageError where something is named that heads alone have no use for."""
    if request.draft_lora is not None:
        raise UsageError("heads take no adapter: use --draft heads without --draft-lora")
    if file is not None and request.draft_model is not None and heads_in(file) is None:
        raise UsageError(f"{file.name} holds no heads: use --draft model, or another --draft-model")


def _why_unfit(target: GgufHeader, draft_model: GgufHeader) -> str:
    """Return why two files are no pair; empty if they are one."""
    from localspec.models.pairs import Fit, judge_headers  # noqa: PLC0415 - needs a pair

    judged = judge_headers(target, draft_model)
    return judged.reason if judged.verdict is Fit.INCOMPATIBLE else ""


def _shared_vocab(headers: Sequence[GgufHeader], *, named: bool) -> tuple[int, tuple[str, ...]]:
    """Return how many ids a pair shares, 0 across vocabularies and without a draft model, and notes about that.

    Args:
        headers: of the target, and of the draft model if there is one.
        named: whether the user named this draft model; else it has to have the target's vocabulary.

    Raises:
        PairMismatch: they do not fit.
    """
    if len(headers) == 1:
        return 0, ()
    from localspec.models.pairs import (  # noqa: PLC0415 - needs a pair
        LEAST_SHARED_PERCENT,
        Fit,
        judge_headers,
        percent_across,
        require_compatible,
    )

    target, draft_model = headers
    if named and judge_headers(target, draft_model).verdict is Fit.INCOMPATIBLE:
        shared = percent_across(target, draft_model)
        if shared >= LEAST_SHARED_PERCENT:
            note = (
                f"the draft model {draft_model.name} has another vocabulary: {shared:.1f} % of its tokens "
                "are the target's, so less of what it drafts is accepted"
            )
            return 0, (note,)
    return require_compatible(target, draft_model).shared_vocab, ()


def _never_pays(plan: LoadPlan, parallel: int | None) -> PairCosts | None:
    """Return what the pair costs where only `auto` wants the draft model or the heads, and they never pay.

    Where that is not sure, they are loaded, and measured with the target.
    """
    options, file = plan.options, plan.draft_model or plan.target
    wanted = any(mode.needs_draft_model or mode.needs_heads for mode in plan.modes)
    if (plan.draft_model is None and plan.heads is None) or wanted:
        return None
    target = stored_costs(plan.target, options, Role.TARGET)
    draft_options = plan.draft_options or options
    if plan.heads is not None:
        draft_model = stored_heads_costs(file, draft_options)
    else:
        draft_model = stored_costs(file, draft_options, Role.DRAFT_MODEL, plan.draft_lora)
    if target is None or draft_model is None or parallel is None:
        return None
    in_one_pass = plan.heads is not None and plan.heads.block is not None
    at_best = at_best_of(None if plan.heads is None else plan.heads.accepted)
    costs = pair_costs(target, draft_model, in_one_pass=in_one_pass, at_best=at_best)
    by = WORTH_TRYING if costs.sure else WORTH_TRYING / DOUBT
    could_win = draft_model_could_win(costs, plan.longest_draft, parallel, by)
    return None if could_win else costs


def _fitted(
    plan: LoadPlan,
    headers: Sequence[GgufHeader],
    adapter: GgufHeader | None = None,
    *,
    shrinks: bool = False,
) -> LoadPlan:
    """Return the plan, less what the memory that is free does not hold; as it is where that is not to be looked at."""
    if not plan.fit:
        return plan
    pair = _to_fit(plan, headers, adapter, shrinks=shrinks)
    try:
        fit = pair.plan()
    except MemoryShort:  # what has just ended may still be giving its memory back
        time.sleep(_AGAIN_S)
        fit = pair.plan()
    if fit is None:
        return plan
    options, draft_options = plan.options, plan.draft_options
    if fit.shrunk:
        options = replace(options, n_ctx=fit.n_ctx)
    if options.gpu_layers is None and fit.gpus:
        options = replace(options, gpu_layers=fit.target_layers)
    if draft_options is not None and fit.shrunk:
        draft_options = replace(draft_options, n_ctx=fit.n_ctx)
    if draft_options is not None and draft_options.gpu_layers is None and fit.gpus:
        draft_options = replace(draft_options, gpu_layers=fit.draft_layers or 0)
    fitted = replace(
        plan,
        options=options,
        draft_options=draft_options,
        notes=(*plan.notes, *fit.given_up),
        uses=fit.uses,
    )
    drafts = pair.draft_model is not None or plan.heads is not None
    return fitted.undrafted() if drafts and fit.draft_layers is None else fitted


def _to_fit(
    plan: LoadPlan, headers: Sequence[GgufHeader], adapter: GgufHeader | None, *, shrinks: bool
) -> PairToFit:
    """Return what is to be loaded of a plan."""
    drafts = len(headers) > 1 and plan.draft_model is not None
    return PairToFit(
        headers[0],
        headers[1] if drafts else None,
        plan.options,
        plan.draft_options,
        plan.heads,
        adapter if drafts else None,
        shrinks,
        plan.encoder.size,
    )


def _for_many(options: LoadOptions) -> LoadOptions:
    """Return the options with the attention that suits many short sequences.

    On a CPU, flash attention takes a tenth to a fifth less of a pass of 16 sequences; alone, in a deep
    context, it takes more.
    """
    undecided = options.flash_attention is None and options.attention(on_gpu=False) is False
    return options if offloads(options) or not undecided else replace(options, flash_attention=True)
