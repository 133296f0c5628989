"""TerminalDriver: Textual's hold of the terminal, which begins where the `OpeningScreen` was and survives a terminal that is gone."""

import asyncio
import signal
import sys
from contextlib import suppress
from functools import partial
from typing import IO, Any, ClassVar

from textual._xterm_parser import XTermParser
from textual.app import App
from textual.driver import Driver
from textual.drivers.linux_driver import LinuxDriver

from localspec.ui.opening import ALTERNATE, OpeningScreen


class TerminalDriver(LinuxDriver):
    """Goes on from an opening; see `after`."""

    opening: ClassVar[OpeningScreen]

    def __init__(self, app: App[Any], **options: Any) -> None:
        super().__init__(app, **options)
        assert sys.__stderr__ is not None  # noqa: S101 - there is a terminal
        self._file = _Output(sys.__stderr__)  # type: ignore[assignment]

    def start_application_mode(self) -> None:
        """Take the terminal; who gets it back finds it as it was before the opening, also where a signal asks for it."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, partial(self._app.exit, return_code=128 + number))
        super().start_application_mode()  # type: ignore[no-untyped-call]
        if self.attrs_before is not None:
            self.attrs_before = self.opening.before

    def write(self, data: str) -> None:
        """Write; but what is painted already is not wiped away before there is something else."""
        if data == ALTERNATE and self.opening.painted:
            self.opening.painted = False
            return
        super().write(data)

    def run_input_thread(self) -> None:
        """Take what was typed before, and then what is."""
        typed, self.opening.typed = self.opening.typed, b""
        for event in XTermParser().feed(typed.decode(errors="replace")):
            self.process_message(event)
        super().run_input_thread()


def after(opening: OpeningScreen) -> type[Driver]:
    """Return the driver that goes on from an opening."""
    return type("_Driver", (TerminalDriver,), {"opening": opening})


class _Output:
    """A stream to the terminal that is silent when that is gone: Textual's thread would end, and what waits for it hang."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self.fileno = stream.fileno

    def write(self, text: str) -> None:
        with suppress(OSError):
            self._stream.write(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()
