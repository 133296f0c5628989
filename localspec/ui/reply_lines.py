"""ReplyLines: waits for the engine and writes what it says, as the chat in lines does."""

from collections.abc import Callable
from dataclasses import dataclass

from localspec import errors
from localspec.chat.events import Text
from localspec.engine.protocol import EngineDied, Failed, Notice, Ready, ReplyDone, ReplyEvents
from localspec.errors import LocalspecError
from localspec.session.approval import shortened_lines
from localspec.ui.models import Phase
from localspec.ui.session import Session
from localspec.ui.shown import call_line, shown

_POLL_S = 0.03


@dataclass(slots=True)
class ReplyLines:
    """Writes answers as they come, and what is to be known of them.

    Args:
        session: is polled.
        write: takes the text of answers.
        tell: takes lines of news.
        quiet: leave figures and news away.
        sleep: waits so many seconds.
        thoughts: whether thoughts are written, too.
        preview: prints what a call would change.
        prompt: returns what a person answers to a short question; None where nobody can be asked.

    Attributes:
        overflowed: whether the last question found no room in the context.
    """

    session: Session
    write: Callable[[str], None]
    tell: Callable[[str], None]
    quiet: bool
    sleep: Callable[[float], None]
    thoughts: bool = False
    preview: Callable[[str], None] = lambda _: None
    prompt: Callable[[str], str] | None = None
    overflowed: bool = False
    _results: int = 0
    _refused: Failed | None = None

    def write_answer(self) -> int:
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
            session.work.ask(self.tell, self.preview, self.prompt)

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
            if isinstance(event, Text) and (not event.thinking or self.thoughts):
                self.write(event.text)

    def _tell_calls(self, message: ReplyDone) -> None:
        """Write what an answer calls, below its words."""
        if message.reply.text:
            self.write("\n")
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
        self.overflowed = isinstance(ended, Failed) and ended.kind == "ContextOverflow"
        match ended:
            case ReplyDone():
                self.write("\n")
                self._tell_figures(ended)
                return 0
            case Failed():
                # Where nothing could be loaded, that is the reason, and not that nothing is loaded.
                ended, self._refused = self._refused or ended, None
                advice = (
                    "; /compact summarises earlier turns, /compact drop drops them"
                    if self.overflowed
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
