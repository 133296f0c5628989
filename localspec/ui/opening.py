"""OpeningScreen: the terminal from the start of the chat until Textual holds it, and what is seen of the chat meanwhile.

Imports little: Textual alone takes longer than a first frame should.
"""

import gc
import os
import shutil
import signal
import sys
import termios
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from types import TracebackType
from typing import Any, Self

from localspec.errors import LocalspecError
from localspec.ui.first_frame import depth_of, first_frame
from localspec.ui.ground import QUESTION, answer, is_dark, typed
from localspec.ui.preferences import read_preferences

ALTERNATE = "\x1b[?1049h"
# No cursor, pastes marked as such, and lines that end where they end: as Textual has it.
_ENTER, _LEAVE = (
    f"{ALTERNATE}\x1b[?25l\x1b[?2004h\x1b[?7l",
    "\x1b[?7h\x1b[?2004l\x1b[?1049l\x1b[?25h",
)
# These show something else first, or no screen at all.
_OTHERWISE = {"-h", "--help", "-c", "--continue", "--plain"}
_LFLAG, _IFLAG, _CC = 3, 0, 6
_THEMES = {"": None, "dark": True, "light": False}


def has_screens() -> bool:
    """Return whether there is a terminal that screens can be drawn on."""
    # Textual draws on stderr: redirected into a file, it would leave the terminal dark.
    streams = (sys.stdin, sys.stdout, sys.stderr)
    terminals = all(stream is not None and stream.isatty() for stream in streams)
    return terminals and os.environ.get("TERM", "") not in {"", "dumb"}


def opening(words: Sequence[str]) -> AbstractContextManager["OpeningScreen | None"]:
    """Return what paints the first frame, where a command line asks for nothing else than the chat's screens."""
    paints = words[:1] == ["chat"] and not _OTHERWISE & set(words) and has_screens()
    return OpeningScreen(paints=True) if paints else nullcontext()


class OpeningScreen:
    """Takes the terminal, as Textual will: what is typed is not echoed, and waits until somebody reads it.

    Args:
        paints: whether to show the first frame; else only the terminal is asked for its colours.

    Attributes:
        before: how the terminal was; None where there is none.
        typed: what was typed and had to be read already.
        painted: whether something is to be seen of it.
    """

    def __init__(self, *, paints: bool = False) -> None:
        self._paints = paints
        self._dark: bool | None = None
        self._asked = False
        self.before: list[Any] | None = None
        self.typed = b""
        self.painted = False

    def __enter__(self) -> Self:
        try:
            theme = read_preferences().theme
        except LocalspecError:  # the chat says so
            theme = ""
        self._dark = _THEMES.get(theme)
        gc.disable()  # of what is imported now, nothing will be garbage
        try:
            self.before = termios.tcgetattr(0)
        except termios.error:
            return self
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
        termios.tcsetattr(0, termios.TCSANOW, _unechoed(self.before))
        try:
            if not theme and "NO_COLOR" not in os.environ:
                os.write(0, QUESTION)
                self._asked = True
            if self._paints and theme in _THEMES:
                self._paint()
        except BaseException:
            self.leave()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.leave()

    @property
    def dark(self) -> bool:
        """Whether the colours for a dark terminal are to be shown; waits for what the terminal says of itself."""
        if self._asked:
            self._asked = False
            said = answer(0)
            self._dark, self.typed = is_dark(said), self.typed + typed(said)
        return self._dark is not False

    def leave(self) -> None:
        """Give the terminal back as it was, unless Textual has done so."""
        gc.enable()
        if self.painted:
            self.painted = False
            _write(_LEAVE)
        if self.before is not None:
            with suppress(termios.error):  # it may be gone
                termios.tcsetattr(0, termios.TCSANOW, self.before)

    def _paint(self) -> None:
        depth = depth_of(os.environ)
        if depth is None:
            return
        columns, rows = shutil.get_terminal_size()
        frame = first_frame(columns, rows, dark=self.dark, depth=depth)
        if frame:
            self.painted = True
            _write(_ENTER + frame)


def _unechoed(before: list[Any]) -> list[Any]:
    """Return the modes of a terminal as Textual sets them: keys come one by one, none is echoed, none is a signal."""
    modes = [*before]
    modes[_LFLAG] &= ~(termios.ECHO | termios.ICANON | termios.IEXTEN | termios.ISIG)
    modes[_IFLAG] &= ~(termios.IXON | termios.IXOFF | termios.ICRNL | termios.INLCR | termios.IGNCR)
    modes[_CC] = [*modes[_CC]]
    modes[_CC][termios.VMIN] = 1
    return modes


def _write(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()
