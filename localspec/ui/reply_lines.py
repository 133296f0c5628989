"""ReplyLines: waits for the engine and writes what it says, as the chat in lines does."""

from collections.abc import Callable
from dataclasses import dataclass

from localspec import errors
from localspec.chat.events import Text
from localspec.engine.protocol import EngineDied, Failed, Notice, Ready, ReplyDone, ReplyEvents
from localspec.errors import LocalspecError
from localspec.ui.engine_state import Phase
from localspec.ui.session import Session
from localspec.ui.shown import shown

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
    """

    session: Session
    write: Callable[[str], None]
    tell: Callable[[str], None]
    quiet: bool
    sleep: Callable[[float], None]
    thoughts: bool = False
    _refused: Failed | None = None

    def write_answer(self) -> int:
        """Write the answer that was requested; return an exit code.

        Ctrl-C stops it and keeps what is there. A second one leaves, since an engine that hangs does not stop.
        """
        ended: ReplyDone | Failed | EngineDied | None = None
        stopping = False
        while ended is None:
            try:
                for message in self.session.poll():
                    ended = self._take(message) or ended
                self.sleep(_POLL_S)
            except KeyboardInterrupt:
                if stopping or not self.session.stop():
                    raise
                stopping = True
        return self._tell_end(ended)

    def wait_ready(self) -> None:
        """Wait until the models are loaded, or cannot be."""
        while self.session.state.phase in {Phase.STARTING, Phase.LOADING}:
            for message in self.session.poll():
                self._take(message)
            self.sleep(_POLL_S)

    def _take(self, message: Notice) -> ReplyDone | Failed | EngineDied | None:
        """Write what a message says; return it where it ends the answer."""
        exchange = self.session.exchange
        match message:
            case ReplyEvents():
                for event in message.events:
                    if isinstance(event, Text) and (not event.thinking or self.thoughts):
                        self.write(event.text)
            case Ready() if not self.quiet:
                for note in message.notes:
                    self.tell(note)
            case ReplyDone() | Failed() if exchange is not None and message.id == exchange.id:
                return message
            case Failed(id=None):
                self._take_refusal(message)
            case EngineDied():
                return message
            case _:
                pass
        return None

    def _take_refusal(self, message: Failed) -> None:
        """Say what answers instead of the models that could not be loaded; where nothing does, say so with the answer."""
        if self.session.models.instead:
            self.tell(self.session.models.instead)
        else:
            self._refused = message

    def _tell_end(self, ended: ReplyDone | Failed | EngineDied) -> int:
        """Say how an answer ended; return an exit code."""
        match ended:
            case ReplyDone():
                self.write("\n")
                self._tell_figures(ended)
                return 0
            case Failed():
                # Where nothing could be loaded, that is the reason, and not that nothing is loaded.
                ended, self._refused = self._refused or ended, None
                advice = "; /drop drops the oldest turns" if ended.kind == "ContextOverflow" else ""
                self.tell(ended.reason + advice)
                return int(getattr(getattr(errors, ended.kind, LocalspecError), "exit_code", 1))
        self.tell(f"{ended.reason}; /restart starts it again")
        return 1

    def _tell_figures(self, message: ReplyDone) -> None:
        last = self.session.talk.messages[-1:]
        answered = last and last[0].message.role == "assistant"
        note = shown(last[0]).note if answered else message.reply.stop_reason.value
        if not self.quiet and note:
            self.tell(f"{note} · seed {message.reply.seed}")
