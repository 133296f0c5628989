"""Which file of a repository on the Hugging Face hub a user means by `user/repo:QUANT`.

Asks the hub for the list of files, with sizes and the hub's own sha256s; so what it returns can be
fetched and verified like an entry of the registry. Fetches no weights.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from localspec.errors import ModelUnavailable
from localspec.models.download import hub_is_closed, list_repository
from localspec.models.entries import HubSource, ModelEntry, shards_digest
from localspec.models.hub_choice import ListedFile, choose_files
from localspec.models.hub_reasons import status_of
from localspec.models.registry_file import NAME, REPO

DEFAULT_QUANT = "Q4_K_M"
_ANSWER_S = 5.0
_LONGEST = 200
_REFERENCE = re.compile(rf"(?:(?:https?://)?(?:hf\.co|huggingface\.co)/)?({REPO})(?::({NAME}))?")


@dataclass(frozen=True, slots=True)
class HubReference:
    """A repository of the hub and a quantisation; None means Q4_K_M, or what there is only one of."""

    repo: str
    quant: str | None

    @property
    def text(self) -> str:
        """The reference as a user may write it."""
        return f"{self.repo}:{self.quant}" if self.quant else self.repo


def hub_reference(text: str) -> HubReference | None:
    """Return what `user/repo:QUANT` means, with or without `hf.co/`; None for anything else.

    What ends in `.gguf` or exists in the working directory is a file.
    """
    match = _REFERENCE.fullmatch(text)
    if match is None or len(text) > _LONGEST:
        return None
    if text.lower().endswith(".gguf") or Path(text).exists():
        return None
    return HubReference(match[1], match[2])


def find_on_hub(reference: HubReference) -> ModelEntry:
    """Return the model that a reference means, as the hub describes it now.

    Raises:
        ModelUnavailable: the hub does not answer, or has no such model.
    """
    commit, files = _listing(reference)
    chosen = choose_files(reference.text, reference.quant, DEFAULT_QUANT, files)
    entries = [
        ModelEntry(
            name=reference.text if len(chosen) == 1 else f"{reference.text} {file.path}",
            size_bytes=file.size_bytes,
            sha256=file.sha256,
            params=None,
            context=None,
            licence=None,
            sources=(HubSource(reference.repo, file.path, commit),),
        )
        for file in chosen
    ]
    if len(entries) == 1:
        return entries[0]
    return ModelEntry(
        name=reference.text,
        size_bytes=sum(entry.size_bytes for entry in entries),
        sha256=shards_digest(entries),
        params=None,
        context=None,
        licence=None,
        sources=(),
        shards=tuple(entries),
    )


def _listing(reference: HubReference) -> tuple[str | None, Sequence[ListedFile]]:
    if hub_is_closed():
        raise _unavailable(reference, "HF_HUB_OFFLINE is set", "unset it, or give a .gguf file")
    try:
        info = list_repository(reference.repo, None, _ANSWER_S)
    except Exception as error:  # of whichever client huggingface_hub uses
        raise _unavailable(reference, *_failure(error)) from error
    return info.sha, list(_listed(info.siblings or []))


def _listed(siblings: Iterable[object]) -> Iterable[ListedFile]:
    for sibling in siblings:
        path, lfs = getattr(sibling, "rfilename", ""), getattr(sibling, "lfs", None)
        sha256, size = getattr(lfs, "sha256", None), getattr(sibling, "size", None)
        if isinstance(sha256, str) and isinstance(size, int) and size > 0:
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


def _unavailable(reference: HubReference, reason: str, advice: str) -> ModelUnavailable:
    text = f"{reference.text[:120]} cannot be looked up on the hub ({reason}): {advice}"
    return ModelUnavailable(text)
