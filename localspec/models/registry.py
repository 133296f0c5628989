"""What models and pairs exist, by name, also as people spell names: Ollama's, Hugging Face's, half remembered.

Knows nothing of what is on disk.
"""

import difflib
import os
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct, structs

from localspec.errors import ModelUnavailable, UsageError
from localspec.models.entries import (
    DEFAULT_QUANT,
    HUB_NAME,
    MODEL_NAME,
    NAME,
    PARAMETERS,
    Day,
    HubName,
    HubSource,
    Medium,
    ModelEntry,
    ModelFacts,
    Name,
    PairEntry,
    Phrase,
    Positive,
    Repo,
    Segments,
    Sha256,
    WheelSource,
    of_shards,
)
from localspec.models.ledger import TAILORED, with_pins
from localspec.options import ReplyOptions, options_of
from localspec.options.option import as_object
from localspec.storage.files import read_bounded
from localspec.storage.paths import config_dir, data_dir, shown
from localspec.storage.toml import convert, key_error, parse_once, parse_toml

USER_FILE = "models.toml"
_NAMES_LISTED = 6
_LONGEST_NAME = 80
_MOST_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Registry:
    """All models and pairs by name, a model by the shortest name that means it; and other names of theirs."""

    models: Mapping[str, ModelEntry]
    pairs: Mapping[str, PairEntry]
    default_pair: str
    aliases: Mapping[str, str] = field(default_factory=dict)

    def name(self, text: str) -> str:
        """Return the name of the pair or model that a text means, an alias or a spelling of others; else the text."""
        text = self.aliases.get(text, text)
        if text in self.pairs or self._entry(text) is not None or "/" in text:
            return text
        known = spelt(text, {**self.pairs, **self.models})
        return text if known is None else self.aliases.get(known, known)

    def knows(self, text: str) -> bool:
        """Return whether a text means a pair or a model."""
        name = self.name(text)
        return name in self.pairs or self._entry(name) is not None

    def chosen(self, text: str) -> dict[str, str]:
        """Return what loads the model of a name: its `pair`, or else the model alone as the `target`."""
        known = self.name(text)
        return {"pair": known} if known in self.pairs else {"target": text}

    def like(self, text: str) -> list[str]:
        """Return the names of pairs and models that a text may mean, the smallest of a family first."""
        return like(text, {**self._answering(), **self.aliases})

    def _answering(self) -> dict[str, ModelEntry | PairEntry]:
        """Return the pairs, and the models that write, by name."""
        return {**self.pairs, **self.writing().models}

    def drafter_of(self, pair: PairEntry) -> ModelEntry | None:
        """Return the model whose heads draft for a pair: its target, or a file that holds them alone; None without any."""
        draft_model = self.find(pair.draft_model) if pair.draft_model else None
        if draft_model is not None:
            return draft_model if draft_model.heads else None
        target = self.find(pair.target)
        has_heads = target is not None and target.heads is not None and target.heads.target is None
        return target if has_heads else None

    def with_heads_for(self, target: ModelEntry) -> list[ModelEntry]:
        """Return the models that have heads for a target, itself first."""
        own = [target] if target.heads and target.heads.target is None else []
        apart = [each for each in self.models.values() if each.heads and each.heads.target]
        return own + [
            each for each in apart if each.heads and self.find(each.heads.target or "") == target
        ]

    def published_heads(self, target: ModelEntry | None) -> list[str]:
        """Return where heads for a target, or its newer file, are: models that have them, and repositories to convert."""
        if target is None:
            return []
        target = self.newer(target) or target
        models = [each.name for each in self.with_heads_for(target) if each.tailored is None]
        return [*models, *target.heads_to_convert]

    def newer(self, entry: ModelEntry) -> ModelEntry | None:
        """Return the model whose file has the bare name of an older one; None for one that is not older."""
        alike = (each for each in self.models.values() if each.base == entry.base)
        return next((each for each in alike if not each.older), None) if entry.older else None

    def writing(self) -> "Registry":
        """Return what is left without models that write nothing."""
        models = {name: each for name, each in self.models.items() if each.writes}
        return replace(self, models=models)

    def find(self, name: str) -> ModelEntry | None:
        """Return the model that a name means, with or without a quantisation, in any spelling; else None.

        The quantisation may be written in any case. A bare name means the entry without a
        quantisation, or else the one that is listed first; of a repository on the hub, Q4_K_M.
        """
        return self._entry(self.name(name))

    def _entry(self, name: str) -> ModelEntry | None:
        if name in self.models:
            return self.models[name]
        base, _, quant = name.partition(":")
        if "/" in base:
            quant = quant or DEFAULT_QUANT
        for entry in self.models.values():
            if entry.base == base and quant and entry.quant.lower() == quant.lower():
                return entry
        return None

    def model(self, name: str) -> ModelEntry:
        """Return a model, or raise ModelUnavailable with the names that there are."""
        entry = self.find(name)
        if entry is None:
            raise ModelUnavailable(_unknown("model", name, self.models))
        return entry

    def sampling(self, name: str) -> dict[str, float | bool | str]:
        """Return how a pair's target, or a model, answers by default, by the names of options."""
        known = self.name(name)
        entry = self.find(self.pairs[known].target if known in self.pairs else known)
        return {} if entry is None else dict(entry.sampling)

    def require(self, name: str) -> None:
        """Raise ModelUnavailable, with the names that there are, unless a pair or model has this one."""
        if not self.knows(name):
            raise ModelUnavailable(self.unknown(name))

    def unknown(self, name: str) -> str:
        """Return that no pair or model has a name, and which may be meant."""
        return _unknown("", name, self._answering())

    def pair(self, name: str) -> PairEntry:
        """Return a pair, or raise ModelUnavailable with the names that there are."""
        known = self.name(name)
        if known not in self.pairs:
            raise ModelUnavailable(_unknown("pair", name, self.pairs))
        return self.pairs[known]


