"""The Hugging Face hub: which files a repository has, what one of them is, and its cache on this machine.

The only importer of huggingface_hub, and only when a model is really missing. The user's HF_HOME,
HF_TOKEN, HF_ENDPOINT and HF_HUB_OFFLINE are honoured. huggingface_hub forgets a download that was cut,
so the bytes are fetched here, with its client. What its cache holds, where its other clients share
files, is not fetched: the store points to it. What is fetched goes into the store.
"""

import logging
import os
import re
import warnings
from pathlib import Path
from typing import Any

from localspec.errors import IntegrityError, ModelUnavailable
from localspec.models.entries import COMMIT, SHA256, HubSource, ModelEntry
from localspec.models.store import Store
from localspec.models.transfer import (
    Answer,
    OnBytes,
    RemoteFile,
    SourceFailedError,
    fetch_rest,
    require,
)
from localspec.storage.network import is_network_closed

# Without a network, huggingface_hub retries for 23 s, and a silent firewall costs a timeout for
# each address of the host; the next source should not have to wait for that.
ANSWER_S = 5.0


def library() -> Any:
    """Return huggingface_hub, silent on the screen and without its count of who downloads what."""
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    # It costs 100 ms, and most runs fetch nothing.
    import huggingface_hub.constants  # noqa: PLC0415
    import huggingface_hub.utils  # noqa: PLC0415

    logging.getLogger("huggingface_hub").setLevel(logging.CRITICAL + 1)
    warnings.filterwarnings("ignore", module="huggingface_hub")
    return huggingface_hub


def closed_by() -> str:
    """Return what keeps this process from the hub: `localspec is offline`, or `HF_HUB_OFFLINE is set`; empty if nothing does."""
    if is_network_closed():
        return "localspec is offline"
    return "HF_HUB_OFFLINE is set" if library().constants.is_offline_mode() else ""


def plain_client() -> Any:
    """Return an httpx client that knows no hub: no token, and HF_HUB_OFFLINE does not close it."""
    return type(library().get_session())()


def files_on_hub(name: str, repo: str, revision: str | None) -> tuple[str, list[ModelEntry]]:
    """Return the commit that a revision is now, and its large files, with the hub's own sha256s.

    Args:
        name: as the user wrote it, for messages.
        repo: on the hub.
        revision: a branch, a tag or a commit; None is the main branch.

    Raises:
        ModelUnavailable: the hub does not answer, or has no such repository.
    """

    def unavailable(reason: str, advice: str) -> ModelUnavailable:
        return ModelUnavailable(
            f"{name[:200]} was not found locally or on the hub ({reason}): {advice}"
        )

    if reason := closed_by():
        advice = "go online" if is_network_closed() else "unset it"
        raise unavailable(reason, f"{advice}, or give a .gguf file")
    try:
        info = list_repository(repo, revision)
    except Exception as error:  # of whichever client huggingface_hub uses
        raise unavailable(*_failure(error)) from error
    if not isinstance(info.sha, str) or not re.fullmatch(COMMIT, info.sha):
        raise unavailable("it names no commit", "check HF_ENDPOINT")
    files = []
    for sibling in info.siblings or []:
        path, lfs = str(getattr(sibling, "rfilename", "")), getattr(sibling, "lfs", None)
        sha256, size = getattr(lfs, "sha256", None), getattr(sibling, "size", None)
        # The sha256 becomes the name of a file.
        if isinstance(sha256, str) and re.fullmatch(SHA256, sha256) and isinstance(size, int):
            file = ModelEntry(path, size, sha256, sources=(HubSource(repo, path, info.sha),))
            files += [file] if file.is_known else []
    return info.sha, files


def list_repository(repo: str, revision: str | None) -> Any:
    """Return the hub's description of a repository.

    Raises:
        Exception: whatever the client of huggingface_hub raises.
    """
    api = library().HfApi()
    return api.model_info(repo, revision=revision, files_metadata=True, timeout=ANSWER_S)


