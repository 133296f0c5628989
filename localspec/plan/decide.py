"""Decide: what is loaded, how large, and with which drafter. Opens no file, looks at no clock and no network.

Why is no draft model loaded? No mode uses one (`wanted`), its download would not pay (`take`), it does not suit the target
(`_drafting`, `_shared_vocab`), the memory does not hold it (`LoadPlan.fitted`), or it was measured and never pays (`never_pays`); once
models are loaded, `settle` asks that of several sequences.
Why this context? `_context` says with which one begins, and `LoadPlan.fitted` what is left of it.

`wanted`, before anything is looked up, says which models there are to be; `take` which of them are fetched; `decide` what
is loaded of those whose headers are known. Measured costs are asked of `Facts.costs`: for which options depends on what
is decided, so that the program's own, `Measurements`, reads them from the disk at that moment.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from localspec.calibration.calibrated import Measurements
from localspec.decoding.draft_mode import AUTO, DraftMode, draft_modes
from localspec.decoding.drafters.register import WITHOUT_MODEL
from localspec.errors import (
    LocalspecError,
    ModelFileError,
    ModelLoadError,
    PairMismatch,
    UsageError,
)
from localspec.messages import Held
from localspec.models.entries import ModelEntry
from localspec.models.registry import Registry
from localspec.models.requested import named_models
from localspec.models.shape import ModelShape
from localspec.options import LaunchOptions, LoadOptions
from localspec.plan.facts import Facts, FileFacts, HeadsFacts, PairFacts
from localspec.plan.fit import FreeMemory, PairLoad
from localspec.plan.load_plan import TEXT_ONLY, EncoderFile, LoadPlan
from localspec.plan.payoff import NamedModel, Note, never_pays, not_taken
from localspec.storage.files import size_text


@dataclass(frozen=True, slots=True)
class Wish:
    """What is asked for.

    Args:
        launch: which models, and how they are loaded.
        parallel: how many sequences there will be; None is decided by their costs.
        roomy: take a larger context than the usual one where no size is given and it costs little.
        least_ctx: tokens of context that are needed where no size is given; as many are taken as the memory holds.
        others: what others hold that could be let go, see `Load`.
    """

    launch: LaunchOptions
    parallel: int | None = 1
    roomy: bool = False
    least_ctx: int = 0
    others: Held | None = None

    @property
    def modes(self) -> tuple[DraftMode, ...]:
        """What the models have to be ready for; raises UsageError where there is no such mode."""
        return draft_modes(self.launch)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why nothing is loaded: an error to raise, whose line says what, which value, and what to do."""

    error: LocalspecError


def wanted(wish: Wish, registry: Registry) -> list[str]:
    """Return the target, and the draft model where a mode may use one, by the names that were given.

    Raises:
        UsageError: a mode needs a draft model, and there is none.
        ModelUnavailable: there is no such pair.
    """
    launch = wish.launch
    if launch.server is not None:
        raise UsageError(
            f"a model of this machine is needed here, and server is set to {launch.server}: set LOCALSPEC_SERVER=off"
        )
    modes = wish.modes
    target, draft_model = named_models(launch, registry)
    if draft_model is None:
        remedy = None
        if any(mode.needs_draft_model for mode in modes):
            remedy = f": name one with --draft-model, or use --draft {WITHOUT_MODEL}"
        elif launch.draft_lora is not None:
            remedy = " to put an adapter on: name one with --draft-model"
        if remedy is not None:
            raise UsageError(f"{target} has no draft model{remedy}")
        return [target]
    return [target, draft_model] if any(mode.may_use_draft_model for mode in modes) else [target]


def take(
    wish: Wish,
    models: Sequence[NamedModel],
    default_pair: str,
    costs: Measurements,
    free: FreeMemory,
) -> tuple[tuple[NamedModel, ...], list[Note]]:
    """Return which of the models that were asked for are fetched, and loaded if they fit, and notes about the others.

    Args:
        wish: what is asked for.
        models: target and draft model.
        default_pair: what is meant where nothing is named.
        costs: what was measured here.
        free: which devices there are.
    """
    launch, target, last = wish.launch, models[0], models[-1]
    in_file = isinstance(last.model, ModelEntry) and last.model.heads is not None
    named = launch.draft_model is not None or any(
        mode.needs_draft_model or (mode.needs_heads and in_file) for mode in wish.modes
    )
    notes = []
    if len(models) > 1 and not named:
        name, load = launch.pair or default_pair, launch.target_load
        if (left := not_taken(name, models[0], models[1], load, costs, free)) is not None:
            models = models[:1]
            notes += [left] if left.text else []
    if newer := target.newer:
        has_heads = len(newer) > 1 or newer[0].heads is not None
        names = " ".join(each.name for each in newer)
        heads = ", with heads that draft for it" if has_heads else ""
        size = size_text(sum(each.size_bytes for each in newer))
        assert isinstance(target.model, ModelEntry), "of which there is a newer file"  # noqa: S101
        text = f"there is a newer file of {target.model.name}{heads}: `localspec pull {names}` downloads {size}"
        notes.append(Note(text, f"file {newer[0].sha256}"))
    return tuple(models), notes


