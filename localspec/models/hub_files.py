"""Which files a repository on the Hugging Face hub has, with sizes and the hub's own sha256s."""

import re
from collections.abc import Iterable, Sequence

from localspec.errors import ModelUnavailable
from localspec.models.download import hub_is_closed, list_repository
from localspec.models.hub_choice import ListedFile
from localspec.models.hub_reasons import status_of
from localspec.models.registry_file import SHA256

_ANSWER_S = 5.0
_COMMIT = re.compile(r"[0-9a-f]{40}")


def files_on_hub(name: str, repo: str, revision: str | None) -> tuple[str, Sequence[ListedFile]]:
    """Return the commit that a revision is now, and its large files.

    Args:
        name: what the user asked for, for messages.
        repo: on the hub.
        revision: a branch, a tag or a commit; None is the main branch.

    Raises:
        ModelUnavailable: the hub does not answer, or has no such repository.
    """
    if hub_is_closed():
        raise _unavailable(name, "HF_HUB_OFFLINE is set", "unset it, or give a .gguf file")
    try:
        info = list_repository(repo, revision, _ANSWER_S)
    except Exception as error:  # of whichever client huggingface_hub uses
        raise _unavailable(name, *_failure(error)) from error
    if not isinstance(info.sha, str) or not _COMMIT.fullmatch(info.sha):
        raise _unavailable(name, "it names no commit", "check HF_ENDPOINT")
    return info.sha, list(_listed(info.siblings or []))


def _listed(siblings: Iterable[object]) -> Iterable[ListedFile]:
    for sibling in siblings:
        path, lfs = getattr(sibling, "rfilename", ""), getattr(sibling, "lfs", None)
        sha256, size = getattr(lfs, "sha256", None), getattr(sibling, "size", None)
        # The sha256 becomes the name of a file.
        if (
            isinstance(sha256, str)
            and re.fullmatch(SHA256, sha256)
            and type(size) is int
            and size > 0
        ):
            yield ListedFile(str(path), size, sha256)


def _failure(error: Exception) -> tuple[str, str]:
    status = status_of(error)
    if status in {401, 403, 404}:  # the hub answers 401 for what does not exist, too
        why = f"HTTP {status}: no such repository, or a gated or private one"
        return why, "check the name, and set HF_TOKEN where it needs one"
    if status is not None:
        return f"HTTP {status}", "try again later"
    if isinstance(error, ValueError):
        return "no answer of a hub came, but a page", "log in to the network, or check HF_ENDPOINT"
    return f"no connection, {type(error).__name__}", "go online, or give a .gguf file"


def _unavailable(name: str, reason: str, advice: str) -> ModelUnavailable:
    return ModelUnavailable(f"{name[:200]} cannot be looked up on the hub ({reason}): {advice}")
