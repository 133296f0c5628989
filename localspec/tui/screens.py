"""Screens: the front that draws. What commands show, and what they need to know, becomes the main view, and sheets over it."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from functools import partial
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text
from textual.app import App, SuspendNotSupported
from textual.content import Content
from textual.screen import ModalScreen, Screen

from localspec.chat.events import Finished, Started
from localspec.display import counted
from localspec.errors import ContextOverflow, LocalspecError
from localspec.session.approval import CallQuestion
from localspec.session.attachments import not_attached
from localspec.session.conversation import StoredMessage
from localspec.session.microphone import Microphone
from localspec.session.preferences import Preferences, keep_theme
from localspec.storage.files import size_text
from localspec.tui.actions import LONG_TEXT, STOPPED, edited, when_full, when_nearly_full
from localspec.tui.colours import DARK, LIGHT, THEMES, tinted
from localspec.tui.commands import BY_NAME, COMMANDS, run
from localspec.tui.exchange import Exchange
from localspec.tui.history_sheet import HistorySheet, deletion
from localspec.tui.keys import key_list, read_keys
from localspec.tui.lens import counts, pieces
from localspec.tui.main_view import MainView
from localspec.tui.session import Happened, Session, StillAnswering
from localspec.tui.settings import ABOUT, CONTEXT, SETTINGS
from localspec.tui.sheets import (
    ApprovalSheet,
    LineSheet,
    ListenSheet,
    ListSheet,
    SheetRow,
    TextSheet,
    having,
)

_CONTEXT_IS_FULL = (
    SheetRow(
        "drop", "drop the oldest turns", "the system prompt stays, and the history keeps everything"
    ),
    SheetRow(
        "compact",
        "summarise the earlier turns",
        "by the model; you see the summary and can change it, and the history keeps everything",
    ),
    SheetRow("edit", "edit the question", "it returns to the input line"),
    SheetRow("new", "start over", "this conversation stays in the history"),
)
_WHEN = (
    SheetRow("model", "now", "your default model stays as it is"),
    SheetRow("default", "now and by default", "loaded at every start"),
)

_OTHER_KEYS = """
Shift+Tab moves to the messages, Esc back to the input line. [keys] in
chat.toml gives commands and the actions below other keys: stats = "ctrl+s"
"""


_LOOK_S = 0.05


class Pace:
    """When text that streams is drawn again, by what that took the last time.

    Passes want every core, and each of their threads waits for the others: what screens take, answers lose. Text that
    scrolls has the whole screen composed again, which costs five times as much as a line that grows.
    """

    SHARE = 0.02
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


class Screens(App[None]):
    """The front of the full-screen chat; see `Front`.

    Args:
        session: what is visible.
        preferences: how the user likes it.

    Attributes:
        view: the main screen.
        editing: the number of the question that is being changed; None while none is.
        opened: name of the command that opened a sheet last, and that sheet.
    """

    def __init__(self, session: Session, preferences: Preferences | None = None) -> None:
        super().__init__()
        for each in THEMES:
            self.register_theme(each)
        self.theme = self._theme_used = DARK
        self.session, self.preferences = session, preferences or Preferences()
        self.editing: int | None = None
        self._keys, self._wrong_keys = read_keys(self.preferences.keys)
        self.view = MainView(self, session, lambda: self.editing, self._keys)
        self.opened: tuple[str, Screen[Any]] | None = None
        self._pace = Pace()
        session.notify, session.note = self.report, self.report

    async def run_command(self, name: str, argument: str = "") -> bool:
        """Run a command; what cannot be done is reported. Return whether it could."""
        self.report("")
        before = self.screen
        done = await self.attempt(run(self, BY_NAME[name], argument))
        if self.screen is not before:
            self.opened = name, self.screen
        return done

    async def attempt(self, work: Awaitable[object]) -> bool:
        """Do something that may fail; if it does, report why. Return whether it did not."""
        try:
            await work
        except StillAnswering as error:
            self.report(str(error), lambda: self.session.busy)
        except (LocalspecError, OSError) as error:
            self.report(str(error))
        else:
            return True
        return False

    def report(self, text: str, holds: Callable[[], object] | None = None) -> None:
        """Show one line of news above the composer, as long as it holds; see `MainView.report`."""
        self.view.report(text, holds)

    async def show_conversation(self, *, known: bool = False) -> None:  # noqa: ARG002 - of lines
        """Show the messages as they stand."""
        self.editing = None
        await self.view.show_messages()

    def show_changes(self) -> None:
        """Show what messages say now of themselves."""
        self.view.show_changes()

    async def show_answer(self) -> None:
        """Show the question that is being answered, and the answer as it grows."""
        await self.view.show_answering()
        self.run_worker(self.attempt(self._follow_answer()))

    async def _follow_answer(self) -> None:
        async with aclosing(self.session.answer()) as events:
            async for event in events:
                await self._show(event)
        exchange = self.session.exchange
        if exchange is not None and exchange.failure is not None:
            await self._after_failure(exchange, exchange.failure)
        elif exchange is not None and self.session.stopped:
            await self._after_stop(exchange)
        elif not self.session.busy:
            await when_nearly_full(self)
            await self.ask_next()

    async def _after_failure(self, exchange: Exchange, failure: LocalspecError) -> None:
        """Show why there is no answer, and what can be done about it."""
        self.take_back_waiting()
        if question := self.session.take_back_refused():
            self.write(question)
        if exchange.summarises:  # and perhaps taken back
            await self.view.show_messages()
        else:
            await self.view.settle()
        if isinstance(failure, ContextOverflow):
            self.report("")
            if not await when_full(self):
                self._offer_room(failure)
        elif not self.session.is_reported(failure):
            self.report(str(failure))

    async def _after_stop(self, exchange: Exchange) -> None:
        """Show what was stopped."""
        self.take_back_waiting()
        if not exchange.tokens:
            self.report(
                "stopped before the first token; /regenerate asks again, another question takes its place"
            )
        elif self.session.talk.ends_with_summary:
            await when_nearly_full(self)
        elif exchange.summarises:
            self.report(STOPPED)

    async def _show(self, event: Happened) -> None:
        """Show what happened of an answer."""
        match event:
            case Started() if not self.view.transcript.has_growing:
                await self.view.show_answering()
            case Finished():
                await self.view.settle()
            case StoredMessage():  # the result of a call
                await self.view.show_messages()
            case CallQuestion():
                await self._ask_approval(event)
            case _:
                exchange = self.session.exchange
                self.draw(at_once=exchange is not None and len(exchange.happened) == 1)

    async def _ask_approval(self, question: CallQuestion) -> None:
        """Have a call allowed or refused, unless it is stopped before."""
        work, sheet = self.session.work, ApprovalSheet(question)
        assert work is not None  # noqa: S101 - it asks
        self.push_screen(sheet, lambda decision: work.answer(question, decision))
        while work.question is question:
            await asyncio.sleep(_LOOK_S)
        while sheet in self.screen_stack:
            self.pop_screen()

    def draw(self, *, at_once: bool = False) -> None:
        """Show the answer that grows and the figures together, or each would have the screen composed."""
        growing, now_s, cpu_s = self.session.growing, time.monotonic(), time.thread_time()
        if growing and not at_once and not self._pace.is_due(now_s, cpu_s):
            return
        if growing:
            self._pace.drawn(now_s, cpu_s)
            self.view.grow()
        self.view.show_state()

    async def show_loading(self) -> None:
        """Show nothing: the status line does, as long as it takes."""

    def copy(self, text: str) -> None:
        """Copy a text, by a program of this machine and by way of the terminal (OSC 52)."""
        from localspec.tui.clipboard import fill_clipboard  # noqa: PLC0415 - not at the start

        self.copy_to_clipboard(text)
        count = counted(len(text), "character")
        here = fill_clipboard(text)
        self.report(f"copied {count}" if here else f"sent {count} to the terminal's clipboard")

    async def ask_next(self) -> None:
        """Send the question that waits longest, if one does."""
        waiting = self.session.waiting
        if waiting and not self.session.busy:
            try:
                self.session.ask(waiting[0])
            except (LocalspecError, OSError):  # a file of it cannot be read, for example
                self.take_back_waiting()
                raise
            waiting.pop(0)
            await self.show_answer()

    def take_back_waiting(self) -> None:
        """Put the questions that wait back into the composer: what they followed came to no good end."""
        if waiting := self.session.waiting:
            pasted = [
                name for each in waiting for name in self.session.questions.pasted.get(each, ())
            ]
            self.write("\n\n".join(waiting), pasted)
            waiting.clear()

    def edit(self, number: int, text: str) -> None:
        """Put a question into the composer; sent from there, it becomes a branch."""
        self.editing = number
        question = self.session.talk.question(number).message
        self.write(text, not_attached(question, self.session.folder))
        news = f"editing question {number}: Enter sends it as a new branch, Esc cancels"
        self.report(news, lambda: self.editing is not None)

    def write(self, text: str, pasted: Iterable[str] = ()) -> None:
        """Put a text into the composer; `pasted` are mentions in it that attach nothing."""
        composer = self.view.entry.composer
        composer.put_aside()
        composer.fill(text, pasted)
        composer.focus()

    def attach(self, name: str) -> None:
        """Put the mention of a picture or a sound into the composer."""
        self.view.entry.composer.type(f"@{name} ")

    async def record(self, take: Callable[[bytes], Awaitable[None]]) -> None:
        """Show what the microphone hears until Enter."""
        microphone = Microphone()

        async def taken() -> None:
            await take(microphone.wav())

        self._open(ListenSheet(microphone), lambda _: self.attempt(taken()))

    @contextmanager
    def suspend(self) -> Iterator[None]:
        """Give the terminal away meanwhile, and take it back though something is raised, which Textual's own does not."""
        raised = None
        with super().suspend():
            try:
                yield
            except Exception as error:
                raised = error
        if raised is not None:
            raise raised

    async def open_editor(self) -> None:
        """Give the terminal to an editor, and take what was written into the composer."""
        composer = self.view.entry.composer
        try:
            with self.suspend():
                text = edited(composer.text)
        except SuspendNotSupported:
            self.report("an editor cannot be opened in this terminal")
            return
        composer.fill(text)
        composer.focus()

    def choose(
        self, title: str, hints: Mapping[str, str], take: Callable[[str], Awaitable[None]]
    ) -> None:
        """Show a list of names, and take what is chosen."""
        rows = [SheetRow(name, name, hint) for name, hint in hints.items()]
        self._open(ListSheet(title, rows), lambda name: self.attempt(take(name)))

    def _open(self, sheet: Screen[Any], take: Callable[[Any], Any]) -> None:
        """Show a sheet, and take what it returns, unless that is nothing."""
        self.push_screen(sheet, lambda result: take(result) if result else None)

    async def delete(self, title: str, delete: Callable[[], Awaitable[None]]) -> None:
        """Delete a conversation, if the user means it."""

        async def chosen(answer: str | None) -> None:
            if answer == "yes":
                await self.attempt(delete())

        self.push_screen(deletion(title), chosen)

    def choose_model(self) -> None:
        """Show the models, and ask whether the chosen one is meant from now on."""
        from localspec.tui.picker import Picker  # noqa: PLC0415 - numpy comes with it

        async def taken(when: str, name: str) -> None:
            await self.run_command("model", name)
            if when == "default":
                await self.run_command("set", f"model {name}")

        def chosen(name: str) -> None:
            self._open(ListSheet(f"Load {name}", _WHEN), lambda when: taken(when, name))

        models = self.session.models
        self._open(Picker(models.name, offline=models.usual.offline), chosen)

    def find(
        self,
        title: str,
        rows: Sequence[SheetRow],
        chosen: Callable[[str], object],
        marked: str = "",
    ) -> None:
        """Let the user find one of some rows by the words in it, in any order."""
        if not isinstance(self.screen, ModalScreen):
            search = partial(having, rows)
            self._open(ListSheet(title, rows, marked=marked, search=search, plain=True), chosen)

    def choose_theme(self, name: str) -> None:
        """Change the colours, or report which there are; without a name, show them."""
        if not name:
            rows = [SheetRow(each, each) for each in sorted(self.available_themes)]
            self.find("Colours", rows, self.choose_theme, self.theme)
        elif name in self.available_themes:
            self.theme = name
        else:
            known = ", ".join(dict.fromkeys([DARK, LIGHT, *sorted(self.available_themes)]))
            self.report(f"there is no theme {name[:40]!r}: choose one of {known}")

    def theme_changed(self, name: str) -> None:
        """Lay everything out in other colours, and save them for the next time; Textual reports the first ones, too."""
        if name != self._theme_used:
            self._theme_used = name
            self.view.colours_changed()
            try:
                keep_theme(self.preferences, name)
            except LocalspecError as error:
                self.report(str(error))

    def show_history(self, words: str) -> None:
        """Show earlier conversations, to be searched, taken up and more."""

        async def take_up(conversation: str | None) -> None:
            if conversation:
                await self.run_command("history", f"#{conversation}")
            else:  # the one that is visible may be gone
                await self.view.show_messages()

        self.push_screen(HistorySheet(self.session, words), take_up)

    def show_settings(self, marked: str = "") -> None:
        """Show the settings; Enter changes one, and all are visible again."""

        async def change(name: str, value: str | None) -> None:
            if value is not None:
                await self.run_command("set", f"{name} {value or '-'}")
            self.show_settings(name)

        def chosen(name: str | None) -> None:
            if name:
                line = LineSheet(name, self.session.settings.text_of(name), ABOUT[name])
                self.push_screen(line, lambda text: change(name, text))

        values = {name: self.session.settings.text_of(name) for name in SETTINGS}
        rows = [SheetRow(n, f"{n:<18} {each:<9}  {ABOUT[n]}") for n, each in values.items()]
        title, keys = "Settings of this conversation", "Enter edits · Esc closes"
        self.push_screen(ListSheet(title, rows, keys=keys, marked=marked, plain=True), chosen)

    def show_stats(self) -> None:
        """Show the panel of stats, or hide it."""
        self.view.toggle_stats()

    def show_text(self, title: str, text: str) -> None:
        """Show a text to be read."""
        self.push_screen(TextSheet(title, text))

    def show_lens(self) -> None:
        """Show the last answer with the origin of every token."""
        if (exchange := self.session.exchange) is not None:
            theme, happened = None if self.no_color else self.current_theme, exchange.happened
            text = Content("").join(tinted(each, mark, theme) for each, mark in pieces(happened))
            legend = Content("\n").join(
                Content.assemble(tinted("text", mark, theme), f"  {count:>4}  {mark.meaning}")
                for mark, count in counts(happened).items()
            )
            self.push_screen(TextSheet("Token lens", text, legend))

    def show_help(self) -> None:
        """List commands and keys."""
        commands, others = (Table.grid(padding=(0, 2, 0, 0)) for _ in range(2))
        keys = {name: (key, about) for key, name, about in key_list(self._keys)}
        for each in COMMANDS:
            key = f"{keys.pop(each.name)[0]} " if each.key else ""
            usage = Text.assemble((f"/{each.name}", "bold"), f" {each.usage}")
            commands.add_row(usage, Text.assemble((key, "bold"), each.about))
        for name, (key, about) in keys.items():
            others.add_row(f"[bold]{key}", about, f"[dim]{name}")
        self.push_screen(TextSheet("Keys and commands", Group(commands, Text(_OTHER_KEYS), others)))

    def toggle_thoughts(self) -> None:
        """Unfold thoughts and long questions, or fold them."""
        self.view.transcript.toggle_folds()
        exchange = self.session.exchange
        thoughts = [each.message.thinking for each in self.session.talk.messages]
        if not any([*thoughts, exchange is not None and exchange.thoughts]):
            self.report("no thoughts in this conversation")

    def leave(self) -> None:
        """End the app."""
        self.exit()

    async def _start_over(self) -> None:
        """Begin another conversation, with the question that found no room in this one."""
        notes = self.session.start_over()
        await self.show_conversation()
        self.report("; ".join(notes))
        if self.session.growing:
            await self.show_answer()

    def _offer_room(self, failure: ContextOverflow) -> None:
        """Let the user choose what to do about a full context."""
        exchange = self.session.exchange
        assert exchange is not None  # noqa: S101 - it failed
        from localspec.tui.picker import larger_context  # noqa: PLC0415 - numpy comes with it

        ready, load = self.session.models.ready, self.session.models.usual.load
        larger, prompt = None, failure.sizes[0] if failure.sizes else 0
        if ready is not None and self.session.engine.can.resize:
            larger = larger_context(ready.target, ready.n_ctx, load.kv_type, prompt)

        async def chosen(name: str | None) -> None:
            if name == CONTEXT and larger is not None:
                await self.run_command("set", f"{CONTEXT} {larger.n_ctx}")
                if self.session.ask_again():
                    await self.show_answer()
            elif name == "drop":
                await self.run_command("compact", name)
            elif name == "new":
                await self.attempt(self._start_over())
            elif name:
                await self.run_command(name)
            else:
                larger_too = "" if larger is None else f", or /set ctx {larger.n_ctx}"
                self.report(f"{exchange.no_room}{larger_too}")

        title, note, rows = self._room(exchange)
        if larger is not None:
            more = f"+ {size_text(larger.more_bytes)} of memory"
            rows.insert(0, SheetRow(CONTEXT, f"reload with {larger.n_ctx} tokens", more))
        self.push_screen(ListSheet(title, rows, note=note), chosen)

    def _room(self, exchange: Exchange) -> tuple[str, str, list[SheetRow]]:
        """Return what found no room, a note about it, and what helps beside a larger context."""
        talk, failure = self.session.talk, str(exchange.failure)
        answered = any(each.message.role == "assistant" for each in talk.messages)
        # A summary that finds no room, though all was left out that could be, may have been made for no question.
        unasked = exchange.summarises and not self.session.is_unanswered
        # What was to be dropped is left out.
        alone = not unasked and (exchange.is_too_long or not answered or talk.drop_oldest)
        useless = {"drop", "edit"} if unasked else set()
        useless |= set() if exchange.can_summarise else {"compact"}
        offered = [each for each in _CONTEXT_IS_FULL if each.key not in useless]
        rows = [each for each in offered if not alone or each.key == "edit"]
        if exchange.summarises:
            title, _, note = exchange.no_room.partition(": ")
            return title[:1].upper() + title[1:], note, rows
        if not alone:
            return "The context is full", failure.partition(": ")[0], rows
        title, tokens = "This question is too long", exchange.asked_tokens
        if tokens is not None:
            title += ": {:,} of {:,} tokens".format(*tokens)
        return title, LONG_TEXT, rows
