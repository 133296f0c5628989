"""The chat in lines: for screen readers, pipes and terminals that can do nothing else. No Textual."""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TextIO

from localspec import errors
from localspec.chat.events import Finished, Text
from localspec.display import Wrapping, clean, clean_line, columns_of, shortened_lines, wrapped
from localspec.engine.protocol import EngineDied, Failed, Notice, Ready, ReplyEvents
from localspec.errors import LocalspecError
from localspec.session.conversation import content_of
from localspec.session.preferences import Preferences
from localspec.tui import commands
from localspec.tui.actions import edited, when_full, when_nearly_full
from localspec.tui.commands import COMMANDS, QUOTES, goes_on, unquoted
from localspec.tui.lens import legend, marked
from localspec.tui.message_text import call_line, message_text
from localspec.tui.models import Phase
from localspec.tui.race import LANES
from localspec.tui.session import Session
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
    _results: int = 0
    _refused: Failed | None = None
    _end: Finished | Failed | EngineDied | None = None
    _wrapping: Wrapping = field(init=False)

    def __post_init__(self) -> None:
        self._wrapping = Wrapping(lambda: columns_of(self.out))

    # What commands need.

    def report(self, text: str) -> None:
        """Write one line of news."""
        self.out.write(self._wrapping.flush())
        self.out.flush()
        self._note(wrapped(f"localspec: {clean_line(text)}", self.err))

    def copy(self, text: str) -> None:
        """Write a text where answers go."""
        self._write(text + "\n")

    async def show_conversation(self, *, known: bool = False) -> None:
        """Write the messages that were not written before."""
        messages = [] if known else self.session.talk.messages
        for each in messages:
            name = "You" if each.message.role == "user" else each.model
            calls = "".join(f"{call_line(call)}\n" for call in each.message.calls)
            self._write(f"{name}: {content_of(each.message)}\n{calls}\n")
        if not known and not messages:
            self.report("new conversation")

    async def show_answer(self) -> None:
        """Write the answer as it comes, and those to questions that wait. Ctrl-C stops it and keeps what is there."""
        self.code, full = await self._write_answer()
        if full:
            await when_full(self)
        elif not self.code and not (self.quiet and self.preferences.compact == "ask"):
            await when_nearly_full(self)
        if self.session.waiting and not self.code:
            self.session.ask(self.session.waiting.pop(0))
            await self.show_answer()

    async def show_loading(self) -> None:
        """Wait until the models are loaded, or cannot be, and report which."""
        await self.wait_ready()
        models = self.session.models
        self.report(f"loaded: {models.line}" if models.ready is not None else models.trouble)

    def edit(self, number: int, text: str) -> None:
        """Write a question, and how to change it."""
        self.report(f"question {number}: {text}")
        self.report(f"to change it: /edit {number} TEXT")

    def write(self, text: str) -> None:
        """Write what can be typed, with a change."""
        self.report(f"to change it: {text}")

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
        for name, hint in hints.items():
            self.report(f"{title}: {name} · {hint}")

    def choose_model(self) -> None:
        """List the pairs."""
        from localspec.launch.rows import measured_choices  # noqa: PLC0415 - not at the start

        rows, loaded = measured_choices(), self.session.models.name
        width = max(len(each.name) for each in rows)
        for each in rows:
            self._note(each.line(width, loaded=each.name == loaded))
        self.report("/model NAME loads one now, /set model NAME makes it your default")

    def choose_theme(self, name: str) -> None:  # noqa: ARG002 - there is no other
        """Report that there is no choice."""
        self.report("no themes without screens: the terminal's colours are used")

    def show_history(self, words: str) -> None:
        """List conversations, with the numbers that open and delete them."""
        stored = self.session.talk.history.conversations(words)
        for each in stored:
            self.report(f"{each.id} {each.title or 'untitled'} {each.excerpt}")
        advice = "/history N opens one, /history delete N deletes it"
        self.report(advice if stored else "nothing matches")

    def show_settings(self) -> None:
        """List the settings."""
        for line in self.session.setting_lines():
            self.report(line)

    def show_stats(self) -> None:
        """Write what drafting did."""
        self._note("\n".join(stats_lines(self.session.exchange, _WIDTH)))

    def show_text(self, title: str, text: str) -> None:
        """Write a text."""
        self.report(title)
        self._write(f"{text}\n")

    def show_lens(self) -> None:
        """Write the last answer with marks around its tokens, and what they mean."""
        happened = self.session.exchange.happened if self.session.exchange else []
        self._write(marked(happened) + "\n")
        self._note("\n".join(legend(happened)))

    async def show_race(self, text: str) -> None:
        """Hold a race, and write both answers when it is over."""
        await self.wait_ready()
        race = self.session.start_race(text)
        self.report(race.verdict())
        await self._follow(lambda: race.done)
        for name, answer in zip(LANES, race.texts, strict=False):
            self._write(f"[{name}]\n{answer}\n\n")
        self.report(race.verdict())

    def show_help(self) -> None:
        """List the commands."""
        for each in COMMANDS:
            self.report(f"{f'/{each.name} {each.usage}':<28} {each.about}")

    def toggle_thoughts(self) -> None:
        """Write the thoughts of answers from now on, or leave them out."""
        self._thoughts = not self._thoughts
        self.report(f"thoughts are {'written' if self._thoughts else 'left out'}")

    def leave(self) -> None:
        """Take note that no more lines are wanted."""
        self.leaving = True

    # What the engine sends.

    async def wait_ready(self) -> None:
        """Wait until the models that were requested last are loaded, or cannot be."""
        models = self.session.models
        # Ready may be of an earlier request, as of the usual models when another one is chosen at once.
        await self._follow(
            lambda: not models.under_way and models.phase not in {Phase.STARTING, Phase.LOADING}
        )

    async def _follow(self, until: Callable[[], bool]) -> None:
        """Take what the engine sends and write what the user should know of it, until something holds."""
        async with aclosing(self.session.notices()) as notices:
            async for each in notices:
                for notice in each:
                    self.session.take(notice)
                    self._take(notice)
                self.session.tick()
                self._write_work()
                if until():
                    return

    async def _write_answer(self) -> tuple[int, bool]:
        """Write the answer that was requested; return an exit code, and whether the context is full.

        Ctrl-C stops it and keeps what is there. A second one leaves, since an engine that hangs does not stop.
        """
        self._end = None
        try:
            await self._follow(lambda: self._end is not None and not self.session.busy)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or self.leaving or not self.session.stop():
                raise
            task.uncancel()
            await self._follow(lambda: self._end is not None and not self.session.busy)
        end, refused = self._end, self._refused
        if isinstance(end, Failed) and refused is not None:  # why nothing could be loaded
            end, self._refused = refused, None
        if isinstance(end, Finished):
            self._write("\n")
            self._write_figures(end)
            return 0, False
        if isinstance(end, Failed):
            full = end.kind == "ContextOverflow"
            advice = "; /compact summarises earlier turns, /compact drop drops them" if full else ""
            self.report(end.reason + advice)
            kind = getattr(errors, end.kind, LocalspecError)
            return int(getattr(kind, "exit_code", 1)), full
        self.report(f"{'' if end is None else end.reason}; /restart starts it again")
        return 1, False

    def _write_work(self) -> None:
        """Write what calls came to, and have those that need it allowed."""
        session, work = self.session, self.session.work
        new, self._results = session.results - self._results, session.results
        for each in session.talk.messages[-new:] if new else ():
            text = message_text(each)
            self.report(text.heading)
            for line in shortened_lines(text.text):
                self.report(f"  {line}")
        if work is not None and work.question is not None:
            # While a person types, Ctrl-C is no matter of the loop.
            before = signal.signal(signal.SIGINT, signal.default_int_handler)
            try:
                work.ask(self.report, lambda text: self._note(clean(text)), self.ask)
            finally:
                signal.signal(signal.SIGINT, before)

    def _take(self, notice: Notice) -> None:
        """Write what a notice brings; note what ends the answer."""
        exchange, replaced = self.session.exchange, self.session.models.replaced
        mine = exchange is not None and getattr(notice, "id", None) == exchange.id
        match notice:
            case ReplyEvents(events=events) if mine:
                texts = (each for each in events if isinstance(each, Text))
                self._write("".join(e.text for e in texts if self._thoughts or not e.thinking))
            case Finished() if mine:
                self._end, calls = notice, notice.message.calls
                self._write("\n" * bool(calls and notice.reply.text))
                for each in calls:
                    self.report(call_line(each))
            case Failed(id=None) if replaced:
                self.report(replaced)
            case Failed(id=None):  # reported with the answer
                self._refused = notice
            case Failed() | EngineDied() if mine or isinstance(notice, EngineDied):
                self._end = notice
            case Ready():
                for note in () if self.quiet else notice.notes:
                    self.report(note)
            case _:
                pass

    def _write_figures(self, done: Finished) -> None:
        talk = self.session.talk
        last = talk.messages[-1] if talk.messages else None
        note = done.reply.stop_reason.value
        if last is not None and last.message.role == "assistant":
            note = message_text(last, passages=talk.passages).note
        if not self.quiet and note:
            *cited, figures = note.splitlines()
            for each in cited:
                self.report(each)
            why = f" · {done.no_drafting}" if done.no_drafting else ""
            self.report(f"{figures}{why} · seed {done.reply.seed}")

    def _write(self, text: str) -> None:
        self.out.write(self._wrapping.feed(clean(text)) if self.terminal else text)
        self.out.flush()

    def _note(self, text: str) -> None:
        print(text, file=self.err, flush=True)

    def report_news(self) -> None:
        """Write what has happened beside the answers."""
        for note in self.session.news():
            self.report(note)

    async def attempt(self, text: str) -> None:
        """Run a command, or send a question and write its answer; report what cannot be done."""
        try:
            command = commands.parse(text, typed=self.ask is not None)
            if command is not None:
                await commands.run(self, *command)
            else:
                for note in self.session.ask(unquoted(text)):
                    self.report(note)
                await self.show_answer()
        except LocalspecError as error:
            self.report(str(error))
            self.code = error.exit_code
        except OSError as error:
            what = error.filename or "reading or writing failed"
            self.report(f"{what}: {error.strerror or error}")
            self.code = 1
        self.report_news()


def run(front: Lines, typed: Iterable[str | None], *, greets: bool = False) -> int:
    """Chat until the lines end, or the user leaves; return the exit code.

    Args:
        front: writes.
        typed: what the user types, without line ends; None where it was taken back.
        greets: whether to report which model answers, and how to get help.
    """
    session = front.session
    front.report_news()
    if session.talk.conversation is not None:
        front.report(session.talk.continuing)
    with asyncio.Runner() as runner:
        session.engine.follow(runner.get_loop())
        session.start()
        if session.work is not None:
            session.work.wait()
            for note in session.work.notes:
                front.report(note)
        front.report_news()
        if greets:
            name = session.models.next_name
            front.report(f"chatting with {name}; /help lists the commands, Ctrl-D quits")
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
