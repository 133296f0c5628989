"""Fetches a model file from the Hugging Face hub, or finds it in the hub's cache on this machine.

The only importer of huggingface_hub, and only when a model is really missing. The user's HF_HOME,
HF_TOKEN, HF_ENDPOINT and HF_HUB_OFFLINE are honoured. huggingface_hub says where a file is; the
bytes are fetched here, since it forgets a download that was cut. What arrived goes where the hub's
other clients share it, into its cache, and the store points to it.
"""

# ruff: noqa: PLC0415 - huggingface_hub costs 100 ms to import, and most runs fetch nothing.

import logging
import os
import queue
import re
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from localspec.errors import IntegrityError
from localspec.models.http_file import HttpFile, LineCutError, line_failure
from localspec.models.partial import Partial
from localspec.models.progress import SourceFailedError
from localspec.models.registry import HubSource, ModelEntry
from localspec.models.space import require_space
from localspec.models.staging import require
from localspec.models.store import Store
from localspec.models.transfer import A_PAGE, fetch_rest

# Without a network, huggingface_hub retries for 23 s, and a silent firewall costs a timeout for
# each address of the host; the next source should not have to wait for that.
_HUB_ANSWER_S = 5.0
_SHOWN_REASON = 120
_COMMIT = re.compile(r"[0-9a-f]{40}")


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
        SourceFailedError: the hub does not deliver it; what came is kept for the next time.
        IntegrityError: the hub has another file there.
        OSError: the store has no room, or the file cannot be read.
    """
    with _quiet_hub():
        from huggingface_hub import constants

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
        require_space(store.root, entry.size_bytes - store.partial_bytes(entry, "http"))
        address = _HubAddress(source, entry)
        file = HttpFile(_session(), address.resolve, address.url, _secret())
        with suppress(LineCutError):  # the download tries again, a few times
            file.locate()
        with store.resume(entry, "http", report) as partial:
            here = store.path_of(entry)
            if here is not None:  # brought by another process meanwhile
                return here
            fetch_rest(file, partial, report, refused=_refusal())
            partial.verify()
            return _put_away(source, address.commit, partial, store)


@contextmanager
def hub_file(source: HubSource) -> Iterator[HttpFile]:
    """Open a file on the hub for reading parts of it, such as its header.

    Raises:
        SourceFailedError: the hub is closed or does not answer; may also come while reading.
    """
    with _quiet_hub():
        from huggingface_hub import constants

        if constants.is_offline_mode():
            raise SourceFailedError("HF_HUB_OFFLINE is set")
        address = _HubAddress(source, None)
        yield HttpFile(_session(), address.resolve, address.url, _secret())


def plain_client() -> Any:
    """Return an httpx client that knows no hub: no token, and HF_HUB_OFFLINE does not close it."""
    with _quiet_hub():
        return type(_session())()


class _HubAddress:
    """Where the hub says that a file is; that address may expire, and is asked for again then."""

    def __init__(self, source: HubSource, entry: ModelEntry | None) -> None:
        from huggingface_hub import hf_hub_url

        self.url: str = hf_hub_url(source.repo, source.file, revision=source.revision)
        self.commit: str | None = None
        self._entry = entry

    def resolve(self) -> str:
        """Return an address for the bytes.

        Raises:
            SourceFailedError: the hub does not deliver the file.
            IntegrityError: the hub has another file there.
            LineCutError: the hub has trouble that may pass.
        """
        answer = _ask_hub(self.url)
        if answer.commit_hash is None:
            raise SourceFailedError(A_PAGE)
        if self._entry is not None:
            size, etag = answer.size, answer.etag
            promised = f"{self._entry.size_bytes} bytes"
            if size is not None:
                require(self._entry, "size", f"{size} bytes", promised)
            if etag is not None and len(etag) == len(self._entry.sha256):
                require(self._entry, "sha256", etag, self._entry.sha256)
                # It becomes the name of a folder.
                self.commit = answer.commit_hash if _COMMIT.fullmatch(answer.commit_hash) else None
        location: str = answer.location
        return location


def _cached(source: HubSource, entry: ModelEntry) -> Iterator[Path]:
    """Yield what the hub's cache holds: the blob of any revision, and the file of this one."""
    from huggingface_hub import constants, try_to_load_from_cache

    # The name of a large file's blob is its sha256 there.
    blob = _repo_folder(Path(constants.HF_HUB_CACHE), source) / "blobs" / entry.sha256
    if blob.is_file():
        yield blob
        return
    file = try_to_load_from_cache(source.repo, source.file, revision=source.revision)
    if isinstance(file, str) and Path(file).is_file():
        yield Path(file)


