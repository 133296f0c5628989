"""`localspec index`: passages of the user's files, for searches and for questions about them."""

import math
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import click

from localspec.cli import options as cli
from localspec.cli.progress import ProgressLine, fields, print_json, print_list
from localspec.cli.prompt import report_missing_vectors
from localspec.display import counted, notice, printable, printable_line, wrapped
from localspec.errors import LocalspecError, UsageError
from localspec.retrieval.embedding import embed, vector_model
from localspec.retrieval.index import (
    Index,
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
"""Seconds between two looks of `watch`, by default and at most; it rests 20 times as long as a look takes, for a twentieth of a core at most."""
_MOST_UNREAD = 5
_MOST_CHARS, _LEAD = 300, 60
"""Characters of a passage that are printed, and how many of them before its first match."""
_OFF = "off"
_NAME = click.option(
    "-n",
    "--name",
    metavar="NAME",
    shell_complete=cli.complete_indexes,
    help="Name of the index. Default: the folder's name, or the only index.",
)


@click.group(
    cls=cli.CommandGroup,
    invoke_without_command=True,
    also=dict.fromkeys(("list", "ls", "show"), "status")
    | dict.fromkeys(("remove", "delete"), "rm"),
)
@click.pass_context
def index(context: click.Context) -> None:
    """Index your files, to search them and to ask about them.

    Text, Markdown and code; HTML, DOCX and PDF with the extra `documents`. Nothing leaves this machine.
    """
    if context.invoked_subcommand is None:
        context.invoke(status)


@index.command()
@click.argument(
    "paths", nargs=-1, required=True, metavar="FOLDERS|FILES...", type=click.Path(path_type=Path)
)
@_NAME
@click.option(
    "--vectors",
    metavar="MODEL|off",
    shell_complete=cli.complete_models,
    help="Also search by meaning, with an embedding MODEL such as bge-small-en-v1.5. Slow to build.",
)
@cli.with_settings
def add(paths: tuple[Path, ...], name: str | None, settings: cli.Settings) -> None:
    """Add FOLDERS and FILES to an index, and update all of it.

    In folders, hidden files, links, files that .gitignore names, and binary files are skipped.
    """
    if absent := next((path for path in paths if not path.exists()), None):
        raise UsageError(f"{str(absent)[:200]!r} is no file or folder: give what is to be indexed")
    first = paths[0].resolve()
    if name is None:
        name = name_for(first if first.is_dir() else first.parent)
        _refuse_other(name, first)
    chooses, model = "vectors" in settings.given or name not in index_names(), None
    if chooses and settings.values["vectors"] != _OFF:
        name_of_model, offline = settings.values["vectors"], settings.launch.offline
        with ProgressLine(enabled=True) as line:
            model = vector_model(name_of_model, offline=offline, progress=line.download)
    is_new = name not in index_names()

    def add_all(report: Callable[[Changes], None]) -> Changes:
        try:
            return add_files(opened, paths, report)
        except LocalspecError:
            if is_new:  # on a full disk, others need its room
                remove_index(name)
            raise

    with closing(open_index(name, make=True)) as opened:
        if chooses:
            opened.choose_vector_model(model)
        _update(name, opened, add_all)


@index.command()
@click.argument("name", required=False, shell_complete=cli.complete_indexes)
def update(name: str | None) -> None:
    """Update index NAME, or the only one, from its files."""
    with _opened(name, "`localspec index update NAME`") as (its_name, opened):
        _update(its_name, opened, lambda report: update_files(opened, report))


@index.command()
@click.argument("name", required=False, shell_complete=cli.complete_indexes)
@click.option(
    "--every",
    default=_EVERY_S,
    type=click.FloatRange(1, _MOST_S),
    metavar="SECONDS",
    help=f"How often to check. Default: {_EVERY_S:g}; less often if a check takes long.",
)
def watch(name: str | None, every: float) -> None:
    """Keep index NAME, or the only one, up to date until Ctrl-C.

    Checks the sizes and times of its files.
    """
    if math.isnan(every):  # which no range excludes
        raise UsageError(f"--every is {every}: give 1 to {_MOST_S:.0f} seconds")
    with (
        _opened(name, "`localspec index watch NAME`") as (its_name, opened),
        suppress(KeyboardInterrupt),
    ):
        _update(its_name, opened, lambda report: update_files(opened, report))
        while True:
            begun_s = time.monotonic()
            changes = update_files(opened)
            if changes.news:
                _finish(its_name, opened, changes)
            time.sleep(max(every, (time.monotonic() - begun_s) * _REST))


@index.command()
@click.argument("name", required=False, shell_complete=cli.complete_indexes)
@cli.json_option
def status(name: str | None, json_: bool) -> None:
    """Show the size and the folders of index NAME, or of all."""
    documents, rows, trouble = [], [], list[LocalspecError]()
    for each in index_names() if name is None else [name]:
        try:
            with _opened(each, "") as (_, opened):
                contents, model = opened.contents(), opened.vector_model()
        except LocalspecError as error:
            trouble.append(error)
            continue
        document = {"name": each, **fields(contents, "files passages")}
        document |= {"bytes": contents.size_bytes, "added": [*map(str, contents.roots)]}
        documents.append({**document, "vectors": model and model.name})
        counts = counted(contents.files, "file"), counted(contents.passages, "passage")
        roots = printable(", ".join(map(brief, contents.roots)))
        by = f"vectors by {model.name}" if model else ""
        rows.append((each, *counts, size_text(contents.size_bytes), by, roots))
    none = "no index yet: create one with `localspec index add FOLDER`"
    if documents or not trouble:
        print_list(documents, rows, none, json_=json_, whole=True)
    if trouble:
        notice(*map(str, trouble[:-1]))
        raise trouble[-1]


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
@cli.json_option
def search(words: tuple[str, ...], name: str | None, most: int, json_: bool) -> None:
    """Print the passages that match WORDS best, best first."""
    with _opened(name, "with -n NAME") as (_, opened):
        report_missing_vectors(opened)
        passages = search_index(opened, " ".join(words), most)
    if json_:
        of_passage = "first last heading text"
        print_json(
            [
                {"path": str(each.path), **fields(each.passage, of_passage), "score": each.score}
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
        click.echo(f"    {_excerpt(each.passage.text, words)}")


def _excerpt(text: str, words: tuple[str, ...]) -> str:
    """Return the part of a passage with most of the words, of which the index also finds other forms."""
    line = printable_line(text)
    stems = [word[: max(4, len(word) - 3)] for word in re.findall(r"\w+", " ".join(words))]
    finds = (re.finditer(rf"\b{stem}", line, re.IGNORECASE) for stem in stems)
    places = sorted((match.start(), at) for at, matches in enumerate(finds) for match in matches)

    def held(begin: int) -> int:
        return len({at for place, at in places if begin <= place < begin + _MOST_CHARS - 2 * _LEAD})

    begin = max((place for place, _ in places), key=held, default=0)
    if begin < _MOST_CHARS - _LEAD:
        return line[:_MOST_CHARS]
    start = line.find(" ", begin - _LEAD, begin) + 1 or begin
    return f"… {line[start : start + _MOST_CHARS]}"


@index.command()
@click.argument("name", shell_complete=cli.complete_indexes)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def rm(name: str, yes: bool) -> None:
    """Remove index NAME; your files stay."""
    # A damaged index is asked about, too, so nothing of it is read.
    if name in index_names() and not yes and sys.stdin.isatty():
        question = wrapped(f"remove index {name}? your files stay", sys.stderr)
        click.confirm(question, abort=True, err=True)
    remove_index(name)
    notice(f"removed {name}")


def _refuse_other(name: str, path: Path) -> None:
    """Raise UsageError where the index of a name that nobody gave is one of other folders."""
    if name not in index_names():
        return
    with closing(open_index(name)) as opened:
        roots = opened.roots()
    if roots and not any(each in {path, *path.parents} or path in each.parents for each in roots):
        raise UsageError(
            f"the index {name} is of {brief(roots[0])}: name another with -n NAME, or this one, to add to it"
        )


@contextmanager
def _opened(name: str | None, how: str) -> Iterator[tuple[str, Index]]:
    """Open an index; without a name, the only one. `how` is how to name it."""
    if name is None:
        names = index_names()
        if len(names) > 1:
            raise UsageError(f"there are several indexes: choose one of {', '.join(names)}, {how}")
        name = names[0] if names else "docs"
    with closing(open_index(name)) as opened:
        yield name, opened


def _update(
    name: str, opened: Index, update: Callable[[Callable[[Changes], None]], Changes]
) -> None:
    with ProgressLine(enabled=True) as line:
        changes = update(
            lambda now: line.report(f"indexing {now.done} of {counted(now.total, 'file')}")
        )
    _finish(name, opened, changes)


def _finish(name: str, opened: Index, changes: Changes) -> None:
    """Print what changed, and add missing vectors."""
    contents = opened.contents()
    parts = {**changes.news, "not text": len(changes.not_text)}
    news = ", ".join(f"{count} {what}" for what, count in parts.items() if count)
    notice(
        f"{name}: {counted(contents.files, 'file')}, {counted(contents.passages, 'passage')} ({news or 'nothing changed'})"
    )
    if sys.stderr.isatty():
        notice(f"ask with `localspec run --docs {name}`")
    gone = (printable(str(each)) for each in changes.missing)
    notice(*(f"{each} is missing: its passages stay in the index" for each in gone))
    if named := changes.not_text[:_MOST_UNREAD]:
        hidden = len(changes.not_text) - len(named)
        rest = f" and {hidden} more" if hidden else ""
        notice(f"not text: {', '.join(map(printable, named))}{rest}")
    unread = changes.unread[:_MOST_UNREAD]
    notice(*(f"skipped {printable(path)}: {why}" for path, why in unread))
    if (more := len(changes.unread) - _MOST_UNREAD) > 0:
        notice(f"and {more} more")
    model = opened.vector_model()
    if model is not None:
        with ProgressLine(enabled=True) as line:
            made = embed(
                opened,
                lambda done, total: line.report(f"vectors: {done} of {counted(total, 'passage')}"),
            )
        notice(f"{name}: {counted(made, 'new vector')} by {model.name}")
