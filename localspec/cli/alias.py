"""`localspec alias`: names of your own for models."""

import re

import click

from localspec.cli.completions import complete_models
from localspec.cli.words import require_model
from localspec.config.own import write_keys
from localspec.errors import UsageError
from localspec.models.entries import MODEL_NAME
from localspec.models.registry import USER_FILE, load_registry
from localspec.storage.paths import config_dir


@click.command()
@click.argument("name", required=False)
@click.argument("model", required=False, shell_complete=complete_models)
@click.option("--remove", is_flag=True, help="Remove NAME.")
def alias(name: str | None, model: str | None, remove: bool) -> None:
    """Make NAME another name for MODEL in every command; without MODEL, list all such names."""
    registry = load_registry()
    if remove or model is not None:
        if name is None or (remove and model is not None):
            raise UsageError("--remove takes one name: localspec alias --remove NAME")
        if not remove and not re.fullmatch(MODEL_NAME, name):
            raise UsageError(f"{name[:80]!r} cannot be a name: use letters, digits, '.', '-', '_'")
        if not remove and name not in registry.aliases and registry.knows(name):
            raise UsageError(f"{name} is already the name of a model: choose another name")
        if remove and name not in registry.aliases:
            raise UsageError(f"there is no alias {name[:80]!r}: `localspec alias` lists them")
        meant = None if model is None else registry.name(require_model(model))
        if not write_keys(config_dir() / USER_FILE, {name: meant}, "aliases") and remove:
            raise UsageError(f"{name} is one of localspec's own aliases and cannot be removed")
        return
    for each, meant in registry.aliases.items():
        if name in {None, each}:
            click.echo(f"{each} = {meant}")
