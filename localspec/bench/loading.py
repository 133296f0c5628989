"""Loads what a bench run compares: one target, one draft model, a policy for every mode."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from localspec.bench.modes import OFF, PEER_FLAGS, draft_length, is_peer, wants_draft_model
from localspec.chat.assistant import Assistant
from localspec.decoding.cancel import CancelFlag
from localspec.decoding.drafter import NoDrafter
from localspec.decoding.lookup_drafter import LookupDrafter
from localspec.decoding.model_drafter import ModelDrafter
from localspec.decoding.policy import FixedPolicy, Policy
from localspec.drafting import LOOKUP_DRAFT_LENGTH, MODEL_DRAFT_LENGTH
from localspec.launch import Launch, prepare
from localspec.models.paths import data_dir, shown
from localspec.models.progress import Progress
from localspec.models.registry import load_registry
from localspec.models.synthetic import heavier, hopeless

RANDOM = "random"


@dataclass(frozen=True, slots=True)
class Watchers:
    """Who is told how far things are."""

    download: Callable[[Progress], None] = lambda _: None
    load: Callable[[str, float], None] = lambda _name, _share: None


@dataclass(frozen=True, slots=True, eq=False)
class Loaded:
    """Models that are loaded, and what they are called.

    Args:
        assistant: answers; its policy is whatever the last run needed.
        policy: gives a fresh policy for a mode, without memories.
        target: file of the target.
        draft_model: file of the draft model, if one is loaded.
        target_name: as the user knows it, with what was made of it.
        draft_model_name: likewise.
    """

    assistant: Assistant
    policy: Callable[[str], Policy]
    target: Path
    draft_model: Path | None
    target_name: str
    draft_model_name: str | None


def usual_modes(request: Launch, *, with_peer: bool) -> str:
    """Return the modes that are compared where nobody chose any, as a list with commas."""
    modes = ["off", "auto", "lookup"]
    drafts = request.draft_model is not None or _pair_draft(request) is not None
    if drafts:
        modes.append("model")
    if with_peer:
        modes += [mode for mode in PEER_FLAGS if drafts or mode != "server:draft"]
    return ",".join(modes)


def load(
    request: Launch,
    modes: Sequence[str],
    synthetic: int | None,
    cancel: CancelFlag,
    watchers: Watchers,
) -> Loaded:
    """Fetch, make and load what the modes need.

    Args:
        request: names and options; `draft_model` may be `random`, for one that knows nothing.
        modes: to be compared.
        synthetic: how many times as heavy to make the target; None leaves it.
        cancel: stops loading, and later every run.
        watchers: are told how far it is.

    Raises:
        LocalspecError: something cannot be fetched, made or loaded; `prepare` says what there is.
        Cancelled: `cancel` was set while loading.
    """
    names = _names(request, modes)
    asked = replace(
        request,
        draft="model" if names[1] is not None else "lookup",
        draft_length=max(_length(mode) for mode in modes),
        draft_model=None if request.draft_model == RANDOM else request.draft_model,
    )
    if synthetic is not None or request.draft_model == RANDOM:
        asked, names = _made(asked, request, names, synthetic, watchers)
    prepared = prepare(asked, watchers.download)
    assistant = prepared.load(cancel, watchers.load)
    return Loaded(
        assistant,
        _policies(assistant, prepared.shared_vocab),
        prepared.target,
        prepared.draft_model,
        names[0],
        names[1] if prepared.draft_model is not None else None,
    )


def _length(mode: str) -> int:
    if is_peer(mode) or mode == OFF:
        return 1
    return draft_length(mode, MODEL_DRAFT_LENGTH if mode == "model" else LOOKUP_DRAFT_LENGTH)


def _names(request: Launch, modes: Sequence[str]) -> tuple[str, str | None]:
    """Return what the target and the draft model are called; None where no draft model is used."""
    target, draft_model = request.target, request.draft_model
    if target is None:
        registry = load_registry()
        pair = registry.pair(request.pair or registry.default_pair)
        target, draft_model = pair.target, draft_model or pair.draft_model
    if draft_model is None and wants_draft_model(modes):
        draft_model = ""  # `prepare` says that there is none
    used = wants_draft_model(modes) or "auto" in modes
    return target, draft_model if used else None


def _made(
    asked: Launch,
    request: Launch,
    names: tuple[str, str | None],
    synthetic: int | None,
    watchers: Watchers,
) -> tuple[Launch, tuple[str, str | None]]:
    """Return the request with files that are made of those it names."""
    target_name, draft_name = names
    random = request.draft_model == RANDOM and draft_name is not None
    real = asked
    if random:  # what the pair has, or the target where it has none
        pair_draft = _pair_draft(request)
        real = replace(asked, draft="lookup" if pair_draft is None else "model")
    files = prepare(replace(real, fit=False), watchers.download)
    target, draft_model = files.target, files.draft_model
    place = data_dir() / "synthetic"
    if random:
        source = draft_model or target
        draft_model = hopeless(
            source, place, on_share=lambda share: watchers.load("making random weights", share)
        )
        draft_name = f"random weights like {_pair_draft(request) or target_name}"
    if synthetic is not None:
        label = f"synthetic {synthetic}x {shown(target_name)}"
        target = heavier(
            target, synthetic, place, lambda share: watchers.load(f"making {label}", share)
        )
        target_name = label
    made = replace(
        asked,
        pair=None,
        target=str(target),
        draft_model=None if draft_model is None else str(draft_model),
    )
    return made, (target_name, draft_name)


def _pair_draft(request: Launch) -> str | None:
    if request.target is not None:
        return None
    registry = load_registry()
    return registry.pair(request.pair or registry.default_pair).draft_model


def _policies(assistant: Assistant, shared_vocab: int) -> Callable[[str], Policy]:
    """Return what gives a mode's policy, on these weights."""
    models = assistant.models

    def policy(mode: str) -> Policy:
        kind = mode.partition(":")[0]
        if kind == OFF:
            return FixedPolicy(NoDrafter(), 0)
        if kind == "model" and models.draft_model is not None:
            drafter = ModelDrafter(models.draft_model.n_ctx, shared_vocab, models.eog)
            length = draft_length(mode, MODEL_DRAFT_LENGTH)
            return FixedPolicy(drafter, length, uses_draft_model=True)
        return FixedPolicy(LookupDrafter(models.eog), draft_length(mode, LOOKUP_DRAFT_LENGTH))

    return policy
