"""`localspec list`, `show`, `rm` and `import`: the models on this machine."""

import json
import re
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from localspec.cli.completions import complete_models
from localspec.errors import LocalspecError, UsageError
from localspec.models.entries import MODEL_NAME
from localspec.models.gguf import read_model
from localspec.models.inventory import (
    Fact,
    Item,
    Removal,
    facts_of,
    inventory,
    plan_removal,
    remove,
)
from localspec.models.names import import_file
from localspec.models.registry import USER_FILE, Registry, load_registry
from localspec.models.store import Store
from localspec.storage.files import size_text
from localspec.storage.paths import config_dir, data_dir, shown

if TYPE_CHECKING:
    from localspec.launch.rows import ModelRow

_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.command(name="list")
@_json
def list_(as_json: bool) -> None:
    """List the models on this machine: name, size, who owns the file, and what it is if no chat model.

    Files in the `store` are localspec's own. `hub cache` and `link` are files of other programs or
    of yours, which are never deleted. `unfinished` downloads resume with the next pull.
    """
    from localspec.launch.rows import model_rows  # noqa: PLC0415 - not for `--help`

    registry = load_registry()
    items = inventory(registry, Store(data_dir()))
    if as_json:
        click.echo(json.dumps([_document(item) for item in items], indent=2))
        return
    if not items:
        click.echo(
            "no models yet: download one with `localspec pull NAME`; "
            "`localspec recommend` suggests some",
            err=True,
        )
    width = max((len(item.name) for item in items), default=0)
    rows = {row.name: row for row in model_rows(registry)}
    for item in items:
        row = rows.get(item.entry.full_name) or rows.get(item.name)
        kind = f"  {row.about}" if row is not None and row.kind not in {"chat", "code"} else ""
        click.echo(f"{item.name:<{width}}  {_size(item):>17}  {item.where}{kind}")


@click.command()
@click.argument("name", shell_complete=complete_models)
@_json
def show(name: str, as_json: bool) -> None:
    """Show what the registry and the file itself say about NAME, a model or a path.

    `tools` says whether the model can call tools: whether its chat template offers them to it.
    `drafts` are the known models that can draft for it, best first; `localspec check` judges others.
    """
    registry = load_registry()
    facts: dict[str, Fact] = {**facts_of(name, registry, Store(data_dir()))}
    if isinstance(facts.get("path"), str):
        # Few files are looked into.
        from localspec.chat.call_finder import offers_tools  # noqa: PLC0415

        facts["tools"] = offers_tools(read_model(Path(str(facts["path"]))).chat_template)
    row = _row(registry.name(name), str(facts["name"]), registry)
    if row is not None and row.pair is not None:
        facts |= {"good_for": row.about or None, "thinking": row.thinking}
        facts |= {"draft_model": row.pair.draft_model, "draft_bytes": row.draft_bytes}
    from localspec.models.pairs import suggest  # noqa: PLC0415 - not for `--help`

    # The hub is not asked for it.
    drafts = suggest(name, registry) if registry.find(name) or facts.get("here", True) else []
    if as_json:
        from localspec.cli.pair_facts import suggestion_facts  # noqa: PLC0415 - not for `--help`

        facts_of_drafts = [suggestion_facts(each) for each in drafts]
        click.echo(json.dumps({**facts, "drafts": facts_of_drafts}, indent=2))
        return
    size = facts.pop("size_bytes", None)
    facts.pop("draft_bytes", None)
    known = row.sizes if row is not None else size_text(size) if isinstance(size, int) else None
    lines = {"name": facts.pop("name"), "size": known, **facts}
    width = max(map(len, lines))
    for key, value in lines.items():
        if value is not None:
            click.echo(f"{key:<{width}}  {_text(key, value)}")
    for at, each in enumerate(drafts):
        reasons = "; ".join(each.reasons)
        click.echo(f"{'' if at else 'drafts':<{width}}  {each.draft_model}: {reasons}")


def _row(name: str, model: str, registry: Registry) -> "ModelRow | None":
    """Return the row of a name, or else the first one of that model; None of a file that has no name."""
    from localspec.launch.rows import model_rows  # noqa: PLC0415 - not for `--help`

    rows = model_rows(registry)
    of_model = [row for row in rows if row.pair is not None and row.pair.target == model]
    return next(iter([*(row for row in rows if row.name == name), *of_model]), None)


