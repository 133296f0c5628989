"""Launch: names and flags become files that are here, sound, and fit each other."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from localspec.calibration.calibrated import cached_costs
from localspec.decoding.model import Role
from localspec.drafting import DraftMode, PairCosts, draft_mode, require_length
from localspec.errors import UsageError
from localspec.fitting import plan_fit
from localspec.llama.options import LoadOptions
from localspec.loading import Files, Prepared
from localspec.models.compatibility import require_compatible
from localspec.models.fit import native_count
from localspec.models.gguf import GgufHeader, read_model
from localspec.models.names import look_up
from localspec.models.pull import fetch
from localspec.models.registry import Registry, load_registry
from localspec.models.transfer import Progress


@dataclass(frozen=True, slots=True)
class Launch:
    """What to load, by the names that users give.

    Args:
        pair: name of a pair; None with `target` None takes the default pair.
        target: a model's name or the path of a GGUF, instead of a pair.
        draft_model: likewise for the draft model; overrides the pair's own.
        draft: `off`, `auto`, `lookup`, `model`, the last two with a length if wanted: `model:3`.
            `auto` drafts by whatever pays, as far as it pays.
        draft_length: tokens to draft a round by `lookup` or `model`; None takes the usual.
        options: how to load.
        exact: load with kernels, and draft only so far, that no bit depends on drafting.
        offline: use no network.
        fit: plan for the memory that is free, and refuse what it does not hold.
        further: more modes that the pair has to be ready for, as a comparison needs them.
    """

    pair: str | None = None
    target: str | None = None
    draft_model: str | None = None
    draft: str = "auto"
    draft_length: int | None = None
    options: LoadOptions = field(default_factory=LoadOptions)
    exact: bool = False
    offline: bool = False
    fit: bool = True
    further: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.pair is not None and self.target is not None:
            raise UsageError(
                f"pair {self.pair} and target {self.target} exclude each other: give one of them"
            )
        if self.draft_length is not None:
            require_length(self.draft_length)
        if self.exact and self.options.kv_type not in {"f16", "bf16"}:
            raise UsageError(
                f"--exact needs a bf16 cache, and --kv-type says {self.options.kv_type}: "
                "leave one of them out"
            )

    @property
    def modes(self) -> tuple[DraftMode, ...]:
        """Every mode to be ready for, the wanted one first."""
        return tuple(draft_mode(each, self.draft_length) for each in (self.draft, *self.further))


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
    references = _references(request, registry)
    found = [look_up(each, registry, offline=request.offline) for each in references]
    files = fetch(found, offline=request.offline, progress=on_download)
    names = dict(zip(files, references, strict=True))
    headers = [replace(read_model(file), name=names[file]) for file in files]
    shared_vocab = 0
    if len(files) > 1:
        shared_vocab = require_compatible(headers[0], headers[1]).shared_vocab
    options = request.options.exact() if request.exact else request.options
    options = replace(options, max_rows=max(mode.rows for mode in request.modes))
    prepared = Prepared(
        Files(files[0], files[1] if len(files) > 1 else None, names),
        request.modes,
        shared_vocab,
        options,
        exact=request.exact,
    )
    fitted = _fitted(prepared, headers) if request.fit else prepared
    left_out = _hopeless(fitted)
    if left_out is None:
        return fitted
    prepared = replace(prepared.undrafted(), left_out=left_out)
    return _fitted(prepared, headers[:1]) if request.fit else prepared


def _references(request: Launch, registry: Registry) -> list[str]:
    """Return the target, and the draft model where a mode may use one."""
    target, draft_model = request.target, request.draft_model
    if target is None:
        pair = registry.pair(request.pair or registry.default_pair)
        target, draft_model = pair.target, draft_model or pair.draft_model
    kinds = {mode.kind for mode in request.modes}
    if "model" in kinds and draft_model is None:
        raise UsageError(
            f"{target} has no draft model: name one with --draft-model, or use --draft lookup"
        )
    wanted = draft_model is not None and bool(kinds & {"model", "auto"})
    return [target, draft_model] if wanted and draft_model is not None else [target]


def _hopeless(prepared: Prepared) -> PairCosts | None:
    """Return what the pair costs where only `auto` wants the draft model, and it never pays."""
    files, options = prepared.files, prepared.options
    if files.draft_model is None or any(mode.kind == "model" for mode in prepared.modes):
        return None
    target = cached_costs(files.target, options, Role.TARGET)
    if prepared.draft_gpu_layers is not None:
        options = replace(options, gpu_layers=prepared.draft_gpu_layers)
    draft_model = cached_costs(files.draft_model, options, Role.DRAFT_MODEL)
    if target is None or draft_model is None:
        return None
    costs = PairCosts(target, draft_model)
    return None if costs.draft_model_could_win(options.max_rows - 1) else costs


def _fitted(prepared: Prepared, headers: list[GgufHeader]) -> Prepared:
    """Return what is prepared, less what the memory that is free does not hold."""
    fit = plan_fit(headers[0], headers[1] if len(headers) > 1 else None, prepared.options)
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
    return fitted if len(headers) == 1 or fit.draft_layers is not None else fitted.undrafted()
