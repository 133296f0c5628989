"""What `chat` starts: the screens, or the chat in lines where there is no terminal for them."""

import os
import readline
import signal
import sys
import termios
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from itertools import count
from pathlib import Path
from typing import Any

import click

from localspec.calls.policy import NO_CALLS
from localspec.cli.interrupt import unwind_on_terminate
from localspec.cli.options import Settings
from localspec.cli.prompt import stored_conversation, with_model
from localspec.cli.tools import ChatFlags, pressed_answer
from localspec.display import notice
from localspec.engine.protocol import Load
from localspec.errors import UsageError
from localspec.launch.engine import child_engine
from localspec.models.registry import load_registry
from localspec.models.requested import named_models
from localspec.session.conversation import History, SavedConversation
from localspec.session.preferences import Preferences, read_preferences
from localspec.storage.paths import data_dir
from localspec.tui.session import Session

# A second Ctrl-C within so many seconds leaves.
_AGAIN_S = 2.0
_RECALLED = 100
_TEXT_EVERY_S = 0.15
"""What is drawn less often need not come more often: on two cores a part a token took a tenth of the speed and more."""
# After so many lines it is not a person who knows.
_MANY = 3
_EACH_LINE = (
    "each line is a separate question; to ask one question about all of stdin, use `localspec run`, "
    'or put """ around several lines'
)
_PLAIN_HINT = "not an interactive terminal: using --plain"


def start_chat(
    settings: Settings,
    asked: ChatFlags,
    *,
    go_on: str | None = None,
    prediction: str | None = None,
    plain: bool = False,
    quiet: bool = False,
) -> int:
    """Chat, as the flags of the verb that is running ask for; return the exit code."""
    screens = not plain and _has_screens()
    preferences = read_preferences()
    default = ""
    if not settings.named_model and go_on is None:  # a conversation has its own
        settings, default = with_model(settings, quiet=quiet)
    with _waiting_keys() if screens else nullcontext() as modes, _stopped_early():
        session = _session(settings, asked, preferences, prediction)
        if default:
            notice(default)
        if go_on is not None:
            conversation = stored_conversation(go_on)
            # Only flags are meant for this conversation; what is configured is meant for new ones.
            session.resume(
                conversation.id,
                own_models=not settings.named_model and settings.can.local_files,
                own_ctx=settings.given.get("ctx") is None,
                own_docs=asked.docs.docs is None,
            )
        elif asked.tools.wanted and settings.can.local_files:
            registry = load_registry()
            target = registry.find(named_models(settings.launch, registry)[0])
            if target is not None and target.tools is False:
                raise UsageError(NO_CALLS.format(target.name))
        unsaved = None
        session.talk.history.work_in_background(
            settings.values["history_days"], lambda: session.talk.conversation
        )
        try:
            if modes is not None:
                code = _on_screens(session, preferences, modes)
            else:
                with unwind_on_terminate():
                    code = _in_lines(session, preferences, plain=plain, quiet=quiet)
        finally:
            if (unsaved := session.close()) is not None:
                notice(unsaved.line)
            elif sys.stdin.isatty() and sys.stderr.isatty() and not quiet and session.farewell:
                notice(session.farewell)
        return code or (0 if unsaved is None else unsaved.code)


def _session(
    settings: Settings, asked: ChatFlags, preferences: Preferences, prediction: str | None
) -> Session:
    launch, options = settings.launch, settings.reply
    system = asked.system.prompt(settings.system, preferences)
    saved = SavedConversation(History(data_dir() / "history"), system)
    load = Load(launch, text_every_s=_TEXT_EVERY_S, given=settings.given_sampling, own=settings.own)
    return Session(
        child_engine(load),
        saved,
        launch,
        options,
        Path.cwd(),
        settings.reply_of,
        asked.runner(offline=launch.offline),
        asked.docs.open(),
        settings.gate,
        prediction,
    )


def _on_screens(session: Session, preferences: Preferences, modes: list[Any]) -> int:
    # Textual takes longer than anything else, which only screens should wait for.
    from localspec.tui.app import ChatApp  # noqa: PLC0415

    app = ChatApp(session, preferences, modes=modes)
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
            with _end_waits():
                yield text


@contextmanager
def _end_waits() -> Iterator[None]:
    """Let a Ctrl-D that comes while nothing reads wait for the next prompt; else readline's change of modes drops it."""
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
    typing = sys.stdin.isatty()
    for number in count(1):
        if number == _MANY and not (typing or quiet):
            notice(_EACH_LINE)
        if typing:
            click.echo("> ", nl=False, err=True)
        raw = sys.stdin.buffer.readline()
        if not raw:
            if typing:
                click.echo(err=True)
            return
        try:
            line = raw.decode()
        except UnicodeDecodeError:
            raise UsageError(
                "stdin is not UTF-8 text: convert it, for example with iconv"
            ) from None
        yield line.rstrip("\n")


def _has_screens() -> bool:
    """Return whether there is a terminal that screens can be drawn on."""
    # Textual draws on stderr: redirected into a file, it would leave the terminal dark.
    streams = (sys.stdin, sys.stdout, sys.stderr)
    terminals = all(stream is not None and stream.isatty() for stream in streams)
    return terminals and os.environ.get("TERM", "") not in {"", "dumb"}


@contextmanager
def _stopped_early() -> Iterator[None]:
    """Say so where Ctrl-C ends a chat that was still to begin: its ^C is unseen."""
    try:
        yield
    except KeyboardInterrupt:
        if sys.stderr.isatty():
            notice("stopped by Ctrl-C")
        raise


@contextmanager
def _waiting_keys() -> Iterator[list[Any]]:
    """Have keys wait in the terminal, unseen, until the screens read them; yield the modes that it had before.

    Ctrl+C interrupts. Without this, Enter would come as a new line, and Ctrl+D not at all.
    """
    before, modes = termios.tcgetattr(0), termios.tcgetattr(0)
    modes[0] &= ~termios.ICRNL
    modes[3] &= ~(termios.ECHO | termios.ICANON)

    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    termios.tcsetattr(0, termios.TCSANOW, modes)
    try:
        yield before
    finally:
        with suppress(termios.error):  # it may be gone
            termios.tcsetattr(0, termios.TCSANOW, before)
