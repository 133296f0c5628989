"""`localspec index`: files of yours, made into passages that a search by words returns."""

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import click

from localspec.cli.options import (
    Settings,
    complete_indexes,
    complete_models,
    json_option,
    with_settings,
)
from localspec.cli.progress import ProgressLine, fields, print_json
from localspec.cli.prompt import report_missing_vectors
from localspec.display import notice, printable, printable_line
from localspec.errors import UsageError
from localspec.retrieval.embedding import embed, vector_model
from localspec.retrieval.index import (
    Index,
    VectorModel,
    index_names,
    name_for,
    open_index,
    remove_index,
)
from localspec.retrieval.reading import place
from localspec.retrieval.search import search as search_index
from localspec.retrieval.update import Changes
from localspec.retrieval.update import add as add_files
from localspec.retrieval.update import update as update_files
from localspec.storage.files import size_text
from localspec.storage.paths import brief

_EVERY_S, _MOST_S, _REST = 5.0, 86_400.0, 20
"""Between two looks of `watch`, usually and at most; and how many times longer than a look it rests, so that it takes a twentieth of a core at most."""
_MOST_UNREAD = 5
_MOST_CHARS = 300
_OFF = "off"
_NAME = click.option(
    "-n",
    "--name",
    metavar="NAME",
    shell_complete=complete_indexes,
    help="Name of the index. Default: that of the folder, or the only one there is.",
)


@click.group(invoke_without_command=True)
@click.pass_context
def index(context: click.Context) -> None:
    """Index files of yours, to find passages in them and to ask about them.

    Text, Markdown and code; HTML, DOCX and PDF with the extra `documents`. Nothing leaves this machine.
    """
    if context.invoked_subcommand is None:
        context.invoke(status)


@index.command()
@click.argument(
    "paths",
    nargs=-1,
    required=True,
    metavar="FOLDERS|FILES...",
    type=click.Path(exists=True, path_type=Path),
)
@_NAME
@click.option(
    "--vectors",
    metavar="MODEL|off",
    shell_complete=complete_models,
    help="Find passages by what they mean, too: by vectors that MODEL makes, such as bge-small-en-v1.5. Slow to make.",
)
@with_settings
def add(paths: tuple[Path, ...], name: str | None, settings: Settings) -> None:
    """Add FOLDERS and FILES to an index, and bring all of it up to date.

    Hidden files, links, what .gitignore names and what is no text is left out of folders.
    """
    first = paths[0].resolve()
    name = name or name_for(first if first.is_dir() else first.parent)
    chosen = None
    if "vectors" in settings.given or name not in index_names():
        chosen = (_chosen_vectors(settings),)
    with closing(open_index(name, make=True)) as opened:
        if chosen:
            opened.choose_vector_model(chosen[0])
        _bring_up_to_date(name, opened, lambda report: add_files(opened, paths, report))


@index.command()
@click.argument("name", required=False, shell_complete=complete_indexes)
def update(name: str | None) -> None:
    """Bring index NAME, or the only one, up to date with its files."""
    with _opened(name) as (its_name, opened):
        _bring_up_to_date(its_name, opened, lambda report: update_files(opened, report))


@index.command()
@click.argument("name", required=False, shell_complete=complete_indexes)
@click.option(
    "--every",
    default=_EVERY_S,
    type=click.FloatRange(1, _MOST_S),
    metavar="SECONDS",
    help=f"How often to look. Default: {_EVERY_S:g}; less often where a look takes long.",
)
def watch(name: str | None, every: float) -> None:
    """Keep index NAME, or the only one, up to date until Ctrl-C.

    Looks at sizes and times of its files.
    """
    if math.isnan(every):  # neither less than the least nor more than the most
        raise UsageError(f"--every is {every}: give 1 to {_MOST_S:.0f} seconds")
    with _opened(name) as (its_name, opened), suppress(KeyboardInterrupt):
        _bring_up_to_date(its_name, opened, lambda report: update_files(opened, report))
        while True:
            begun_s = time.monotonic()
            changes = update_files(opened)
            if changes.news:
                _print_changes(its_name, opened, changes)
                _make_vectors(its_name, opened)
            time.sleep(max(every, (time.monotonic() - begun_s) * _REST))


