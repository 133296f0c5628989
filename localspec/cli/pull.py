"""`localspec pull`: fetch a pair or a model."""

import click

from localspec.cli.interrupt import unwind_on_terminate
from localspec.cli.progress import ProgressLine
from localspec.models.pull import pull as pull_by_name


@click.command()
@click.argument("name")
@click.option("--quiet", is_flag=True, help="Show no progress.")
@click.option("--debug", is_flag=True, help="Show a traceback when something fails.")
def pull(name: str, quiet: bool, debug: bool) -> None:  # noqa: ARG001 - main() looks for --debug
    """Fetch NAME, a pair or a model, verify it, and print where its files are.

    What is here already is not fetched again.
    """
    with ProgressLine(enabled=not quiet) as line, unwind_on_terminate():
        paths = pull_by_name(name, line.download)
    for path in paths:
        click.echo(path)
