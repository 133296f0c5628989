"""Fetches a model file from the Hugging Face hub, or finds it in the hub's cache on this machine.

The only importer of huggingface_hub, and only when a model is really missing. The user's HF_HOME,
HF_TOKEN, HF_ENDPOINT and HF_HUB_OFFLINE are honoured. What the hub delivers stays where its other
clients share it, in the hub's cache; the store points to it.
"""

# ruff: noqa: PLC0415 - huggingface_hub costs 100 ms to import, and most runs fetch nothing.

import logging
import os
import queue
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from localspec.errors import IntegrityError
from localspec.models.progress import SourceFailedError, progress_bar_class
from localspec.models.registry import HubSource, ModelEntry
from localspec.models.space import require_space
from localspec.models.store import Store

# Without a network, huggingface_hub retries for 23 s, and a silent firewall costs a timeout for
# each address of the host; the next source should not have to wait for that.
_HUB_ANSWER_S = 5.0
_SHOWN_REASON = 120


def from_hub(
    source: HubSource,
    entry: ModelEntry,
    store: Store,
    offline: bool,
    report: Callable[[int], None],
) -> Path:
    """Return the path in the store of a file that the hub, or its cache on this machine, has.

    Args:
        source: where it is on the hub.
        entry: what its bytes have to be.
        store: takes it in.
        offline: look into the cache only.
        report: called with the number of bytes that have arrived so far.

    Raises:
        SourceFailedError: the hub does not deliver it.
        IntegrityError: the hub has another file there.
        OSError: the store has no room, or the file cannot be read.
    """
    with _quiet_hub():
        from huggingface_hub import constants, hf_hub_download

        damaged = False
        for cached in _cached(source, entry):
            try:
                return store.adopt(entry, cached)
            except IntegrityError:
                damaged = True
        if offline or constants.is_offline_mode():
            cache = (
                "its copy in the hub's cache is damaged" if damaged else "not in the hub's cache"
            )
            raise SourceFailedError(cache + (", offline" if offline else ", HF_HUB_OFFLINE is set"))
        require_space(Path(constants.HF_HUB_CACHE), entry.size_bytes)
        _ask_hub(source, entry)
        report(0)  # the first bytes that are counted are 10 MB, which may take long
        try:
            file = hf_hub_download(
                source.repo,
                source.file,
                revision=source.revision,
                force_download=damaged,
                tqdm_class=progress_bar_class(report),
            )
        except Exception as error:
            raise SourceFailedError(_hub_reason(error)) from error
        return store.adopt(entry, Path(file))


def _cached(source: HubSource, entry: ModelEntry) -> Iterator[Path]:
    """Yield what the hub's cache holds: the blob of any revision, and the file of this one."""
    from huggingface_hub import constants, try_to_load_from_cache

    # The name of a large file's blob is its sha256 there.
    folder = "--".join(["models", *source.repo.split("/")])
    blob = Path(constants.HF_HUB_CACHE, folder, "blobs", entry.sha256)
    if blob.is_file():
        yield blob
        return
    file = try_to_load_from_cache(source.repo, source.file, revision=source.revision)
    if isinstance(file, str) and Path(file).is_file():
        yield Path(file)


def _ask_hub(source: HubSource, entry: ModelEntry) -> None:
    """Ask what the hub would send, and go no further where it does not answer or has other bytes."""
    from huggingface_hub import constants, get_hf_file_metadata, hf_hub_url

    default = constants.HF_HUB_ETAG_TIMEOUT == constants.DEFAULT_ETAG_TIMEOUT
    patience_s = _HUB_ANSWER_S if default else float(constants.HF_HUB_ETAG_TIMEOUT)
    url = hf_hub_url(source.repo, source.file, revision=source.revision)
    answers: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def ask() -> None:
        try:
            answers.put(get_hf_file_metadata(url, timeout=patience_s))
        except Exception as error:  # handed to the thread that waits
            answers.put(error)

    # Name resolution knows no timeout, so the wait has one, in a thread that may be left behind.
    threading.Thread(target=ask, daemon=True, name="localspec-hub").start()
    try:
        answer = answers.get(timeout=patience_s)
    except queue.Empty:
        raise SourceFailedError(f"no answer within {patience_s:g} s") from None
    if isinstance(answer, Exception):
        raise SourceFailedError(_hub_reason(answer)) from answer
    if answer.size is not None and answer.size != entry.size_bytes:
        raise IntegrityError(f"the size is {answer.size} bytes, not {entry.size_bytes} bytes")


def _hub_reason(error: Exception) -> str:
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status in {401, 403}:
        return f"access refused (HTTP {status}), gated, private or gone: HF_TOKEN may help"
    if status is not None:
        return f"HTTP {status}" + (", no such file" if status == 404 else "")
    if type(error).__name__ in {"ConnectError", "ConnectTimeout", "LocalEntryNotFoundError"}:
        return "no connection"
    first_line = (str(error).splitlines() or [""])[0]
    return f"{type(error).__name__}: {first_line}"[:_SHOWN_REASON]


@contextmanager
def _quiet_hub() -> Iterator[None]:
    """Keep huggingface_hub's warnings off the screen, and it from counting who downloads what."""
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    logger = logging.getLogger("huggingface_hub")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import huggingface_hub  # noqa: F401 - sets up its logger, which must not undo ours

        level = logger.level
        logger.setLevel(logging.CRITICAL + 1)
        try:
            yield
        finally:
            logger.setLevel(level)
