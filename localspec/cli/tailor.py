"""`localspec tailor`: a draft model for this machine. Figures on stdout, progress on stderr."""

from typing import Any

import click

from localspec.cli.completions import complete_models
from localspec.cli.option_flags import launch_options, option_flags
from localspec.cli.settings import configured
from localspec.errors import UsageError


@click.command()
@click.argument("pair", required=False, shell_complete=complete_models)
@click.option("--try", "try_", is_flag=True, help="Make candidates even if none is likely to pay.")
@click.option(
    "--search",
    is_flag=True,
    help="Also search for layers that the target can do without; takes minutes.",
)
@click.option("--undo", is_flag=True, help="Remove the draft model that was made for the pair.")
@click.option(
    "--prompts",
    metavar="FILE",
    help="File of JSON lines with workload and prompt. Default: bundled prompts.",
)
@click.option(
    "--per-workload", type=int, default=2, metavar="N", help="Prompts of each kind. Default: 2."
)
@option_flags("draft_lora", "device", draft_lora="Try the draft model with this adapter, too.")
@click.option("--json", "json_", is_flag=True, help="Print one JSON object.")
@click.option("-q", "--quiet", is_flag=True, help="Print only errors on stderr.")
def tailor(**flags: Any) -> int:
    """Make a draft model that pays on this machine, for PAIR or the default pair.

    Prints first what drafting could earn here. If something could pay, the draft model that is on the disk and the
    target are made smaller, by fewer bits or fewer layers, and measured on the target's own answers. The best one becomes
    the pair's draft model, if it earns more than the one it replaces. It drafts for the same target, so answers stay the
    same.
    """
    if flags["undo"]:
        return _undo(flags["pair"])
    if flags["per_workload"] < 1:
        raise UsageError(f"per_workload is {flags['per_workload']}: it must be 1 or more")
    # It loads llama.cpp, which --help does without.
    from localspec.cli.tailoring import tailored  # noqa: PLC0415

    # What drafts is what is looked for, whatever is set elsewhere.
    request = launch_options({**configured(flags), "draft": "off", "draft_length": None})
    return tailored(request, flags)


def _undo(pair: str | None) -> int:
    from localspec.storage.files import size_text  # noqa: PLC0415
    from localspec.tailor.job import undo  # noqa: PLC0415

    made, freed = undo(pair)
    own = made.replaces or "no draft model"
    click.echo(f"removed {made.name} ({size_text(freed)}): {made.pair} has {own} again")
    return 0
