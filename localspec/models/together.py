"""Brings several models at once: a pair's target and draft model arrive side by side."""

import queue
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from localspec.errors import ModelUnavailable
from localspec.models.hub_source import in_hub_cache
from localspec.models.obtain import obtain
from localspec.models.progress import Progress, Report, SourceFailedError
from localspec.models.registry import ModelEntry
from localspec.models.shard_set import shards_of
from localspec.models.space import require_space
from localspec.models.store import Store

# More lines share one bandwidth, and pip keeps a core busy.
MOST_AT_ONCE = 3
# A line that is silent may keep its thread for long; what it wrote is on the disk already.
_FAREWELL_S = 2.0


class _StoppedError(Exception):
    """Ends a download that nobody waits for any more."""


def obtain_together(
    entries: Sequence[ModelEntry],
    store: Store,
    offline: bool = False,
    progress: Report = lambda _: None,
    mirrors: Sequence[str] | None = None,
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
        return [obtain(entry, store, offline, progress, mirrors) for entry in entries]
    crew = _Crew(
        entries, progress, lambda entry, report: obtain(entry, store, offline, report, mirrors)
    )
    return crew.run(min(MOST_AT_ONCE, len(missing)))


class _Crew:
    """Threads that fetch one model after another, and one that waits for them."""

    def __init__(
        self,
        entries: Sequence[ModelEntry],
        progress: Report,
        fetch: Callable[[ModelEntry, Report], Path],
    ) -> None:
        self._progress = progress
        self._fetch = fetch
        self._n_jobs = len(entries)
        self._jobs: queue.SimpleQueue[tuple[int, ModelEntry]] = queue.SimpleQueue()
        self._outcomes: queue.SimpleQueue[tuple[int, Path | BaseException]] = queue.SimpleQueue()
        self._stop = threading.Event()
        self._turn = threading.Lock()
        for job in enumerate(entries):
            self._jobs.put(job)

    def run(self, n_threads: int) -> list[Path]:
        """Return the paths in order, or raise the first error once all have ended."""
        threads = [
            threading.Thread(target=self._work, daemon=True, name=f"localspec-fetch-{number}")
            for number in range(n_threads)
        ]
        for thread in threads:
            thread.start()
        try:
            found = dict(self._outcomes.get() for _ in range(self._n_jobs))
        finally:
            self._stop.set()
            for thread in threads:
                thread.join(_FAREWELL_S)
        paths: list[Path] = []
        for _, outcome in sorted(found.items()):
            if isinstance(outcome, BaseException):
                raise outcome
            paths.append(outcome)
        return paths

    def _work(self) -> None:
        with suppress(queue.Empty):
            while not self._stop.is_set():
                index, entry = self._jobs.get_nowait()
                try:
                    self._outcomes.put((index, self._fetch(entry, self._report)))
                except BaseException as error:  # raised where somebody waits
                    self._outcomes.put((index, error))

    def _report(self, moment: Progress) -> None:
        if self._stop.is_set():
            raise _StoppedError
        with self._turn:
            self._progress(moment)


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
