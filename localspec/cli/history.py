"""`localspec history`: the stored conversations of `chat` and of `run`."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import click
from click.core import ParameterSource

from localspec.cli import options as cli
from localspec.cli.progress import ProgressLine, print_list
from localspec.display import clean, clean_line, counted, notice, wrapped
from localspec.errors import HistoryError, UsageError
from localspec.session.conversation import History, StoredConversation, tags_of
from localspec.session.export import Counts, FileTaken, Mask, exported, masked_line, write_export
from localspec.storage.paths import data_dir

_MOST_MATCHES, _LISTED, _DAY_S = 200, 10, 86400.0
_NUMBER = click.argument("number", metavar="[NUMBER|TITLE]", required=False)


@click.group(
    cls=cli.CommandGroup,
    invoke_without_command=True,
    also={"ls": "list", **dict.fromkeys(("remove", "delete"), "rm")},
)
@click.pass_context
def history(context: click.Context) -> None:
    """List, show, search, tag, export and remove conversations.

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
@cli.json_option
def list_(most: int, json_: bool) -> None:
    """List the last conversations, newest first."""
    _print("", most, "no conversations yet", json_=json_)


@history.command()
@click.argument("words", nargs=-1, required=True)
@cli.json_option
def search(words: tuple[str, ...], json_: bool) -> None:
    """List the conversations that contain all WORDS.

    A word like tag:NAME searches for a tag.
    """
    _print(" ".join(words), _MOST_MATCHES, "nothing matches", json_=json_)


@history.command()
@_NUMBER
@cli.gate_option
@cli.json_option
@cli.with_settings
def show(number: str | None, settings: cli.Settings, json_: bool) -> None:
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
@click.argument("names", metavar="[NUMBER|TITLE]...", nargs=-1)
@click.option(
    "--before",
    metavar="WHEN",
    help="Remove those whose last message is older: 2026-11-20, 12h, 7d, 4w.",
)
@click.option(
    "--keep-days",
    type=click.IntRange(0, 36500),
    metavar="N",
    help="Remove those whose last message is older than N days.",
)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def rm(names: tuple[str, ...], before: str | None, keep_days: int | None, yes: bool) -> None:
    """Remove conversations, by number, title or age, for good.

    Lists what it would remove, and asks. The setting `history_days` removes by age on its own.
    """
    if not names and before is None and keep_days is None:
        raise UsageError("give the numbers or titles of conversations, or --before, or --keep-days")
    with _opened(changes=True) as archive:
        chosen = [archive.named(each) for each in names]
        if (moment_s := _moment(before, keep_days)) is not None:
            chosen += [archive.conversation(each) for each in archive.older_than(moment_s)]
        chosen = list({each.id: each for each in chosen}.values())
        if not chosen:
            notice("nothing is that old")
            return
        _confirm(chosen, yes=yes)
        _remove(archive, chosen)


def _moment(before: str | None, keep_days: int | None) -> float | None:
    """Return the moment before which conversations are removed; None where no age was given."""
    from localspec.telemetry.view import since  # noqa: PLC0415 - few ask for an age

    moments = [] if before is None else [since(before)]
    if keep_days is not None:
        moments.append(time.time() - keep_days * _DAY_S)
    return min(moments, default=None)


def _confirm(chosen: list[StoredConversation], *, yes: bool) -> None:
    """List conversations and ask whether they are to be removed.

    Raises:
        UsageError: nobody can be asked.
        click.Abort: the answer was no.
    """
    if yes:
        return
    for each in chosen[:_LISTED]:
        click.echo("  ".join(_row(each)), err=True)
    if len(chosen) > _LISTED:
        click.echo(f"and {len(chosen) - _LISTED} more", err=True)
    if not sys.stdin.isatty():
        raise UsageError("stdin is not a terminal: to remove these, give --yes")
    messages = sum(each.n_messages for each in chosen)
    what = "this conversation" if len(chosen) == 1 else f"these {len(chosen)} conversations"
    question = wrapped(f"remove {what} ({counted(messages, 'message')}) for good?", sys.stderr)
    click.confirm(question, abort=True, err=True)


def _remove(archive: History, chosen: list[StoredConversation]) -> None:
    """Remove conversations; then their words leave the index, and their room goes back to the disk."""
    with ProgressLine(enabled=True) as line:
        for number, each in enumerate(chosen):
            line.report(f"removing {number} of {counted(len(chosen), 'conversation')}")
            archive.delete(each.id)
        line.report("removing their words from the index")
        archive.tidy()
        archive.write_anew()
    notice(f"removed {counted(len(chosen), 'conversation')}")


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
@click.option("--force", is_flag=True, help="Write over a file that holds something else.")
@click.pass_context
def export(
    context: click.Context, number: str, file: Path | None, gate: str, *, force: bool
) -> None:
    """Write conversation NUMBER to FILE; - is stdout.

    As Markdown, or as JSON with every branch if FILE ends in .json. Without FILE, it is written to
    the current directory, and named after the title.
    """
    own = context.get_parameter_source("gate") is not ParameterSource.DEFAULT
    to, mask = "" if file is None else str(file), _mask(cli.gate_rules(gate))
    with _opened() as archive:
        chosen, counts = _chosen(archive, number), Counts()
        if to == "-":
            text = exported(archive, chosen, "md", mask, None, counts, own=own)
            click.echo(clean(text) if sys.stdout.isatty() else text, nl=False)
            masked = masked_line(counts)
        else:
            try:
                path, masked = write_export(archive, chosen, to, Path(), mask, own=own, force=force)
            except FileTaken as error:
                raise UsageError(f"{error}, or give --force") from None
            click.echo(path)
    if masked:
        click.echo(f"{masked}: --gate off writes all", err=to == "-")


_NONE = "no conversations yet: `chat`, and `run` on a terminal, save theirs"


@contextmanager
def _opened(*, changes: bool = False) -> Iterator[History]:
    """Open the history; what only reads it does so where nothing can be saved, too."""
    if not data_dir().exists():
        raise UsageError(_NONE)
    archive = History(data_dir() / "history")
    try:
        if archive.trouble is not None and (changes or not archive.is_readable):
            raise HistoryError(archive.refusal)
        if line := archive.taken_in_line:
            notice(line)
        before = archive.trouble
        yield archive
        if archive.trouble != before:  # it could not be read, and seemed to be empty
            raise HistoryError(archive.refusal)
    finally:
        archive.close()


def _chosen(archive: History, number: str | None) -> int:
    latest = archive.latest()
    if latest is None:
        raise UsageError(_NONE)
    return latest if number is None else archive.named(number).id


def _print(words: str, most: int, none: str, *, json_: bool) -> None:
    with _opened() as archive:
        conversations = archive.conversations(words, most)
    documents = [_document(each) for each in conversations]
    print_list(documents, map(_row, conversations), none, json_=json_, whole=True)


def _row(each: StoredConversation) -> tuple[str, str, str]:
    day = datetime.fromtimestamp(each.updated_s).astimezone().strftime("%Y-%m-%d %H:%M")
    tags = " ".join(f"#{name}" for name in each.tags)
    parts = [clean_line(each.title) or "untitled", tags, each.pair, clean_line(each.excerpt)]
    return str(each.id), day, " · ".join(filter(None, parts))


def _document(each: StoredConversation) -> dict[str, object]:
    excerpt = {"excerpt": each.excerpt} if each.excerpt else {}
    counts = {"messages": each.n_messages, "tags": list(each.tags), "updated_s": each.updated_s}
    return {"number": each.id, "title": each.title, "model": each.pair, **counts, **excerpt}