def _ask_hub(url: str) -> Any:
    """Return what the hub says of a file: commit, size, sha256, and where its bytes are."""
    from huggingface_hub import constants, get_hf_file_metadata

    default = constants.HF_HUB_ETAG_TIMEOUT == constants.DEFAULT_ETAG_TIMEOUT
    patience_s = _HUB_ANSWER_S if default else float(constants.HF_HUB_ETAG_TIMEOUT)
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
        reason = _hub_reason(answer)
        status = _status(answer)
        passing = status is not None and (status >= 500 or status == 429)
        raise (LineCutError if passing else SourceFailedError)(reason) from answer
    return answer


def _put_away(source: HubSource, commit: str | None, partial: Partial, store: Store) -> Path:
    """Move a verified file into the hub's cache, as documented there, or else into the store."""
    from huggingface_hub import constants

    entry = partial.entry
    repo = _repo_folder(Path(constants.HF_HUB_CACHE), source)
    blob = repo / "blobs" / entry.sha256
    if commit is None:  # the hub does not name this file by its sha256
        return store.publish(partial)
    try:
        blob.parent.mkdir(parents=True, exist_ok=True)
        partial.move_to(blob)
    except OSError:  # another file system, or a cache that is not ours to write
        return store.publish(partial)
    with suppress(OSError):  # without a name there, the file is still found by its sha256
        name = repo / "snapshots" / commit / source.file
        name.parent.mkdir(parents=True, exist_ok=True)
        name.unlink(missing_ok=True)
        name.symlink_to(os.path.relpath(blob, name.parent))
        revision = source.revision or constants.DEFAULT_REVISION
        if revision != commit:
            reference = repo / "refs" / revision
            reference.parent.mkdir(parents=True, exist_ok=True)
            reference.write_text(commit, encoding="utf-8")
    return store.point_to(entry, blob)


def _repo_folder(cache: Path, source: HubSource) -> Path:
    return cache / "--".join(["models", *source.repo.split("/")])


def _session() -> Any:
    from huggingface_hub import get_session

    return get_session()


def _secret() -> dict[str, str]:
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

    headers: dict[str, str] = build_hf_headers()
    return headers


def _refusal() -> str:
    """Return what an HTTP 401 or 403 of the hub may mean, given what it was sent."""
    if "authorization" in _secret():
        return ": the token has expired or may not read this, or the repository is gone; `hf auth login` gets a new token"
    return ": the repository is gated, private or gone; set HF_TOKEN if it is yours to read"


def _status(error: Exception) -> int | None:
    status = getattr(getattr(error, "response", None), "status_code", None)
    return status if isinstance(status, int) else None


def _hub_reason(error: Exception) -> str:
    status = _status(error)
    if type(error).__name__ == "GatedRepoError":
        return f"access refused (HTTP {status}), it is gated: accept its terms on its page on the hub, with HF_TOKEN set"
    if status in {401, 403}:
        return f"access refused (HTTP {status}){_refusal()}"
    if status is not None:
        return f"HTTP {status}" + (", no such file" if status == 404 else "")
    if type(error).__name__ == "LocalEntryNotFoundError":
        return "no connection"
    if type(error).__module__.startswith("http"):
        return line_failure(error)
    first_line = (str(error).splitlines() or [""])[0]
    return f"{type(error).__name__}: {first_line}"[:_SHOWN_REASON]


_quiet_users = 0
_quiet_turn = threading.Lock()
_quiet_undo = ExitStack()


@contextmanager
def _quiet_hub() -> Iterator[None]:
    """Keep huggingface_hub's warnings off the screen, and it from counting who downloads what.

    Several threads may be inside: the first one in sets it up, the last one out restores.
    """
    global _quiet_users  # noqa: PLW0603 - what is kept quiet is global, too
    with _quiet_turn:
        if _quiet_users == 0:
            _hush(_quiet_undo)
        _quiet_users += 1
    try:
        yield
    finally:
        with _quiet_turn:
            _quiet_users -= 1
            if _quiet_users == 0:
                _quiet_undo.close()


def _hush(undo: ExitStack) -> None:
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    undo.enter_context(warnings.catch_warnings())
    warnings.simplefilter("ignore")
    import huggingface_hub  # noqa: F401 - sets up its logger, which must not undo ours

    logger = logging.getLogger("huggingface_hub")
    undo.callback(logger.setLevel, logger.level)
    logger.setLevel(logging.CRITICAL + 1)
