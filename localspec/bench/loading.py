"""Loads what a bench run compares: one target, one draft model, a policy for every mode."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from localspec.bench.instruments import instrument
from localspec.bench.modes import OFF, PEER_MODES, is_peer
from localspec.chat.assistant import Assistant
from localspec.decoding.cancel import CancelFlag
from localspec.decoding.drafters.register import DRAFTERS, WITHOUT_MODEL, asks_draft_model
from localspec.decoding.policy.policy import Policy
from localspec.launch.load import load as load_plan
from localspec.launch.plan import make_plan
from localspec.models.registry import load_registry
from localspec.models.transfer import Progress
from localspec.options import LaunchOptions, LoadOptions
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
class BenchModels:
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


class SyntheticModels(Protocol):
    """`lab.synthetic`: files that are made from a real model's, once, and kept."""

    def heavier(
        self, source: Path, times: int, directory: Path, on_share: Callable[[float], None]
    ) -> Path:
        """Return a model of `times` the layers of `source` that computes the same logits."""
        ...

    def shuffled(self, source: Path, directory: Path, *, on_share: Callable[[float], None]) -> Path:
        """Return a model of the cost and tokenizer of `source` whose logits are noise."""
        ...


def synthetic_models() -> SyntheticModels:
    """Return what makes synthetic models; raises UsageError where there is no checkout."""
    found: SyntheticModels = instrument("synthetic", "a synthetic model")
    return found


def usual_modes(request: LaunchOptions, *, with_peer: bool) -> str:
    """Return the modes that are compared where nobody chose any, as a list with commas."""
    modes = ["off", "auto", WITHOUT_MODEL]
    drafts = request.draft_model is not None or _draft_of_pair(request) is not None
    if drafts:
        modes += filter(asks_draft_model, DRAFTERS)
    if with_peer:
        modes += [mode for mode in PEER_MODES if drafts or mode != "server:draft"]
    return ",".join(modes)


def load(
    request: LaunchOptions,
    modes: Sequence[str],
    synthetic: int | None,
    cancel: CancelFlag,
    watchers: Watchers,
) -> BenchModels:
    """Fetch, make and load what the modes need.

    Args:
        request: names and options; `draft_model` may be `random`, for one that knows nothing.
        modes: to be compared.
        synthetic: how many times as heavy to make the target; None leaves it.
        cancel: stops loading, and later every run.
        watchers: are told how far it is.

    Raises:
        LocalspecError: something cannot be fetched, made or loaded; `make_plan` says what there is.
        Cancelled: `cancel` was set while loading.
    """
    own = [mode for mode in modes if not is_peer(mode)]
    if "server:draft" in modes:
        own += filter(asks_draft_model, DRAFTERS)
    asked = replace(request, draft=OFF, further=tuple(own))
    labels: dict[Path, str] = {}
    if request.draft_model == RANDOM:
        asked = _shuffled(asked, labels, watchers)
    if synthetic is not None:
        asked = _heavier(asked, synthetic, labels, watchers)
    plan = make_plan(asked, watchers.download)
    loaded = load_plan(plan, cancel, watchers.load, watchers.measure)
    names = {**plan.names, **labels}
    small = plan.draft_model
    return BenchModels(
        assistant=loaded.assistant,
        policy=loaded.drafting.policy,
        options=plan.options,
        target=plan.target,
        draft_model=small,
        target_name=names[plan.target],
        draft_model_name=None if small is None else names[small],
    )


def _shuffled(asked: LaunchOptions, labels: dict[Path, str], watchers: Watchers) -> LaunchOptions:
    """Return the request with a draft model that knows nothing, of the cost of the real one."""
    # What the pair has; where it has none, one as large as the target.
    of_pair = _draft_of_pair(asked)
    real = replace(asked, draft_model=None, fit=False)
    if of_pair is None:
        files = make_plan(replace(real, further=(OFF,)), watchers.download)
    else:
        files = make_plan(
            replace(real, further=tuple(filter(asks_draft_model, DRAFTERS))), watchers.download
        )
    source = files.draft_model or files.target
    label = f"random weights like {shown(files.names[source])}"
    made = synthetic_models().shuffled(
        source, _place(), on_share=lambda share: watchers.load(label, share)
    )
    watchers.made(made)
    labels[made] = label
    return replace(asked, draft_model=str(made))


def _heavier(
    asked: LaunchOptions, synthetic: int, labels: dict[Path, str], watchers: Watchers
) -> LaunchOptions:
    """Return the request with a heavier target of the same function."""
    files = make_plan(replace(asked, fit=False), watchers.download)
    label = f"synthetic {synthetic}x {shown(files.names[files.target])}"
    made = synthetic_models().heavier(
        files.target, synthetic, _place(), lambda share: watchers.load(f"making {label}", share)
    )
    watchers.made(made)
    labels[made] = label
    draft_model = asked.draft_model or _draft_of_pair(asked)
    return replace(asked, pair=None, target=str(made), draft_model=draft_model)


def _place() -> Path:
    return data_dir() / "synthetic"


def _draft_of_pair(request: LaunchOptions) -> str | None:
    if request.target is not None:
        return None
    registry = load_registry()
    return registry.pair(request.pair or registry.default_pair).draft_model
