"""Reads the entries of one registry file, each value checked, with errors that name the line.

An entry ends up in file names, URLs and a command line, so names, paths and requirements are held
to narrow patterns here, once.
"""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal

from localspec.models.entries import HubSource, ModelEntry, PairEntry, WheelSource, shards_digest
from localspec.models.toml_table import Table, parse_toml

NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*"
MODEL_NAME = rf"{NAME}(:{NAME})?"
REPO = rf"{NAME}/{NAME}"
HUB_NAME = rf"(?:(?:https?://)?(?:hf\.co|huggingface\.co)/)?(?P<repo>{REPO})(?::(?P<quant>{NAME}))?"
SHA256 = r"[0-9a-f]{64}"
SEGMENTS = rf"{NAME}(/{NAME})*"
_FILE = r"[/~][^\x00-\x1f\x7f]*\.[Gg][Gg][Uu][Ff]"
_LICENCE = r"[A-Za-z0-9][A-Za-z0-9.+ -]*"
_PHRASE = r"[^\x00-\x1f\x7f]+"
# Exactly one pinned version of one package: no URL, no option, no second requirement.
_REQUIREMENT = r"[A-Za-z0-9][A-Za-z0-9._-]*(\{part\}[A-Za-z0-9._-]*)?==[A-Za-z0-9][A-Za-z0-9.!+]*"
_MEMBER_SEGMENT = r"(?!\.\.?(/|$))([A-Za-z0-9._*-]|\{part(:0[1-9])?\})+"
_MEMBER = rf"{_MEMBER_SEGMENT}(/{_MEMBER_SEGMENT})*"


@dataclass(slots=True)
class FileEntries:
    """The entries of a file, of which pairs wait until it is known which models there are."""

    models: list[ModelEntry]
    _pairs: dict[str, Table]
    _top: Table = field(repr=False)

    def pairs(
        self, find: Callable[[str], ModelEntry | None], names: Collection[str]
    ) -> dict[str, PairEntry]:
        """Return the pairs.

        Args:
            find: tells which model a name means.
            names: the names that there are, for messages.

        Raises:
            UsageError: a pair names an unknown model, or lacks something.
        """
        return {name: _pair(name, table, find, names) for name, table in self._pairs.items()}

    def default_pair(self, pairs: Mapping[str, PairEntry], below: str) -> str:
        """Return the pair to start with: the file's, or that of the registry below it.

        Raises:
            UsageError: there is none, it is unknown, or the file has a key that nobody knows.
        """
        named = "default_pair" in self._top or not below
        default_pair = self._top.one_of("default_pair", pairs) if named else below
        self._top.finish()
        return default_pair


def read_entries(text: str, file: str) -> FileEntries:
    """Read a registry file.

    Args:
        text: TOML.
        file: what to call the file in messages.

    Raises:
        UsageError: not TOML, or an entry that cannot be used.
    """
    top = parse_toml(text, file)
    models = [_model(key, table) for key, table in top.tables("models", MODEL_NAME)]
    return FileEntries(models, dict(top.tables("pairs", NAME)), top)


def _model(key: str, table: Table) -> ModelEntry:
    name, _, quant = key.partition(":")
    repo = table.optional_text("repo", REPO)
    revision = table.optional_text("revision", NAME) if repo is not None else None
    shards = _shards(key, table, repo, revision)
    sources: list[HubSource | WheelSource] = []
    if repo is not None and not shards:
        sources.append(HubSource(repo, table.text("file", SEGMENTS), revision))
    if not shards:
        sources += [_wheels(source) for source in table.list_of_tables("sources")]
        if not sources:
            raise table.error("sources", "is empty and there is no repo")
    size_bytes, sha256 = _bytes(table, learnable=repo is not None) if not shards else _sum(shards)
    entry = ModelEntry(
        name=key if quant else name,
        size_bytes=size_bytes,
        sha256=sha256,
        params=table.optional_text("params", r"[0-9][0-9A-Za-z.]*"),
        context=table.optional_positive("context"),
        licence=table.optional_text("licence", _LICENCE),
        sources=tuple(sources),
        quant=quant,
        tokenizer=table.optional_text("tokenizer", SHA256),
        shards=shards,
    )
    table.finish()
    return entry


def _bytes(table: Table, *, learnable: bool) -> tuple[int, str]:
    """Take size and sha256 of a file; what is on the hub may leave them to be learnt there."""
    size_bytes = (table.optional_positive if learnable else table.positive)("size_bytes")
    sha256 = (table.optional_text if learnable else table.text)("sha256", SHA256)
    return size_bytes or 0, sha256 or ""


def _sum(shards: tuple[ModelEntry, ...]) -> tuple[int, str]:
    known = all(shard.is_known for shard in shards)
    return sum(shard.size_bytes for shard in shards) if known else 0, shards_digest(shards)


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
    key: str, table: Table, repo: str | None, revision: str | None
) -> tuple[ModelEntry, ...]:
    """Return the files of a model that comes in several; none where it does not."""
    if "files" not in table:
        return ()
    parts = list(table.list_of_tables("files"))
    if repo is None or not parts:
        raise table.error("files", "needs a repo, and at least one file")
    shards: list[ModelEntry] = []
    for number, part in enumerate(parts, 1):
        file = part.text("file", SEGMENTS)
        size_bytes, sha256 = _bytes(part, learnable=True)
        if any(
            (sha256 and shard.sha256 == sha256)
            or shard.sources == (HubSource(repo, file, revision),)
            for shard in shards
        ):
            raise part.error("file", f"is {file[:80]!r}, which an earlier shard is already")
        shards.append(
            ModelEntry(
                name=f"{key} shard {number} of {len(parts)}",
                size_bytes=size_bytes,
                sha256=sha256,
                params=None,
                context=None,
                licence=None,
                sources=(HubSource(repo, file, revision),),
            )
        )
        part.finish()
    return tuple(shards)


def _pair(
    name: str, table: Table, find: Callable[[str], ModelEntry | None], names: Collection[str]
) -> PairEntry:
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
    table.finish()
    return PairEntry(name, target, draft, draft_model, good_for, caveat)


def _reference(
    key: str, table: Table, find: Callable[[str], ModelEntry | None], names: Collection[str]
) -> str:
    """Take the name of a known model, `user/repo:QUANT`, or the path of a GGUF."""
    text = table.text(key, rf"{MODEL_NAME}|{_FILE}|{HUB_NAME}")
    if text.startswith(("/", "~")):
        return text
    on_hub = re.fullmatch(HUB_NAME, text)
    if on_hub is not None:
        return f"{on_hub['repo']}:{on_hub['quant']}" if on_hub["quant"] else on_hub["repo"]
    entry = find(text)
    if entry is None:
        raise table.error(key, f"is {text[:80]!r}, known are {', '.join(names)}")
    return entry.name
