"""ChatApp: turns keys, clicks and what is sent into questions and commands; `Screens` shows what came of it.

Painted before the engine is started: nothing that is slow is imported or opened until then.
"""

import asyncio
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import ClassVar

from rich.segment import Segment
from textual.app import App, ComposeResult, SystemCommand
from textual.binding import BindingType
from textual.color import Color
from textual.filter import LineFilter, NoColor
from textual.screen import Screen

from localspec.display import clean
from localspec.session.conversation import content_of
from localspec.session.preferences import Preferences
from localspec.tui.actions import branch_behind, code_of
from localspec.tui.colours import DARK, THEMES
from localspec.tui.commands import BY_NAME, COMMANDS, Command, parse, unquoted
from localspec.tui.composer import Composer
from localspec.tui.feed import EngineNotice, Feed
from localspec.tui.keys import IN_APP
from localspec.tui.main_view import MainView
from localspec.tui.message import MessageView
from localspec.tui.screens import Screens
from localspec.tui.session import Session
from localspec.tui.shown import ELSEWHERE


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


# A second Ctrl+C within so many seconds leaves.
_AGAIN_S = 2.0
_RECALLED = 100


class ChatApp(App[None]):
    """The chat.

    Args:
        session: what it shows.
        preferences: how the user likes it.
        give_back: called before the terminal is taken, which then is as it was before the program.
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
        give_back: Callable[[], None] | None = None,
    ) -> None:
        super().__init__()
        self._give_back = give_back
        for each in THEMES:
            self.register_theme(each)
        self.theme = DARK
        self.session = session
        self.preferences = preferences or Preferences()
        self._early: list[str] = []
        self._told_s = -_AGAIN_S
        # The same ones every time: Textual keeps lines by the filters that they passed.
        self._gates: tuple[LineFilter, ...] = (LineGuard(),)
        self.view = MainView(self, session, self.preferences.keys)
        self._front = Screens(self, session, self.preferences, self.view)
        self._feed = Feed(self, self._front)

    def compose(self) -> ComposeResult:
        """Return the main screen."""
        yield from self.view.widgets()

    def on_load(self) -> None:
        """Leave the terminal as Textual shall give it back, and end by way of it when a signal comes."""
        if self._give_back is not None:
            self._give_back()
            for number in (signal.SIGTERM, signal.SIGHUP):
                leave = partial(self.exit, return_code=128 + number)
                asyncio.get_running_loop().add_signal_handler(number, leave)

    async def on_mount(self) -> None:
        """Paint, and only then start what takes time."""
        if self.no_color:  # where Textual would still send greys
            self._gates = (NoColor(), *self._gates)
        self.set_keymap(dict(self.preferences.keys))
        if self.preferences.theme:
            self._front.choose_theme(self.preferences.theme)
        self._front.theme = self.theme
        self.theme_changed_signal.subscribe(self, lambda each: self._front.theme_changed(each.name))
        await self.view.show_messages()
        self.view.entry.composer.focus()
        self.call_after_refresh(self._start)

    async def _start(self) -> None:
        """Start the engine, and take up what was sent since the first paint."""
        self._feed.start()
        self.view.entry.composer.recall[:0] = self.session.talk.history.questions(_RECALLED)
        for text in self._early:
            await self._front.attempt(self._send(text))

    async def on_engine_notice(self, event: EngineNotice) -> None:
        """Take what the engine sent."""
        await self._feed.take(event.notice)

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Return what every line passes on its way to the terminal."""
        return [*super().get_line_filters(), *self._gates]

    @property
    def failure(self) -> Exception | None:
        """What ended the app, if it was not the user."""
        return self._exception

    def _fatal_error(self) -> None:
        # Textual would print a traceback with all locals; whoever runs the app has one line for it.
        self.panic()

    def on_transcript_followed(self) -> None:
        """Say at once where the end is when the user scrolls."""
        self.view.tell_place()

    async def on_composer_sent(self, event: Composer.Sent) -> None:
        """Run a command, or ask; what cannot be done is told, and the text stays."""
        if self._feed.started:
            await self._front.attempt(self._send(event.text))
        else:
            sent = "".join(self._early)  # stays in the composer until it is accepted
            self._early.append(event.text.removeprefix(sent))

    async def _send(self, text: str) -> None:
        text, typed = unquoted(text), text
        found = parse(text, typed=text == typed)
        self._front.tell("")
        composer = self.view.entry.composer
        if found is not None:
            composer.accept(text)
            # What could not be done can be mended and sent again.
            if not await self._front.run(found[0].name, found[1]) and not composer.text:
                composer.fill(typed)
            return
        if self._front.editing is None and self.session.growing:
            waiting = self.session.waiting
            waiting.append(text)
            self.view.entry.composer.accept(typed)
            many = f"{len(waiting)} question{'' if len(waiting) == 1 else 's'}"
            told = f"{many} waiting; Esc stops this answer and returns what waits to the input line"
            self._front.tell(told, lambda: waiting)
            return
        elsewhere = self.session.talk.is_open_elsewhere
        if self._front.editing is None:
            self.session.ask(text)
        else:
            self.session.ask_instead(self._front.editing, text)
            self._front.editing = None
        self.view.entry.composer.accept(typed)
        if elsewhere:
            self._front.tell(ELSEWHERE)
        for name in self.session.unmatched(text):
            self._front.tell(f"no file matches {name}: sent as text")
        await self._front.show_answer()

    async def action_command(self, name: str) -> None:
        """Run a command without an argument, by its key; the same key closes the sheet that it opened."""
        if len(self.screen_stack) == 1 and (self._feed.started or BY_NAME[name].while_busy):
            await self._front.run(name)
        elif self._front.opened == (name, self.screen):
            self.screen.dismiss(None)

    async def action_message(self, what: str) -> None:
        """Do something with the message that has the focus."""
        if isinstance(self.focused, MessageView):
            await self._front.attempt(self._do_with(self.focused, what))

    async def _do_with(self, view: MessageView, what: str) -> None:
        """Do what a key of a message is for; see `keys.ON_MESSAGE`."""
        talk, front = self.session.talk, self._front
        message = next((each for each in talk.messages if each.id == view.message_id), None)
        if what == "think":
            view.toggle_fold()
        if message is None:
            return
        match what:
            case "copy":
                front.copy(message.message.typed or content_of(message.message))
            case "code":
                blocks = code_of(message.message.text)
                front.copy(blocks[-1 - view.copied % len(blocks)])
                view.copied += 1
            case "branch":
                await front.attempt(branch_behind(front, talk.messages.index(message) + 1))
            case "edit" if message.id in talk.numbers():
                await front.run("edit", str(talk.numbers()[message.id]))
            case "earlier" | "later":
                self.session.require_rest()
                other = talk.turn_aside(message, 1 if what == "later" else -1)
                self.session.count()
                await front.show_conversation()
                await self.view.transcript.reveal(other)
            case _:
                pass

    def action_stop(self) -> None:
        """Stop what runs; otherwise close the stats, leave an edited question as it was, clear a command that was begun, and go back to the composer."""
        if not self.session.stop():
            composer = self.view.entry.composer
            if composer.has_focus and composer.text.startswith("/") and " " not in composer.text:
                composer.put_aside()
                composer.fill("")
            self.view.close_stats()
            self._front.leave_edited()
            self.view.entry.composer.focus()

    def action_to_end(self) -> None:
        """Show the end of the transcript and follow it."""
        self.view.transcript.to_end()

    def action_page(self, direction: int) -> None:
        """Scroll the transcript by a page."""
        if direction < 0:
            # Where all is in sight, a page up would only cease to follow the end.
            if self.view.transcript.max_scroll_y > 0:
                self.view.transcript.scroll_page_up(animate=False)
        else:
            self.view.transcript.scroll_page_down(animate=False)

    def action_copy_or_stop(self) -> None:
        """Copy what is selected; else stop; else clear the composer; else say how to leave, and the second time leave."""
        composer = self.view.entry.composer
        selected = self.screen.get_selected_text() or composer.selected_text
        if selected:
            self._front.copy(selected)
        elif not self.session.stop():
            if composer.text:
                composer.put_aside()
                composer.fill("")
            elif time.monotonic() - self._told_s < _AGAIN_S:
                self.exit()
            else:
                told_s = self._told_s = time.monotonic()
                told = "Ctrl+C again quits, and so do Ctrl+D and /bye"
                self._front.tell(told, lambda: time.monotonic() - told_s < _AGAIN_S)

    def on_message_view_chosen(self, event: MessageView.Chosen) -> None:
        """Give the focus to a message that was clicked on, unless something was selected, or is being written."""
        if not self.screen.get_selected_text() and not self.view.entry.composer.text:
            event.view.focus(scroll_visible=False)

    def on_message_view_code_chosen(self, event: MessageView.CodeChosen) -> None:
        """Copy a block of code."""
        self._front.copy(event.code)

    def on_descendant_focus(self) -> None:
        """Show the keys of a message that has the focus."""
        self.view.tell_keys()

    def on_descendant_blur(self) -> None:
        """Take them away."""
        self.view.tell_keys()

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:  # noqa: ARG002
        """Yield the commands for the palette; one that needs more than its name is put into the composer."""
        for command in COMMANDS:

            async def call(command: Command = command) -> None:
                if command.needs_more:
                    self.view.entry.composer.fill(f"/{command.name} ")
                else:
                    await self.action_command(command.name)

            yield SystemCommand(f"/{command.name}  {command.about}", "", call)