def decide(facts: Facts, wish: Wish) -> LoadPlan | Refusal:
    """Return what is loaded, how large, and with which drafter; or why nothing is."""
    try:
        plan = _decided(facts, wish)
    except LocalspecError as error:
        return Refusal(error)
    if plan.heads is not None and plan.heads.is_mtp:  # what other files add is not missed
        return plan
    return replace(plan, notes=(*facts.notes, *plan.notes))


def _decided(facts: Facts, wish: Wish) -> LoadPlan:
    launch, modes = wish.launch, wish.modes
    if facts.why_no_target is not None:
        raise PairMismatch(f"{facts.target.name} {facts.why_no_target}")
    encoder = encoder_plan(facts.encoder, launch, facts.target.shape, facts.free)
    small, found, notes = _drafting(facts, launch, modes)
    shared_vocab, across = 0, tuple[str, ...]()
    if small is not None and facts.pair is not None:
        shared_vocab, across = _shared_vocab(
            facts.pair, small.name, named=launch.draft_model is not None
        )
        if facts.adapter is not None and facts.adapter[1] is not None:
            raise facts.adapter[1]
    heads = None if found is None else found.heads
    is_mtp = heads is not None and heads.is_mtp
    options = launch.target_load
    if wish.parallel != 1:
        options = for_many(options, on_gpu=bool(facts.free.gpus(options)))
    options = replace(options, max_rows=max(mode.rows for mode in modes))
    # Heads stay with the target, whose weights they may read.
    draft_load = partial(facts.free.draft_load, launch) if heads is None else launch.draft_load
    pair = PairLoad(
        facts.mtp.target if is_mtp else facts.target.shape,
        found.shape if found is not None else None if small is None else small.shape,
        options,
        draft_load(options),
        heads,
        drafts=small is not None or heads is not None,
        encoder_bytes=encoder.size,
    )
    options = replace(options, n_ctx=_context(facts, wish, pair))
    files = [facts.target] if small is None else [facts.target, small]
    plan = LoadPlan(
        facts.target.path,
        None if small is None else small.path,
        {each.path: each.name for each in facts.files},
        modes,
        shared_vocab,
        options,
        wish.parallel,
        exact=launch.exact,
        fit=launch.fit,
        draft_options=None if small is None else draft_load(options),
        notes=(*notes, *encoder.notes, *across, *_no_gpu(launch, options, facts.free)),
        draft_lora=None if small is None or facts.adapter is None else facts.adapter[0],
        heads=heads,
        corrections={each.path: each.corrections for each in files},
        normal={each.path: each.normal for each in files},
        encoder=encoder,
    )
    shrinks = launch.load.n_ctx is None
    pair = replace(pair, options=options, draft_options=plan.draft_options, shrinks=shrinks)
    alone = plan.undrafted()
    target_alone = replace(pair.undrafted(), target=facts.target.shape, options=alone.options)
    if wish.others is not None and plan.fit:
        idle = never_pays(plan, facts.costs) is not None
        (target_alone if idle else pair).require_room(facts.free, wish.others, wish.parallel or 1)
    fitted = plan.fitted(pair, pair.fit(facts.free) if plan.fit else None)
    left_out = never_pays(fitted, facts.costs)
    if left_out is not None:
        fit = target_alone.fit(facts.free) if plan.fit else None
        fitted = replace(alone, left_out=left_out).fitted(target_alone, fit)
    # Heads follow the rows of every pass, and pictures are evaluated by the context that has their encoder.
    if fitted.heads is not None or fitted.encoder.path is not None or fitted.exact:
        return fitted
    from localspec.plan.reading import plain_beside  # noqa: PLC0415 - nobody else needs it

    on_gpu = bool(facts.free.gpus(fitted.options)) and fitted.options.gpu_layers != 0
    shape, reading_costs = facts.target.shape, partial(facts.costs.of_reading, fitted.target)
    plain = plain_beside(shape, fitted.options, fitted.uses, reading_costs, on_gpu=on_gpu)
    return replace(fitted, plain=plain)


