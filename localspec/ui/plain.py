"""The chat in lines: for screen readers, pipes and terminals that can do nothing else.

Answers go to `out`, everything else to `err`. Nothing is drawn over and nothing moves. No Textual.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TextIO

from localspec import errors
from localspec.engine.protocol import EngineDied, Failed, Finished, Message, Ready, Streamed
from localspec.errors import LocalspecError
from localspec.ui.clean import clean, clean_line
from localspec.ui.commands import parse
from localspec.ui.engine_state import Phase
from localspec.ui.preferences import Preferences
from localspec.ui.session import Session
from localspec.ui.shown import SAVED_AGAIN, shown

_POLL_S = 0.03
_INTERRUPTED = 130


@dataclass(slots=True)
class Plain:
    """A chat in lines.

    Args:
        session: what is talked with.
        preferences: personas.
        lines: what the user types, without line ends.
        out: gets the answers.
        err: gets the rest.
        terminal: whether `out` is a terminal, which must not be sent what it would obey.
        quiet: leave figures and news away.
        sleep: waits so many seconds.
    """

    session: Session
    preferences: Preferences
    lines: Iterator[str]
    out: TextIO
    err: TextIO
    terminal: bool
    quiet: bool = False
    sleep: Callable[[float], None] = time.sleep
    show_thoughts: bool = False
    leaving: bool = False
    _refused: Failed | None = None
    _trouble: str | None = None

    def run(self) -> int:
        """Talk until the lines end; return the exit code."""
        # Imported here: what the commands do needs this class.
        from localspec.ui.plain_actions import run_command  # noqa: PLC0415

        self._tell_trouble()
        if self.session.talk.conversation is not None:
            self.tell(f"taking up: {self.session.talk.title}")
        self.session.start()
        code = 0
        for line in self._texts():
            try:
                found = parse(line)
                if found is not None:
                    run_command(self, *found)
                else:
                    self.session.ask(line)
                    code = self.answer()
            except LocalspecError as error:
                self.tell(str(error))
                code = error.exit_code
            except OSError as error:
                what = error.filename or "reading or writing failed"
                self.tell(f"{what}: {error.strerror or error}")
                code = 1
            except KeyboardInterrupt:
                return _INTERRUPTED
            self._tell_trouble()
            if self.leaving:
                break
        return code

    def tell(self, text: str) -> None:
        """Write one line of news."""
        print(f"localspec: {clean_line(text)}", file=self.err, flush=True)

    def write(self, text: str) -> None:
        """Write a part of an answer."""
        self.out.write(clean(text) if self.terminal else text)
        self.out.flush()

    def answer(self) -> int:
        """Write the answer as it comes, and return an exit code. Ctrl-C stops it and keeps what is there.

        A second one leaves, since an engine that hangs does not stop.
        """
        ended: Finished | Failed | EngineDied | None = None
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
        match ended:
            case Finished():
                self.write("\n")
                self._figures(ended)
                return 0
            case Failed():
                # Where nothing could be loaded, that is the reason, and not that nothing is loaded.
                ended, self._refused = self._refused or ended, None
                advice = (
                    "; /drop leaves out the oldest turns" if ended.kind == "ContextOverflow" else ""
                )
                self.tell(ended.reason + advice)
                return int(getattr(getattr(errors, ended.kind, LocalspecError), "exit_code", 1))
        self.tell(f"{ended.reason}; /restart starts it again")
        return 1

    def wait_ready(self) -> None:
        """Wait until the models are loaded, or cannot be."""
        while self.session.state.phase in {Phase.STARTING, Phase.LOADING}:
            for message in self.session.poll():
                self._take(message)
            self.sleep(_POLL_S)

    def tell_loaded(self) -> None:
        """Wait until the models are loaded, or cannot be, and say which."""
        self.wait_ready()
        state = self.session.state
        self.tell(f"loaded: {state.line()}" if state.ready is not None else state.trouble)

    def _take(self, message: Message) -> Finished | Failed | EngineDied | None:
        exchange = self.session.exchange
        match message:
            case Streamed():
                for span in message.spans:
                    if not span.thinking or self.show_thoughts:
                        self.write(span.text)
            case Ready() if not self.quiet:
                for note in message.notes:
                    self.tell(note)
            case Finished() if exchange is not None and message.id == exchange.id:
                return message
            case Failed(id=None):
                self._take_refusal(message)
            case Failed() if exchange is not None and message.id == exchange.id:
                return message
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

    def _figures(self, message: Finished) -> None:
        last = self.session.talk.messages[-1:]
        note = shown(last[0]).note if last and last[0].role == "assistant" else message.stop_reason
        if not self.quiet and note:
            self.tell(f"{note} · seed {message.seed}")

    def _tell_trouble(self) -> None:
        """Say once why nothing is saved, and once that all is again; a disk may fill up at any time."""
        trouble = self.session.talk.history.trouble
        if trouble != self._trouble:
            self.tell(trouble or SAVED_AGAIN)
        self._trouble = trouble

    def _texts(self) -> Iterator[str]:
        """Yield what the user types; a backslash at the end of a line goes on in the next."""
        begun = ""
        for line in self.lines:
            if line.endswith("\\"):
                begun += line[:-1] + "\n"
                continue
            text, begun = begun + line, ""
            if text.strip():
                yield text
        if begun.strip():
            yield begun
