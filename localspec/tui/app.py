"""ChatApp: turns keys, clicks and what is sent into questions and commands, and what the engine sends into what is visible.

A worker follows the engine and posts each notice, so that it is taken between keys.
"""

import asyncio
import gc
import os
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import ClassVar

from rich.segment import Segment
from textual.app import ComposeResult, SystemCommand
from textual.binding import Binding, BindingType
from textual.color import Color
from textual.filter import LineFilter, NoColor
from textual.message import Message
from textual.screen import Screen
from textual.worker import WorkerFailed

from localspec.chat.events import Finished
from localspec.decoding.round import StopReason
from localspec.display import clean
from localspec.engine.protocol import EngineDied, Failed, Notice, Ready
from localspec.session.approval import CallRunner
from localspec.session.conversation import content_of
from localspec.session.preferences import Preferences
from localspec.tui.actions import branch_behind, code_of, when_full, when_nearly_full
from localspec.tui.commands import COMMANDS, Command, parse, unquoted
from localspec.tui.composer import Composer
from localspec.tui.keys import IN_APP, key_text
from localspec.tui.message import MessageView
from localspec.tui.models import Phase
from localspec.tui.screens import Screens
from localspec.tui.session import Session
from localspec.tui.sheets import ApprovalSheet
from localspec.tui.typeset import prepare

# A second Ctrl+C within so many seconds leaves.
_AGAIN_S = 2.0
_RECALLED = 100
_RESTART_AGAIN_S = 60.0
_LESS_MEMORY = "a smaller model (F8) or context (/set ctx) needs less memory"


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


class Pace:
    """When text that streams is drawn again, by what that took the last time.

    Passes want every core, and each of their threads waits for the others: what screens take, answers lose. Text that
    scrolls has the whole screen composed again, which costs five times as much as a line that grows.
    """

    SHARE = 0.03
    """Of a core, at most, unless that would be less often than `SELDOMEST_S`."""
    SELDOMEST_S = 0.5

    def __init__(self) -> None:
        self._at_s = self._at_cpu_s = 0.0

    def is_due(self, now_s: float, cpu_s: float) -> bool:
        """Return whether it is time, by a clock and by this thread's own seconds of processor."""
        return now_s - self._at_s >= min((cpu_s - self._at_cpu_s) / self.SHARE, self.SELDOMEST_S)

    def drawn(self, now_s: float, cpu_s: float) -> None:
        """Note that it is drawn now."""
        self._at_s, self._at_cpu_s = now_s, cpu_s


class EngineNotices(Message):
    """The engine sent something, or it is time to look at what else may have changed."""

    def __init__(self, notices: list[Notice]) -> None:
        self.notices = notices
        super().__init__()