def load_registry(path: Path | None = None, *, tailored: bool = True) -> Registry:
    """Read a registry file; without a path, the program's own with the user's laid over it.

    The user's file is `models.toml` in the directory of settings; what it has adds to the program's
    entries or replaces those of the same name. To that comes what is pinned of models on the hub, and the draft models
    that were made here, which pairs have in place of their own unless `tailored` is False.

    Raises:
        UsageError: a file cannot be read, or an entry in it cannot be used.
        LocalspecError: the list of pins, or of what was made here, cannot be read.
    """
    if path is not None:
        return parse_registry(_text(path), shown(path))
    registry, user = _own_registry(_own_file()), config_dir() / USER_FILE
    if os.path.lexists(user):
        registry = parse_registry(_text(user), shown(user), registry)
    root = data_dir()
    registry = _with_older(replace(registry, models=with_pins(registry.models, root)), root)
    models, pairs = dict(registry.models), dict(registry.pairs)
    for entry in TAILORED.load(root).values() if tailored else ():
        from localspec.models.store import Store  # noqa: PLC0415 - on most machines nothing was made

        made = entry.tailored
        pair = pairs.get(made.pair) if made else None
        if made is None or pair is None or Store(root).path_of(entry) is None:
            continue
        if (pair.target, pair.draft_model or "") == (made.target, made.replaces):
            models[entry.name] = entry
            pairs[pair.name] = structs.replace(pair, draft="model", draft_model=entry.name)
    return replace(registry, models=models, pairs=pairs)


def _with_older(registry: Registry, root: Path) -> Registry:
    """Return a registry in which bare names mean older files where these alone are on this machine; they have no heads."""
    for entry in registry.models.values():
        newer = registry.newer(entry)
        if (
            newer is None
            or newer.name != entry.base
            or not (root / "blobs" / entry.sha256).exists()
        ):
            continue
        from localspec.models.store import Store  # noqa: PLC0415 - on most machines there is none

        if Store(root).path_of(entry) is None or Store(root).path_of(newer) is not None:
            continue
        changed = {
            entry.name: structs.replace(entry, name=entry.base),
            newer.name: structs.replace(newer, name=newer.full_name),
        }
        pairs = dict(registry.pairs)
        for each in registry.with_heads_for(newer):
            if each is newer or each.heads is None:
                continue
            heads = structs.replace(each.heads, target=newer.full_name)
            changed[each.name] = structs.replace(each, heads=heads)
            for pair in registry.pairs.values():
                if (pair.target, pair.draft_model) == (newer.name, each.name):
                    pairs[pair.name] = structs.replace(pair, draft="lookup", draft_model=None)
        every = (changed.get(name, each) for name, each in registry.models.items())
        registry = replace(registry, models={each.name: each for each in every}, pairs=pairs)
    return registry


