"""`localspec list`, `show`, `rm` and `import`: the models on this machine."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path

import click

from localspec.cli.completions import complete_models
from localspec.errors import LocalspecError
from localspec.models.gguf import read_model
from localspec.models.inventory import Item, Removal, facts_of, inventory, plan_removal, remove
from localspec.models.names import import_file
from localspec.models.registry import load_registry
from localspec.models.store import Store
from localspec.storage.files import size_text
from localspec.storage.paths import data_dir, shown

_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.command(name="list")
@_json
def list_(as_json: bool) -> None:
    """List the models on this machine: name, size, and who owns the file.

    Files in the `store` are localspec's own. `hub cache` and `link` are files of other programs or
    of yours, which are never deleted. `unfinished` downloads resume with the next pull.
    """
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
    for item in items:
        click.echo(f"{item.name:<{width}}  {_size(item):>17}  {item.where}")


@click.command()
@click.argument("name", shell_complete=complete_models)
@_json
def show(name: str, as_json: bool) -> None:
    """Show what the registry and the file itself say about NAME, a model or a path.

    `tools` says whether the model can call tools: whether its chat template offers them to it.
    """
    facts = {**facts_of(name, load_registry(), Store(data_dir()))}
    if isinstance(facts.get("path"), str):
        # jinja2 comes with it, and few files are looked into.
        from localspec.chat.call_finder import offers_tools  # noqa: PLC0415

        facts["tools"] = offers_tools(read_model(Path(str(facts["path"]))).chat_template)
    if as_json:
        click.echo(json.dumps(facts, indent=2))
        return
    width = max(map(len, facts))
    for key, value in facts.items():
        if value is not None:
            click.echo(f"{key:<{width}}  {_text(key, value)}")


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


def _text(key: str, value: object) -> str:
    if key.endswith("_bytes") and isinstance(value, int):
        return f"{value} ({size_text(value)})"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else shown(str(value))


def _what_stays(item: Item, removal: Removal) -> str:
    if item.entry.sha256 in removal.shared:
        return "; another name has the same file, which stays"
    if item.where == "hub cache" and item.path is not None:
        return f"; its file stays in the hub's cache, at {shown(item.path.resolve())}"
    if item.where == "link" and item.path is not None:
        return f"; the file {shown(item.path.resolve())} is yours and stays"
    return ""
