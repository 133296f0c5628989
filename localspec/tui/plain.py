"""The chat in lines: for screen readers, pipes and terminals that can do nothing else. No Textual."""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import aclosing, closing
from dataclasses import dataclass, field
from typing import TextIO

from localspec.chat.events import Finished, Text
from localspec.display import (
    Wrapping,
    clean,
    clean_line,
    columns_of,
    duration_text,
    shortened_lines,
    wrapped,
)
from localspec.errors import ContextOverflow, LocalspecError, UsageError
from localspec.session.attachments import attached_lines, label, with_mentions
from localspec.session.compaction import COMMAND, is_request
from localspec.session.conversation import StoredMessage, content_of
from localspec.session.microphone import BLOCK_S, Microphone, enter_pressed
from localspec.session.preferences import Preferences
from localspec.tui import commands
from localspec.tui.actions import DROPS, LONG_TEXT, edited, when_full, when_nearly_full
from localspec.tui.commands import COMMANDS, QUOTES, goes_on, unquoted
from localspec.tui.lens import legend, marked
from localspec.tui.message_text import call_line, message_text
from localspec.tui.session import Happened, Session
from localspec.tui.stats import stats_lines

_WIDTH = 78
_INTERRUPTED = 130


@dataclass(slots=True)
class Lines:
    """The front of the chat in lines; see `Front`. Everything that takes its time is waited for.

    Args:
        session: the conversation.
        preferences: personas.
        out: gets the answers.
        err: gets the rest.
        terminal: whether `out` is a terminal, which must not get what it would obey.
        quiet: leave figures and news away.
        ask: returns what a person answers to a short question; None where there is no person.

    Attributes:
        code: exit code of the last answer, or of what could not be done after it.
        leaving: whether the user wants to leave.
    """

    session: Session
    preferences: Preferences
    out: TextIO
    err: TextIO
    terminal: bool
    quiet: bool = False
    ask: Callable[[str], str] | None = None
    code: int = 0
    leaving: bool = False
    _thoughts: bool = False
    _wrapping: Wrapping = field(init=False)

    def __post_init__(self) -> None:
        self._wrapping = Wrapping(lambda: columns_of(self.out))
        self.session.notify = lambda text, _holds: self.report(text)
        self.session.note = lambda text: None if self.quiet else self.report(text)

    # What commands need.

    def report(self, *texts: str) -> None:
        """Write lines of news."""
        for text in texts:
            self.out.write(self._wrapping.flush())
            self.out.flush()
            self._note(wrapped(f"localspec: {clean_line(text)}", self.err))

    def copy(self, text: str) -> None:
        """Write a text where answers go, without line feeds that are not in it."""
        self._write(text + "\n", is_prose=False)

    async def show_conversation(self, *, known: bool = False) -> None:
        """Write the messages that were not written before."""
        messages = [] if known else self.session.talk.messages
        for each in messages:
            name = "You" if each.message.role == "user" else each.model
            calls = "".join(f"{call_line(call)}\n" for call in each.message.calls)
            media = "".join(f"+ {label(part)}\n" for part in each.message.media)
            text = COMMAND if is_request(each) else content_of(each.message)
            self._write(f"{name}: {text}\n{media}{calls}\n")
        if not known and not messages:
            self.report("new conversation")

    def show_changes(self) -> None:
        """Write nothing: a line of news says it."""

    async def show_answer(self) -> None:
        """Write the answer as it comes, and those to questions that wait. Ctrl-C stops it and keeps what is there.

        A second one leaves, since an engine that hangs does not stop.
        """
        answering = asyncio.create_task(self._write_answer())
        try:
            await asyncio.shield(answering)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or self.leaving or not self.session.stop():
                raise
            task.uncancel()
            await answering
            if waiting := self.session.waiting:
                self.report(f"stopped; not asked: {'; '.join(waiting)[:200]}")
                waiting.clear()
        exchange, session = self.session.exchange, self.session
        failure = None if exchange is None else exchange.failure
        # Asked before or after the load failed, which is chance: the code is that of the load.
        cause = session.models.trouble if session.models.ready is None else None
        self.code = 0 if failure is None else (cause or failure).exit_code
        if isinstance(failure, ContextOverflow):
            await when_full(self)
        elif not self.code and not (self.quiet and self.preferences.compact == "ask"):
            await when_nearly_full(self)
        if session.waiting and not self.code:
            session.ask(session.waiting.pop(0))
            await self.show_answer()

    async def show_loading(self) -> None:
        """Wait until the models are loaded, and report that; what goes wrong is reported by itself."""
        await self.session.loads.wait()
        models = self.session.models
        if models.ready is not None:
            self.report(f"loaded: {models.line}")

    def edit(self, number: int, text: str) -> None:
        """Write a question, and how to change it."""
        self.report(f"question {number}: {text}", f"to change it: /edit {number} TEXT")

    def write(self, text: str) -> None:
        """Write what can be typed, with a change."""
        self.report(f"to change it: {text}")

    def attach(self, name: str) -> None:
        """Write how to attach it."""
        self.report(f"@{name} in a question attaches it")

    async def record(self, take: Callable[[bytes], Awaitable[None]]) -> None:
        """Record until Enter; no line of levels, which a screen reader would read over and over."""
        if self.ask is None:
            raise UsageError(
                "recording needs a terminal, where Enter ends it: attach a file as @FILE"
            )
        with closing(Microphone()) as microphone:
            self.report("recording: Enter ends it")
            while not (microphone.is_full or enter_pressed()):
                await asyncio.sleep(BLOCK_S)
        self.report(f"recorded {duration_text(microphone.seconds, 1)}")
        await take(microphone.wav())

    async def open_editor(self) -> None:
        """Send what the user writes in an editor of their own."""
        text = edited("")
        if text.strip():
            self.session.ask(text)
            await self.show_answer()

    def choose(
        self,
        title: str,
        hints: Mapping[str, str],
        take: Callable[[str], Awaitable[None]],  # noqa: ARG002 - the user types it
    ) -> None:
        """List names and hints; the user gives one to the same command."""
        self.report(*(f"{title}: {name} · {hint}" for name, hint in hints.items()))

    async def delete(self, title: str, delete: Callable[[], Awaitable[None]]) -> None:  # noqa: ARG002 - no sheet asks here
        """Delete a conversation, whose number was typed."""
        await delete()

    def choose_model(self) -> None:
        """List the pairs."""
        # Not at the start.
        from localspec.session.model_lines import line  # noqa: PLC0415
        from localspec.session.model_list import measured_choices  # noqa: PLC0415

        rows, loaded = measured_choices(), self.session.models.name
        width = max(len(each.name) for each in rows)
        for each in rows:
            self._note(line(each, width, loaded=each.name == loaded))
        self.report("/model NAME loads one now, /set model NAME makes it your default")

    def choose_theme(self, name: str) -> None:  # noqa: ARG002 - there is no other
        """Report that there is no choice."""
        self.report("no themes without screens: the terminal's colours are used")

    def show_history(self, words: str) -> None:
        """List conversations, with the numbers that open and delete them."""
        stored = self.session.talk.history.conversations(words)
        advice = "/history #N opens one, /history delete #N deletes it for good"
        lines = (f"{each.id} {each.title or 'untitled'} {each.excerpt}" for each in stored)
        self.report(*lines, advice if stored else "nothing matches")

    def show_settings(self) -> None:
        """List the settings."""
        self.report(*self.session.settings.lines())

    def show_stats(self) -> None:
        """Write what drafting did."""
        session = self.session
        self._note(
            "\n".join(
                stats_lines(session.measured, _WIDTH, session.gains, resumed=session.has_answers)
            )
        )

    def show_text(self, title: str, text: str) -> None:
        """Write a text."""
        self.report(title)
        self._write(f"{text}\n")

    def show_lens(self) -> None:
        """Write the last answer with marks around its tokens, and what they mean."""
        happened = self.session.exchange.happened if self.session.exchange else []
        self._write(marked(happened) + "\n")
        self._note("\n".join(legend(happened)))

    def show_help(self) -> None:
        """List the commands."""
        self.report(*(f"{f'/{e.name} {e.usage}':<28} {e.about}" for e in COMMANDS))

    def toggle_thoughts(self) -> None:
        """Show the thoughts of answers from now on, or hide them."""
        self._thoughts = not self._thoughts
        self.report(f"thoughts are {'shown' if self._thoughts else 'hidden'} from now on")

    def leave(self) -> None:
        """Take note that no more lines are wanted."""
        self.leaving = True

    # What the engine sends.

    async def _write_answer(self) -> None:
        async with aclosing(self.session.answer()) as events:
            async for event in events:
                self._write_event(event)
        exchange = self.session.exchange
        if exchange is not None and exchange.finished is not None:
            self._write("\n")
            self._write_figures(exchange.finished)
        elif exchange is not None and exchange.failure is not None:
            self._report_failure(exchange.failure)

    def _write_event(self, event: Happened) -> None:
        work = self.session.work
        match event:
            case Text(text) if self._thoughts or not event.thinking:
                self._write(
                    text, is_prose=self.session.settings.current.options.answer_grammar is None
                )
            case Finished():
                calls = event.message.calls
                self._write("\n" * bool(calls and event.reply.text))
                self.report(*map(call_line, calls))
            case StoredMessage():
                result = message_text(event)
                self.report(result.heading, *(f"  {e}" for e in shortened_lines(result.text)))
            case _ if work is not None and event is work.question:
                # While a person types, Ctrl-C is no matter of the loop.
                before = signal.signal(signal.SIGINT, signal.default_int_handler)
                try:
                    work.ask(self.report, lambda text: self._note(clean(text)), self.ask)
                finally:
                    signal.signal(signal.SIGINT, before)

    def _report_failure(self, failure: LocalspecError) -> None:
        """Report why there is no answer, unless it was reported when it happened."""
        if isinstance(failure, ContextOverflow):
            exchange = self.session.exchange
            assert exchange is not None  # noqa: S101 - it failed
            advice = DROPS
            if exchange.is_too_long:
                advice = LONG_TEXT
            elif exchange.can_summarise:
                advice = "/compact summarises earlier turns, /compact drop drops them"
            grow = ", /set ctx N loads the model with more" if failure.can_grow else ""
            self.report(f"{exchange.no_room}; {advice}{grow}")
        elif not self.session.is_reported(failure):
            self.report(str(failure))

    def _write_figures(self, done: Finished) -> None:
        talk = self.session.talk
        last = talk.messages[-1] if talk.messages else None
        note = done.reply.stop_reason.value
        if last is not None and last.message.role == "assistant":
            note = message_text(last, passages=talk.passages).note
        if not self.quiet and note:
            *cited, figures = note.splitlines()
            self.report(*cited, f"{figures} · seed {done.reply.seed}")

    def _write(self, text: str, *, is_prose: bool = True) -> None:
        text = clean(text) if self.terminal else text
        wraps = self.terminal and is_prose
        self.out.write(self._wrapping.feed(text) if wraps else self._wrapping.flush() + text)
        self.out.flush()

    def _note(self, text: str) -> None:
        print(text, file=self.err, flush=True)

    async def start(self) -> None:
        """Begin to load, and wait for the functions that the model may call."""
        self.session.start()
        await asyncio.sleep(0)  # it is requested then
        if (work := self.session.work) is not None:
            work.wait()
            self.report(*work.notes)

    async def attempt(self, text: str) -> None:
        """Run a command, or send a question and write its answer; report what cannot be done."""
        try:
            command = commands.parse(text, typed=self.ask is not None)
            if command is not None:
                await commands.run(self, *command)
            else:
                question = unquoted(text)
                if with_mentions(question, self.session.folder) != question:
                    # A path is a mention where the model takes such.
                    await self.session.loads.wait()
                self.report(*self.session.ask(question))
                # A line may hold the name of a file that nobody meant.
                lines = attached_lines(self.session.talk.messages[-1].message)
                self.report(*(f"attached: {each}" for each in lines))
                await self.show_answer()
        except LocalspecError as error:
            self.report(str(error))
            self.code = error.exit_code
        except OSError as error:
            what = error.filename or "reading or writing failed"
            self.report(f"{what}: {error.strerror or error}")
            self.code = 1
        self.report(*self.session.news())