class ChatApp(Screens):
    """The chat.

    Args:
        session: what it shows.
        preferences: how the user likes it.
        give_back: called before the terminal is taken, which then is as it was before the program.

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
        give_back: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(session, preferences)
        self._give_back = give_back
        self.failure: BaseException | None = None
        self._advised_s = -_AGAIN_S
        self._died_s = -_RESTART_AGAIN_S
        # The same ones every time: Textual stores lines by the filters that they passed.
        self._gates: tuple[LineFilter, ...] = (LineGuard(),)
        self._pace = Pace()
        self._results = 0
        self._question: ApprovalSheet | None = None

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
        """Leave the terminal as Textual shall give it back, and end by way of it when a signal comes."""
        if self._give_back is not None:
            self._give_back()
            for number in (signal.SIGTERM, signal.SIGHUP):
                leave = partial(self.exit, return_code=128 + number)
                asyncio.get_running_loop().add_signal_handler(number, leave)

    async def on_mount(self) -> None:
        """Show the conversation; start the engine, and follow it."""
        if self.no_color:  # where Textual would still send greys
            self._gates = (NoColor(), *self._gates)
        self.set_keymap(self._keys)
        if self.preferences.theme:
            self.choose_theme(self.preferences.theme)
            self._theme_used = self.theme
        self.theme_changed_signal.subscribe(self, lambda each: self.theme_changed(each.name))
        await self.view.show_messages()
        self.view.entry.composer.focus()
        self.view.entry.composer.recall = self.session.talk.history.questions(_RECALLED)
        if self.session.work is not None and self.session.work.notes:
            self.report("; ".join(self.session.work.notes))
        self.session.engine.follow(asyncio.get_running_loop())
        self.session.start()
        # All that is here will stay: without looking through it, collecting garbage stops no frame for 50 ms.
        gc.freeze()
        # While the engine loads, and not when the first answer comes.
        self.run_worker(prepare, thread=True, exit_on_error=False)
        self.run_worker(self._follow())

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Return what every line passes on its way to the terminal."""
        return [*super().get_line_filters(), *self._gates]

    # What the engine sends.

    async def _follow(self) -> None:
        async for notices in self.session.notices():
            self.post_message(EngineNotices(notices))

    async def on_engine_notices(self, event: EngineNotices) -> None:
        """Have the session take notices, and show what they change."""
        exchange = self.session.exchange
        waited = exchange is not None and not exchange.happened
        for notice in event.notices:
            self.session.take(notice)
            await self.attempt(self._react(notice))
        await self._tick()
        self._draw(at_once=waited and exchange is not None and bool(exchange.happened))

    async def _tick(self) -> None:
        """Show what time brings: calls that run or have ended, trouble with the disk, a terminal that is gone."""
        session = self.session
        if not (self.is_headless or os.isatty(0)):  # no signal may have come
            self.exit()
        session.tick()
        for note in session.news():
            self.report(note)
        if session.work is not None:
            await self._show_work(session.work)

    def _draw(self, *, at_once: bool = False) -> None:
        """Show the answer that grows and the figures together, or each would have the screen composed."""
        growing, now_s, cpu_s = self.session.growing, time.monotonic(), time.thread_time()
        if growing and not at_once and not self._pace.is_due(now_s, cpu_s):
            return
        if growing:
            self._pace.drawn(now_s, cpu_s)
            self.view.grow()
        self.view.show_state()

    async def _show_work(self, work: CallRunner) -> None:
        """Show what calls came to, what runs, and a call that the user has to allow."""
        if self.session.results != self._results:
            self._results = self.session.results
            await (self.view.show_answering if self.session.growing else self.view.show_messages)()
        if work.line():
            self.report(work.line(), work.line)
        sheet = self._question
        if sheet is not None and work.question is not sheet.question:  # answered, or stopped
            self._question = None
            while sheet in self.screen_stack:
                self.pop_screen()
        if work.question is not None and self._question is None:
            self._question = sheet = ApprovalSheet(work.question)
            self.push_screen(sheet, lambda decision: work.answer(sheet.question, decision))

    async def _react(self, notice: Notice) -> None:
        models, exchange = self.session.models, self.session.exchange
        mine = exchange is not None and getattr(notice, "id", None) == exchange.id
        match notice:
            case Finished() if mine:
                await self.view.settle()
                await self._finish(notice)
            case Failed(id=None):
                self.report(models.replaced or notice.reason)
            case Failed() if mine:
                self.take_back_waiting()
                await self.view.show_messages()
                if notice.kind != "ContextOverflow" or not await when_full(self):
                    self.report_refusal(notice)
            case Ready():
                if news := "; ".join(filter(None, (models.replaced, *notice.notes))):
                    self.report(news)
            case EngineDied():
                self.take_back_waiting()
                await self.view.settle()
                self._restart(notice)
            case _:
                pass

    async def _finish(self, done: Finished) -> None:
        """Go on behind an answer: with a summary where there is little room left, and with the question that waits."""
        if done.reply.stop_reason is StopReason.CANCELLED:
            self.take_back_waiting()
            if not done.reply.text and not done.reply.thinking:
                self.report("stopped before the first token; F5 asks again")
        elif not self.session.busy:
            await when_nearly_full(self)
            await self.ask_next()

    def _restart(self, notice: EngineDied) -> None:
        """Report that the engine died, and start it again unless it has just been started again."""
        now_s, models = time.monotonic(), self.session.models
        again, self._died_s = now_s - self._died_s >= _RESTART_AGAIN_S, now_s
        if again:
            self.session.restart()
        then = "starting it again" if again else f"/restart starts it again; {_LESS_MEMORY}"
        self.report(f"{notice.reason}; {then}", lambda: models.phase is not Phase.READY)

    # What the user does.

    async def on_composer_sent(self, event: Composer.Sent) -> None:
        """Run a command, or send a question; what cannot be done is reported, and the text stays."""
        await self.attempt(self._send(event.text))

    async def _send(self, typed: str) -> None:
        text = unquoted(typed)
        command = parse(text, typed=text == typed)
        self.report("")
        composer, session = self.view.entry.composer, self.session
        if command is not None:
            composer.accept(text)
            # What could not be done can be mended and sent again.
            if not await self.run_command(command[0].name, command[1]) and not composer.text:
                composer.fill(typed)
            return
        if self.editing is None and session.growing:
            waiting = session.waiting
            waiting.append(text)
            composer.accept(typed)
            many = f"{len(waiting)} question{'' if len(waiting) == 1 else 's'}"
            news = f"{many} waiting; Esc stops this answer and returns what waits to the input line"
            self.report(news, lambda: waiting)
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
            self.copy(message.message.typed or content_of(message.message))
        elif what == "code":
            blocks = code_of(message.message.text)
            self.copy(blocks[-1 - view.copied % len(blocks)])
            view.copied += 1
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
        """Copy what is selected; else stop; else clear the composer; else advise how to leave, and the second time leave."""
        composer = self.view.entry.composer
        selected = self.screen.get_selected_text() or composer.selected_text
        if selected:
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

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:  # noqa: ARG002
        """Yield the commands for the palette; one that needs more than its name is put into the composer."""
        for each in COMMANDS:
            yield SystemCommand(f"/{each.name}  {each.about}", "", partial(self._by_palette, each))

    async def _by_palette(self, command: Command) -> None:
        if command.needs_more:
            self.view.entry.composer.fill(f"/{command.name} ")
        else:
            await self.action_command(command.name)
