"""Pulling by name: a pair brings all its models, a model brings itself, side by side."""

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from localspec.display import notice
from localspec.errors import ModelUnavailable
from localspec.models.entries import ModelEntry, shards_of
from localspec.models.hub import in_hub_cache
from localspec.models.ledger import PINS, pin_name
from localspec.models.mmproj import mmproj_of
from localspec.models.names import learn, models_of
from localspec.models.obtain import obtain
from localspec.models.registry import load_registry
from localspec.models.store import Store
from localspec.models.transfer import Progress, Report, SourceFailedError, require_space
from localspec.storage.paths import data_dir

# More lines share one bandwidth, and pip keeps a core busy.
MOST_AT_ONCE = 3
# A line that is silent may keep its thread for long; what it wrote is on the disk already.
_FAREWELL_S = 2.0


@dataclass(frozen=True, slots=True)
class Wanted:
    """What one name stands for: a pair, or a model alone; a path is a file that is here already."""

    name: str
    target: ModelEntry | Path
    draft_model: ModelEntry | Path | None = None

    @property
    def models(self) -> tuple[ModelEntry | Path, ...]:
        """The target, and the draft model if there is one."""
        return (self.target,) if self.draft_model is None else (self.target, self.draft_model)

    @property
    def mmproj(self) -> ModelEntry | Path | None:
        """The target's mmproj file; None where it has none, or that is not known."""
        if isinstance(self.target, Path):
            return mmproj_of(self.target)
        return None if self.target.needs_mmproj else self.target.mmproj

    @property
    def files(self) -> tuple[ModelEntry | Path, ...]:
        """The models, and the target's mmproj file if it is known."""
        return self.models if self.mmproj is None else (*self.models, self.mmproj)


def pull(*names: str) -> list[Path]:
    """Fetch pairs and models, and return the verified files; what is here is not fetched again.

    Raises:
        ModelUnavailable: no such name, or no source delivers it.
    """
    return fetch(files_of_all(wanted(names)))


def wanted(names: Sequence[str], *, offline: bool = False) -> list[Wanted]:
    """Return what names stand for, with all that has to be known to fetch it. Fetches nothing.

    Raises:
        ModelUnavailable: no such name, or the hub does not answer for it.
    """
    registry = load_registry()
    # All names first: one that is misspelt should not cost a request to the hub.
    models = [(name, models_of(name, registry)) for name in names]
    return [
        Wanted(name, *_with_mmproj([learn(each, offline=offline) for each in of], offline=offline))
        for name, of in models
    ]


def _with_mmproj(
    models: Sequence[ModelEntry | Path], *, offline: bool
) -> Sequence[ModelEntry | Path]:
    """Return models with all that is to be known of the target's mmproj file, as far as the hub answers."""
    target, *others = models
    if offline or not isinstance(target, ModelEntry) or not target.needs_mmproj:
        return models
    from localspec.models.repository import with_mmproj  # noqa: PLC0415 - few entries need a hub

    try:
        return [with_mmproj(target), *others]
    except ModelUnavailable as error:  # another source may have the model
        notice(f"{target.name} will read text only until it is pulled again: {error}")
        return models


def files_of_all(every: Iterable[Wanted]) -> list[ModelEntry | Path]:
    """Return all files that are wanted, each once, in order."""
    return list(dict.fromkeys(file for each in every for file in each.files))