def run(front: Lines, typed: Iterable[str | None], *, greets: bool = False) -> int:
    """Chat until the lines end, or the user leaves; return the exit code.

    Args:
        front: writes.
        typed: what the user types, without line ends; None where it was taken back.
        greets: whether to report which model answers, and how to get help.
    """
    session = front.session
    front.report(*session.news())
    if session.talk.conversation is not None:
        front.report(session.talk.continuing)
    with asyncio.Runner() as runner:
        runner.run(front.start())
        front.report(*session.news())
        if greets:
            front.report(
                f"chatting with {session.models.title}; /help lists the commands, Ctrl-D quits"
            )
        for text in _texts(typed):
            try:
                runner.run(front.attempt(text))
            except KeyboardInterrupt:
                return _INTERRUPTED
            except BaseException:  # a signal's SystemExit: what the loop cancels then must end
                front.leaving = True
                raise
            if front.leaving:
                break
    return front.code


def _texts(typed: Iterable[str | None]) -> Iterator[str]:
    """Yield what the user types; a backslash at the end of a line goes on in the next, and so do three double quotes.

    None among the lines takes back what was begun.
    """
    begun = ""
    for line in typed:
        if line is None:
            begun = ""
        elif goes_on(begun + line):
            begun += line + "\n"
        elif line.endswith("\\") and not begun.lstrip().startswith(QUOTES):
            begun += line[:-1] + "\n"
        else:
            text, begun = begun + line, ""
            if text.strip():
                yield text
    if begun.strip():
        yield begun
