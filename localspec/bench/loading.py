"""Loads what a bench run compares: one target, one draft model, a policy for every mode."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from localspec.bench.modes import OFF, PEER_FLAGS, is_peer
from localspec.chat.assistant import Assistant
from localspec.decoding.cancel import CancelFlag
from localspec.decoding.policy import Policy
from localspec.launch import Launch, prepare
from localspec.llama.options import LoadOptions
from localspec.models.heavier import heavier
from localspec.models.hopeless import hopeless
from localspec.models.registry import load_registry
from localspec.models.transfer import Progress
from localspec.storage.paths import data_dir, shown

RANDOM = "random"

OnShare = Callable[[str, float], None]


@dataclass(frozen=True, slots=True)
class Watchers:
    """Who is told how far things are, and where a file lies that was made."""

    download: Callable[[Progress], None] = lambda _: None
    load: OnShare = lambda _name, _share: None
    measure: OnShare = lambda _name, _share: None
    made: Callable[[Path], None] = lambda _: None


@dataclass(frozen=True, slots=True, eq=False)
class Loaded:
    """Models that are loaded, and what they are called.

    Args:
        assistant: answers; its policy is whatever the last run needed.
        policy: gives a fresh policy for a mode, without memories.
        options: how they are loaded, as it fits the memory.
        target: file of the target.
        draft_model: file of the draft model, if one is loaded.
        target_name: as the user knows it, with what was made of it.
        draft_model_name: likewise.
    """

    assistant: Assistant
    policy: Callable[[str], Policy]
    options: LoadOptions
    target: Path
    draft_model: Path | None
    target_name: str
    draft_model_name: str | None


def usual_modes(request: Launch, *, with_peer: bool) -> str:
    """Return the modes that are compared where nobody chose any, as a list with commas."""
    modes = ["off", "auto", "lookup"]
    drafts = request.draft_model is not None or _draft_of_pair(request) is not None
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
    own = [mode for mode in modes if not is_peer(mode)]
    if "server:draft" in modes:
        own.append("model")
    asked = replace(request, draft=OFF, further=tuple(own))
    labels: dict[Path, str] = {}
    if request.draft_model == RANDOM:
        asked = _hopeless(asked, labels, watchers)
    if synthetic is not None:
        asked = _heavier(asked, synthetic, labels, watchers)
    prepared = prepare(asked, watchers.download)
    loaded = prepared.open(cancel, watchers.load, watchers.measure)
    names = {**prepared.files.names, **labels}
    small = prepared.draft_model
    return Loaded(
        assistant=loaded.assistant,
        policy=loaded.drafting.policy,
        options=prepared.options,
        target=prepared.target,
        draft_model=small,
        target_name=names[prepared.target],
        draft_model_name=None if small is None else names[small],
    )


def _hopeless(asked: Launch, labels: dict[Path, str], watchers: Watchers) -> Launch:
    """Return the request with a draft model that knows nothing, of the cost of the real one."""
    # What the pair has; where it has none, one as large as the target.
    of_pair = _draft_of_pair(asked)
    real = replace(asked, draft_model=None, fit=False)
    if of_pair is None:
        files = prepare(replace(real, further=(OFF,)), watchers.download).files
    else:
        files = prepare(replace(real, further=("model",)), watchers.download).files
    source = files.draft_model or files.target
    label = f"random weights like {shown(files.names[source])}"
    made = hopeless(source, _place(), on_share=lambda share: watchers.load(label, share))
    watchers.made(made)
    labels[made] = label
    return replace(asked, draft_model=str(made))


def _heavier(asked: Launch, synthetic: int, labels: dict[Path, str], watchers: Watchers) -> Launch:
    """Return the request with a heavier target of the same function."""
    files = prepare(replace(asked, fit=False), watchers.download).files
    label = f"synthetic {synthetic}x {shown(files.names[files.target])}"
    made = heavier(
        files.target, synthetic, _place(), lambda share: watchers.load(f"making {label}", share)
    )
    watchers.made(made)
    labels[made] = label
    draft_model = asked.draft_model or _draft_of_pair(asked)
    return replace(asked, pair=None, target=str(made), draft_model=draft_model)


def _place() -> Path:
    return data_dir() / "synthetic"


def _draft_of_pair(request: Launch) -> str | None:
    if request.target is not None:
        return None
    registry = load_registry()
    return registry.pair(request.pair or registry.default_pair).draft_model
