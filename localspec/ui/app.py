"""ChatApp: the chat's main screen. Shows what the session knows, and hands it what the user wants.

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
from localspec.ui.bars import Below, Notice, StatsPanel, StatusLine
from localspec.ui.clean import clean_line
from localspec.ui.commands import BY_NAME, parse
from localspec.ui.composer import Composer, Entry
from localspec.ui.feed import Feed
from localspec.ui.figures import stats_lines, status
from localspec.ui.guard import LineGuard
from localspec.ui.keys import IN_APP
from localspec.ui.message_view import MessageView
from localspec.ui.palette import palette
from localspec.ui.preferences import Preferences
from localspec.ui.session import Session
from localspec.ui.shown import Shown, growing, shown
from localspec.ui.transcript import Item, Transcript
from localspec.ui.typeset import Typesetter, code_theme

_WELCOME = """\
Ask something. What the draft proposes and the target confirms is shown as it comes.

/ lists the commands, @ puts a file into the context, F1 lists the keys.
Esc stops an answer and keeps what is there."""


class ChatApp(App[None]):
    """The chat.

    Args:
        session: what it shows.
        preferences: how the user likes it.
        resume: the conversation to take up.

    Attributes:
        editing: the number of the question that is being changed; None while none is.
    """

    CSS_PATH = "app.tcss"
    TITLE = "localspec"
    BINDINGS: ClassVar[list[BindingType]] = IN_APP

    def __init__(
        self, session: Session, preferences: Preferences | None = None, resume: int | None = None
    ) -> None:
        super().__init__()
        self.session = session
        self.preferences = preferences or Preferences()
        self.editing: int | None = None
        self._early = ""
        self._guard = LineGuard()
        self._feed = Feed(self, resume)
        self._typesetter: Typesetter | None = None
        self.transcript = Transcript(self.typesetter)
        self.entry = Entry(session.folder)
        self._notice, self._below = Notice(), Below()
        self._stats, self._status = StatsPanel(), StatusLine()

    def compose(self) -> ComposeResult:
        """Return the main screen."""
        yield self._stats
        yield self.transcript
        yield self._below
        yield self._notice
        yield self.entry
        yield self._status

    async def on_mount(self) -> None:
        """Paint, and only then start what takes time."""
        self._end_when_told()
        self.set_keymap(dict(self.preferences.keys))
        if self.preferences.theme:
            self.choose_theme(self.preferences.theme)
        self.theme_changed_signal.subscribe(self, lambda _: self._colours_changed())
        await self.show_messages()
        self.entry.composer.focus()
        self.tell_state()
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
        # Where no colours are wanted Textual would still send greys.
        plain = [NoColor()] if self.no_color else []
        return [*super().get_line_filters(), *plain, self._guard]

    @property
    def failure(self) -> Exception | None:
        """What ended the app, if it was not the user."""
        return self._exception

    def _fatal_error(self) -> None:
        # Textual would print a traceback with all locals; whoever runs the app has one line for it.
        self._close_messages_no_wait()

    # What is shown.

    def typesetter(self) -> Typesetter:
        """Return what lays text out in the colours of now."""
        if self._typesetter is None:
            self._typesetter = Typesetter(
                self.console, code_theme(self.current_theme, self.no_color)
            )
        return self._typesetter

    def choose_theme(self, name: str) -> None:
        """Change the colours, or say which there are."""
        if name in self.available_themes:
            self.theme = name
        else:
            self.tell(
                f"there is no theme {name[:40]!r}: known are {', '.join(self.available_themes)}"
            )

    def tell(self, text: str) -> None:
        """Show one line of news above the composer; an empty text takes it away."""
        self._notice.tell(text)

    def tell_state(self) -> None:
        """Show what the engine is at, and figures of the last answer."""
        session = self.session
        left = session.state.line() + (" · answering, Esc stops" if session.busy else "")
        if session.talk.history.trouble:
            left = f"not saved · {left}"
        n_ctx = None if session.state.ready is None else session.state.ready.n_ctx
        self._status.tell(left, status(session.exchange, n_ctx, session.context_tokens()))
        if self._stats.display:
            self._stats.tell(
                lambda width: stats_lines(session.exchange, session.earlier_rounds, width)
            )

    def toggle_stats(self) -> None:
        """Show or hide the stats."""
        self._stats.display = not self._stats.display
        self.tell_state()

    def items(self, upto: int | None = None) -> list[Item]:
        """Return the messages of the conversation, up to one of them or all."""
        numbers = self.session.talk.numbers()
        found = []
        for each in self.session.talk.messages:
            found.append(Item(each.id, shown(each, numbers.get(each.id))))
            if each.id == upto:
                break
        return found or [Item(None, Shown("localspec", _WELCOME, kind="greeting"))]

    async def show_messages(self) -> None:
        """Show the conversation as it stands."""
        await self.transcript.show(self.items())

    async def show_answering(self) -> None:
        """Show the question that is being answered, and the answer as it grows."""
        self.tell("")
        session = self.session
        items = self.items(session.answering.parent)
        await self.transcript.show(items if session.answering.continued is None else items[:-1])
        await self.transcript.begin(self._growing())
        self.tell_state()

    def grow(self) -> None:
        """Show more of the answer that grows."""
        self.transcript.grow(self._growing())

    def _growing(self) -> Shown:
        assert self.session.exchange is not None  # noqa: S101 - something is being answered
        ready = self.session.state.ready
        name = "" if ready is None else clean_line(ready.target)
        return growing(self.session.exchange, name, self.session.answering.continued)

    def _colours_changed(self) -> None:
        self._typesetter = None
        self.transcript.lay_out_again()

    def on_transcript_followed(self) -> None:
        """Say at once where the end is when the user scrolls."""
        self.tell_place()

    def tell_place(self) -> None:
        """Say where the end is while it is out of sight."""
        self._below.display = not self.transcript.follows

    # What the user wants.

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
            self.tell("")
            await self._attempt(actions.run(self, command, ""))

    async def action_message(self, what: str) -> None:
        """Do something with the message that has the focus."""
        if isinstance(self.focused, MessageView):
            await self._attempt(actions.on_message(self, self.focused, what))

    async def action_stop(self) -> None:
        """Stop what runs; otherwise go back to the composer, and leave an edited question as it was."""
        if self.session.stop():
            return
        if self.editing is not None:
            self.editing = None
            self.entry.composer.fill("")
            self.tell("")
        self.entry.composer.focus()

    def action_to_end(self) -> None:
        """Show the end of the transcript and follow it."""
        self.transcript.to_end()

    def action_page(self, direction: int) -> None:
        """Scroll the transcript by a page."""
        if direction < 0:
            self.transcript.scroll_page_up(animate=False)
        else:
            self.transcript.scroll_page_down(animate=False)

    def action_copy_or_stop(self) -> None:
        """Copy what is selected; else stop; else clear the composer; else say how to leave."""
        selected = self.screen.get_selected_text() or self.entry.composer.selected_text
        if selected:
            self.copy(selected)
        elif not self.session.stop():
            if self.entry.composer.text:
                self.entry.composer.fill("")
            else:
                self.tell("Ctrl+Q leaves")

    def copy(self, text: str) -> None:
        """Copy a text by way of the terminal (OSC 52)."""
        self.copy_to_clipboard(text)
        self.tell(f"copied {len(text)} characters, if the terminal allows it")

    def on_message_view_chosen(self, event: MessageView.Chosen) -> None:
        """Give the focus to a message that was clicked on, unless something was selected."""
        if not self.screen.get_selected_text():
            event.view.focus(scroll_visible=False)

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:  # noqa: ARG002
        """Yield the commands for the palette."""
        yield from palette(self)

    async def _send(self, text: str) -> None:
        found = parse(text)
        if found is None:
            actions.ask(self, text)
            self.entry.composer.accept(text)
            await self.show_answering()
        else:
            self.tell("")
            self.entry.composer.accept(text)
            await actions.run(self, *found)

    async def _attempt(self, doing: Awaitable[None]) -> None:
        try:
            await doing
        except (LocalspecError, OSError) as error:
            self.tell(str(error))
