"""ChatApp: turns keys, clicks and what is sent into questions and commands, and what the engine sends into what is visible.

A worker follows the engine and posts each notice, so that it is taken between keys.
"""

import asyncio
import gc
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar, TextIO

from rich.segment import Segment
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.color import Color
from textual.driver import Driver
from textual.filter import LineFilter, NoColor
from textual.worker import WorkerFailed

from localspec.display import clean, counted
from localspec.session.compaction import typed_of
from localspec.session.conversation import content_of
from localspec.session.preferences import Preferences
from localspec.tui import commands
from localspec.tui.actions import branch_behind, code_of, mark
from localspec.tui.commands import Command, parse, unquoted
from localspec.tui.composer import Composer
from localspec.tui.keys import IN_APP, WholePastes, key_text
from localspec.tui.message import MessageView
from localspec.tui.screens import Screens
from localspec.tui.session import Session
from localspec.tui.sheets import SheetRow
from localspec.tui.typeset import prepare

# A second Ctrl+C within so many seconds leaves.
_AGAIN_S = 2.0
_RECALLED = 100
_TICK_S = 0.2


class LineGuard(LineFilter):
    """Replaces what a terminal would obey, in every line of every widget.

    Links are taken off, too: a terminal opens them, and their addresses come from a model.
    """

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:  # noqa: ARG002
        """Return the segments as they may be written."""
        return [_guarded(segment) for segment in segments]


def _guarded(segment: Segment) -> Segment:
    text, style, control = segment
    if style is not None and style.link:
        segment = Segment(text, style.update_link(None), control)
    if control is not None or text.isprintable():
        return segment
    cleaned = clean(text).replace("\n", " ")
    return segment if cleaned == text else Segment(cleaned, segment.style)


class _Vanishing:
    """A terminal that takes everything when it is gone: Textual's writer would end, and the chat wait for it for ever.

    Args:
        file: the terminal's.
    """

    def __init__(self, file: "TextIO | _Vanishing") -> None:
        self._file = file
        self._gone = False

    def write(self, text: str) -> None:
        self._do(partial(self._file.write, text))

    def flush(self) -> None:
        self._do(self._file.flush)

    def fileno(self) -> int:
        return self._file.fileno()

    def _do(self, act: Callable[[], object]) -> None:
        try:
            if not self._gone:
                act()
        except OSError:
            self._gone = True