def encoder_plan(
    file: EncoderFile, launch: LaunchOptions, target: ModelShape | None, free: FreeMemory
) -> EncoderFile:
    """Return the encoders that a target is loaded with.

    Raises:
        ModelUnavailable, ModelFileError: the named file is not there, or is no sound GGUF.
        PairMismatch: it has no encoders for this target.
    """
    if file.error is not None:
        if file.named or not isinstance(file.error, ModelFileError | PairMismatch):
            raise file.error
        return EncoderFile(notes=(f"{TEXT_ONLY}: {file.error}",))
    if file.path is not None and not file.named and launch.fit:
        try:
            PairLoad(target, options=launch.target_load, encoder_bytes=file.size).fit(free)
        except ModelLoadError:
            why = f"free memory does not hold its encoders of {size_text(file.size)} as well"
            return EncoderFile(notes=(f"{TEXT_ONLY}: {why}",))
    return file


def for_many(options: LoadOptions, *, on_gpu: bool) -> LoadOptions:
    """Return the options with the attention that suits many short sequences.

    On a CPU, flash attention takes a tenth to a fifth less of a pass of 16 sequences; alone, in a deep
    context, it takes more.
    """
    undecided = options.flash_attention is None and options.attention(on_gpu=False) is False
    return options if on_gpu or not undecided else replace(options, flash_attention=True)


def _no_gpu(launch: LaunchOptions, options: LoadOptions, free: FreeMemory) -> Iterator[str]:
    """Yield which layers were to go to a GPU though there is none that takes any."""
    wanted = {"--gpu-layers": options}
    if launch.draft_gpu_layers is not None:
        wanted["--draft-gpu-layers"] = launch.draft_load(options)
    for flag, load in wanted.items():
        if load.gpu_layers and not load.devices and not free.gpus(load):
            yield f"{flag} {load.gpu_layers} puts none on a GPU, since none can be used here: `localspec doctor` says more"


def _context(facts: Facts, wish: Wish, pair: PairLoad) -> int | None:
    """Return the tokens of context to begin with: what was asked for, or is needed, or costs a conversation little; None for the usual ones."""
    n_ctx, trained = pair.options.n_ctx, pair.target and pair.target.n_ctx_train
    if n_ctx is None and wish.roomy and wish.launch.fit:
        n_ctx = pair.roomy_context(facts.free)
    if n_ctx is None and wish.least_ctx > pair.options.context:
        n_ctx = min(wish.least_ctx, trained or wish.least_ctx)
    return n_ctx


def _drafting(
    facts: Facts, launch: LaunchOptions, modes: Sequence[DraftMode]
) -> tuple[FileFacts | None, HeadsFacts | None, list[str]]:
    """Return the file that drafts, and the heads that do, if any of them do, and notes about them.

    Heads of the draft model's file go before MTP layers of the target's, which go before a draft model that was not named.

    Raises:
        UsageError: a mode needs heads, and there are none, or needs a draft model that is none.
    """
    target, file, pair, notes = facts.target.name, facts.draft_model, facts.pair, list[str]()
    wanted = any(mode.needs_heads for mode in modes)
    auto = any(mode.kind == AUTO for mode in modes)
    needs_model = any(mode.needs_draft_model for mode in modes)
    named = launch.draft_model is not None or launch.draft_lora is not None
    in_file = None if pair is None else pair.heads
    if wanted and not needs_model and not auto:
        _require_use(launch, file, in_file)
    if file is not None and pair is not None and in_file is not None:
        if needs_model:
            raise UsageError(f"{file.name} holds heads of a target: use --draft heads")
        if named or wanted or not pair.unfit:
            return file, in_file, notes
        notes.append(f"{file.name} does not draft for {target}: {pair.unfit}")
        file = None
    mtp = facts.mtp
    if wanted and mtp.found is None:
        raise UsageError(
            f"{target} {mtp.why_not}: use --draft lookup, or a file of heads as --draft-model"
        )
    if wanted or (auto and not (file is not None and (named or needs_model))):
        if mtp.found is not None:
            return None, mtp.found, notes
        if mtp.is_missed:
            notes.append(f"its MTP layers do not draft: {target} {mtp.why_not}")
    return file, None, notes


def _require_use(launch: LaunchOptions, file: FileFacts | None, in_file: HeadsFacts | None) -> None:
    """Raise UsageError where something is named that heads alone have no use for."""
    if launch.draft_lora is not None:
        raise UsageError("heads take no adapter: use --draft heads without --draft-lora")
    if file is not None and launch.draft_model is not None and in_file is None:
        raise UsageError(f"{file.name} holds no heads: use --draft model, or another --draft-model")


def _shared_vocab(pair: PairFacts, name: str, *, named: bool) -> tuple[int, tuple[str, ...]]:
    """Return how many ids a pair shares, 0 across vocabularies, and notes about that.

    A draft model that the user did not name has to have the target's vocabulary. Raises PairMismatch where they do not fit.
    """
    if pair.error is None:
        return pair.shared_vocab, ()
    if not (named and pair.percent):
        raise pair.error
    note = (
        f"the draft model {name} has another vocabulary: {pair.percent:.1f} % of its tokens "
        "are the target's, so less of what it drafts is accepted"
    )
    return 0, (note,)
