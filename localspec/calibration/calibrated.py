"""Costs and safe widths of loaded models: from the cache, else measured and stored.

The cache is a small JSON file for each measurement, in `calibration/` of the data directory, named by the digest of its key.
One that does not parse counts as none: what it held can be measured again, so nothing here is worth an error.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from localspec.calibration.key import Key, digest_of, key_of
from localspec.decoding.cancel import CancelFlag
from localspec.decoding.costs import PairCosts, PassCosts
from localspec.decoding.model import Role
from localspec.errors import UsageError
from localspec.llama.calibrate import (
    OF_DRAFT_MODEL,
    OF_TARGET,
    Measured,
    Schedule,
    measure_pass_costs,
    sample,
)
from localspec.llama.model import LlamaModel
from localspec.llama.safe_widths import SafeWidths, safe_widths
from localspec.llama.spare_cores import GIVES_WAY, taken_by_others
from localspec.options import LoadOptions
from localspec.storage.files import private_directory, read_bounded, write_atomic
from localspec.storage.paths import data_dir

if TYPE_CHECKING:
    from localspec.llama.draft_heads import DraftHeads

_SCHEDULES = {Role.TARGET: OF_TARGET, Role.DRAFT_MODEL: OF_DRAFT_MODEL}
OF_HEADS = Schedule((1, 2, 4, 8, 16), budget_s=0.4, first_s=0.3, needed=3, most_s=1.0)
OF_READING = Schedule((), budget_s=1.6, first_s=1.0, needed=2, most_s=2.0, enough=4)
_FOLDER, _MOST_BYTES = "calibration", 1 << 16
_TRIES = 3
_WIDTHS, _HEADS = "exact widths, by all nodes", "costs of heads"
_READING = "costs of reading"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StoredCosts:
    """Costs as they are stored.

    Args:
        costs: of each width, the fastest pass of every run that measured.
        doubts: how often they are measured again, since other programs disturbed it so far.
    """

    costs: PassCosts
    doubts: int = 0

    @property
    def sure(self) -> bool:
        """Whether they were measured while the machine was quiet, or often enough."""
        return self.doubts == 0

    def is_measured_again(self, *, busy: bool) -> bool:
        """Return whether they are to be measured again now; the last time waits until other programs rest.

        Args:
            busy: whether they take much of the machine.
        """
        return self.doubts > (1 if busy else 0)

    @classmethod
    def of(cls, measured: Measured, before: "StoredCosts | None") -> "StoredCosts":
        """Return what is to be stored, given what was."""
        costs = measured.costs if before is None else fastest(measured.costs, before.costs)
        left = _TRIES - 1 if before is None else before.doubts - 1
        return cls(costs, max(0, left) if measured.disturbed else 0)


def fastest(one: PassCosts, other: PassCosts) -> PassCosts:
    """Return the lower cost of every width that either knows."""
    seconds = dict(zip(one.widths, one.seconds, strict=True))
    for width, took in zip(other.widths, other.seconds, strict=True):
        seconds[width] = min(took, seconds.get(width, took))
    widths = tuple(sorted(seconds))
    return PassCosts(widths, tuple(seconds[width] for width in widths))


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
    """Return what passes cost: from the cache at once, else measured in a few seconds and stored.

    Target and draft model are stored apart, so that a new pair of known models costs nothing. What
    was measured while other programs were busy is measured again by the next run, and once more by
    one that finds the machine quiet.

    Args:
        target: loaded; measured with the options that it was loaded with.
        draft_model: the same of the draft model; None without one.
        cancel: stops measuring; nothing of a model that is half measured is stored.
        on_progress: called with the model that is measured, the share of it that is done, and whether it is measured again.

    Raises:
        Cancelled: the flag was set.
        ModelLoadError: there is no memory for one more, small context.
    """

    def costs(model: LlamaModel, role: Role) -> tuple[StoredCosts, str]:
        def measure(again: bool) -> Measured:
            def progress(share: float) -> None:
                on_progress(role, share, again)

            return measure_pass_costs(model, model.options, _SCHEDULES[role], cancel, progress)

        return _costs(key_of(_kind(role), model.path, model.options, model.lora), measure)

    of_target, note = costs(target, Role.TARGET)
    of_draft = None
    if draft_model is not None:
        of_draft, other = costs(draft_model, Role.DRAFT_MODEL)
        note = note or other
    pair = PairCosts(of_target.costs, None, of_target.sure)
    if of_draft is not None:
        pair = PairCosts(of_target.costs, of_draft.costs, of_target.sure and of_draft.sure)
    return Calibration(pair, (note,) if note else ())


def calibrated_heads(
    heads: "DraftHeads", on_progress: Callable[[float], None] = lambda _share: None
) -> StoredCosts:
    """Return what passes of heads cost: from the cache at once, else measured in less than a second and stored."""
    key = key_of(_HEADS, heads.model.path, heads.model.options)
    clock = time.perf_counter
    return _costs(key, lambda _: sample(heads.blank_pass, OF_HEADS, clock, on_progress))[0]


def calibrated_reading(
    file: Path,
    options: LoadOptions,
    load: Callable[[], LlamaModel],
    cancel: CancelFlag | None = None,
    on_progress: Callable[[float], None] = lambda _share: None,
) -> StoredCosts:
    """Return what passes of prompts cost, see `calibrated`.

    Args:
        file: the model's.
        options: how it is loaded.
        load: returns it; called where passes are measured.
        cancel: stops measuring.
        on_progress: called with the share that is done.
    """

    def measure(_: bool) -> Measured:
        schedule = replace(OF_READING, widths=(1, options.chunk(on_gpu=False), 16))
        return measure_pass_costs(load(), options, schedule, cancel, on_progress)

    return _costs(key_of(_READING, file, options), measure)[0]


def stored_reading(file: Path, options: LoadOptions) -> StoredCosts | None:
    """Return what passes of prompts cost, if it was measured before; loads nothing."""
    return _stored(StoredCosts, _READING, file, options)


def stored_costs(
    file: Path, options: LoadOptions, role: Role, lora: Path | None = None
) -> StoredCosts | None:
    """Return what passes of a model cost, and how sure that is, if it was measured before; loads no model.

    Args:
        file: the model's.
        options: how it would be loaded.
        role: target or draft model.
        lora: file of its adapter; None without one.
    """
    return _stored(StoredCosts, _kind(role), file, options, lora)


_LEAST_BYTES = 400_000_000  # passes of less cost something else than reading weights


class Measurements:
    """What was measured on this machine, read from the disk at that moment: for which options depends on what is decided."""

    def of(
        self, file: Path, options: LoadOptions, role: Role, lora: Path | None = None
    ) -> StoredCosts | None:
        """Return the costs of a model's passes, loaded so; None for a draft model's that are to be measured again now.

        By those it might stay out, and what is not loaded is never measured again.
        """
        stored = stored_costs(file, options, role, lora)
        again = stored is not None and stored.is_measured_again(busy=_is_busy())
        return None if again and role is Role.DRAFT_MODEL else stored

    def of_heads(self, file: Path, options: LoadOptions) -> StoredCosts | None:
        """Return those of the heads in a file."""
        return _stored(StoredCosts, _HEADS, file, options)

    def of_reading(self, file: Path, options: LoadOptions) -> StoredCosts | None:
        """Return those of the passes of a model's prompts."""
        return stored_reading(file, options)

    def largest(self, options: LoadOptions) -> PassCosts | None:
        """Return those of the largest target that was measured on a quiet machine, if its passes mostly read weights."""
        # Few starts have a draft model to judge.
        from localspec.models.inventory import inventory  # noqa: PLC0415
        from localspec.models.registry import load_registry  # noqa: PLC0415
        from localspec.models.store import Store  # noqa: PLC0415

        here = inventory(load_registry(), Store(data_dir()))
        for item in sorted(here, key=lambda each: -each.entry.read_bytes):
            if item.path is not None and item.entry.read_bytes >= _LEAST_BYTES:
                stored = stored_costs(item.path, options, Role.TARGET)
                if stored is not None and stored.sure:
                    return stored.costs
        return None