class ChatApp(Screens):
    """The chat.

    Args:
        session: what it shows.
        preferences: how the user likes it.
        modes: of the terminal, as termios has them, before the program; it is left with them. None where it is no terminal.

    Attributes:
        failure: the error that ended the app; None if it was the user.
    """

    CSS_PATH = "app.tcss"
    TITLE = "localspec"
    BINDINGS: ClassVar[list[BindingType]] = IN_APP
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (110, "-wide")]  # noqa: RUF012 - as Textual has it

    def __init__(
        self,
        session: Session,
        preferences: Preferences | None = None,
        *,
        modes: list[Any] | None = None,
    ) -> None:
        super().__init__(session, preferences)
        self._before = modes
        self.failure: BaseException | None = None
        self._advised_s = -_AGAIN_S
        self._failed = ""
        # The same ones every time: Textual stores lines by the filters that they passed.
        self._gates: tuple[LineFilter, ...] = (LineGuard(),)

    # From the start to the end.

    # Private to Textual, which has no public hook: it would print a traceback with all locals, the conversation's among them.
    def _handle_exception(self, error: Exception) -> None:
        """Store the first error, and end without printing it."""
        if self.failure is None:
            self.failure = error.error if isinstance(error, WorkerFailed) else error
        super()._handle_exception(error)
        self._exit_renderables.clear()

    def compose(self) -> ComposeResult:
        """Return the main screen."""
        yield from self.view.widgets()

    def on_load(self) -> None:
        """Have a signal end the program by way of Textual, which gives the terminal back."""
        if self._before is not None:
            for number in (signal.SIGTERM, signal.SIGHUP):
                asyncio.get_running_loop().add_signal_handler(
                    number, partial(self.exit, return_code=128 + number)
                )

    def get_driver_class(self) -> type[Driver]:
        """Return Textual's driver, with a terminal that may vanish, and whose modes before it are those before the program."""
        driver, app = super().get_driver_class(), self
        module = sys.modules[driver.__module__]
        if hasattr(module, "XTermParser"):  # private, too
            module.XTermParser = WholePastes  # type: ignore[attr-defined]

        # What it writes to is private to Textual, which has no public hook.
        class Terminal(driver):  # type: ignore[misc,valid-type]
            def __init__(self, *args: Any, **options: Any) -> None:
                super().__init__(*args, **options)
                self._file: _Vanishing | TextIO = _Vanishing(self._file)

            def start_application_mode(self) -> None:
                super().start_application_mode()
                # Not before: an Enter that comes while the terminal is as it was would be a new line.
                if app._before is not None:
                    self.attrs_before, app._before = app._before, None

        return Terminal

    async def on_mount(self) -> None:
        """Show the conversation, and load."""
        if self.no_color:  # where Textual would still send greys
            self._gates = (NoColor(), *self._gates)
        self.set_keymap(self._keys)
        if self.preferences.theme:
            self.choose_theme(self.preferences.theme)
            self._theme_used = self.theme
        self.theme_changed_signal.subscribe(self, lambda each: self.theme_changed(each.name))
        # The terminal was another program's meanwhile: Textual lays out again, and draws only what that changes.
        self.app_resume_signal.subscribe(self, lambda _: self.screen.refresh())
        await self.view.show_messages()
        self.view.entry.composer.focus()
        self.view.entry.composer.recall = self.session.talk.history.questions(_RECALLED)
        work = self.session.work
        if notes := [*self._wrong_keys, *([] if work is None else work.notes)]:
            self.report("; ".join(notes))
        self.session.start()
        # All that is here will stay: without looking through it, collecting garbage stops no frame for 50 ms.
        gc.freeze()
        # While the engine loads, and not when the first answer comes.
        self.run_worker(prepare, thread=True, exit_on_error=False)
        self.set_interval(_TICK_S, self._tick)

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Return what every line passes on its way to the terminal."""
        return [*super().get_line_filters(), *self._gates]

    def _tick(self) -> None:
        """Show what time brings: how far a load is, a call that runs, trouble with the disk, a terminal that is gone."""
        session = self.session
        if not (self.is_headless or os.isatty(0)):  # no signal may have come
            self.exit()
        for note in session.news():
            self.report(note)
        if session.waiting and session.models.ready is not None and not session.busy:
            self.run_worker(self.attempt(self.ask_next()))  # a model was loaded for them
        if session.work is not None and session.work.line():
            self.report(session.work.line(), session.work.line)
        self.draw()

    # What the user does.

    async def on_composer_sent(self, event: Composer.Sent) -> None:
        """Run a command, or send a question; what cannot be done is reported, and the text stays."""
        self.view.entry.composer.arrived(event.text)
        await self.attempt(self._send(event.text, event.pasted))

    async def _send(self, typed: str, pasted: frozenset[str]) -> None:
        text = unquoted(typed)
        self.session.questions.pasted[text] = pasted
        command = parse(text, typed=text == typed)
        self.report("")
        composer, session = self.view.entry.composer, self.session
        if command is not None:
            composer.accept(text)
            # What could not be done can be mended and sent again; what is typed in its place replaces it.
            if not await self.run_command(command[0].name, command[1]) and not composer.text:
                composer.fill(typed)
                composer.select_all()
                self._failed = typed
            return
        if self.editing is None and (session.growing or session.models.missing):
            waiting = session.waiting
            waiting.append(text)
            composer.accept(typed)
            many = counted(len(waiting), "question")
            what = (
                "stops this answer and returns what waits to the input line"
                if session.growing
                else "returns what waits to the input line; no model is loaded: /model chooses one"
            )
            self.report(f"{many} waiting; Esc {what}", lambda: waiting)
            return
        if self.editing is None:
            notes = session.ask(text)
        else:
            notes = session.ask_instead(self.editing, text)
            self.editing = None
        composer.accept(typed)
        if notes:
            self.report("; ".join(notes))
        await self.show_answer()

    async def action_command(self, name: str) -> None:
        """Run a command without an argument, by its key; the same key closes the sheet that it opened."""
        if len(self.screen_stack) == 1:
            await self.run_command(name)
        elif self.opened == (name, self.screen):
            self.screen.dismiss(None)

    async def action_message(self, what: str) -> None:
        """Do something with the message that has the focus."""
        if isinstance(self.focused, MessageView):
            await self.attempt(self._do_with(self.focused, what))

    async def _do_with(self, view: MessageView, what: str) -> None:
        """Do what a key of a message is for; see `keys.ON_MESSAGE`."""
        talk = self.session.talk
        message = next((each for each in talk.messages if each.id == view.message_id), None)
        if what == "think":
            view.toggle_fold()
        elif message is None:
            return
        elif what == "copy":
            self.copy(typed_of(message) or content_of(message.message))
        elif what == "code":
            blocks = code_of(message.message.text)
            self.copy(blocks[-1 - view.copied % len(blocks)])
            view.copied += 1
        elif what in {"good", "bad"}:
            mark(self, "good" if what == "good" else "bad", message)
        elif what == "branch":
            await branch_behind(self, talk.messages.index(message) + 1)
        elif what == "edit":
            await self.run_command("edit", str(talk.numbers().get(message.id, "")))
        else:
            self.session.require_rest()
            other = talk.turn_aside(message, 1 if what == "later" else -1)
            self.session.count()
            await self.show_conversation()
            await self.view.transcript.reveal(other)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Return whether a key means something on the message that has the focus; the line of keys leaves out others."""
        view = self.focused
        if action != "message" or not isinstance(view, MessageView):
            return True
        message = next((e for e in self.session.talk.messages if e.id == view.message_id), None)
        if parameters[0] == "edit":
            return view.text.kind == "question"
        if parameters[0] in {"good", "bad"}:
            return view.text.kind == "reply"
        if parameters[0] in {"earlier", "later"}:
            return message is not None and len(message.siblings) > 1
        return True

    def get_key_display(self, binding: Binding) -> str:
        """Return a key as people write it."""
        return key_text(binding.key)

    def action_stop(self) -> None:
        """Stop what runs; otherwise close the stats, leave an edited question as it was, clear a command that was begun, and go back to the composer."""
        if self.session.stop():
            return
        composer = self.view.entry.composer
        if composer.has_focus and composer.text.startswith("/") and " " not in composer.text:
            self.write("")
        if self.editing is not None:
            self.editing = None
            composer.fill("")
            self.report("")
        self.view.stats.display = False
        composer.focus()

    def action_to_end(self) -> None:
        """Show the end of the transcript and follow it."""
        self.view.transcript.to_end()

    def action_page(self, direction: int) -> None:
        """Scroll the transcript by a page; where all is in sight, a page up would only cease to follow the end."""
        transcript = self.view.transcript
        if direction > 0:
            transcript.scroll_page_down(animate=False)
        elif transcript.max_scroll_y > 0:
            transcript.scroll_page_up(animate=False)

    def action_copy_or_stop(self) -> None:
        """Copy what is selected; else stop, and leave what is typed; else clear the composer; else advise how to leave, and the second time leave."""
        composer = self.view.entry.composer
        selected = self.screen.get_selected_text() or composer.selected_text
        if selected and selected != self._failed:  # which is marked to be replaced
            self.copy(selected)
        elif self.session.stop():
            pass
        elif composer.text:
            self.write("")
        elif time.monotonic() - self._advised_s < _AGAIN_S:
            self.exit()
        else:
            self._advised_s = time.monotonic()
            news = "Ctrl+C again quits, and so do Ctrl+D and /bye"
            self.report(news, lambda: time.monotonic() - self._advised_s < _AGAIN_S)

    def on_message_view_clicked(self, event: MessageView.Clicked) -> None:
        """Copy a block of code; or focus the message, unless something was selected, or is being written."""
        if event.code is not None:
            self.copy(event.code)
        elif not self.screen.get_selected_text() and not self.view.entry.composer.text:
            event.view.focus(scroll_visible=False)

    def on_transcript_followed(self) -> None:
        """Show at once where the end is when the user scrolls."""
        self.view.show_state()

    def on_descendant_focus(self) -> None:
        """Show the keys of a message that has the focus."""
        self.view.show_keys()

    def on_descendant_blur(self) -> None:
        """Take them away."""
        self.view.show_keys()

    def action_command_palette(self) -> None:
        """Let the user find a command by what it does; one that needs more than its name is put into the composer."""

        def found(name: str) -> None:
            self.call_later(self._by_palette, commands.BY_NAME[name])

        rows = [SheetRow(each.name, f"/{each.name}  {each.about}") for each in commands.COMMANDS]
        self.find("Commands", rows, found)

    async def _by_palette(self, command: Command) -> None:
        if command.needs_more:
            self.view.entry.composer.fill(f"/{command.name} ")
        else:
            await self.action_command(command.name)
