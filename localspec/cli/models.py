"""`localspec list`, `show`, `rm` and `import`: the models on this machine."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from localspec.cli.completions import complete_models
from localspec.errors import LocalspecError
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
from localspec.models.registry import Registry, load_registry
from localspec.models.store import Store
from localspec.storage.files import size_text
from localspec.storage.paths import data_dir, shown

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
    if as_json:
        click.echo(json.dumps(facts, indent=2))
        return
    size = facts.pop("size_bytes", None)
    facts.pop("draft_bytes", None)
    known = row.sizes if row is not None else size_text(size) if isinstance(size, int) else None
    lines = {"name": facts.pop("name"), "size": known, **facts}
    width = max(map(len, lines))
    for key, value in lines.items():
        if value is not None:
            click.echo(f"{key:<{width}}  {_text(key, value)}")


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
    imported by link: for these, only the name is removed.
    """
    store = Store(data_dir())
    removal = plan_removal(names, load_registry(), store)
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
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--name", help="Name of the model. Default: the file's name.")
@click.option("--copy", is_flag=True, help="Copy the file instead of pointing to it.")
def import_(path: Path, name: str | None, copy: bool) -> None:
    """Check the GGUF file at PATH and give it a name that every command understands."""
    imported = import_file(path.expanduser(), name, load_registry(), Store(data_dir()), copy=copy)
    click.echo(imported.name)


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