def calibrated_widths(
    model: LlamaModel,
    cancel: CancelFlag | None = None,
    on_progress: Callable[[float], None] = lambda _share: None,
) -> SafeWidths:
    """Return which widths are safe with the options that a model was loaded with.

    From the cache at once, else measured and stored; see `safe_widths`.
    """
    key = key_of(_WIDTHS, model.path, model.options)
    known = _load(key, SafeWidths)
    if known is None:
        known = safe_widths(model, model.options, cancel, on_progress)
        _store(key, known)
    return known


def stored_widths(file: Path, options: LoadOptions) -> SafeWidths | None:
    """Return which widths of a model are safe, if that was measured before; loads no model."""
    return _stored(SafeWidths, _WIDTHS, file, options)


def _stored(
    form: type[T], kind: str, file: Path, options: LoadOptions, lora: Path | None = None
) -> T | None:
    with suppress(OSError):  # the file itself is gone
        return _load(key_of(kind, file, options, lora), form)
    return None


def _is_busy() -> bool:
    others = taken_by_others()
    return others is not None and others[0] >= GIVES_WAY


def _kind(role: Role) -> str:
    return f"costs of a {role.value}"


def _costs(key: Key, measure: Callable[[bool], Measured]) -> tuple[StoredCosts, str]:
    """Return what passes cost, measured where that is not known for sure; and a note where it could not be stored."""
    known = _load(key, StoredCosts)
    if known is not None and not known.is_measured_again(busy=_is_busy()):
        return known, ""
    known = StoredCosts.of(measure(known is not None), known)
    return known, _store(key, known)


def _load(key: Key, kind: type[T]) -> T | None:
    with suppress(OSError, UsageError, msgspec.MsgspecError):
        return msgspec.json.decode(read_bounded(_path(key), _MOST_BYTES), type=kind)
    return None


def _store(key: Key, value: object) -> str:
    """Write a measurement down, readable by its owner only; return a note where the directory does not take it."""
    try:
        path = _path(key)
        private_directory(path.parent)
        write_atomic(path, msgspec.json.encode(value))
    except (OSError, UsageError) as error:
        reason = getattr(error, "strerror", None) or error
        return f"the calibration of this machine could not be saved ({reason}): it is measured again at every start"
    return ""


def _path(key: Key) -> Path:
    return data_dir() / _FOLDER / f"{digest_of(key)}.json"