def fetch(
    models: Sequence[ModelEntry | Path], *, offline: bool = False, progress: Report = lambda _: None
) -> list[Path]:
    """Return the files of models, in order, those that are missing fetched side by side.

    What was learnt of a model is pinned first, so that the next try wants the same file. The mmproj file of the first one
    is fetched with it, as far as it can be had.

    Raises:
        IntegrityError: a model arrived with other bytes.
        ModelUnavailable: a model cannot be had, or the disk has no room for all of them.
    """
    store, first = Store(data_dir()), next(iter(models), None)
    is_new = isinstance(first, ModelEntry) and store.path_of(first) is None
    models = _with_mmproj(models, offline=offline) if is_new else models
    entries = list(dict.fromkeys(each for each in models if isinstance(each, ModelEntry)))
    _pin_all(entries, store.root)
    paths = dict(zip(entries, obtain_together(entries, store, offline, progress), strict=True))
    _pin_all(entries, store.root)  # `rm` may have been at work meanwhile
    mmproj = entries[0].mmproj if is_new else None
    if mmproj is not None and mmproj.is_known and mmproj not in paths:
        try:
            obtain(mmproj, store, offline, progress)
        except ModelUnavailable as error:
            notice(f"{entries[0].name} will read text only until it is pulled again: {error}")
    return [paths[each] if isinstance(each, ModelEntry) else each for each in models]


def _pin_all(entries: Iterable[ModelEntry], root: Path) -> None:
    for entry in entries:
        if entry.pin is not None:
            known = replace(entry, mmproj=None) if entry.needs_mmproj else entry
            PINS.add(root, pin_name(entry), known)


class _StoppedError(Exception):
    """Ends a download whose caller has gone."""


def obtain_together(
    entries: Sequence[ModelEntry],
    store: Store,
    offline: bool = False,
    progress: Report = lambda _: None,
) -> list[Path]:
    """Return the paths of several models, in order, fetched where they are not here yet.

    Where one fails, the others are fetched to their end before its error is raised.

    Raises:
        IntegrityError: a model arrived with other bytes.
        ModelUnavailable: a model cannot be had, or the disk has no room for all of them.
    """
    missing = [entry for entry in entries if store.path_of(entry) is None]
    if missing and not offline:
        require_room(missing, store)
    if len(missing) < 2:
        return [obtain(entry, store, offline, progress) for entry in entries]
    return _side_by_side(
        entries, lambda entry, report: obtain(entry, store, offline, report), progress
    )


def _side_by_side(
    entries: Sequence[ModelEntry], fetch_one: Callable[[ModelEntry, Report], Path], progress: Report
) -> list[Path]:
    outcomes: dict[ModelEntry, Path | BaseException] = {}
    stop, turn, room = threading.Event(), threading.Lock(), threading.Semaphore(MOST_AT_ONCE)

    def report(moment: Progress) -> None:
        if stop.is_set():
            raise _StoppedError
        with turn:
            progress(moment)

    def work(entry: ModelEntry) -> None:
        with room:
            try:
                if not stop.is_set():
                    outcomes[entry] = fetch_one(entry, report)
            except BaseException as error:  # raised by the caller's thread
                outcomes[entry] = error

    # Daemons: a program that ends does not wait for a line that fell silent.
    threads = [threading.Thread(target=work, args=(each,), daemon=True) for each in entries]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        stop.set()
        for thread in filter(threading.Thread.is_alive, threads):
            thread.join(_FAREWELL_S)
    paths = [outcomes[entry] for entry in entries]
    for failure in (each for each in paths if isinstance(each, BaseException)):
        raise failure
    return [path for path in paths if isinstance(path, Path)]


def bytes_to_fetch(entries: Sequence[ModelEntry], store: Store) -> int:
    """Return how much of some models is neither in the store nor in the hub's cache."""
    shards = {shard.sha256: shard for entry in entries for shard in shards_of(entry)}
    return sum(
        shard.size_bytes - store.partial_bytes(shard)
        for shard in shards.values()
        if store.path_of(shard) is None and not in_hub_cache(shard)
    )


def require_room(missing: Sequence[ModelEntry], store: Store) -> None:
    """Raise ModelUnavailable unless the disk has room for what is still to be fetched of models."""
    try:
        require_space(store.root, bytes_to_fetch(missing, store))
    except SourceFailedError as error:
        names = " and ".join(entry.name for entry in missing)
        raise ModelUnavailable(
            f"{names}: {error}: make room, for example with `localspec rm`, "
            "or set LOCALSPEC_DATA_DIR to another disk"
        ) from error
