"""`localspec chat`: the terminal assistant, on screens, or in lines where there is no terminal for them."""

import os
import readline
import signal
import sys
import termios
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from itertools import count
from pathlib import Path
from typing import Any

import click

from localspec.cli.hands import call_runner, pressed_answer, tools_option, wants_tools
from localspec.cli.interrupt import unwind_on_terminate
from localspec.cli.options import (
    SectionedCommand,
    complete_models,
    configured,
    gate_option,
    gate_rules,
    launch_options,
    option_flags,
    own_option,
    reply_options,
    with_model,
    with_own,
)
from localspec.cli.prompt import is_model, named, require_model, stored_conversation
from localspec.cli.question import (
    continue_option,
    docs_of,
    docs_options,
    system_options,
    system_prompt,
)
from localspec.display import notice
from localspec.engine.client import EngineClient
from localspec.errors import LocalspecError, UsageError
from localspec.history.archive import History
from localspec.launch.engine import server_finder
from localspec.models.registry import load_registry
from localspec.options import ReplyOptions
from localspec.session.conversation import SavedConversation
from localspec.session.preferences import Preferences, read_preferences
from localspec.storage.paths import data_dir
from localspec.tui.session import Session

# A second Ctrl-C within so many seconds leaves.
_AGAIN_S = 2.0
_RECALLED = 100
# After so many lines it is not a person who knows.
_MANY = 3
_EACH_LINE = (
    "each line is a separate question; to ask one question about all of stdin, use `localspec run`, "
    'or put """ around several lines'
)
_PLAIN_HINT = "not an interactive terminal: using --plain"


@click.command(cls=SectionedCommand)
@click.argument("word", metavar="[MODEL]", required=False, shell_complete=complete_models)
@option_flags("models", "exact", draft_length="Tokens to draft at a time.")
@continue_option
@click.option(
    "--plain",
    is_flag=True,
    help="Print lines, no screens: for screen readers, pipes and dumb terminals.",
)
@system_options
@option_flags(
    "sampling",
    "structure",
    "context",
    "device",
    max_tokens="Stop each answer after N tokens.",
    seed="Same seed, same text. Default: random for each answer.",
)
@docs_options
@tools_option()
@gate_option
@own_option
@click.option("-q", "--quiet", is_flag=True, help="With --plain: print no figures and no notices.")
def chat(word: str | None, **flags: Any) -> int:
    """Chat in the terminal with MODEL, or with your default model.

    Conversations are kept; `--continue` resumes the last one, `--continue 5` another one. F1 lists the keys, `/` the commands.

    When piped, each line is a separate question; put three double quotes around a question of
    several lines. Answers then go to stdout, everything else to stderr.
    """
    which = "" if word is not None else (flags["go_on"] or "")
    if which and not which.removeprefix("#").isdecimal() and is_model(which, load_registry()):
        word, flags["go_on"] = which, ""
    if word is not None:
        if named(flags):
            raise UsageError(f"{word!r} and an option both name a model: give one of them")
        flags["model"] = require_model(word)
    return start_chat(flags)


def start_chat(flags: dict[str, Any]) -> int:
    """Chat, as the flags of the verb that is running ask for; return the exit code.

    Args:
        flags: those of `chat`, as they were given.
    """
    screens = not flags["plain"] and _has_screens()
    with _waiting_keys() if screens else nullcontext() as give_back:
        return _chat(flags, give_back)


def _chat(flags: dict[str, Any], give_back: Callable[[], None] | None) -> int:
    """Chat on screens where there is a terminal to be given back to them, else in lines."""
    preferences = read_preferences()
    own_models, screens = not named(flags), give_back is not None
    # A conversation has its models.
    prompts = own_models and not screens and flags["go_on"] is None
    chosen = with_model(flags) if prompts else configured(flags)
    session = _session(chosen, preferences)
    if chosen.get("unasked"):
        notice(chosen["unasked"])
    if flags["go_on"] is not None:
        conversation = stored_conversation(flags["go_on"])
        # Only flags are meant for this conversation; what is configured is meant for new ones.
        session.resume(conversation.id, own_models=own_models, own_ctx=flags["ctx"] is None)
    farewell = ""
    try:
        if give_back is None:
            with unwind_on_terminate():
                return _in_lines(session, preferences, flags)
        return _on_screens(session, preferences, give_back)
    finally:
        if sys.stdin.isatty() and sys.stderr.isatty() and not flags["quiet"]:
            farewell = session.farewell
        session.close()
        if farewell:
            notice(farewell)


def _session(flags: dict[str, Any], preferences: Preferences) -> Session:
    launch, options = launch_options(flags), reply_options(with_own(flags))
    talk = SavedConversation(History(data_dir() / "history"), system_prompt(flags, preferences))

    def own(name: str) -> ReplyOptions:
        return reply_options(with_own(flags, name))

    find = server_finder(own=flags["own"], workload=flags.get("workload"))
    engine = EngineClient(find=find, gate=gate_rules(flags["gate"]))
    work = call_runner(Path.cwd(), flags) if wants_tools(flags) else None
    return Session(engine, talk, launch, options, Path.cwd(), own, work, docs_of(flags))


def _on_screens(session: Session, preferences: Preferences, give_back: Callable[[], None]) -> int:
    # Textual takes longer than anything else, which only screens should wait for.
    from localspec.tui.app import ChatApp  # noqa: PLC0415

    app = ChatApp(session, preferences, give_back=give_back)
    app.run()
    if app.failure:
        raise RuntimeError(app.failure)
    return app.return_code or 0


def _in_lines(session: Session, preferences: Preferences, flags: dict[str, Any]) -> int:
    from localspec.tui import plain  # noqa: PLC0415 - as above, of lines

    if not flags["plain"] and not flags["quiet"] and sys.stdin.isatty():
        notice(_PLAIN_HINT)
    terminal, quiet = sys.stdout.isatty(), flags["quiet"]
    ask = pressed_answer if sys.stdin.isatty() else None
    front = plain.Lines(
        session, preferences, sys.stdout, sys.stderr, terminal=terminal, quiet=quiet, ask=ask
    )
    if sys.stdin.isatty() and sys.stdout.isatty():
        typed = _lines_of_a_person(session.talk.history.questions(_RECALLED))
        return plain.run(front, typed, greets=not quiet)
    return plain.run(front, _typed_lines(quiet=quiet))


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
            raise LocalspecError(
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
def _waiting_keys() -> Iterator[Callable[[], None]]:
    """Have keys wait in the terminal, unseen, until the screens read them; yield what gives the terminal back as it was.

    Ctrl+C interrupts. Without this, Enter would come as a new line, and Ctrl+D not at all.
    """
    before, modes = termios.tcgetattr(0), termios.tcgetattr(0)
    modes[0] &= ~termios.ICRNL
    modes[3] &= ~(termios.ECHO | termios.ICANON)

    def give_back() -> None:
        with suppress(termios.error):  # it may be gone
            termios.tcsetattr(0, termios.TCSANOW, before)

    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    termios.tcsetattr(0, termios.TCSANOW, modes)
    try:
        yield give_back
    finally:
        give_back()