@click.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True, shell_complete=complete_models)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def rm(names: tuple[str, ...], yes: bool) -> None:
    """Remove each NAME, a pair, a model or an imported file, from this machine.

    Never deletes files that another model uses, files in the hub's cache, or files that you
    imported by link: for these, only the name is removed; so it is for a name that `import` gave a
    model that has another.
    """
    registry, store = load_registry(), Store(data_dir())
    removal = plan_removal([each for each in names if not _is_own_alias(each)], registry, store)
    for each in filter(_is_own_alias, names):
        from localspec.config.own import write_keys  # noqa: PLC0415 - not for `--help`

        write_keys(config_dir() / USER_FILE, {each: None}, "aliases")
        click.echo(f"removed the name {each}; {registry.aliases[each]} stays")
    if not (removal.items or removal.kept):
        return
    if removal.items and not yes and sys.stdin.isatty():
        what = ", ".join(item.name for item in removal.items)
        click.confirm(f"remove {what} ({size_text(removal.frees_bytes)})?", abort=True, err=True)
    lines = [f"removed {item.name}{_what_stays(item, removal)}" for item in removal.items]
    freed = remove(removal, store)
    for line in lines:
        click.echo(line)
    click.echo(f"freed {freed} bytes ({size_text(freed)})")
    if removal.kept:
        reasons = "; ".join(f"{item.name} stays, because {why}" for item, why in removal.kept)
        raise LocalspecError(f"{reasons}: name that as well to remove both")


@click.command(name="import")
@click.argument("model", metavar="[PATH|MODEL]", required=False, shell_complete=complete_models)
@click.option("--name", help="Its name; required for a MODEL. Default: the file's name.")
@click.option("--copy", is_flag=True, help="Copy the file instead of pointing to it.")
def import_(model: str | None, name: str | None, copy: bool) -> None:
    """Give a GGUF file, or a model that has a name, a name that every command understands.

    \b
        localspec import ~/models/my-7b.gguf --name mine
        localspec import qwen3-4b --name fast

    A file is checked first. Without either, the names that stand for other models are listed;
    `localspec rm fast` removes a name that you gave.
    """  # noqa: D301 - click keeps lines behind a \b
    registry = load_registry()
    if model is None:
        for each, meant in registry.aliases.items():
            click.echo(f"{each} = {meant}")
    elif Path(model).expanduser().is_file() or not registry.knows(model):
        imported = import_file(
            Path(model).expanduser(), name, registry, Store(data_dir()), copy=copy
        )
        click.echo(imported.name)
    else:
        _name(registry, name, model)
        click.echo(name)


def _is_own_alias(name: str) -> bool:
    """Return whether the user's own file has another name for a model."""
    file = config_dir() / USER_FILE
    return file.exists() and name in tomllib.loads(file.read_text()).get("aliases", {})


def _name(registry: Registry, name: str | None, model: str) -> None:
    """Make a name mean a known model."""
    from localspec.cli.words import require_model  # noqa: PLC0415 - not for `--help`
    from localspec.config.own import write_keys  # noqa: PLC0415 - not for `--help`

    if name is None:
        raise UsageError(f"{model} is a known model: give it another name with --name")
    if not re.fullmatch(MODEL_NAME, name):
        raise UsageError(f"{name[:80]!r} cannot be a name: use letters, digits, '.', '-', '_'")
    if name not in registry.aliases and registry.knows(name):
        raise UsageError(f"{name} is already the name of a model: choose another name")
    write_keys(config_dir() / USER_FILE, {name: registry.name(require_model(model))}, "aliases")


def _document(item: Item) -> Mapping[str, object]:
    return {
        "name": item.name,
        "size_bytes": item.entry.size_bytes,
        "here_bytes": item.here_bytes,
        "where": item.where,
        "path": None if item.path is None else str(item.path),
        "sha256": item.entry.sha256,
        "imported": item.imported,
        "learnt": None if item.entry.pin is None else item.entry.pin.date,
    }


def _size(item: Item) -> str:
    size = size_text(item.entry.size_bytes)
    return f"{size_text(item.here_bytes)} of {size}" if item.where == "unfinished" else size


_TOKENIZERS = {"gpt2": "BPE", "llama": "SentencePiece", "bert": "WordPiece", "t5": "Unigram"}
_SOURCES = {"hub": "Hugging Face", "wheels": "Python packages"}


def _text(key: str, value: object) -> str:
    match key, value:
        case "weights", int(count):
            return f"{count / 1e9:.2f} billion" if count >= 1e9 else f"{count / 1e6:.0f} million"
        case _, bool(has):
            return "yes" if has else "no"
        case "here_bytes", int(size):
            return size_text(size)
        case "tokenizer", str(name):
            kind, _, rules = name.partition(" ")
            return f"{_TOKENIZERS.get(kind, kind)}{rules and f', splits words like {rules}'}"
        case "sources", list(sources):
            parts = (source.partition(" ") for source in dict.fromkeys(sources))
            return "; ".join(
                f"{_SOURCES[kind]}: {name.replace('==', ' ')}" for kind, _, name in parts
            )
    return ", ".join(map(str, value)) if isinstance(value, list) else shown(str(value))


def _what_stays(item: Item, removal: Removal) -> str:
    if item.entry.sha256 in removal.shared:
        return "; another name has the same file, which stays"
    if item.where == "hub cache" and item.path is not None:
        return f"; its file stays in the hub's cache, at {shown(item.path.resolve())}"
    if item.where == "link" and item.path is not None:
        return f"; the file {shown(item.path.resolve())} is yours and stays"
    return ""