class _File(Struct, forbid_unknown_fields=True):
    """The outermost table of a registry's file. Its tables are read one by one, so that messages name them."""

    models: dict[str, Any] = {}
    pairs: dict[str, Any] = {}
    aliases: dict[str, Any] = {}
    default_pair: str | None = None


class _FileTable(Struct, frozen=True, forbid_unknown_fields=True):
    """One of a model's files; what is missing is learnt at the first download."""

    file: Segments
    size_bytes: Positive = 0
    sha256: Sha256 = ""


class _MmprojTable(Struct, frozen=True, forbid_unknown_fields=True):
    """The file with the encoders of a model, in its repository unless it has its own; without a name it is looked for there."""

    takes: Annotated[tuple[Medium, ...], Meta(min_length=1)]
    repo: Repo | None = None
    file: Segments | None = None
    revision: Name | None = None
    size_bytes: Positive = 0
    sha256: Sha256 = ""
    source: Phrase = ""
    date: Day | None = None


class _ModelTable(ModelFacts, frozen=True, kw_only=True):
    """A model as a registry's file describes it."""

    repo: Repo | None = None
    file: Segments | None = None
    revision: Name | None = None
    size_bytes: Positive = 0
    sha256: Sha256 = ""
    files: tuple[_FileTable, ...] | None = None
    sources: tuple[WheelSource, ...] = ()
    sampling: dict[str, Any] | None = None
    mmproj: _MmprojTable | None = None


_Alias = Annotated[str, Meta(pattern=rf"\A(?:{MODEL_NAME}|{HUB_NAME})\Z")]


def parse_registry(
    text: str, name: str, below: Registry | None = None, parsed: Path | None = None
) -> Registry:
    """Parse the text of a registry file.

    Args:
        text: TOML, as in `models.toml`.
        name: what to call the file in messages.
        below: the registry that the file is laid over.
        parsed: a file that keeps what was parsed, see `parse_once`; None without one.

    Raises:
        UsageError: not TOML, or a key that is missing, unknown or has an unusable value.
    """
    file = f"registry {name}"
    tables = parse_toml(text, file) if parsed is None else parse_once(text, file, parsed)
    base, top = below or Registry({}, {}, ""), convert(tables, _File, file)
    for table, pattern in (("models", MODEL_NAME), ("pairs", NAME), ("aliases", MODEL_NAME)):
        for key in getattr(top, table):
            if not re.fullmatch(pattern, key):
                raise key_error(file, "is not a usable name", table, key)
    read = [_model(key, table, file) for key, table in top.models.items()]
    models = {f"{each.base}:{each.quant.lower()}": each for each in (*base.models.values(), *read)}
    named, pairs = Registry(_named(models.values()), {}, ""), dict(base.pairs)
    for each in read:
        target = each.heads.target if each.heads else None
        if target is not None and named.find(target) is None:
            problem = f"is {target[:80]!r}: {_unknown('model', target, named.models)}"
            raise key_error(file, problem, "models", each.full_name, "heads", "target")
    for key, table in top.pairs.items():
        pairs[key] = _pair(key, table, file, named)
    default_pair = base.default_pair if top.default_pair is None else top.default_pair
    if default_pair not in pairs:
        problem = f"is {default_pair[:80]!r}: choose one of {', '.join(pairs)}"
        raise key_error(file, problem if default_pair else "is missing", "default_pair")
    named = replace(named, pairs=pairs, default_pair=default_pair)
    added = {key: convert(each, _Alias, file, "aliases", key) for key, each in top.aliases.items()}
    aliases = {**base.aliases, **added}
    for alias, meaning in aliases.items():
        if "/" not in meaning and not named.knows(meaning):
            problem = _unknown("", meaning, {**pairs, **named.models})
            raise UsageError(f"{file}: alias {alias} is {meaning}, and {problem}")
    return replace(named, aliases=aliases)


