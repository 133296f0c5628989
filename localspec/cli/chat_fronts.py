"""What `localspec chat` starts: screens, or lines where there is no terminal for them."""

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import count
from pathlib import Path

import click

from localspec.cli.interrupt import unwind_on_terminate
from localspec.cli.options import Settings
from localspec.cli.prompt import DocsFlags, SystemFlags, stored_conversation, with_model
from localspec.cli.tools import ToolFlags, pressed_answer
from localspec.display import notice
from localspec.engine.client import EngineClient
from localspec.errors import LocalspecError
from localspec.history.archive import History
from localspec.launch.engine import server_finder
from localspec.session.conversation import SavedConversation
from localspec.session.preferences import Preferences, read_preferences
from localspec.storage.paths import data_dir
from localspec.tui.opening import has_screens, waiting_keys
from localspec.tui.session import Session

# A second Ctrl-C within so many seconds leaves.
_AGAIN_S = 2.0
_RECALLED = 100
# After so many lines it is not somebody who knows.
_MANY = 3
_EACH_LINE = (
    "each line is a separate question; to ask one question about all of stdin, use `localspec run`, "
    'or put """ around several lines'
)
_PLAIN_HINT = "not an interactive terminal: using --plain"


def start_chat(
    settings: Settings,
    system: SystemFlags,
    docs: DocsFlags,
    tools: ToolFlags,
    *,
    go_on: str | None = None,
    plain: bool = False,
    quiet: bool = False,
) -> int:
    """Chat, as the flags of the verb that is running ask for; return the exit code."""
    screens = not plain and has_screens()
    preferences = read_preferences()
    default = ""
    with waiting_keys() if screens else nullcontext() as give_back:
        # Screens have a list of models, and a conversation has its own.
        if not (settings.named_model or screens or go_on is not None):
            settings, default = with_model(settings, quiet=quiet)
        session = _session(settings, system, docs, tools, preferences)
        if default:
            notice(default)
        if go_on is not None:
            conversation = stored_conversation(go_on)
            # Only flags are meant for this conversation; what is configured is meant for new ones.
            session.resume(
                conversation.id,
                own_models=not settings.named_model,
                own_ctx=settings.given.get("ctx") is None,
            )
        farewell = ""
        try:
            if give_back is not None:
                return _on_screens(session, preferences, give_back)
            with unwind_on_terminate():
                return _in_lines(session, preferences, plain=plain, quiet=quiet)
        finally:
            if sys.stdin.isatty() and sys.stderr.isatty() and not quiet:
                farewell = session.farewell
            session.close()
            if farewell:
                notice(farewell)


def _session(
    settings: Settings,
    system: SystemFlags,
    docs: DocsFlags,
    tools: ToolFlags,
    preferences: Preferences,
) -> Session:
    launch, options = settings.launch, settings.reply
    saved = SavedConversation(
        History(data_dir() / "history"), system.prompt(settings.system, preferences)
    )
    engine = EngineClient(find=server_finder(own=settings.own), gate=settings.gate)
    runner = tools.runner(docs, offline=launch.offline)
    return Session(
        engine, saved, launch, options, Path.cwd(), settings.reply_of, runner, docs.open()
    )


def _on_screens(session: Session, preferences: Preferences, give_back: Callable[[], None]) -> int:
    # Textual takes longer than anything else, which only screens should wait for.
    from localspec.tui.app import ChatApp  # noqa: PLC0415

    app = ChatApp(session, preferences, give_back=give_back)
    app.run()
    if app.failure is not None:
        raise app.failure
    return app.return_code or 0


def _in_lines(session: Session, preferences: Preferences, *, plain: bool, quiet: bool) -> int:
    from localspec.tui import plain as lines  # noqa: PLC0415

    if not (plain or quiet) and sys.stdin.isatty():
        notice(_PLAIN_HINT)
    terminal = sys.stdout.isatty()
    ask = pressed_answer if sys.stdin.isatty() else None
    front = lines.Lines(
        session, preferences, sys.stdout, sys.stderr, terminal=terminal, quiet=quiet, ask=ask
    )
    if sys.stdin.isatty() and sys.stdout.isatty():
        typed = _lines_of_a_person(session.talk.history.questions(_RECALLED))
        return lines.run(front, typed, greets=not quiet)
    return lines.run(front, _typed_lines(quiet=quiet))


def _lines_of_a_person(recalled: Iterable[str]) -> Iterator[str | None]:
    """Yield the lines that are typed at a terminal, and None where one is taken back; Ctrl-C twice, or Ctrl-D, ends them.

    Args:
        recalled: what the arrow keys bring back, oldest first.
    """
    import readline  # noqa: PLC0415 - a person edits lines, a pipe does not

    for text in recalled:
        if "\n" not in text:
            readline.add_history(text)
    stopped_s = -_AGAIN_S
    while True:
        try:
            text = input("> ")
        except EOFError:
            click.echo(err=True)
            return
        except KeyboardInterrupt:
            click.echo(err=True)
            if time.monotonic() - stopped_s < _AGAIN_S:
                raise
            stopped_s = time.monotonic()
            notice("Ctrl-C again quits, and so do Ctrl-D and /bye")
            yield None
        else:
            with _end_kept():
                yield text


@contextmanager
def _end_kept() -> Iterator[None]:
    """Let a Ctrl-D that comes while nobody reads wait for the next prompt; else readline's change of modes drops it."""
    import termios  # noqa: PLC0415 - only with readline

    if not os.isatty(0):
        yield
        return
    usual = termios.tcgetattr(0)
    changed = [*usual[:6], [*usual[6]]]
    changed[6][termios.VEOF] = b"\0"
    termios.tcsetattr(0, termios.TCSANOW, changed)
    try:
        yield
    finally:
        termios.tcsetattr(0, termios.TCSANOW, usual)


def _typed_lines(*, quiet: bool) -> Iterator[str]:
    """Yield lines of stdin; on a terminal, after a sign that one is expected."""
    asks = sys.stdin.isatty()
    for number in count(1):
        if number == _MANY and not (asks or quiet):
            notice(_EACH_LINE)
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
