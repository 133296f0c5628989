"""`localspec export-proposals`: drafts and verdicts as JSON lines, to train a better draft model on."""

import json
import sys

import click

from localspec.decoding.drafters.register import DRAFTERS
from localspec.decoding.round import OFF
from localspec.display import notice
from localspec.errors import LocalspecError
from localspec.storage.paths import data_dir


@click.command()
@click.option("--since", metavar="WHEN", help="Only since this time: 2026-11-20, 12h, 7d, 4w.")
@click.option(
    "--drafter",
    "drafters",
    multiple=True,
    type=click.Choice([*DRAFTERS, OFF]),
    help="Only rounds of this drafter; can be repeated. Default: every drafter.",
)
@click.option(
    "--context",
    "most_context",
    type=click.IntRange(1),
    metavar="N",
    help="Cut each context to its last N tokens. Default: not cut.",
)
def export_proposals(
    since: str | None,
    drafters: tuple[str, ...],
    most_context: int | None,
) -> None:
    """Print recorded drafts and whether they were accepted, as JSON lines, to train a better draft model.

    Each line is a round: the context, the draft, how many of its tokens were accepted, and the
    target's own next token, both as ids of the target's vocabulary and as text. Only replies
    recorded with text are included; turn that on with `localspec telemetry text on`.
    """
    from localspec.telemetry.moments import since as moment  # noqa: PLC0415 - `--help` needs none of it
    from localspec.telemetry.text import proposals  # noqa: PLC0415

    count, since_s = 0, 0.0 if since is None else moment(since)
    for proposal in proposals(data_dir() / "telemetry", since_s, drafters, most_context or 0):
        sys.stdout.write(json.dumps(proposal) + "\n")
        count += 1
    if count == 0:
        raise LocalspecError(
            "no matching round was recorded with text: `localspec telemetry text on` records text from now on"
        )
    notice(f"{count} proposals")