@index.command()
@click.argument("name", required=False, shell_complete=complete_indexes)
@json_option
def status(name: str | None, json_: bool) -> None:
    """Show what is in index NAME, or in all of them."""
    documents = []
    for each in index_names() if name is None else [name]:
        with _opened(each) as (_, opened):
            contents, model = opened.contents(), opened.vector_model()
        documents.append(
            {
                "name": each,
                **fields(contents, "files passages"),
                "bytes": contents.size_bytes,
                "added": [str(root) for root in contents.roots],
                "vectors": model and model.name,
            }
        )
        if not json_:
            roots = printable(", ".join(map(brief, contents.roots)))
            by = f", vectors by {model.name}" if model else ""
            size = size_text(contents.size_bytes)
            counts = f"{contents.files} files, {contents.passages} passages"
            click.echo(f"{each}: {counts}, {size}{by}; {roots}")
    if json_:
        print_json(documents)
    elif not documents:
        click.echo("no index yet: `localspec index add FOLDER` makes one", err=True)


@index.command()
@click.argument("words", nargs=-1, required=True)
@_NAME
@click.option(
    "-k",
    "--max",
    "most",
    type=click.IntRange(1, 100),
    default=5,
    help="Most passages to print. Default: 5.",
)
@json_option
def search(words: tuple[str, ...], name: str | None, most: int, json_: bool) -> None:
    """Print the passages that fit WORDS best, the best first."""
    with _opened(name) as (_, opened):
        report_missing_vectors(opened)
        passages = search_index(opened, " ".join(words), most)
    if json_:
        print_json(
            [
                {
                    "path": str(each.path),
                    **fields(each.passage, "first last heading text"),
                    "score": each.score,
                }
                for each in passages
            ]
        )
        return
    if not passages:
        click.echo("nothing matches", err=True)
    for each in passages:
        where = place(brief(each.path), each.passage.first, each.passage.last)
        heading = f"  {printable_line(each.passage.heading)}" if each.passage.heading else ""
        click.echo(click.style(printable(where), bold=True) + heading)
        click.echo(f"    {printable_line(each.passage.text)[:_MOST_CHARS]}")


@index.command()
@click.argument("name", shell_complete=complete_indexes)
def rm(name: str) -> None:
    """Remove index NAME; the files themselves stay."""
    remove_index(name)
    notice(f"{name} is removed")


@contextmanager
def _opened(name: str | None) -> Iterator[tuple[str, Index]]:
    """Open an index; without a name, the only one."""
    if name is None:
        names = index_names()
        if len(names) > 1:
            raise UsageError(f"there are several indexes: name one of {', '.join(names)}")
        name = names[0] if names else "docs"
    with closing(open_index(name)) as opened:
        yield name, opened


def _chosen_vectors(settings: Settings) -> VectorModel | None:
    """Return the model that is to make vectors, fetched if it is not here; None if there are to be none."""
    name = settings.values["vectors"]
    if name == _OFF:
        return None
    with ProgressLine(enabled=True) as line:
        return vector_model(name, offline=settings.launch.offline, progress=line.download)


def _bring_up_to_date(
    name: str, opened: Index, update: Callable[[Callable[[Changes], None]], Changes]
) -> None:
    """Update an index, print what changed, and make the vectors that it lacks."""
    with ProgressLine(enabled=True) as line:
        changes = update(
            lambda changes: line.report(f"indexing {changes.done} of {changes.total} files")
        )
    _print_changes(name, opened, changes)
    _make_vectors(name, opened)


def _make_vectors(name: str, opened: Index) -> None:
    """Make the vectors that are missing, and print how many."""
    model = opened.vector_model()
    if model is None:
        return
    with ProgressLine(enabled=True) as line:
        made = embed(
            opened, lambda done, total: line.report(f"vectors: {done} of {total} passages")
        )
    notice(f"{name}: {made} new vectors by {model.name}")


def _print_changes(name: str, opened: Index, changes: Changes) -> None:
    contents = opened.contents()
    parts = {**changes.news, "without text": changes.not_text}
    news = ", ".join(f"{count} {what}" for what, count in parts.items() if count)
    notice(
        f"{name}: {contents.files} files, {contents.passages} passages ({news or 'nothing changed'})"
    )
    if sys.stderr.isatty():
        notice(f"ask with `localspec run --docs {name}`")
    for each in changes.missing:
        notice(f"{printable(str(each))} is not there: what was indexed of it stays")
    for path, why in changes.unread[:_MOST_UNREAD]:
        notice(f"left out {printable(path)}: {why}")
    if (more := len(changes.unread) - _MOST_UNREAD) > 0:
        notice(f"and {more} more")
