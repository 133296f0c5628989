"""`localspec tailor`: a draft model for this machine. Figures on stdout, progress on stderr."""

import json
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import click

from localspec.bench.prompts import bundled, per_workload, read
from localspec.cli import INTERRUPTED
from localspec.cli.interrupt import cancel_on_interrupt, unwind_on_terminate
from localspec.cli.options import (
    SectionedCommand,
    complete_models,
    configured,
    launch_options,
    option_flags,
)
from localspec.cli.output import ProgressLine
from localspec.decoding.cancel import CancelFlag, Cancelled
from localspec.display import duration_text, table
from localspec.errors import LocalspecError, UsageError
from localspec.options import LaunchOptions
from localspec.storage.files import size_text
from localspec.tailor.tailor import (
    Candidate,
    Tailor,
    TailoringJob,
    Tried,
    best_of,
    candidates,
    keep,
    tailoring_job,
    undo,
    work_folder,
)


@click.command(cls=SectionedCommand)
@click.argument("target", required=False, shell_complete=complete_models)
@click.option("--undo", is_flag=True, help="Remove the draft model that was made for TARGET.")
@click.option(
    "--prompts",
    metavar="FILE",
    help="File of JSON lines with workload and prompt. Default: bundled prompts.",
)
@click.option(
    "--per-workload", type=int, default=2, metavar="N", help="Prompts of each kind. Default: 2."
)
@option_flags("device")
@click.option("--json", "json_", is_flag=True, help="Print one JSON object.")
@click.option("-q", "--quiet", is_flag=True, help="Print only errors on stderr.")
def tailor(**flags: Any) -> int:
    """Make a draft model that pays on this machine, for TARGET or the model that is set.

    Makes smaller draft models out of the files on the disk, in Q4_0 or of the target's first layers, and measures how much
    each would speed up the target's own answers. The best one replaces the present draft model if it pays. Answers stay the
    same.
    """
    if flags["per_workload"] < 1:
        raise UsageError(f"per_workload is {flags['per_workload']}: it must be 1 or more")
    name = flags.pop("target")
    # Drafting is what is looked for, whatever is set elsewhere.
    request = launch_options({**configured(flags), "draft": "off", "draft_length": None})
    name = name or request.pair or request.target
    if name is None:
        raise UsageError(
            "no model is named or set: name one, `localspec list` shows those that are here"
        )
    return _undo(name) if flags["undo"] else _tailor(name, request, flags)


def _tailor(name: str, request: "LaunchOptions", flags: dict[str, Any]) -> int:
    def report(text: str) -> None:
        if not flags["json_"]:
            click.echo(text)

    def refuse(candidate: "Candidate", error: LocalspecError) -> None:
        refused.append(f"not tried: {candidate.label}: {error}")
        report(refused[-1])

    prompts = bundled() if flags["prompts"] is None else read(Path(flags["prompts"]))
    prompts = per_workload(prompts, flags["per_workload"])
    job, cancel, refused = tailoring_job(name, request), CancelFlag(), list[str]()
    every = candidates(job)
    try:
        with (
            unwind_on_terminate(),
            work_folder() as folder,
            ProgressLine(enabled=not flags["quiet"]) as line,
            cancel_on_interrupt(cancel),
            closing(Tailor(job, cancel, line.load, line.measure)) as at_work,
        ):
            started = time.monotonic()
            sizes = sorted(each.size_bytes for each in every if each.recipe)
            report(
                f"{job.pair.name}: {len(every)} draft models to try on {len(prompts)} answers; about"
                f" {duration_text(at_work.expected_s(prompts, every))}, and up to"
                f" {size_text(sum(sizes[-2:]))} of disk"
            )
            answers = at_work.record(prompts)
            tried = at_work.measure_all(every, answers, folder, refuse)
            report(_table(tried))
            entry, result = _judge(job, tried, sure=at_work.costs.sure)
    except Cancelled:
        return INTERRUPTED
    took = time.monotonic() - started
    report(f"{result} ({duration_text(took)})")
    if flags["json_"]:
        document: dict[str, object] = {"pair": job.pair.name, "kept": entry, "result": result}
        document |= {"tried": [_document(each) for each in tried], "not_tried": refused}
        click.echo(json.dumps({**document, "seconds": round(took, 1)}))
    return 0


def _judge(job: "TailoringJob", tried: "Sequence[Tried]", *, sure: bool) -> tuple[str | None, str]:
    """Keep the best candidate if it pays; return its name, None if nothing is kept, and the result in a line.

    Args:
        job: the pair.
        tried: candidates.
        sure: whether costs of passes were measured while the machine was quiet.
    """
    pair, best = job.pair.name, best_of(tried)
    if best is None:
        return None, (
            f"nothing is kept: no candidate is both 1 % faster over all than what {pair} has"
            " and a tenth faster than plain decoding on some kind of text"
        )
    if not (sure and best.sure):
        return None, (
            f"nothing is kept: {best.candidate.label} may pay, but other programs were busy while passes"
            " were measured: run this again when the machine is quiet"
        )
    result = _found(best, tried)
    made = keep(job, best, result)
    return made.name, (
        f"{pair} drafts with {made.name} from now on: {result}; `localspec tailor --undo {pair}` removes it"
    )


def _table(tried: "Sequence[Tried]") -> str:

    rows = [["DRAFT MODEL", "SIZE", "AGREES", "STEP", "SPEED", "PAYS ON"]]
    rows += [
        [
            each.candidate.label,
            size_text(each.size_bytes),
            f"{each.agrees:.1%}",
            f"{each.step:.2f}",
            f"{each.speed:.2f}",
            ", ".join(each.pays_on) or "-",
        ]
        for each in tried
    ]
    return "\n".join(table(rows))


def _document(each: "Tried") -> dict[str, object]:
    return {
        "source": each.candidate.name,
        "recipe": each.candidate.recipe,
        "size_bytes": each.size_bytes,
        "agrees": each.agrees,
        "step": each.step,
        "speed_up": each.speed,
        "speed_up_by_workload": dict(each.by_kind),
    }


def _found(best: "Tried", tried: "Sequence[Tried]") -> str:
    """Return what a candidate gained, in a line that is kept with it."""
    own = next((each for each in tried if not each.candidate.recipe), None)
    before = f", {own.agrees:.1%} and {own.step:.2f} before" if own else ""
    return (
        f"it proposed {best.agrees:.1%} of the target's tokens at {best.step:.2f} steps a token{before};"
        f" {best.speed:.2f} times plain speed over all, most on {', '.join(best.pays_on)}"
    )


def _undo(name: str) -> int:
    made, pair, freed = undo(name)
    own = pair.replaces or "no draft model"
    click.echo(f"removed {made.name} ({size_text(freed)}): {pair.pair} has {own} again")
    return 0
