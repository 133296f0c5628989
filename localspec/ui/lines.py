"""Lines: the front that writes. Answers go to `out`, everything else to `err`; nothing is drawn over and nothing moves."""

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TextIO

from localspec.display import Wrapping, clean, clean_line, columns_of, wrapped
from localspec.history.records import content_of
from localspec.session.preferences import Preferences
from localspec.ui.commands import COMMANDS
from localspec.ui.conversation_commands import when_full, when_nearly_full
from localspec.ui.editor import written
from localspec.ui.figures import stats_lines
from localspec.ui.lens import legend, marked
from localspec.ui.reply_lines import ReplyLines
from localspec.ui.session import Session
from localspec.ui.shown import SAVED_AGAIN, call_line

_POLL_S = 0.03
_WIDTH = 78


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
    _reply: ReplyLines = field(init=False)
    _wrapping: Wrapping = field(init=False)

    def __post_init__(self) -> None:
        self._wrapping = Wrapping(lambda: columns_of(self.out))
        self._reply = ReplyLines(
            self.session,
            self._write,
            self.tell,
            self.quiet,
            self.sleep,
            preview=lambda text: print(clean(text), file=self.err),
            prompt=self.ask,
        )

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
        self.code = self._reply.write_answer()
        await self._look_at_context()
        waiting = self.session.waiting
        while waiting and not self.code:
            self.session.ask(waiting.pop(0))
            self.code = self._reply.write_answer()
            await self._look_at_context()

    async def _look_at_context(self) -> None:
        """Offer a summary, or have it made, where there is little room left."""
        if self._reply.overflowed:
            await when_full(self)
        elif not self.code and not (self.quiet and self.preferences.compact == "ask"):
            await when_nearly_full(self)

    def show_loading(self) -> None:
        """Wait until the models are loaded, or cannot be, and say which."""
        self._reply.wait_ready()
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
        text = written("")
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
        self._reply.wait_ready()
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
        self._reply.thoughts = not self._reply.thoughts
        self.tell(f"thoughts are {'shown' if self._reply.thoughts else 'left out'}")

    def leave(self) -> None:
        """Take note that no more lines are wanted."""
        self.leaving = True

    def _write(self, text: str) -> None:
        self.out.write(self._wrapping.feed(clean(text)) if self.terminal else text)
        self.out.flush()
