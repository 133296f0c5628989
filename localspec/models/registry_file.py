"""Reads the entries of a file, each value checked, with errors that name the line.

A registry's file is written by people. What the program itself notes of models has the same form, and
a few keys more.
"""

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Literal, get_args

from localspec.models.entries import (
    COMMIT,
    HUB_NAME,
    MODEL_NAME,
    NAME,
    PARAMETERS,
    REPO,
    SEGMENTS,
    SHA256,
    HubName,
    HubSource,
    ModelEntry,
    PairEntry,
    Pin,
    Purpose,
    WheelSource,
    of_shards,
)
from localspec.models.toml import Table
from localspec.options import ReplyOptions

_FILE = r"[/~][^\x00-\x1f\x7f]*\.[Gg][Gg][Uu][Ff]"
_LICENCE = r"[A-Za-z0-9][A-Za-z0-9.+ -]*"
_PHRASE = r"[^\x00-\x1f\x7f]+"
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
        quant=quant,
        tokenizer=table.optional_text("tokenizer", SHA256),
        pin=_pin(table, revision) if kept and revision else None,
        origin=table.text("origin", _PHRASE) if kept and not revision else None,
    )
    table.finish()
    return entry


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
    text = table.text(key, rf"{MODEL_NAME}|{_FILE}|{HUB_NAME}")
    if text.startswith(("/", "~")):
        return text
    on_hub = HubName.parse(text)
    if on_hub is not None:
        return on_hub.text
    entry = find(text)
    if entry is None:
        raise table.error(key, f"is {text[:80]!r}, known are {', '.join(names)}")
    return entry.name
