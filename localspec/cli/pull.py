"""`localspec pull`: fetch pairs and models."""

import click

from localspec.cli.completions import complete_models
from localspec.cli.interrupt import unwind_on_terminate
from localspec.cli.option_flags import option_flags
from localspec.cli.progress import ProgressLine
from localspec.cli.settings import configured
from localspec.display import notice
from localspec.models.pull import Wanted, fetch, models_of_all, wanted
from localspec.options import LaunchOptions, changed


@click.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True, shell_complete=complete_models)
@option_flags("offline", offline="Do not use the network, only what is on this machine.")
@click.option(
    "--with-draft",
    is_flag=True,
    help="Also download draft models that would not pay off on this machine.",
)
@click.option(
    "--yes", is_flag=True, help="Do not ask for confirmation, however large the download is."
)
@click.option(
    "-q", "--quiet", is_flag=True, help="Show no progress and no forecast, and do not ask."
)
def pull(
    names: tuple[str, ...],
    offline: bool,
    with_draft: bool,
    yes: bool,
    quiet: bool,
) -> None:
    """Download each NAME, verify it, and print where its files are.

    A NAME is a model or a pair that `localspec search` lists, or user/repo:QUANT on the Hugging
    Face hub. A pair's draft model comes along if it can make answers faster on this machine.

    Files that you already have are not downloaded again, and an interrupted download resumes.
    Before a large download, the file's header shows whether the model will fit free memory. On a
    terminal, `pull` asks before it downloads more than 4 GB, more than half of the free disk, or
    something that will not run.
    """
    flags = configured({"offline": offline})
    with unwind_on_terminate():
        found = wanted(names, offline=flags["offline"])
        if not with_draft:
            found = [_without_idle(each, quiet=quiet) for each in found]
        preview = None
        if not quiet:
            from localspec.cli.pull_preview import Preview  # noqa: PLC0415 - loads llama.cpp

            preview = Preview(found, changed(LaunchOptions(), flags), offline=flags["offline"])
            preview.before(ask=not yes)
        with ProgressLine(enabled=not quiet) as line:
            paths = fetch(models_of_all(found), offline=flags["offline"], progress=line.download)
        if preview is not None:
            preview.after()
    for path in paths:
        click.echo(path)


def _without_idle(found: Wanted, *, quiet: bool) -> Wanted:
    """Return what is wanted without a draft model that could not pay here, and tell of it."""
    from localspec.launch.worth import why_idle  # noqa: PLC0415 - loads llama.cpp

    if found.draft_model is None:
        return found
    why = why_idle(found.name, found.target, found.draft_model)
    if why is None:
        return found
    if not quiet:
        notice(why)
    return Wanted(found.name, found.target)
