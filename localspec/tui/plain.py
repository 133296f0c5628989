"""The chat in lines: for screen readers, pipes and terminals that can do nothing else. No Textual."""

import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TextIO

from localspec import errors
from localspec.chat.events import Text
from localspec.display import Wrapping, clean, clean_line, columns_of, shortened_lines, wrapped
from localspec.engine.protocol import EngineDied, Failed, Notice, Ready, ReplyDone, ReplyEvents
from localspec.errors import LocalspecError
from localspec.session.conversation import content_of
from localspec.session.preferences import Preferences
from localspec.tui import commands
from localspec.tui.actions import edited, when_full, when_nearly_full
from localspec.tui.commands import COMMANDS, QUOTES, goes_on, unquoted
from localspec.tui.lens import legend, marked
from localspec.tui.models import Phase
from localspec.tui.session import Session
from localspec.tui.shown import ELSEWHERE, SAVED_AGAIN, call_line, shown
from localspec.tui.stats import stats_lines

_POLL_S = 0.03
_WIDTH = 78
_INTERRUPTED = 130


@dataclass(slots=True)
class Lines:
    """The front of the chat in lines; see `Front`. Whatever takes its time is waited for.

    Args:
        session: what is talked with.
        preferences: personas.
        out: gets the answers.
        err: gets the rest.
        terminal: whether `out` is a terminal, which must not be sent what it would obey.
        quiet: leave figures and news away.
        sleep: waits so many seconds.
        ask: returns what a person answers to a short question; None where there is nobody to ask.

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
    sleep: Callable[[float], None] = time.sleep
    ask: Callable[[str], str] | None = None
    code: int = 0
    leaving: bool = False
    _trouble: str | None = None
    _thoughts: bool = False
    _overflowed: bool = False
    _results: int = 0
    _refused: Failed | None = None
    _wrapping: Wrapping = field(init=False)

    def __post_init__(self) -> None:
        self._wrapping = Wrapping(lambda: columns_of(self.out))

    def tell(self, text: str) -> None:
        """Write one line of news."""
        self.out.write(self._wrapping.flush())
        self.out.flush()
        print(wrapped(f"localspec: {clean_line(text)}", self.err), file=self.err, flush=True)

    def tell_trouble(self) -> None:
        """Say once why nothing is saved, and once that all is again; a disk may fill up at any time."""
        trouble = self.session.talk.history.trouble
        if trouble != self._trouble:
            self.tell(trouble or SAVED_AGAIN)
        self._trouble = trouble

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
            self.tell("new conversation")

    async def show_answer(self) -> None:
        """Write the answer as it comes. Ctrl-C stops it and keeps what is there."""
        self.code = self._write_answer()
        await self._look_at_context()
        waiting = self.session.waiting
        while waiting and not self.code:
            self.session.ask(waiting.pop(0))
            self.code = self._write_answer()
            await self._look_at_context()

    async def _look_at_context(self) -> None:
        """Offer a summary, or have it made, where there is little room left."""
        if self._overflowed:
            await when_full(self)
        elif not self.code and not (self.quiet and self.preferences.compact == "ask"):
            await when_nearly_full(self)

    def show_loading(self) -> None:
        """Wait until the models are loaded, or cannot be, and say which."""
        self.wait_ready()
        models = self.session.models
        self.tell(f"loaded: {models.line}" if models.ready is not None else models.trouble)

    def edit(self, number: int, text: str) -> None:
        """Write a question, and how to change it."""
        self.tell(f"question {number}: {text}")
        self.tell(f"to change it: /edit {number} TEXT")

    def compose(self, text: str) -> None:
        """Write what can be typed, with a change."""
        self.tell(f"to change it: {text}")

    async def open_editor(self) -> None:
        """Ask what the user writes in an editor of their own."""
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
        """List names and hints; the user gives one to the command that asked."""
        for name, hint in hints.items():
            self.tell(f"{title}: {name} · {hint}")

    def choose_model(self) -> None:
        """List the pairs."""
        from localspec.launch.rows import measured_choices  # noqa: PLC0415 - few ask for it

        found, loaded = measured_choices(), self.session.models.name
        width = max(len(each.name) for each in found)
        for each in found:
            print(each.line(width, loaded=each.name == loaded), file=self.err)
        self.tell("/model NAME loads one now, /set model NAME makes it your default")

    def choose_theme(self, name: str) -> None:  # noqa: ARG002 - there is no other
        """Say that there is no choice."""
        self.tell("no themes without screens: the terminal's colours are used")

    def show_history(self, words: str) -> None:
        """List conversations, with the numbers that open and delete them."""
        found = self.session.talk.history.conversations(words)
        for stored in found:
            self.tell(f"{stored.id} {stored.title or 'untitled'} {stored.excerpt}")
        self.tell(
            "/history N opens one, /history delete N deletes it" if found else "nothing matches"
        )

    def show_settings(self) -> None:
        """List the settings."""
        for line in self.session.setting_lines():
            self.tell(line)

    def show_stats(self) -> None:
        """Write what drafting did."""
        for line in stats_lines(self.session.exchange, _WIDTH):
            print(line, file=self.err)

    def show_text(self, title: str, text: str) -> None:
        """Write a text."""
        self.tell(title)
        self._write(f"{text}\n")

    def show_lens(self) -> None:
        """Write the last answer with marks around its tokens, and what they mean."""
        happened = self.session.happened
        self._write(marked(happened) + "\n")
        print("\n".join(legend(happened)), file=self.err)

    def show_race(self, text: str) -> None:
        """Hold a race, and write both answers when it is over."""
        self.wait_ready()
        race = self.session.start_race(text)
        self.tell(race.verdict())
        while not race.done:
            self.session.poll()
            self.sleep(_POLL_S)
        for name, lane in zip(("with drafting", "without"), race.lanes, strict=False):
            self._write(f"[{name}]\n{lane.thoughts}{lane.answer}\n\n")
        self.tell(race.verdict())

    def show_help(self) -> None:
        """List the commands."""
        for each in COMMANDS:
            self.tell(f"{f'/{each.name} {each.usage}':<28} {each.about}")

    def toggle_thoughts(self) -> None:
        """Write the thoughts of answers from now on, or leave them out."""
        self._thoughts = not self._thoughts
        self.tell(f"thoughts are {'shown' if self._thoughts else 'left out'}")

    def _write_answer(self) -> int:
        """Write the answer that was requested; return an exit code.

        Ctrl-C stops it and keeps what is there. A second one leaves, since an engine that hangs does not stop.
        """
        ended: ReplyDone | Failed | EngineDied | None = None
        stopping = False
        while ended is None or self.session.busy:
            try:
                for message in self.session.poll():
                    ended = self._take(message) or ended
                self._tell_work()
                self.sleep(_POLL_S)
            except KeyboardInterrupt:
                if stopping or not self.session.stop():
                    raise
                stopping = True
        return self._tell_end(ended)

    def wait_ready(self) -> None:
        """Wait until the models that were asked for last are loaded, or cannot be."""
        session = self.session
        # Ready may tell of what was asked for before, as of the usual models when another one is chosen at once.
        while session.models.under_way or session.models.phase in {Phase.STARTING, Phase.LOADING}:
            for message in session.poll():
                self._take(message)
            self.sleep(_POLL_S)

    def _tell_work(self) -> None:
        """Write what calls came to, and ask about those that somebody has to allow."""
        session = self.session
        new = session.results - self._results
        self._results = session.results
        for each in session.talk.messages[-new:] if new else ():
            said = shown(each)
            self.tell(said.heading)
            for line in shortened_lines(said.text):
                self.tell(f"  {line}")
        if session.work is not None:
            session.work.ask(self.tell, self._preview, self.ask)

    def _take(self, message: Notice) -> ReplyDone | Failed | EngineDied | None:
        """Write what a message says; return it where it ends the answer."""
        exchange = self.session.exchange
        match message:
            case ReplyEvents():
                self._write_events(message)
            case Ready():
                for note in () if self.quiet else message.notes:
                    self.tell(note)
            case ReplyDone() if message.message.calls:
                self._tell_calls(message)
                return message
            case ReplyDone() | Failed() if exchange is not None and message.id == exchange.id:
                return message
            case Failed(id=None):
                self._take_refusal(message)
            case EngineDied():
                return message
            case _:
                pass
        return None

    def _write_events(self, message: ReplyEvents) -> None:
        for event in message.events:
            if isinstance(event, Text) and (not event.thinking or self._thoughts):
                self._write(event.text)

    def _tell_calls(self, message: ReplyDone) -> None:
        """Write what an answer calls, below its words."""
        if message.reply.text:
            self._write("\n")
        for each in message.message.calls:
            self.tell(call_line(each))

    def _take_refusal(self, message: Failed) -> None:
        """Say what answers instead of the models that could not be loaded; where nothing does, say so with the answer."""
        if self.session.models.replaced:
            self.tell(self.session.models.replaced)
        else:
            self._refused = message

    def _tell_end(self, ended: ReplyDone | Failed | EngineDied) -> int:
        """Say how an answer ended; return an exit code."""
        self._overflowed = isinstance(ended, Failed) and ended.kind == "ContextOverflow"
        match ended:
            case ReplyDone():
                self._write("\n")
                self._tell_figures(ended)
                return 0
            case Failed():
                # Where nothing could be loaded, that is the reason, and not that nothing is loaded.
                ended, self._refused = self._refused or ended, None
                advice = (
                    "; /compact summarises earlier turns, /compact drop drops them"
                    if self._overflowed
                    else ""
                )
                self.tell(ended.reason + advice)
                return int(getattr(getattr(errors, ended.kind, LocalspecError), "exit_code", 1))
        self.tell(f"{ended.reason}; /restart starts it again")
        return 1

    def _tell_figures(self, message: ReplyDone) -> None:
        talk = self.session.talk
        last = talk.messages[-1:]
        answered = last and last[0].message.role == "assistant"
        note = message.reply.stop_reason.value
        if answered:
            note = shown(last[0], passages=talk.passages).note
        if not self.quiet and note:
            *cited, figures = note.splitlines()
            for each in cited:
                self.tell(each)
            why = f" · {message.no_drafting}" if message.no_drafting else ""
            self.tell(f"{figures}{why} · seed {message.reply.seed}")

    def _preview(self, text: str) -> None:
        print(clean(text), file=self.err)

    def leave(self) -> None:
        """Take note that no more lines are wanted."""
        self.leaving = True

    def _write(self, text: str) -> None:
        self.out.write(self._wrapping.feed(clean(text)) if self.terminal else text)
        self.out.flush()


def run(front: Lines, typed: Iterable[str | None], *, greets: bool = False) -> int:
    """SavedConversation until the lines end, or the user leaves; return the exit code.

    Args:
        front: writes.
        typed: what the user types, without line ends; None where it was taken back.
        greets: whether a person is told which model answers, and how to get help.
    """
    front.tell_trouble()
    if front.session.talk.conversation is not None:
        front.tell(front.session.talk.continuing)
    front.session.start()
    _tell_of_tools(front)
    if greets:
        name = front.session.models.next_name
        front.tell(f"chatting with {name}; /help lists the commands, Ctrl-D quits")
    for text in _texts(typed):
        try:
            _at_once(_send(front, text))
        except LocalspecError as error:
            front.tell(str(error))
            front.code = error.exit_code
        except OSError as error:
            what = error.filename or "reading or writing failed"
            front.tell(f"{what}: {error.strerror or error}")
            front.code = 1
        except KeyboardInterrupt:
            return _INTERRUPTED
        front.tell_trouble()
        _tell_news(front)
        if front.leaving:
            break
    return front.code


def _tell_of_tools(front: Lines) -> None:
    work = front.session.work
    if work is not None:
        work.wait()
        for note in work.notes:
            front.tell(note)
        _tell_news(front)


def _tell_news(front: Lines) -> None:
    work = front.session.work
    for note in () if work is None else work.news():
        front.tell(note)


async def _send(front: Lines, text: str) -> None:
    found = commands.parse(text, typed=front.ask is not None)
    if found is not None:
        await commands.run(front, *found)
    else:
        elsewhere = front.session.talk.is_open_elsewhere
        front.session.ask(unquoted(text))
        if elsewhere:
            front.tell(ELSEWHERE)
        for name in front.session.unmatched(text):
            front.tell(f"no file matches {name}: sent as text")
        await front.show_answer()


def _at_once(doing: Coroutine[object, None, None]) -> None:
    """Run to the end what awaits nothing but lines, which wait where they are and need no event loop."""
    try:
        doing.send(None)
    except StopIteration:
        return
    raise AssertionError("a command awaits what lines do not have")


def _texts(typed: Iterable[str | None]) -> Iterator[str]:
    """Yield what the user types; a backslash at the end of a line goes on in the next, and so do three double quotes.

    None among the lines takes back what was begun.
    """
    begun = ""
    for line in typed:
        if line is None:
            begun = ""
            continue
        if goes_on(begun + line):
            begun += line + "\n"
            continue
        if line.endswith("\\") and not begun.lstrip().startswith(QUOTES):
            begun += line[:-1] + "\n"
            continue
        text, begun = begun + line, ""
        if text.strip():
            yield text
    if begun.strip():
        yield begun
