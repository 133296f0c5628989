"""The composition root: names and flags become files, files a pair, the pair an Assistant."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from localspec.chat.assistant import Assistant
from localspec.chat.loaded_models import LoadedModels
from localspec.decoding.cancel import CancelFlag
from localspec.decoding.drafter import NoDrafter
from localspec.decoding.lookup_drafter import LookupDrafter
from localspec.decoding.model_drafter import ModelDrafter
from localspec.decoding.policy import FixedPolicy
from localspec.errors import UsageError
from localspec.fitting import plan_fit
from localspec.llama.options import LoadOptions
from localspec.llama.pair import Pair, open_pair
from localspec.models.fit import native_count
from localspec.models.gguf_header import GgufHeader, read_header
from localspec.models.obtain import obtain
from localspec.models.paths import data_dir
from localspec.models.progress import Progress
from localspec.models.reference import resolve
from localspec.models.registry import ModelEntry, Registry, load_registry
from localspec.models.store import Store
from localspec.models.tokenizer import require_compatible

DraftMode = Literal["auto", "off", "lookup", "model"]

MODEL_DRAFT_LENGTH = 3
LOOKUP_DRAFT_LENGTH = 15
MAX_DRAFT_LENGTH = 63


@dataclass(frozen=True, slots=True)
class Launch:
    """What to load, by the names that users give.

    Args:
        pair: name of a pair; None with `target` None takes the default pair.
        target: a model's name or the path of a GGUF, instead of a pair.
        draft_model: likewise for the draft model; overrides the pair's own.
        draft: `off`, `lookup`, `model`, or `auto`. Until costs are measured, `auto` looks up, and
            drafts by a model only where one was named by `draft_model`.
        draft_length: tokens to draft a round; None takes 3 for a model, up to 15 for lookup.
        options: how to load.
        offline: use no network.
        fit: plan for the memory that is free, and refuse what it does not hold.
    """

    pair: str | None = None
    target: str | None = None
    draft_model: str | None = None
    draft: DraftMode = "auto"
    draft_length: int | None = None
    options: LoadOptions = field(default_factory=LoadOptions)
    offline: bool = False
    fit: bool = True

    def __post_init__(self) -> None:
        if self.pair is not None and self.target is not None:
            raise UsageError(
                f"pair {self.pair} and target {self.target} exclude each other: give one of them"
            )
        if self.draft_length is not None and not 1 <= self.draft_length <= MAX_DRAFT_LENGTH:
            raise UsageError(
                f"draft_length is {self.draft_length}: give 1 to {MAX_DRAFT_LENGTH}, "
                "or switch drafting off with --draft off"
            )


@dataclass(frozen=True, slots=True)
class _Plan:
    """What a launch comes to: references, and what drafts."""

    target: str
    draft_model: str | None
    draft: Literal["off", "lookup", "model"]
    draft_length: int

    @property
    def rows(self) -> int:
        """Rows of logits that a pass of the target asks for."""
        return 1 if self.draft == "off" else self.draft_length + 1


@dataclass(frozen=True, slots=True)
class Prepared:
    """Files that are here, sound, and fit each other; nothing is loaded yet.

    Args:
        target: file of the target.
        draft_model: file of the draft model, if one is used.
        shared_vocab: ids that both vocabularies have; 0 without a draft model.
        options: how to load, as they fit the memory that is free.
        draft_gpu_layers: layers of the draft model on a GPU; None as in `options`.
        notes: what was given up for want of memory, a sentence each.
    """

    target: Path
    draft_model: Path | None
    shared_vocab: int
    options: LoadOptions
    _plan: _Plan
    draft_gpu_layers: int | None = None
    notes: tuple[str, ...] = ()

    def load(
        self,
        cancel: CancelFlag | None = None,
        on_load: Callable[[str, float], None] = lambda _name, _share: None,
    ) -> Assistant:
        """Load the models.

        Args:
            cancel: stops loading, and later every reply.
            on_load: called with a model's name and the share of it that is loaded, 0 to 1.

        Raises:
            Cancelled: `cancel` was set while loading.
            ModelLoadError: llama.cpp refuses a file or a context.
        """
        plan = self._plan
        names = {self.target: plan.target, self.draft_model: plan.draft_model or ""}
        start = time.perf_counter()
        pair = open_pair(
            self.target,
            self.draft_model,
            self.options,
            CancelFlag() if cancel is None else cancel,
            lambda path, share: on_load(names[path], share),
            self.draft_gpu_layers,
        )
        return Assistant(
            _loaded(pair, plan),
            _policy(pair, plan, self.shared_vocab),
            notes=(*self.notes, *pair.notes),
            load_s=time.perf_counter() - start,
        )


def prepare(request: Launch, on_download: Callable[[Progress], None] = lambda _: None) -> Prepared:
    """Obtain and check what is asked for, all of it before the first, slow load begins.

    Args:
        request: what to load.
        on_download: called while a missing model is fetched.

    Raises:
        ModelUnavailable: a model is not here and cannot be fetched.
        PairMismatch: draft model and target do not fit.
        ModelFileError: a file is no sound GGUF.
        ModelLoadError: the memory that is free does not hold the target.
        UsageError: the request contradicts itself.
    """
    registry = load_registry()
    plan = _plan(request, registry)

    def file_of(reference: str) -> Path:
        found = resolve(reference, registry)
        if isinstance(found, ModelEntry):
            return obtain(found, Store(data_dir()), request.offline, on_download)
        return found

    target = file_of(plan.target)
    target_header = replace(read_header(target), name=plan.target)
    draft_model, draft_header, shared_vocab = None, None, 0
    if plan.draft_model is not None:
        draft_model = file_of(plan.draft_model)
        draft_header = replace(read_header(draft_model), name=plan.draft_model)
        shared_vocab = require_compatible(target_header, draft_header).shared_vocab
    options = replace(request.options, max_rows=plan.rows)
    prepared = Prepared(target, draft_model, shared_vocab, options, plan)
    return _fitted(prepared, target_header, draft_header) if request.fit else prepared


def _fitted(prepared: Prepared, target: GgufHeader, draft_model: GgufHeader | None) -> Prepared:
    """Return what is prepared, less what the memory that is free does not hold."""
    fit = plan_fit(target, draft_model, prepared.options)
    if fit is None:
        return prepared
    options = prepared.options
    if fit.shrunk:
        options = replace(options, n_ctx=fit.n_ctx)
    draft_gpu_layers = None
    if options.gpu_layers is None and fit.gpus:
        options = replace(options, gpu_layers=native_count(fit.target_layers))
        draft_gpu_layers = native_count(fit.draft_layers or 0)
    fitted = replace(
        prepared, options=options, draft_gpu_layers=draft_gpu_layers, notes=fit.given_up
    )
    return fitted if draft_model is None or fit.draft_layers is not None else _undrafted(fitted)


def _undrafted(prepared: Prepared) -> Prepared:
    """Return what is prepared without its draft model: looking up takes no memory to speak of."""
    plan = replace(
        prepared._plan,  # noqa: SLF001 - of this module
        draft_model=None,
        draft="lookup",
        draft_length=LOOKUP_DRAFT_LENGTH,
    )
    options = replace(prepared.options, max_rows=plan.rows)
    return replace(prepared, draft_model=None, shared_vocab=0, options=options, _plan=plan)


def _plan(request: Launch, registry: Registry) -> _Plan:
    target, draft_model = request.target, request.draft_model
    if target is None:
        pair = registry.pair(request.pair or registry.default_pair)
        target = pair.target
        if request.draft == "model":
            draft_model = draft_model or pair.draft_model
    draft = request.draft
    if draft == "auto":
        draft = "model" if draft_model is not None else "lookup"
    if draft != "model":
        draft_model = None
    elif draft_model is None:
        raise UsageError(
            f"{target} has no draft model: name one with --draft-model, or use --draft lookup"
        )
    usual = MODEL_DRAFT_LENGTH if draft == "model" else LOOKUP_DRAFT_LENGTH
    return _Plan(target, draft_model, draft, request.draft_length or usual)


def _loaded(pair: Pair, plan: _Plan) -> LoadedModels:
    vocabulary = pair.target.model.vocabulary
    return LoadedModels(
        target=pair.target,
        draft_model=pair.draft_model,
        tokenizer=vocabulary,
        eog=vocabulary.eog,
        suppressed=vocabulary.suppressed(),
        template_source=pair.target.model.chat_template,
        target_name=plan.target,
        draft_model_name=None if pair.draft_model is None else plan.draft_model,
        cancel=pair.cancel,
        close=pair.close,
    )


def _policy(pair: Pair, plan: _Plan, shared_vocab: int) -> FixedPolicy:
    eog = pair.target.model.vocabulary.eog
    if not pair.can_draft or plan.draft == "off":
        return FixedPolicy(NoDrafter(), 0)
    if plan.draft == "lookup":
        return FixedPolicy(LookupDrafter(eog), plan.draft_length)
    if pair.draft_model is None:
        return FixedPolicy(NoDrafter(), 0)
    drafter = ModelDrafter(pair.draft_model.n_ctx, shared_vocab, eog)
    return FixedPolicy(drafter, plan.draft_length, uses_draft_model=True)
