"""`localspec tailor`: makes a draft model for this machine. Figures on stdout, progress on stderr."""

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import click

from localspec import api
from localspec.cli import INTERRUPTED
from localspec.cli.interrupt import cancel_on_interrupt, unwind_on_terminate
from localspec.decoding.cancel import CancelFlag, Cancelled
from localspec.display import duration_text, table
from localspec.plugins.bench.prompts import bundled, per_workload, read
from localspec.plugins.tailor.tailor import (
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


@dataclass(frozen=True, slots=True)
class TailorFlags:
    """Flags of `tailor` alone.

    Args:
        undo: Remove the draft model that `tailor` made for TARGET.
        prompts: File of JSON lines with workload and prompt. Default: bundled prompts.
        per_workload: Prompts of each kind. Default: 2.
        json_: Print one JSON object.
        quiet: Print only errors on stderr.
    """

    undo: bool = api.switch()
    prompts: str | None = api.flag("FILE")
    per_workload: int = api.flag("N", default=2, type=int)
    json_: bool = api.switch()
    quiet: bool = api.switch("-q", "--quiet")


@click.command(cls=api.SectionedCommand)
@click.argument("name", metavar="[TARGET]", required=False, shell_complete=api.complete_models)
@api.flags(tailoring=TailorFlags)
@api.option_flags("device")
@api.with_settings
def tailor(name: str | None, settings: api.Settings, tailoring: TailorFlags) -> int:
    """Make a faster draft model for TARGET, or for your default model.

    Makes smaller draft models from the files on this machine, in Q4_0 or from the target's first
    layers, and measures how much each would speed up the target's own answers. The best one
    replaces the present draft model if it is faster. Answers stay the same.
    """
    if tailoring.per_workload < 1:
        raise api.UsageError(f"per_workload is {tailoring.per_workload}: it must be 1 or more")
    # Drafting is compared with plain decoding, whatever is set.
    launch = api.changed(settings.launch, {"draft": "off", "draft_length": None, "mmproj": "off"})
    name = name or launch.pair or launch.target
    if name is None:
        raise api.UsageError("no model is given or set: choose one that `localspec list` shows")
    if tailoring.undo:
        made, pair, freed = undo(name)
        own = pair.replaces or "no draft model"
        click.echo(f"removed {made.name} ({api.size_text(freed)}): {pair.pair} uses {own} again")
        return 0

    def report(text: str) -> None:
        if not tailoring.json_:
            click.echo(text)

    def refuse(candidate: Candidate, error: api.LocalspecError) -> None:
        refused.append(f"not tried: {candidate.label}: {error}")
        report(refused[-1])

    prompts = bundled() if tailoring.prompts is None else read(Path(tailoring.prompts))
    prompts = per_workload(prompts, tailoring.per_workload)
    job, cancel, refused = tailoring_job(name, launch), CancelFlag(), list[str]()
    every = candidates(job)
    try:
        with (
            unwind_on_terminate(),
            work_folder() as folder,
            api.ProgressLine(enabled=not tailoring.quiet) as line,
            cancel_on_interrupt(cancel),
            closing(Tailor(job, cancel, line.load, line.measure)) as at_work,
        ):
            begun_s = time.monotonic()
            sizes = sorted(each.size_bytes for each in every if each.recipe)
            report(
                f"{job.pair.name}: {len(every)} draft models to try on {len(prompts)} answers; about"
                f" {duration_text(at_work.expected_s(prompts, every))}, and up to"
                f" {api.size_text(sum(sizes[-2:]))} of disk"
            )
            answers = at_work.record(prompts)
            tried = at_work.measure_all(every, answers, folder, refuse)
            report(_table(tried))
            entry, result = _judge(job, tried, sure=at_work.costs.sure)
    except Cancelled:
        return INTERRUPTED
    took_s = time.monotonic() - begun_s
    report(f"{result} ({duration_text(took_s)})")
    if tailoring.json_:
        document: dict[str, object] = {"pair": job.pair.name, "kept": entry, "result": result}
        document |= {"tried": [_document(each) for each in tried], "not_tried": refused}
        api.print_json({**document, "seconds": round(took_s, 1)}, indent=None)
    return 0


def _judge(job: TailoringJob, tried: Sequence[Tried], *, sure: bool) -> tuple[str | None, str]:
    """Keep the best candidate if it pays; return its name, None if nothing is kept, and the result in a line.

    Args:
        job: the pair.
        tried: candidates.
        sure: whether costs of passes were measured while the machine was quiet.
    """
    pair, best = job.pair.name, best_of(tried)
    if best is None:
        return None, (
            f"nothing is kept: no candidate is both 1 % faster overall than the present draft model of {pair}"
            " and 10 % faster than plain decoding on some kind of text"
        )
    if not (sure and best.sure):
        return None, (
            f"nothing is kept: {best.candidate.label} may be faster, but other programs were busy during the"
            " measurement: run this again when the machine is idle"
        )
    result = _gain(best, tried)
    made = keep(job, best, result)
    return made.name, (
        f"{pair} now drafts with {made.name}: {result}; `localspec tailor --undo {pair}` removes it"
    )


def _table(tried: Sequence[Tried]) -> str:
    rows = [["DRAFT MODEL", "SIZE", "AGREES", "STEP", "SPEED", "FASTER ON"]]
    rows += [
        [
            each.candidate.label,
            api.size_text(each.size_bytes),
            f"{each.agrees:.1%}",
            f"{each.step:.2f}",
            f"{each.speed:.2f}",
            ", ".join(each.pays_on) or "-",
        ]
        for each in tried
    ]
    return "\n".join(table(rows))


def _document(each: Tried) -> dict[str, object]:
    return {
        "source": each.candidate.name,
        "recipe": each.candidate.recipe,
        "size_bytes": each.size_bytes,
        "agrees": each.agrees,
        "step": each.step,
        "speed_up": each.speed,
        "speed_up_by_workload": dict(each.by_kind),
    }


def _gain(best: Tried, tried: Sequence[Tried]) -> str:
    """Return what a candidate gained, in a line that is kept with it."""
    own = next((each for each in tried if not each.candidate.recipe), None)
    before = f", {own.agrees:.1%} and {own.step:.2f} before" if own else ""
    return (
        f"it proposed {best.agrees:.1%} of the target's tokens at {best.step:.2f} steps a token{before};"
        f" {best.speed:.2f} times plain speed overall, most on {', '.join(best.pays_on)}"
    )
