"""`localspec pull`: fetch pairs and models."""

import click

from localspec.cli.interrupt import unwind_on_terminate
from localspec.cli.progress import ProgressLine
from localspec.cli.settings import configured
from localspec.models.pull import pull as pull_by_name


@click.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option("--offline", is_flag=True, help="Use no network: only what is on this machine.")
@click.option("--quiet", is_flag=True, help="Show no progress.")
@click.option("--debug", is_flag=True, help="Show a traceback when something fails.")
def pull(names: tuple[str, ...], offline: bool, quiet: bool, debug: bool) -> None:  # noqa: ARG001 - main() looks for --debug
    """Fetch each NAME, verify it, and print where its files are.

    A NAME is a pair, a model, or a file on the Hugging Face hub: user/repo:QUANT.

    What is here already is not fetched again, and a download that was cut goes on where it
    stopped.
    """
    offline = configured({"offline": offline})["offline"]
    with ProgressLine(enabled=not quiet) as line, unwind_on_terminate():
        paths = pull_by_name(*names, progress=line.download, offline=offline)
    for path in paths:
        click.echo(path)