def _failure(error: Exception) -> tuple[str, str]:
    """Return what an error of huggingface_hub means, and what to do."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status in {401, 403, 404}:  # the hub answers 401 for what does not exist, too
        reason = f"HTTP {status}: no such repository, or a gated or private one"
        return reason, "check the name, or set HF_TOKEN if it needs one"
    if isinstance(status, int):
        return f"HTTP {status}", "try again later"
    if isinstance(error, ValueError):
        reason = "a web page came instead of the hub's answer"
        return reason, "log in to the network, or check HF_ENDPOINT"
    return f"no connection, {type(error).__name__}", "go online, or give a .gguf file"


class HubFile(RemoteFile):
    """A file on the hub, whose first answer gives its sha256.

    Args:
        source: where it is.
        entry: what its bytes have to be; None where only parts of it are read.

    Raises:
        SourceFailedError: this process is kept from the hub.
    """

    def __init__(self, source: HubSource, entry: ModelEntry | None = None) -> None:
        if reason := closed_by():
            raise SourceFailedError(reason)
        hub = library()
        own_s, usual_s = hub.constants.HF_HUB_ETAG_TIMEOUT, hub.constants.DEFAULT_ETAG_TIMEOUT
        super().__init__(
            hub.get_session(),
            hub.hf_hub_url(source.repo, source.file, revision=source.revision),
            hub.utils.build_hf_headers(),
            ANSWER_S if own_s == usual_s else float(own_s),
        )
        self._entry = entry

    def answer(self, response: Any, first: int) -> Answer:
        """Return what a response delivers.

        Raises:
            IntegrityError: the hub has another file there; other errors as `RemoteFile.open` does.
        """
        headers = (response.history or [response])[0].headers
        etag = headers.get("x-linked-etag") or headers.get("etag") or ""
        sha256 = re.fullmatch(rf'(W/)?"({SHA256})"', etag)
        if self._entry is not None and sha256 is not None and response.status_code < 400:
            require(self._entry, "sha256", sha256[2], self._entry.sha256)
        return super().answer(response, first)

    def refusal(self, response: Any) -> str:
        """Return what an HTTP 401 or 403 may mean, given whether a token was sent."""
        if response.headers.get("x-error-code") == "GatedRepo":
            return ", it is gated: accept its terms on its page on the hub, with HF_TOKEN set"
        if "authorization" in self._headers:
            return ": the token has expired or may not read this, or the repository is gone; `hf auth login` gets a new token"
        return ": the repository is gated, private or gone; set HF_TOKEN if it is yours to read"


def from_hub(
    source: HubSource, entry: ModelEntry, store: Store, offline: bool, report: OnBytes
) -> Path:
    """Deliver a file that the hub, or its cache on this machine, has; see `obtain.Source`. What came is kept for the next time."""
    cache = "not in the hub's cache"
    if (cached := _cached(entry, source)) is not None:
        try:
            return store.adopt(entry, cached)
        except IntegrityError:
            cache = "its copy in the hub's cache is damaged"
    if reason := "offline" if offline else closed_by():
        raise SourceFailedError(f"{cache}, {reason}")
    file = HubFile(source, entry)
    return store.receive(entry, report, lambda partial: fetch_rest(file, partial, report))


def in_hub_cache(entry: ModelEntry) -> bool:
    """Return whether the hub's cache on this machine has a file, which need not be fetched then.

    Only the size is looked at: hashing waits until the file is taken in.
    """
    file = _cached(entry, entry.hub) if entry.hub else None
    return file is not None and file.stat().st_size == entry.size_bytes


def cached_file(source: HubSource) -> Path | None:
    """Return a file that the hub's cache on this machine holds under its name."""
    file = library().try_to_load_from_cache(source.repo, source.file, revision=source.revision)
    return Path(file) if isinstance(file, str) and Path(file).is_file() else None


def _cached(entry: ModelEntry, source: HubSource) -> Path | None:
    """Return what the hub's cache holds: the blob of any revision, or else the file of this one."""
    # The name of a large file's blob is its sha256 there.
    repo = "--".join(["models", *source.repo.split("/")])
    blob = Path(library().constants.HF_HUB_CACHE, repo, "blobs", entry.sha256)
    return blob if blob.is_file() else cached_file(source)
