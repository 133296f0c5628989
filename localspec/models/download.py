"""The door to huggingface_hub, its only importer: what the hub says, and what its cache holds.

It is imported only when a model is really missing. The user's HF_HOME, HF_TOKEN, HF_ENDPOINT and
HF_HUB_OFFLINE are honoured. It fetches no data itself: huggingface_hub forgets a download that was
cut, so that is done elsewhere, with its client.
"""

# ruff: noqa: PLC0415 - huggingface_hub costs 100 ms to import, and most runs fetch nothing.

import logging
import os
import queue
import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from localspec.models.entries import HubSource
from localspec.models.http_file import LineCutError
from localspec.models.hub_reasons import hub_reason, may_pass
from localspec.models.progress import SourceFailedError

# Without a network, huggingface_hub retries for 23 s, and a silent firewall costs a timeout for
# each address of the host; the next source should not have to wait for that.
_HUB_ANSWER_S = 5.0


def hub_is_closed() -> bool:
    """Return whether HF_HUB_OFFLINE is set."""
    with quiet_hub():
        from huggingface_hub import constants

        return constants.is_offline_mode()


def cache_folder(source: HubSource) -> Path:
    """Return where the hub's cache keeps, or would keep, a repository's files."""
    with quiet_hub():
        from huggingface_hub import constants

        return Path(constants.HF_HUB_CACHE) / "--".join(["models", *source.repo.split("/")])


def cached_file(source: HubSource) -> Path | None:
    """Return a file that the hub's cache on this machine holds under its name."""
    with quiet_hub():
        from huggingface_hub import try_to_load_from_cache

        file = try_to_load_from_cache(source.repo, source.file, revision=source.revision)
    return Path(file) if isinstance(file, str) and Path(file).is_file() else None


def revision_of(source: HubSource) -> str:
    """Return the revision that a source means: its own, or the main branch."""
    with quiet_hub():
        from huggingface_hub import constants

        return source.revision or constants.DEFAULT_REVISION


def file_address(source: HubSource) -> str:
    """Return the address of a file on the hub."""
    with quiet_hub():
        from huggingface_hub import hf_hub_url

        return hf_hub_url(source.repo, source.file, revision=source.revision)


def ask_hub(url: str) -> Any:
    """Return what the hub says of a file: commit, size, sha256, and where its bytes are.

    Raises:
        SourceFailedError: it does not answer in time, or refuses.
        LineCutError: it has trouble that may pass.
    """
    with quiet_hub():
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
            reason = hub_reason(answer, with_token="authorization" in hub_headers())
            raise (LineCutError if may_pass(answer) else SourceFailedError)(reason) from answer
        return answer


def list_repository(repo: str, revision: str | None, timeout_s: float) -> Any:
    """Return what the hub says of a repository: its commit, and its files with sizes and sha256s.

    Raises:
        Exception: whatever the client of huggingface_hub raises.
    """
    with quiet_hub():
        from huggingface_hub import HfApi

        return HfApi().model_info(repo, revision=revision, files_metadata=True, timeout=timeout_s)


def hub_client() -> Any:
    """Return the httpx client that huggingface_hub uses, with the user's proxies and certificates."""
    with quiet_hub():
        from huggingface_hub import get_session

        return get_session()


def plain_client() -> Any:
    """Return an httpx client that knows no hub: no token, and HF_HUB_OFFLINE does not close it."""
    return type(hub_client())()


def hub_headers() -> dict[str, str]:
    """Return what the hub, and nobody else, may be sent: the user's token, if there is one."""
    with quiet_hub():
        from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

        headers: dict[str, str] = build_hf_headers()
        return headers


_quiet_users = 0
_quiet_turn = threading.Lock()
_quiet_undo = ExitStack()


@contextmanager
def quiet_hub() -> Iterator[None]:
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
