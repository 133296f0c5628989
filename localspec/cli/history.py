"""`localspec history`: the stored conversations of `chat` and of `run`."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import click
from click.core import ParameterSource

from localspec.cli.options import (
    Settings,
    gate_option,
    gate_rules,
    json_option,
    with_settings,
)
from localspec.cli.progress import print_list
from localspec.display import clean, clean_line, notice
from localspec.errors import HistoryError, UsageError
from localspec.session.conversation import History, StoredConversation, tags_of
from localspec.session.export import Mask, exported, write_export
from localspec.storage.paths import data_dir

_MOST_MATCHES = 200
_NUMBER = click.argument("number", metavar="[NUMBER|TITLE]", required=False)


@click.group(invoke_without_command=True)
@click.pass_context
def history(context: click.Context) -> None:
    """List, show, search, tag and export conversations.

    `localspec chat --continue` and `localspec run --continue` resume the last one, or the one of a
    number or title.
    """
    if context.invoked_subcommand is None:
        context.invoke(list_)


@history.command("list")
@click.option(
    "-n",
    "--max",
    "most",
    type=click.IntRange(1),
    default=20,
    help="How many conversations to list. Default: 20.",
)
@json_option
def list_(most: int, json_: bool) -> None:
    """List the last conversations, newest first."""
    _print("", most, "no conversations yet", json_=json_)


@history.command()
@click.argument("words", nargs=-1, required=True)
@json_option
def search(words: tuple[str, ...], json_: bool) -> None:
    """List the conversations that contain all WORDS.

    A word like tag:NAME searches for a tag.
    """
    _print(" ".join(words), _MOST_MATCHES, "nothing matches", json_=json_)


@history.command()
@_NUMBER
@gate_option
@json_option
@with_settings
def show(number: str | None, settings: Settings, json_: bool) -> None:
    """Print conversation NUMBER, or the last one, as Markdown."""
    mask = _mask(settings.gate)
    with _opened() as archive:
        style = "json" if json_ else "md"
        text = exported(archive, _chosen(archive, number), style, mask).rstrip("\n")
    click.echo(clean(text) if sys.stdout.isatty() else text)


@history.command()
@click.argument("number", metavar="NUMBER|TITLE")
@click.argument("names", nargs=-1)
@click.option("--remove", multiple=True, metavar="NAME", help="Remove this tag; can be repeated.")
def tag(number: str, names: tuple[str, ...], remove: tuple[str, ...]) -> None:
    """Add tags NAMES to conversation NUMBER, and print all its tags."""
    added, _ = tags_of(" ".join(names))
    removed, _ = tags_of(" ".join(remove))
    with _opened(changes=True) as archive:
        click.echo(" ".join(archive.tag(_chosen(archive, number), added, removed)))


def _mask(rules: str) -> Mask | None:
    """Return the function that masks by a gate's rules; None if it is off."""
    if not rules:
        return None
    from localspec.chat.gated import gate_of  # noqa: PLC0415 - few have one

    return gate_of(rules).cleaned


@history.command()
@click.argument("number", metavar="NUMBER|TITLE")
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option(
    "--gate",
    default="usual",
    metavar="usual|off|FILE",
    help="What to mask: usual, for keys, passwords, addresses and numbers, or a FILE of rules, see docs/gates.md. "
    "Default: usual, in answers only; if you give it, your own messages are masked, too.",
)
@click.pass_context
def export(context: click.Context, number: str, file: Path | None, gate: str) -> None:
    """Write conversation NUMBER to FILE.

    As Markdown, or as JSON with every branch if FILE ends in .json. Without FILE, it is written to
    the current directory, and named after the title.
    """
    with _opened() as archive:
        to, mask = "" if file is None else str(file), _mask(gate_rules(gate))
        own = context.get_parameter_source("gate") is not ParameterSource.DEFAULT
        path, masked = write_export(archive, _chosen(archive, number), to, Path(), mask, own=own)
    click.echo(path)
    if masked:
        click.echo(f"{masked}: --gate off writes all")


@contextmanager
def _opened(*, changes: bool = False) -> Iterator[History]:
    """Open the history; what only reads it does so where nothing can be saved, too."""
    archive = History(data_dir() / "history")
    try:
        if archive.trouble is not None and (changes or not archive.is_readable):
            raise HistoryError(archive.trouble)
        if line := archive.taken_in_line:
            notice(line)
        before = archive.trouble
        yield archive
        if archive.trouble != before:  # it could not be read, and seemed to be empty
            raise HistoryError(str(archive.trouble))
    finally:
        archive.close()


def _chosen(archive: History, number: str | None) -> int:
    latest = archive.latest()
    if latest is None:
        raise UsageError("no conversations yet: `chat`, and `run` on a terminal, save theirs")
    return latest if number is None else archive.named(number).id


def _print(words: str, most: int, none: str, *, json_: bool) -> None:
    with _opened() as archive:
        conversations = archive.conversations(words, most)
    documents = [_document(each) for each in conversations]
    print_list(documents, map(_row, conversations), none, json_=json_, whole=True)


def _row(each: StoredConversation) -> tuple[str, str, str]:
    time = datetime.fromtimestamp(each.updated_s).astimezone().strftime("%Y-%m-%d %H:%M")
    tags = " ".join(f"#{name}" for name in each.tags)
    parts = [clean_line(each.title) or "untitled", tags, each.pair, clean_line(each.excerpt)]
    return str(each.id), time, " · ".join(filter(None, parts))


def _document(each: StoredConversation) -> dict[str, object]:
    excerpt = {"excerpt": each.excerpt} if each.excerpt else {}
    counts = {"messages": each.n_messages, "tags": list(each.tags), "updated_s": each.updated_s}
    return {"number": each.id, "title": each.title, "model": each.pair, **counts, **excerpt}