def _model(key: str, table: object, file: str) -> ModelEntry:
    """Return the model of a table.

    Raises:
        UsageError: a key is missing, unknown or has an unusable value.
    """
    read = convert(table, _ModelTable, file, "models", key)

    def require(is_met: object, problem: str, *path: str | int) -> None:
        if not is_met:
            raise key_error(file, problem, "models", key, *path)

    has_label = read.active is None or read.params is None or re.fullmatch(PARAMETERS, read.params)
    require(has_label, "must be a number such as 30.5B where active is set", "params")
    options = {each.name: each for each in options_of(ReplyOptions) if each.key}
    sampling = read.sampling or {}
    for name, value in sampling.items():
        choices = f"is not a known option: use one of {', '.join(options)}"
        require(name in options, choices, "sampling", name)
        if options[name].is_object and isinstance(value, dict):
            sampling[name] = as_object(value)
        problem = options[name].problem(sampling[name])
        require(problem is None, f"cannot be used: {problem}", "sampling", name)
    if read.files is not None:
        require(read.files and read.repo, "needs a repo, and at least one file", "files")
    elif read.repo is None:
        require(read.sources, "is empty and there is no repo", "sources")
        require(read.size_bytes, "is missing", "size_bytes")
        require(read.sha256, "is missing", "sha256")
    else:
        require(read.file, "is missing", "file")
    files = read.files or (_FileTable(read.file or "", read.size_bytes, read.sha256),)
    shards: list[ModelEntry] = []
    for number, each in enumerate(files):
        hub = (HubSource(read.repo, each.file, read.revision),) if read.repo else ()
        same = any(hub == one.sources or each.sha256 == one.sha256 != "" for one in shards)
        problem = f"is {each.file[:80]!r}, which an earlier shard is already"
        require(not same, problem, "files", number, "file")
        shard = f"{key} shard {number + 1} of {len(files)}"
        shards.append(ModelEntry(shard, each.size_bytes, each.sha256, sources=hub))
    entry, facts = of_shards(key, shards), {name: getattr(read, name) for name in _FACTS}
    sources, quant = (*entry.sources, *read.sources), key.partition(":")[2]
    answers = tuple(sampling.items())
    mmproj = None if read.mmproj is None else _mmproj(key, read.mmproj, read)
    require(mmproj is None or read.repo, "needs the repo of its model", "mmproj")
    require(mmproj is None or mmproj.sources or not mmproj.sha256, "needs a file", "mmproj")
    return structs.replace(
        entry, **facts, sources=sources, sampling=answers, quant=quant, mmproj=mmproj
    )


def _mmproj(key: str, table: _MmprojTable, model: _ModelTable) -> ModelEntry:
    repo = table.repo or model.repo or ""
    revision = table.revision or (None if table.repo else model.revision)
    hub = (HubSource(repo, table.file, revision),) if table.file else ()
    return ModelEntry(
        f"{key} mmproj",
        table.size_bytes,
        table.sha256,
        sources=hub,
        takes=table.takes,
        source=table.source,
        date=table.date,
    )


_FACTS = ModelFacts.__struct_fields__


def _pair(key: str, table: object, file: str, known: Registry) -> PairEntry:
    """Return the pair of a table.

    Raises:
        UsageError: it names an unknown model, or lacks something.
    """
    if isinstance(table, dict):
        if "name" in table:
            raise key_error(file, "is not a known key", "pairs", key, "name")
        table = {"draft": "model" if "draft_model" in table else "lookup", **table, "name": key}
    pair = convert(table, PairEntry, file, "pairs", key)
    if pair.draft == "model" and pair.draft_model is None:
        raise key_error(file, "is missing", "pairs", key, "draft_model")
    names = {}
    for role in ("target", "draft_model"):
        text = getattr(pair, role)
        if text is None or text.startswith(("/", "~")):
            continue
        on_hub, entry = HubName.parse(text), known.find(text)
        if on_hub is None and entry is None:
            problem = f"is {text[:80]!r}: choose one of {', '.join(known.models)}"
            raise key_error(file, problem, "pairs", key, role)
        names[role] = on_hub.text if on_hub else entry.name if entry else text
    return structs.replace(pair, **names)


@cache  # the first reading takes as long as starting Python
def _own_registry(own: Path) -> Registry:
    return parse_registry(_text(own), shown(own), parsed=data_dir() / "registry.json")


