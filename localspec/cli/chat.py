"""`localspec chat`: the terminal assistant; on screens, or in lines where there is no terminal for them."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from localspec.cli.option_flags import launch_options, option_flags, reply_options
from localspec.cli.settings import configured, unset_sampling
from localspec.engine.client import EngineClient
from localspec.errors import LocalspecError, UsageError
from localspec.history.archive import History
from localspec.storage.paths import data_dir
from localspec.ui.preferences import Preferences, read_preferences
from localspec.ui.session import Session
from localspec.ui.talk import Talk

_PLAIN_HINT = "this is no terminal for screens: talking in lines, as with --plain"


@click.command()
@option_flags("models", "exact", draft_length="Tokens to propose at a time.")
@click.option("--continue", "go_on", is_flag=True, help="Take up the last conversation.")
@click.option(
    "--plain", is_flag=True, help="Talk in lines: for screen readers, pipes, dumb terminals."
)
@click.option("--system", metavar="TEXT", help="System prompt.")
@click.option("--persona", metavar="NAME", help="System prompt by its name in chat.toml.")
@option_flags(
    "sampling",
    "structure",
    "context",
    "device",
    max_tokens="End answers after N tokens.",
    seed="Same seed, same text. Default: fresh ones.",
    fit="Give up what the free memory does not hold.",
)
@click.option("--quiet", is_flag=True, help="With --plain: no figures and no news.")
@click.option("--debug", is_flag=True, help="Show a traceback when something fails.")
def chat(**flags: Any) -> int:
    """Talk with a pair of models.

    Conversations are kept, and `--continue` takes up the last one. F1 lists the keys, `/` the
    commands. A line on a pipe is a question; answers then go to stdout and the rest to stderr.
    """
    preferences = read_preferences()
    unset = unset_sampling(flags)
    session = _session(configured(flags, recommended=False), unset, preferences)
    if flags["go_on"]:
        latest = session.talk.history.latest()
        if latest is None:
            raise UsageError(
                "there is no conversation to continue yet: start one without --continue"
            )
        # Only flags are meant for this conversation; what is configured is meant for new ones.
        session.resume(latest, own_models=not (flags["pair"] or flags["target"]))
    try:
        if flags["plain"] or not _has_screens():
            # Imported here: numpy comes with it, which the first frame of screens does not wait for.
            from localspec.cli.interrupt import unwind_on_terminate  # noqa: PLC0415

            with unwind_on_terminate():
                return _in_lines(session, preferences, flags)
        # Textual costs 0.12 s of CPU, which only screens should.
        from localspec.ui.app import ChatApp  # noqa: PLC0415

        app = ChatApp(session, preferences)
        app.run()
        if app.failure is not None:
            raise app.failure
        return app.return_code or 0
    finally:
        session.close()


def _session(flags: dict[str, Any], unset: frozenset[str], preferences: Preferences) -> Session:
    launch, options = launch_options(flags), reply_options(flags)
    talk = Talk(History.open(data_dir() / "history"), _system_prompt(flags, preferences))
    return Session(EngineClient(), talk, launch, options, Path.cwd(), unset)


def _system_prompt(flags: dict[str, Any], preferences: Preferences) -> str | None:
    name = flags["persona"]
    if name is None:
        return flags["system"]  # type: ignore[no-any-return]
    if flags["system"] is not None:
        raise UsageError("--system and --persona exclude each other: give one of them")
    if name not in preferences.personas:
        known = ", ".join(preferences.personas) or "none, write some under [personas] in chat.toml"
        raise UsageError(f"there is no persona {name[:40]!r}: known are {known}")
    return preferences.personas[name]


def _has_screens() -> bool:
    # Textual draws on stderr: redirected into a file, it would leave the terminal dark.
    streams = (sys.stdin, sys.stdout, sys.stderr)
    terminals = all(stream is not None and stream.isatty() for stream in streams)
    return terminals and os.environ.get("TERM", "") not in {"", "dumb"}


def _in_lines(session: Session, preferences: Preferences, flags: dict[str, Any]) -> int:
    from localspec.ui import plain  # noqa: PLC0415
    from localspec.ui.lines import Lines  # noqa: PLC0415

    if not flags["plain"] and not flags["quiet"] and sys.stdin.isatty():
        click.echo(f"localspec: {_PLAIN_HINT}", err=True)
    terminal, quiet = sys.stdout.isatty(), flags["quiet"]
    front = Lines(session, preferences, sys.stdout, sys.stderr, terminal=terminal, quiet=quiet)
    return plain.run(front, _typed_lines())


def _typed_lines() -> Iterator[str]:
    """Yield lines of stdin; on a terminal, after a sign that one is expected."""
    asks = sys.stdin.isatty()
    while True:
        if asks:
            click.echo("> ", nl=False, err=True)
        raw = sys.stdin.buffer.readline()
        if not raw:
            if asks:
                click.echo(err=True)
            return
        try:
            line = raw.decode()
        except UnicodeDecodeError:
            raise LocalspecError(
                "stdin is not UTF-8 text: convert it, for example with iconv"
            ) from None
        yield line.rstrip("\n")
