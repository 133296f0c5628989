"""`localspec config`: what is set, and by whom."""

import json
from pathlib import Path

import click

from localspec.config.files import project_file, user_file
from localspec.config.keys import KEYS, as_written
from localspec.config.resolve import resolve, with_recommended
from localspec.storage.paths import shown


@click.group()
def config() -> None:
    """Show settings and where they come from.

    Flags come before variables LOCALSPEC_*, those before the project's localspec.toml, and that
    before the user's own file.
    """


@config.command()
@click.option("--json", "json_", is_flag=True, help="Print one JSON object.")
@click.option("--debug", is_flag=True, help="Show a traceback when something fails.")
def show(json_: bool, debug: bool) -> None:  # noqa: ARG001 - main() looks for --debug
    """Print every setting, its value, and who set it."""
    # Help does without it.
    from localspec.models.registry import load_registry  # noqa: PLC0415

    found = with_recommended(resolve({}), load_registry())
    if json_:
        document = {
            name: {
                "value": as_written(KEYS[name], each.value),
                "level": each.origin.level.name.lower(),
                "origin": str(each.origin),
            }
            for name, each in found.items()
        }
        click.echo(json.dumps(document))
        return
    for name, each in found.items():
        value = as_written(KEYS[name], each.value)
        text = "-" if value is None else json.dumps(value, ensure_ascii=False)
        click.echo(f"{name:15} {text:24} {each.origin}")


@config.command()
@click.option("--debug", is_flag=True, help="Show a traceback when something fails.")
def path(debug: bool) -> None:  # noqa: ARG001 - main() looks for --debug
    """Print which files are read: the user's own, there or not, and the project's, if any."""
    click.echo(shown(user_file()))
    project = project_file(Path.cwd(), Path.home())
    if project is not None:
        click.echo(shown(project))