def _own_file() -> Path:
    package = Path(__file__).parents[1]
    packaged = package / "models.toml"  # in a wheel; in a checkout it lies beside the package
    return packaged if packaged.is_file() else package.parent / "models.toml"


def _text(path: Path) -> str:
    try:
        return read_bounded(path, _MOST_BYTES).decode()
    except (OSError, ValueError) as error:  # ValueError: no UTF-8, or a NUL in the path
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise UsageError(f"registry {shown(path)} cannot be read ({reason}): fix it") from error


def _named(entries: Collection[ModelEntry]) -> dict[str, ModelEntry]:
    """Return models by the shortest names that are still different."""
    taken, named = {entry.base for entry in entries if not entry.quant}, {}
    for entry in entries:
        name = entry.full_name
        if entry.quant and entry.base not in taken:
            name = entry.base
            taken.add(name)
        named[name] = structs.replace(entry, name=name)
    return named


def _unknown(what: str, name: str, known: Collection[str]) -> str:
    """Return that nothing has a name, and what may be meant; an empty `what` is any model or pair."""
    similar = like(name[:_LONGEST_NAME], known)
    if similar:
        either = " or ".join(filter(None, (", ".join(similar[:-1]), similar[-1])))
        advice = f"did you mean {either}?"
    elif len(known) <= _NAMES_LISTED:
        advice = f"choose one of {name_list(known)}"
    else:  # the first ones of a long list are no answer
        advice = "`localspec search` lists all, `localspec recommend` those that suit this machine"
    problem = f"there is no {what}" if what else "no model matches"
    told = name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"
    return f"{problem} {told!r}: {advice}"


def name_list(names: Collection[str]) -> str:
    """Return the first names, and where the others are listed."""
    more = len(names) - _NAMES_LISTED
    listed = ", ".join([*names][:_NAMES_LISTED])
    return listed if more <= 0 else f"{listed} and {more} more, see `localspec search`"


# What other catalogues add to a name, and what means nothing here: every model is an instruct model.
_MEANINGLESS = {"latest", "instruct", "it", "chat", "gguf"}
_QUANT = re.compile(r"[-:._](i?q[0-9][a-z0-9_]*|bf16|fp?16|f32)$", re.IGNORECASE)
_PIECES = re.compile(r"[a-z]+(?=[0-9])|[^-_: /]+")
_SIZE_LABEL = re.compile(r"([0-9.]+)([bm])")
_LIKE, _LIKE_FAMILY = 0.6, 0.8


def spelt(text: str, names: Iterable[str]) -> str | None:
    """Return the one name that a spelling means, with the quantisation that it gives; else None.

    `qwen2.5-coder:1.5b`, `Qwen2.5-Coder-1.5B-Instruct-GGUF` and `qwen-2.5-coder-1.5b` are one name.
    """
    quant = _QUANT.search(text)
    pieces = _pieces(text[: quant.start()] if quant else text)
    matches = [name for name in names if pieces and _pieces(name) == pieces]
    if len(matches) != 1:
        return None
    return f"{matches[0]}:{quant[1]}" if quant else matches[0]


def like(text: str, names: Collection[str]) -> list[str]:
    """Return all names that a text may mean: those of the family that it names, the smallest first; else similar ones."""
    pieces = _pieces(text)
    of_names = {name: _pieces(name) for name in names}
    firsts = {first for first, *_ in filter(None, of_names.values())}
    if pieces and pieces[0] not in firsts:  # a letter too few, as in smolm2
        pieces[:1] = difflib.get_close_matches(pieces[0], firsts, 1, _LIKE_FAMILY) or pieces[:1]
    family = [name for name in names if pieces and of_names[name][: len(pieces)] == pieces]
    return sorted(family, key=_size) or difflib.get_close_matches(text, names, 6, _LIKE)


def _pieces(name: str) -> list[str]:
    return [piece for piece in _PIECES.findall(name.lower()) if piece not in _MEANINGLESS]


def _size(name: str) -> float:
    """Return how many millions of weights a name tells of, those of all experts; 0 where it tells of none."""
    labels = _SIZE_LABEL.findall(name.lower())
    return max((float(number) * {"b": 1000, "m": 1}[unit] for number, unit in labels), default=0)
