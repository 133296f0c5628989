"""Costs and safe widths of loaded models: from the cache, else measured and stored."""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from localspec.calibration.key import Key, key_of, load, store
from localspec.calibration.values import (
    KeptCosts,
    costs_from_json,
    costs_to_json,
    widths_from_json,
    widths_to_json,
)
from localspec.decoding.cancel import CancelFlag
from localspec.decoding.costs import PairCosts, PassCosts
from localspec.decoding.model import Role
from localspec.errors import UsageError
from localspec.llama.calibrate import OF_DRAFT_MODEL, OF_TARGET, measure_pass_costs
from localspec.llama.model import LlamaModel
from localspec.llama.safe_widths import SafeWidths, safe_widths
from localspec.llama.spare_cores import GIVES_WAY, taken_by_others
from localspec.llama.timed_passes import Schedule, sample
from localspec.options import LoadOptions
from localspec.storage.paths import data_dir, shown

if TYPE_CHECKING:
    from localspec.llama.heads import LlamaHeads

_SCHEDULES = {Role.TARGET: OF_TARGET, Role.DRAFT_MODEL: OF_DRAFT_MODEL}
OF_HEADS = Schedule(
    widths=(1, 2, 4, 8, 16),
    budget_s=0.4,
    first_s=0.3,
    needed=3,
    most_s=1.0,
    enough=6,
    every_row=False,
)
_FOLDER = "calibration"


@dataclass(frozen=True, slots=True)
class Calibration:
    """What passes of a pair cost here.

    Args:
        costs: of the pair.
        notes: what the user should know, a sentence each.
    """

    costs: PairCosts
    notes: tuple[str, ...] = ()


def calibrated(
    target: LlamaModel,
    draft_model: LlamaModel | None = None,
    cancel: CancelFlag | None = None,
    on_progress: Callable[[Role, float, bool], None] = lambda _role, _share, _again: None,
) -> Calibration:
    """Return what passes cost: from the cache at once, else measured in a few seconds and kept.

    Target and draft model are kept apart, so that a new pair of known models costs nothing. What
    was measured while other programs were busy is measured again by the next run, and once more by
    one that finds the machine quiet.

    Args:
        target: loaded; measured with the options that it was loaded with.
        draft_model: likewise.
        cancel: stops measuring; nothing of a model that is half measured is kept.
        on_progress: called with the model that is measured, the share of it that is done, and whether it is measured again.

    Raises:
        Cancelled: the flag was set.
        ModelLoadError: there is no memory for one more, small context.
    """
    cache = _Cache()

    def costs(model: LlamaModel, role: Role) -> KeptCosts:
        key = key_of(_kind(role), model.path, model.options, model.lora)
        known = costs_from_json(cache.load(key))
        if known is None or known.is_measured_again(busy=_is_busy()):
            measured = measure_pass_costs(
                model,
                model.options,
                _SCHEDULES[role],
                cancel,
                lambda share: on_progress(role, share, known is not None),
            )
            known = KeptCosts.of(measured, known)
            cache.store(key, costs_to_json(known))
        return known

    of_target = costs(target, Role.TARGET)
    of_draft = None if draft_model is None else costs(draft_model, Role.DRAFT_MODEL)
    return Calibration(pair_costs(of_target, of_draft), cache.notes)


def calibrated_heads(
    heads: "LlamaHeads", on_progress: Callable[[float], None] = lambda _share: None
) -> KeptCosts:
    """Return what passes of heads cost: from the cache at once, else measured in less than a second and kept."""
    cache, model = _Cache(), heads.model
    key = key_of("costs of heads", model.path, model.options)
    known = costs_from_json(cache.load(key))
    if known is None or known.is_measured_again(busy=_is_busy()):
        measured = sample(heads.blank_pass, OF_HEADS, time.perf_counter, on_progress)
        known = KeptCosts.of(measured, known)
        cache.store(key, costs_to_json(known))
    return known


def pair_costs(target: KeptCosts, draft_model: KeptCosts | None) -> PairCosts:
    """Return what passes of a pair cost, given what is kept of its models."""
    if draft_model is None:
        return PairCosts(target.costs, None, target.sure)
    return PairCosts(target.costs, draft_model.costs, target.sure and draft_model.sure)


def _is_busy() -> bool:
    others = taken_by_others()
    return others is not None and others[0] >= GIVES_WAY


def cached_costs(file: Path, options: LoadOptions, role: Role) -> PassCosts | None:
    """Return what passes of a model cost, if that was measured before; see `kept_costs`."""
    known = kept_costs(file, options, role)
    return None if known is None else known.costs


def kept_costs(
    file: Path, options: LoadOptions, role: Role, lora: Path | None = None
) -> KeptCosts | None:
    """Return what passes of a model cost, and how sure that is, if it was measured before; loads no model.

    Args:
        file: the model's.
        options: how it would be loaded.
        role: target or draft model.
        lora: file of its adapter; None without one.
    """
    with suppress(OSError):
        return costs_from_json(_Cache().load(key_of(_kind(role), file, options, lora)))
    return None


def calibrated_widths(
    model: LlamaModel,
    cancel: CancelFlag | None = None,
    on_progress: Callable[[float], None] = lambda _share: None,
) -> SafeWidths:
    """Return which widths are safe with the options that a model was loaded with.

    From the cache at once, else measured and kept; see `safe_widths`.
    """
    cache = _Cache()
    key = key_of("safe widths", model.path, model.options)
    known = widths_from_json(cache.load(key))
    if known is None:
        known = safe_widths(model, model.options, cancel, on_progress)
        cache.store(key, widths_to_json(known))
    return known


def cached_widths(file: Path, options: LoadOptions) -> SafeWidths | None:
    """Return which widths of a model are safe, if that was measured before; loads no model."""
    with suppress(OSError):
        return widths_from_json(_Cache().load(key_of("safe widths", file, options)))
    return None


def _kind(role: Role) -> str:
    return f"costs of a {role.value}"


class _Cache:
    """The cache of this user; one that cannot be written is mentioned, and does no harm.

    Attributes:
        notes: the mention, if there is one.
    """

    def __init__(self) -> None:
        self.notes: tuple[str, ...] = ()
        self._directory: Path | None = None
        with suppress(UsageError):
            self._directory = data_dir() / _FOLDER

    def load(self, key: Key) -> object:
        return None if self._directory is None else load(self._directory, key)

    def store(self, key: Key, value: Mapping[str, object]) -> None:
        if self._directory is None:
            self._mention("there is no data directory")
            return
        try:
            store(self._directory, key, value)
        except OSError as error:
            self._mention(f"{shown(self._directory)}: {error.strerror}")

    def _mention(self, reason: str) -> None:
        note = f"the calibration of this machine could not be saved ({reason})"
        self.notes = (f"{note}: it is measured again at every start",)
