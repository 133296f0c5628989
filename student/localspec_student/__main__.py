"""`localspec-student`: the command line. Figures on stdout, progress on stderr."""

import hashlib
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

import click

from localspec.bench.prompts import BenchPrompt, read
from localspec.cli import INTERRUPTED
from localspec.cli.interrupt import cancel_on_interrupt, unwind_on_terminate
from localspec.cli.main import main as run
from localspec.cli.options import (
    SectionedCommand,
    Settings,
    flag,
    flags,
    option_flags,
    several,
    switch,
    with_settings,
)
from localspec.cli.progress import ProgressLine, print_table
from localspec.decoding.cancel import CancelFlag, Cancelled
from localspec.errors import UsageError
from localspec.history.archive import History
from localspec.options import changed
from localspec.resources import default_threads
from localspec.storage.files import size_text
from localspec.storage.paths import data_dir, read_named
from localspec.tailor.tailor import tailoring_job
from localspec_student.prompts import edit_prompt
from localspec_student.recipe import Recipe

_LEAST_QUESTIONS, _MOST_QUESTIONS = 20, 5000
_PIECE, _MOST_BYTES = 1500, 16 << 20
_HELD_SHARE = 10
"""Of the user's own prompts, one in so many is held out."""
_NOTICE_S = 30.0


@dataclass(frozen=True, slots=True)
class MakeFlags:
    """Flags of `make` alone.

    Args:
        again: Train on from the head that there is, with --tokens more.
        trial: Print figures only; the head in use stays.
        history: Also train on your own questions of saved conversations.
        prompts: Also train on prompts of this file: JSON lines with workload and prompt.
        file: Also train on edits of this file; repeat for more.
        held: Bundled prompts of each kind to measure with. Default: 10.
    """

    again: bool = switch()
    trial: bool = switch()
    history: bool = switch()
    prompts: str | None = flag("FILE")
    file: tuple[str, ...] = several(metavar="FILE")
    held: int = flag("N", default=10, type=click.IntRange(1))


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="localspec-student")
def student() -> None:
    """Train a drafting head for one of your models, on this machine.

    The model itself is the teacher: its answers, and what its layers compute, never leave the machine.
    """


@student.command(cls=SectionedCommand)
@click.argument("name", metavar="MODEL")
@flags(make=MakeFlags, recipe=Recipe)
@option_flags("device")
@with_settings
def make(name: str, settings: Settings, make: MakeFlags, recipe: Recipe) -> int:
    """Make a head that drafts for MODEL, and let MODEL use it.

    MODEL answers prompts of six kinds, many at once; a small head learns what it says next, and is measured on prompts that it
    never saw. It replaces the head before it if it is better. Answers stay the same.
    """
    for package in ("torch", "gguf"):
        if find_spec(package) is None:
            raise UsageError(
                f"training needs the package {package}, which is not installed: run `pip install {package}` where localspec is"
            )
    launch = changed(settings.launch, {"draft": "off", "draft_length": None})
    job = tailoring_job(name, launch)
    # Help and `forget` do not wait for torch.
    from localspec_student import make as making  # noqa: PLC0415
    from localspec_student.train import mean  # noqa: PLC0415

    wish = making.Wish(job, recipe, _own(make), make.held, make.again, make.trial)
    making.threads(launch.load.threads or default_threads())
    cancel = CancelFlag()
    try:
        with (
            unwind_on_terminate(),
            ProgressLine(enabled=True, notice_s=_NOTICE_S) as line,
            cancel_on_interrupt(cancel),
        ):
            outcome = making.make(wish, cancel, click.echo, line.report)
    except Cancelled:
        return INTERRUPTED
    print_table(making.rows(outcome, range(1, 6)))
    after, before = mean(outcome.figures), mean(outcome.before)
    text = f"{after:.2f} tokens a round in the mean of kinds, trained on {outcome.tokens:,} tokens"
    if outcome.name is not None:
        text += f"; {job.pair.name} now drafts with {outcome.name} (`localspec rm {outcome.name}` removes it)"
    elif not make.trial:
        text += f"; the head before has {before:.2f}, and stays"
    click.echo(text)
    return 0


@student.command()
@click.argument("name", metavar="[MODEL]", required=False)
def forget(name: str | None) -> int:
    """Delete what was collected and trained, of MODEL or of all. A head in use stays: `localspec rm` removes it."""
    from localspec_student.folders import forget as remove  # noqa: PLC0415

    click.echo(f"deleted {size_text(remove(name))}")
    return 0


def _own(make: MakeFlags) -> Mapping[str, BenchPrompt]:
    """Return the user's own prompts by their keys, one in ten of them held out."""
    prompts = [] if make.prompts is None else read(Path(make.prompts))
    if make.history:
        with closing(History(data_dir() / "history")) as history:
            questions = history.questions(_MOST_QUESTIONS)
        if len(questions) < _LEAST_QUESTIONS:
            raise UsageError(
                f"history has {len(questions)} questions, and {_LEAST_QUESTIONS} are the least to learn from: leave out --history"
            )
        prompts += [BenchPrompt("history", each) for each in questions if each.strip()]
    for number, piece in enumerate(_pieces(make.file)):
        prompts.append(edit_prompt(number, piece))
    own = {}
    for each in prompts:
        digest = hashlib.sha256(each.prompt.encode()).hexdigest()[:16]
        own[f"{'held:' * (int(digest, 16) % _HELD_SHARE == 0)}own:{digest}"] = each
    return own


def _pieces(files: Sequence[str]) -> list[str]:
    """Return the texts of files, in pieces that end with a line."""
    pieces = list[str]()
    for file in files:
        piece = ""
        for line in read_named(Path(file), _MOST_BYTES, "give a smaller file").splitlines(True):
            if piece and len(piece) + len(line) > _PIECE:
                pieces.append(piece)
                piece = ""
            piece += line[:_PIECE]
        pieces += [piece] if piece.strip() else []
    return pieces


def main() -> NoReturn:
    """Run the command line and exit with its code."""
    sys.exit(run(student))


if __name__ == "__main__":
    main()
