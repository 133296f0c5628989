"""`localspec config`: shows settings and their origins, and changes them."""

import json

import click

from localspec.cli.options import complete_keys, json_option, require_model
from localspec.cli.progress import print_json
from localspec.config.files import read_settings, user_file
from localspec.config.keys import KEYS, as_written
from localspec.config.own import MODEL, adopt_switches, keep_model, overruled, set_own, unset_own
from localspec.config.resolve import resolve, with_recommended
from localspec.display import notice
from localspec.models.registry import load_registry
from localspec.storage.files import private_directory
from localspec.storage.paths import shown


@click.group(invoke_without_command=True)
@click.pass_context
def config(context: click.Context) -> None:
    """Show and change settings.

    \b
        localspec config set model qwen3-4b      make this your default model
        localspec config set temperature 0.3
        localspec config unset temperature

    Command-line options override environment variables LOCALSPEC_*, and these override your
    settings file, which `set`, `unset` and `edit` change.
    """  # noqa: D301 - click keeps lines behind a \b
    adopt_switches()
    if context.invoked_subcommand is None:
        context.invoke(show)


@config.command()
@json_option
def show(json_: bool) -> None:
    """Print every setting, its value and its origin."""
    registry = load_registry()
    resolved = with_recommended(resolve({}), registry)
    if json_:
        document = {
            name: {
                "value": as_written(KEYS[name], each.value),
                "level": each.origin.level.name.lower(),
                "origin": str(each.origin),
            }
            for name, each in resolved.items()
        }
        print_json(document, indent=None)
        return
    chosen = resolved["pair"].value or resolved["target"].value
    for name, each in resolved.items():
        value, origin = as_written(KEYS[name], each.value), str(each.origin)
        if name == "pair" and not chosen:
            value, origin = registry.default_pair, "default, until you choose a model"
        text = "-" if value is None else json.dumps(value, ensure_ascii=False)
        click.echo(f"{name:19} {text:24} {origin}")


@config.command("set", context_settings={"ignore_unknown_options": True})
@click.argument("name", shell_complete=complete_keys)
@click.argument("value")
def set_(name: str, value: str) -> None:
    """Set NAME to VALUE in your settings file.

    NAME is one that `localspec config show` lists, or `model`, your default model.
    """
    if name == MODEL:
        overruled_by = keep_model(load_registry().chosen(require_model(value)))
        click.echo(f"{value} is now your default model, in {shown(user_file())}", err=True)
    else:
        given = set_own(name, value)
        written = json.dumps(as_written(KEYS[name], given), ensure_ascii=False)
        click.echo(f"{name} is {written} in {shown(user_file())}", err=True)
        overruled_by = overruled(name)
    if overruled_by:
        notice(overruled_by)


@config.command()
@click.argument("name", shell_complete=complete_keys)
def unset(name: str) -> None:
    """Remove NAME from your settings file, which restores the default."""
    if not unset_own(name):
        click.echo(f"{name} was not set in {shown(user_file())}", err=True)


@config.command()
def edit() -> None:
    """Open your settings file in $VISUAL or $EDITOR, then check it."""
    file = user_file()
    private_directory(file.parent)
    click.edit(filename=str(file))
    read_settings(file)


@config.command()
def path() -> None:
    """Print the path of your settings file."""
    click.echo(shown(user_file()))
