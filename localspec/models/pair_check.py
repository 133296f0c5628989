"""Judges two models by what their files say, wherever the files are; fetches headers at most."""

from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from localspec.models.eog import eog_tokens
from localspec.models.fingerprint import fingerprint
from localspec.models.gguf_header import GgufHeader
from localspec.models.headers import find_header
from localspec.models.reference import look_up
from localspec.models.registry import Registry
from localspec.models.split_model import read_model
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
    first = find_header(found.shards[0] if found.shards else found, reference)
    return _side(reference, first.header, found.size_bytes, len(first.fetched))


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
