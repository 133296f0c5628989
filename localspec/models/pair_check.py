"""Judges two models by what their files say, wherever the files are; fetches headers at most."""

from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from localspec.errors import ModelUnavailable
from localspec.models.download import cached_file
from localspec.models.entries import HubSource, ModelEntry
from localspec.models.eog import eog_tokens
from localspec.models.fingerprint import fingerprint
from localspec.models.gguf_header import GgufHeader, read_header
from localspec.models.paths import data_dir
from localspec.models.reference import look_up
from localspec.models.registry import Registry
from localspec.models.remote_header import read_remote_header
from localspec.models.split_model import read_model
from localspec.models.store import Store
from localspec.models.tokenizer import Compatibility, compare_tokenizers


class Templates(StrEnum):
    """How two chat templates relate. The target's is the one that is used."""

    SAME = "the same"
    DIFFERENT = "different"
    TARGET_ONLY = "only the target has one"
    DRAFT_ONLY = "only the draft model has one"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Side:
    """One model of a pair, as far as its header tells.

    Args:
        name: what the user called it.
        header: what its file says.
        size_bytes: of its file or files.
        fetched_bytes: how much was read from the hub for it; 0 for a local file.
        fingerprint: of its tokenizer.
        eog: the ids that end a reply.
    """

    name: str
    header: GgufHeader
    size_bytes: int
    fetched_bytes: int
    fingerprint: str
    eog: frozenset[int]


@dataclass(frozen=True, slots=True)
class PairReport:
    """A judgement, and what was compared apart from the tokenizers."""

    target: Side
    draft_model: Side
    fit: Compatibility
    templates: Templates

    @property
    def same_eog(self) -> bool:
        """Whether the same ids end a reply."""
        return self.target.eog == self.draft_model.eog


def check_pair(target: str, draft_model: str, registry: Registry) -> PairReport:
    """Judge a pair; of files that are not here, only the headers are read.

    Args:
        target: a known name, the path of a GGUF, or `user/repo:QUANT`.
        draft_model: likewise.
        registry: the known names.

    Raises:
        ModelUnavailable: no such model, or the hub does not deliver its header.
        ModelFileError: a file is no sound GGUF, or has no tokenizer.
    """
    sides = read_side(target, registry), read_side(draft_model, registry)
    return judge(*sides)


def judge(target: Side, draft_model: Side) -> PairReport:
    """Compare two models of which the headers are known."""
    fit = compare_tokenizers(target.header.tokenizer, draft_model.header.tokenizer)
    return PairReport(target, draft_model, fit, _templates(target.header, draft_model.header))


def read_side(reference: str, registry: Registry) -> Side:
    """Read what one model's header says.

    Raises:
        ModelUnavailable: no such model, or the hub does not deliver its header.
        ModelFileError: the file is no sound GGUF, or has no tokenizer.
    """
    found = look_up(reference, registry)
    if isinstance(found, Path):
        return _side(reference, read_model(found))
    size_bytes = found.size_bytes
    first = found.shards[0] if found.shards else found
    path = local_file(first)
    if path is not None:
        return _side(reference, read_header(path), size_bytes)
    source = next((each for each in first.sources if isinstance(each, HubSource)), None)
    if source is None:
        raise ModelUnavailable(
            f"{reference} is not on this machine, and no hub has its header: "
            f"run `localspec pull {reference}`"
        )
    remote = read_remote_header(source, reference, first.size_bytes)
    return _side(reference, remote.header, size_bytes, remote.fetched_bytes)


def local_file(entry: ModelEntry) -> Path | None:
    """Return where a model's file is on this machine: in the store, or in the hub's cache."""
    path = Store(data_dir()).path_of(entry)
    if path is not None:
        return path
    for source in entry.sources:
        if isinstance(source, HubSource) and (cached := cached_file(source)) is not None:
            return cached
    return None


def _side(name: str, header: GgufHeader, size_bytes: int | None = None, fetched: int = 0) -> Side:
    header = replace(header, name=name)
    tokenizer = header.tokenizer
    size = header.size_bytes if size_bytes is None else size_bytes
    return Side(name, header, size, fetched, fingerprint(tokenizer), eog_tokens(tokenizer))


def _templates(target: GgufHeader, draft_model: GgufHeader) -> Templates:
    ours, theirs = target.chat_template, draft_model.chat_template
    if ours is None and theirs is None:
        return Templates.NONE
    if theirs is None:
        return Templates.TARGET_ONLY
    if ours is None:
        return Templates.DRAFT_ONLY
    return Templates.SAME if ours == theirs else Templates.DIFFERENT
