"""`localspec-student`: the command line. Figures on stdout, progress on stderr."""

import shutil
import sys
from contextlib import suppress
from importlib.util import find_spec

import click

from localspec.cli import INTERRUPTED
from localspec.cli.interrupt import cancel_on_interrupt
from localspec.cli.main import main as run
from localspec.cli.options import SectionedCommand, Settings, flags, option_flags, with_settings
from localspec.cli.progress import ProgressLine
from localspec.decoding.cancel import CancelFlag, Cancelled
from localspec.errors import ModelUnavailable, UsageError
from localspec.models.registry import load_registry
from localspec.options import changed
from localspec.plugins.tailor.lessons import own_lessons
from localspec.plugins.tailor.tailor import pair_of, tailoring_job
from localspec.storage.files import size_text
from localspec.storage.locks import exclusive
from localspec.storage.paths import data_dir
from localspec_student.recipe import MakeFlags, Recipe


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
def student() -> None:
    """Train a drafting head for one of your models, on this machine.

    The model itself is the teacher: its answers, and what its layers compute, never leave the machine.
    """


@student.command(cls=SectionedCommand)
@click.argument("name", metavar="MODEL")
@flags(wanted=MakeFlags, recipe=Recipe)
@option_flags("device")
@with_settings
def make(name: str, settings: Settings, wanted: MakeFlags, recipe: Recipe) -> int:
    """Make a head that drafts for MODEL, and let MODEL use it.

    MODEL answers prompts of six kinds, many at once; a small head learns what it says next, and is measured on prompts that it
    never saw. It replaces the head before it if it is better. Answers stay the same.
    """
    if missing := " ".join(each for each in ("torch", "gguf") if find_spec(each) is None):
        raise UsageError(f"training needs {missing}: `pip install {missing}` beside localspec")
    from localspec_student.make import Making  # noqa: PLC0415

    launch = changed(settings.launch, {"draft": "off", "draft_length": None, "ctx": 1024})
    job, cancel = tailoring_job(name, launch), CancelFlag()
    replies_of = job.pair.target if wanted.again else None
    own = own_lessons(wanted.prompts, history=wanted.history, replies_of=replies_of)
    registry = load_registry(tailored=False)
    if heads := registry.published_heads(registry.find(job.pair.target)):
        click.echo(f"{name} has published heads, the better choice: {', '.join(heads)}", err=True)
    try:
        with ProgressLine(enabled=True, notice_s=30) as line, cancel_on_interrupt(cancel):
            Making(job, recipe, wanted, own, cancel, line.report).make()
    except Cancelled:
        return INTERRUPTED
    return 0


@student.command()
@click.argument("name", metavar="[MODEL]", required=False)
def forget(name: str | None) -> None:
    """Delete what was collected and trained, for MODEL or for all. A head in use stays: `localspec rm` removes it."""
    with suppress(ModelUnavailable):  # what was made of a model stays when its pair goes
        name = name and pair_of(name, load_registry(tailored=False)).name
    every = [each for each in (data_dir() / "student").glob("*@*") if each.is_dir()]
    folders = [each for each in every if name in {None, each.name.partition("@")[0]}]
    if name is not None and not folders:
        raise UsageError(f"nothing was collected for {name}: check the name")
    freed = 0
    for each in folders:
        with exclusive(each, f"another `localspec-student` works in {each.name}: wait for it"):
            freed += sum(file.stat().st_size for file in each.iterdir())
            shutil.rmtree(each)
    click.echo(f"deleted {size_text(freed)}, folders: {len(folders)}")


def main() -> int:
    """Run the command line; return its code."""
    return run(student)


if __name__ == "__main__":
    sys.exit(main())
