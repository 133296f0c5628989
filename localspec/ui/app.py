"""ChatApp: hands the session what the user wants, by keys, commands and clicks; `MainView` shows what came of it.

Painted before the engine is started: nothing that is slow is imported or opened until then.
"""

import asyncio
import signal
from collections.abc import Awaitable, Iterable, Sequence
from contextlib import suppress
from typing import ClassVar

from textual.app import App, ComposeResult, SystemCommand
from textual.binding import BindingType
from textual.filter import LineFilter, NoColor
from textual.screen import Screen

from localspec.errors import LocalspecError
from localspec.ui import actions
from localspec.ui.commands import BY_NAME, parse
from localspec.ui.composer import Composer
from localspec.ui.feed import Feed
from localspec.ui.guard import LineGuard
from localspec.ui.keys import IN_APP
from localspec.ui.main_view import MainView
from localspec.ui.message_actions import on_message
from localspec.ui.message_view import MessageView
from localspec.ui.palette import palette
from localspec.ui.preferences import Preferences
from localspec.ui.session import Session


class ChatApp(App[None]):
    """The chat.

    Args:
        session: what it shows.
        preferences: how the user likes it.

    Attributes:
        editing: the number of the question that is being changed; None while none is.
    """

    CSS_PATH = "app.tcss"
    TITLE = "localspec"
    BINDINGS: ClassVar[list[BindingType]] = IN_APP

    def __init__(self, session: Session, preferences: Preferences | None = None) -> None:
        super().__init__()
        self.session = session
        self.preferences = preferences or Preferences()
        self.editing: int | None = None
        self._early = ""
        # The same ones every time: Textual keeps lines by the filters that they passed.
        self._gates: tuple[LineFilter, ...] = (LineGuard(),)
        self._feed = Feed(self)
        self.view = MainView(self)

    def compose(self) -> ComposeResult:
        """Return the main screen."""
        yield from self.view.widgets()

    async def on_mount(self) -> None:
        """Paint, and only then start what takes time."""
        self._end_when_told()
        if self.no_color:  # where Textual would still send greys
            self._gates = (NoColor(), *self._gates)
        self.set_keymap(dict(self.preferences.keys))
        if self.preferences.theme:
            self.choose_theme(self.preferences.theme)
        self.theme_changed_signal.subscribe(self, lambda _: self.view.colours_changed())
        await self.view.show_messages()
        self.view.entry.composer.focus()
        self.view.tell_state()
        self.call_after_refresh(self._feed.start)

    def _end_when_told(self) -> None:
        """Leave properly, and give the terminal back, also where a signal asks for it."""
        for name in ("SIGTERM", "SIGHUP"):
            number = getattr(signal, name, None)  # Windows has neither handlers nor SIGHUP
            if number is not None:
                with suppress(NotImplementedError, RuntimeError, ValueError):
                    asyncio.get_running_loop().add_signal_handler(number, self.exit)

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Return what every line passes on its way to the terminal."""
        return [*super().get_line_filters(), *self._gates]

    @property
    def failure(self) -> Exception | None:
        """What ended the app, if it was not the user."""
        return self._exception

    def _fatal_error(self) -> None:
        # Textual would print a traceback with all locals; whoever runs the app has one line for it.
        self._close_messages_no_wait()

    def choose_theme(self, name: str) -> None:
        """Change the colours, or say which there are."""
        if name in self.available_themes:
            self.theme = name
        else:
            known = ", ".join(self.available_themes)
            self.view.tell(f"there is no theme {name[:40]!r}: known are {known}")

    def on_transcript_followed(self) -> None:
        """Say at once where the end is when the user scrolls."""
        self.view.tell_place()

    async def on_composer_sent(self, event: Composer.Sent) -> None:
        """Run a command, or ask; what cannot be done is told, and the text stays."""
        if self._feed.started:
            await self._attempt(self._send(event.text))
        else:
            self._early = event.text

    async def send_early(self) -> None:
        """Take up what was sent between the first paint and the start of the engine."""
        text, self._early = self._early, ""
        if text:
            await self._attempt(self._send(text))

    async def action_command(self, name: str) -> None:
        """Run a command without an argument."""
        command = BY_NAME[name]
        if len(self.screen_stack) == 1 and (self._feed.started or command.while_busy):
            self.view.tell("")
            await self._attempt(actions.run(self, command, ""))

    async def action_message(self, what: str) -> None:
        """Do something with the message that has the focus."""
        if isinstance(self.focused, MessageView):
            await self._attempt(on_message(self, self.focused, what))

    async def action_stop(self) -> None:
        """Stop what runs; otherwise go back to the composer, and leave an edited question as it was."""
        if self.session.stop():
            return
        if self.editing is not None:
            self.editing = None
            self.view.entry.composer.fill("")
            self.view.tell("")
        self.view.entry.composer.focus()

    def action_to_end(self) -> None:
        """Show the end of the transcript and follow it."""
        self.view.transcript.to_end()

    def action_page(self, direction: int) -> None:
        """Scroll the transcript by a page."""
        if direction < 0:
            self.view.transcript.scroll_page_up(animate=False)
        else:
            self.view.transcript.scroll_page_down(animate=False)

    def action_copy_or_stop(self) -> None:
        """Copy what is selected; else stop; else clear the composer; else say how to leave."""
        selected = self.screen.get_selected_text() or self.view.entry.composer.selected_text
        if selected:
            self.copy(selected)
        elif not self.session.stop():
            if self.view.entry.composer.text:
                self.view.entry.composer.put_aside()
                self.view.entry.composer.fill("")
            else:
                self.view.tell("Ctrl+Q leaves")

    def copy(self, text: str) -> None:
        """Copy a text by way of the terminal (OSC 52)."""
        self.copy_to_clipboard(text)
        self.view.tell(f"copied {len(text)} characters, if the terminal allows it")

    def on_message_view_chosen(self, event: MessageView.Chosen) -> None:
        """Give the focus to a message that was clicked on, unless something was selected, or is being written."""
        if not self.screen.get_selected_text() and not self.view.entry.composer.text:
            event.view.focus(scroll_visible=False)

    def on_descendant_focus(self) -> None:
        """Show the keys of a message that has the focus."""
        self.view.tell_keys()

    def on_descendant_blur(self) -> None:
        """Take them away."""
        self.view.tell_keys()

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:  # noqa: ARG002
        """Yield the commands for the palette."""
        yield from palette(self)

    async def _send(self, text: str) -> None:
        found = parse(text)
        if found is None:
            actions.ask(self, text)
            self.view.entry.composer.accept(text)
            await self.view.show_answering()
        else:
            self.view.tell("")
            self.view.entry.composer.accept(text)
            await actions.run(self, *found)

    async def _attempt(self, doing: Awaitable[None]) -> None:
        try:
            await doing
        except (LocalspecError, OSError) as error:
            self.view.tell(str(error))
