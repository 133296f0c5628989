"""Facts: what there is to decide by, gathered once; and what is asked of the payoff where nothing is loaded."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from localspec.calibration.calibrated import Measurements
from localspec.errors import LocalspecError, ModelFileError, PairMismatch
from localspec.llama.devices import devices
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
from localspec.models.gguf import GgufHeader, read_header, read_model
from localspec.models.mmproj import mmproj_of, takes, why_no_mmproj
from localspec.models.names import look_up
from localspec.models.registry import Registry
from localspec.models.shape import ModelShape, encoder_bytes, heads_shape, model_shape, most_tokens
from localspec.models.store import Store
from localspec.models.transfer import Progress
from localspec.options import LaunchOptions, LoadOptions
from localspec.plan.fit import FreeMemory
from localspec.plan.load_plan import EncoderFile
from localspec.plan.payoff import NamedModel, Note, could_pay, not_taken
from localspec.resources import free_ram_bytes
from localspec.storage.paths import data_dir, shown


def free_memory() -> FreeMemory:
    """Return what the system and llama.cpp say is free now."""
    return FreeMemory(free_ram_bytes(), tuple(devices()))


def known_devices() -> FreeMemory:
    """Return the devices alone."""
    return FreeMemory(None, tuple(devices()))


def name_models(
    references: Sequence[str], registry: Registry, *, offline: bool
) -> tuple[NamedModel, ...]:
    """Return what references mean; asks the hub only for what is known nowhere else, see `look_up`."""
    store, named = Store(data_dir()), []
    for reference in references:
        model = look_up(reference, registry, offline=offline)
        path, newer = model if isinstance(model, Path) else store.path_of(model), None
        if isinstance(model, ModelEntry) and model.older and model.name == model.base:
            newer = registry.newer(model)
        others = (
            () if newer is None else dict.fromkeys([newer, *registry.with_heads_for(newer)[:1]])
        )
        named.append(NamedModel(reference, model, path, tuple(others)))
    return tuple(named)


def fetched(
    models: Sequence[NamedModel], on_download: Callable[[Progress], None], *, offline: bool
) -> tuple[NamedModel, ...]:
    """Return the models with their files, fetched where they are not here; raises as `models.pull.fetch` does."""
    entries = [each.model for each in models]
    learnt = any(isinstance(each, ModelEntry) and each.pin is not None for each in entries)
    if not learnt and all(each.path is not None for each in models):
        return tuple(models)
    # Few starts have something to fetch, or to learn.
    from localspec.models.pull import fetch  # noqa: PLC0415

    paths = fetch(entries, offline=offline, progress=on_download)
    return tuple(replace(each, path=path) for each, path in zip(models, paths, strict=True))


@dataclass(frozen=True, slots=True)
class FileFacts:
    """What the file of a model says.

    Args:
        name: of the model, as it was asked for.
        path: of the file.
        shape: its sizes, with an adapter's; None where the header leaves out, or garbles, them.
        n_ctx_train: tokens of context that it was trained for; None where the file does not say.
        corrections: what the header should say instead, by keys.
        normal: which ids the header calls normal, and no end; None where it does not say.
    """

    name: str
    path: Path
    shape: ModelShape | None
    n_ctx_train: int | None
    corrections: Mapping[str, int]
    normal: NDArray[np.bool_] | None = field(default=None, compare=False)

    @classmethod
    def of(
        cls, named: NamedModel, header: GgufHeader, adapter: GgufHeader | None = None
    ) -> "FileFacts":
        """Return what a header says."""
        assert named.path is not None, "it was read"  # noqa: S101
        shape, fixes = model_shape(header, adapter), corrections(header)
        trained = header.context_length
        return cls(named.name, named.path, shape, trained, fixes, header.normal_tokens)


@dataclass(frozen=True, slots=True)
class HeadsFacts:
    """Heads, and the shape of what they take beside their target; None where a header does not say that."""

    heads: Heads
    shape: ModelShape | None


@dataclass(frozen=True, slots=True)
class MtpFacts:
    """The MTP layers of a target.

    Args:
        found: as heads; None where they cannot draft.
        target: the target's shape with them.
        why_not: why they cannot, in words that follow its name; empty where they can.
        is_missed: whether the file has some, which could draft in another build or without `exact`.
    """

    found: HeadsFacts | None
    target: ModelShape | None
    why_not: str
    is_missed: bool


@dataclass(frozen=True, slots=True)
class PairFacts:
    """How the file of a draft model, or of heads, suits its target.

    Args:
        heads: what it holds in place of a model; None where it is one.
        shared_vocab: how many ids both have.
        error: why they do not fit.
        unfit: the same in a few words; empty where they fit.
        percent: how much two vocabularies share where a model that is named can draft across them; else 0.
    """

    heads: HeadsFacts | None
    shared_vocab: int = 0
    error: LocalspecError | None = None
    unfit: str = ""
    percent: float = 0.0


@dataclass(frozen=True, slots=True)
class Facts:
    """What there is to decide by.

    Args:
        target: the target's file.
        why_no_target: why it is none, in words that follow its name; None if nothing speaks against it.
        mtp: its MTP layers.
        draft_model: the draft model's file; None without one.
        pair: how that suits the target.
        encoder: the target's.
        adapter: the draft model's, and why it is none.
        free: one look at this machine.
        costs: what was measured on it.
        notes: what to tell about the files that there are, and about those that are not.
    """

    target: FileFacts
    why_no_target: str | None
    mtp: MtpFacts
    draft_model: FileFacts | None
    pair: PairFacts | None
    encoder: EncoderFile
    adapter: tuple[Path, LocalspecError | None] | None
    free: FreeMemory
    costs: Measurements
    notes: tuple[str, ...] = ()

    @property
    def files(self) -> list[FileFacts]:
        """The target's, and the draft model's if there is one."""
        return [self.target] if self.draft_model is None else [self.target, self.draft_model]

    def later(self) -> "Facts":
        """Return the same with another look at the memory."""
        return replace(self, free=free_memory())


def gather(launch: LaunchOptions, models: Sequence[NamedModel]) -> Facts:
    """Return what there is to decide by.

    Args:
        launch: what is asked for.
        models: with files.

    Raises:
        ModelUnavailable, ModelFileError: a model cannot be read.
    """
    headers = [
        replace(read_model(each.path), name=each.name) for each in models if each.path is not None
    ]
    target, draft_model, pair, adapter = headers[0], None, None, None
    if len(headers) > 1:
        lora = None
        if launch.draft_lora is not None:
            lora, adapter = _adapter(Path(launch.draft_lora).expanduser(), headers[1])
        draft_model, pair = FileFacts.of(models[1], headers[1], lora), pair_facts(*headers)
    return Facts(
        FileFacts.of(models[0], target),
        why_no_target(target),
        mtp_facts(target, exact=launch.exact),
        draft_model,
        pair,
        encoder_facts(launch, models[0].model, target),
        adapter,
        free_memory(),
        Measurements(),
    )


def mtp_facts(target: GgufHeader, *, exact: bool) -> MtpFacts:
    """Return what there is of MTP layers; with `exact`, no bit may depend on them."""
    why_not, heads = why_no_mtp(target, exact=exact), heads_of(target, exact=exact)
    if heads is not None:
        found = HeadsFacts(heads, heads_shape(target, heads, None))
        return MtpFacts(found, model_shape(target, mtp=True), "", is_missed=False)
    missed = mtp_layers(target) > 0 and why_no_drafts(target) is None
    return MtpFacts(None, None, why_not or "", is_missed=missed)


def pair_facts(target: GgufHeader, file: GgufHeader) -> PairFacts:
    """Return how a file suits a target."""
    # Few targets have a draft model.
    from localspec.models.pairs import (  # noqa: PLC0415
        LEAST_SHARED_PERCENT,
        judge_headers,
        percent_across,
        require_compatible,
    )

    held = heads_in(file)
    heads = None if held is None else HeadsFacts(held, heads_shape(target, held, file))
    try:
        return PairFacts(heads, require_compatible(target, file).shared_vocab)
    except ModelFileError as error:
        return PairFacts(heads, error=error)
    except PairMismatch as error:
        unfit, percent = judge_headers(target, file).reason, percent_across(target, file)
        return PairFacts(heads, 0, error, unfit, percent if percent >= LEAST_SHARED_PERCENT else 0)


def _adapter(
    file: Path, draft_model: GgufHeader
) -> tuple[GgufHeader | None, tuple[Path, LocalspecError | None]]:
    """Return the header of an adapter for a draft model, and its file, with why it is none."""
    error: LocalspecError | None = None
    try:
        header = read_header(file)
    except LocalspecError as unread:
        return None, (file, unread)
    kind = header.text("adapter.type") if header.text("general.type") == "adapter" else None
    if kind != "lora":
        error = ModelFileError(
            f"{header.name} is not a LoRA adapter: --draft-lora takes a GGUF made by convert_lora_to_gguf.py"
        )
    elif header.architecture != draft_model.architecture:
        error = PairMismatch(
            f"{header.name} is an adapter for {header.architecture}, and {draft_model.name} is {draft_model.architecture}: "
            "use one that was trained for this draft model"
        )
    return header, (file, error)


def encoder_facts(
    launch: LaunchOptions, target: ModelEntry | Path, header: GgufHeader
) -> EncoderFile:
    """Return the file of a target's encoders: the one that was named, or its own."""
    named = None if launch.reads_text_only or launch.mmproj is None else launch.mmproj
    path = mmproj_of(target) if named is None else Path(named).expanduser()
    if path is None or launch.reads_text_only:
        name = target.name if isinstance(target, ModelEntry) else header.name
        how = f"{name} without --mmproj off" if path else f"{name} after `localspec pull {name}`"
        return EncoderFile(takes=dict.fromkeys(takes(target), how))
    try:
        mmproj = read_header(path)
        reason = why_no_mmproj(header, mmproj)
        if reason is not None:
            raise PairMismatch(f"{shown(path)} {reason}: give its own file with --mmproj, or off")
        size, tokens = encoder_bytes(mmproj), most_tokens(mmproj)
    except LocalspecError as error:
        return EncoderFile(path, named is not None, error=error)
    return EncoderFile(path, named is not None, size=size, most_tokens=tokens)


def drafts_could_pay(target: ModelEntry, draft_model: ModelEntry) -> bool | None:
    """Say whether a draft model could pay here, loaded as usual; None where that is not sure, see `could_pay`."""
    options, path = LoadOptions(), Store(data_dir()).path_of(target)
    on_gpu = bool(known_devices().gpus(options))
    return could_pay(target, draft_model, options, Measurements(), path=path, on_gpu=on_gpu)


def why_not_pulled(
    pair: str, target: ModelEntry | Path, draft_model: ModelEntry | Path
) -> Note | None:
    """Return why a pair is fetched without its draft model; None where it comes with it, being here or worth it."""
    store = Store(data_dir())
    models = [
        NamedModel(pair, each, each if isinstance(each, Path) else store.path_of(each))
        for each in (target, draft_model)
    ]
    costs, free = Measurements(), known_devices()
    return not_taken(pair, models[0], models[1], LoadOptions(), costs, free, pulled=True)
