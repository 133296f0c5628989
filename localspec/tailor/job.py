"""What there is to tailor, where it is made, and how it is undone; loads no model."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from localspec.errors import LocalspecError, ModelUnavailable, UsageError
from localspec.models.entries import HubName, ModelEntry, PairEntry
from localspec.models.inventory import plan_removal, remove
from localspec.models.names import resolve
from localspec.models.registry import Registry, load_registry
from localspec.models.store import Store
from localspec.models.tailored import TailoredDraft, forget_tailored, load_tailored
from localspec.options import LaunchOptions
from localspec.storage.locks import try_lock
from localspec.storage.paths import data_dir

OnShare = Callable[[str, float], None]
"""Is told what is worked at, and the share of it that is done, 0 to 1."""


@dataclass(frozen=True, slots=True, eq=False)
class TailoringJob:
    """A pair to tailor for, and its files, all of them here.

    Args:
        pair: as the registry has it, with its own draft model.
        target: file of the target.
        draft_model: of the draft model; None where the pair has none.
        request: how to load.
    """

    pair: PairEntry
    target: Path
    draft_model: Path | None
    request: LaunchOptions


def job(request: LaunchOptions) -> TailoringJob:
    """Return what there is to do for the pair of a request.

    Raises:
        ModelUnavailable: no such pair, or a file of it is not here.
        UsageError: the request names a target alone.
    """
    registry = load_registry(tailored=False)
    if request.target is not None:
        raise UsageError(
            "a draft model is tailored for a pair: name one, see `localspec pair list`"
        )
    pair = registry.pair(request.pair or registry.default_pair)
    target = _file(pair.target, registry, f"localspec pull {pair.name}")
    draft_model = None
    if pair.draft_model is not None:
        draft_model = _file(pair.draft_model, registry, f"localspec pull {pair.name} --with-draft")
    return TailoringJob(pair, target, draft_model, request)


def _file(reference: str, registry: Registry, how: str) -> Path:
    found = resolve(reference, registry)
    store = Store(data_dir())
    path = store.path_of(found) if isinstance(found, ModelEntry) else found
    if path is None or isinstance(path, HubName):
        raise ModelUnavailable(f"{reference} is not on this machine: `{how}` downloads it")
    return path


@contextmanager
def workshop() -> Iterator[Path]:
    """Give an empty folder on the store's disk that is cleared in the end, or by the next that has it.

    Raises:
        LocalspecError: another process is in it.
    """
    folder = data_dir() / "tailoring"
    lock = try_lock(folder)
    if lock is None:
        raise LocalspecError("another `localspec tailor` is at work: wait until it has ended")
    try:
        for left in folder.iterdir():  # of a process that was killed
            left.unlink()
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def undo(pair: str | None) -> tuple[TailoredDraft, int]:
    """Remove the draft model that was made for a pair; return it, and how many bytes that freed.

    Args:
        pair: its name; None means the default pair.

    Raises:
        ModelUnavailable: none was made for it.
    """
    registry, store = load_registry(), Store(data_dir())
    name = registry.name(pair or registry.default_pair)
    made = load_tailored(store.root).get(name)
    if made is None:
        raise ModelUnavailable(
            f"nothing was tailored for {name[:80]}: `localspec tailor` does that"
        )
    if made.name in registry.models:
        return made, remove(plan_removal([made.name], registry, store), store)
    forget_tailored(made.name, store.root)  # the pair has changed since, or the file is gone
    return made, store.remove(made.entry)
