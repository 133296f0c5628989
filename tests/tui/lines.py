"""Drives the chat in lines, with an engine double that speaks the real protocol."""

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from localspec.engine.remote_engine import RemoteEngine
from localspec.history.archive import History
from localspec.options import LaunchOptions, ReplyOptions
from localspec.session.approval import CallRunner
from localspec.session.conversation import SavedConversation
from localspec.session.preferences import Preferences
from localspec.tui import plain
from localspec.tui.plain import Lines
from localspec.tui.session import Session
from tests.engine.double import command


def session_of(
    folder: Path,
    script: dict[str, Any] | None = None,
    *,
    pair: str | None = "toy",
    talk: SavedConversation | None = None,
    work: CallRunner | None = None,
    gate: str = "",
    options: ReplyOptions | None = None,
) -> Session:
    """Return a session on the double, with a history in the folder."""
    launch, engine = LaunchOptions(pair=pair), RemoteEngine(command(script))
    talk = talk or SavedConversation(History(folder / "history"))
    options = options or ReplyOptions()
    return Session(engine, talk, launch, options, folder, work=work, gate=gate)


def said(
    folder: Path,
    *lines: str | None,
    script: dict[str, Any] | None = None,
    terminal: bool = False,
    resume: int | None = None,
    quiet: bool = False,
    greets: bool = False,
    answers: Iterator[str] | None = None,
    preferences: Preferences | None = None,
    out: io.StringIO | None = None,
    look: Callable[[Session], object] = lambda _session: None,
    **more: Any,
) -> tuple[int, str, str]:
    """Chat in lines, of which None takes one back; return the exit code, the answers and the news.

    `answers` are a person's to questions, None where there is no person; `look` gets the session before it is closed.
    """
    session = session_of(folder, script, **more)
    out, err = out or io.StringIO(), io.StringIO()
    preferences = preferences or Preferences(personas={"pirate": "Arr."})
    ask = None if answers is None else lambda _question: next(answers)
    front = Lines(session, preferences, out, err, terminal=terminal, quiet=quiet, ask=ask)
    if resume is not None:
        session.resume(resume, own_models=more.get("talk") is None)
    try:
        code = plain.run(front, lines, greets=greets)
        look(session)
        return code, out.getvalue(), err.getvalue()
    finally:
        session.close()
