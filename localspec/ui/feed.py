"""Feed: takes what the engine sends, ten times a second, and has the screen show it."""

import gc
import os
import time
from typing import TYPE_CHECKING

from textual.app import App
from textual.timer import Timer

from localspec.decoding.round import StopReason
from localspec.engine.protocol import EngineDied, Failed, Notice, Ready, ReplyDone
from localspec.ui.conversation_commands import when_full, when_nearly_full
from localspec.ui.engine_state import Phase
from localspec.ui.model_switch import DEMONSTRATION
from localspec.ui.screens import Screens
from localspec.ui.shown import SAVED_AGAIN, shown
from localspec.ui.transcript import TranscriptItem
from localspec.ui.typeset import prepare

if TYPE_CHECKING:
    from localspec.session.approval import CallQuestion, CallRunner
    from localspec.ui.approval_sheet import ApprovalSheet

POLL_S = 0.1
# While a user waits for the first text: it is to be there when it comes.
_EAGER_S = 0.02
_RESTART_AGAIN_S = 60.0
_LESS_MEMORY = "a smaller model (F8) or context (/set ctx) needs less memory"


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
        """Take in that it is drawn now."""
        self._at_s, self._at_cpu_s = now_s, cpu_s


class Feed:
    """Between session and screen.

    Args:
        app: has the timers.
        front: shows what comes.

    Attributes:
        started: whether the engine was told to start.
    """

    def __init__(self, app: App[None], front: Screens) -> None:
        self._app, self._front = app, front
        self._session, self._view = front.session, front.view
        self.started = False
        self._trouble: str | None = None
        self._pace = Pace()
        self._eager: Timer | None = None
        self._waiting = False
        self._calls_shown = 0
        self._asked: ApprovalSheet | None = None
        self._died_s = -_RESTART_AGAIN_S

    def start(self) -> None:
        """Start the engine, and let the user choose a model where nobody did."""
        app, session = self._app, self._session
        if not session.named:
            session.engine.start()
            self._front.choose_model(first=True)
        else:
            session.start()
        self.started = True
        if session.asking.work is not None and session.asking.work.notes:
            self._view.tell("; ".join(session.asking.work.notes))
        # All that is here will stay: without looking through it, collecting garbage stops no frame for 50 ms.
        gc.freeze()
        self._view.tell_state()
        # Beside the engine, which loads now, and not when the first answer comes.
        app.run_worker(prepare, thread=True, exit_on_error=False)
        app.set_interval(POLL_S, self._poll)
        self._eager = app.set_interval(_EAGER_S, self._poll, pause=True)

    async def _poll(self) -> None:
        if not (
            self._app.is_headless or os.isatty(0)
        ):  # it is gone, and nobody may have sent a signal
            self._app.exit()
        for message in self._session.poll():
            await self._react(message)
        if self._session.asking.work is not None:
            for note in self._session.asking.work.news():
                self._view.tell(note)
            await self._show_work(self._session.asking.work)
        self._tell_trouble()
        growing, first_text = self._session.asking.answering.growing, self._first_text()
        if (
            growing
            and not first_text
            and not self._pace.is_due(time.monotonic(), time.thread_time())
        ):
            return  # text and figures are drawn together, or each would have the screen composed
        if growing:
            self._pace.drawn(time.monotonic(), time.thread_time())
            self._view.grow()
        self._view.tell_state()
        self._view.tell_place()

    async def _show_work(self, work: "CallRunner") -> None:
        """Show what calls came to, what runs, and what the user is asked."""
        asking = self._session.asking
        if asking.results != self._calls_shown:
            self._calls_shown = asking.results
            if asking.answering.growing:
                await self._view.show_answering()
            else:
                await self._view.show_messages()
        if work.line():
            self._view.tell(work.line(), work.line)
        sheet = self._asked
        if sheet is not None and work.question is not sheet.question:  # answered, or stopped
            self._asked = None
            if sheet in self._app.screen_stack:
                while self._app.screen is not sheet:
                    self._app.pop_screen()
                self._app.pop_screen()
        if work.question is not None and self._asked is None:
            self._ask(work, work.question)

    def _ask(self, work: "CallRunner", question: "CallQuestion") -> None:
        from localspec.ui.approval_sheet import ApprovalSheet  # noqa: PLC0415 - few have tools

        self._asked = ApprovalSheet(question)
        self._app.push_screen(self._asked, lambda decision: work.answer(question, decision))

    def _first_text(self) -> bool:
        """Return whether the first text of an answer has just come; look for it more often until then."""
        answering = self._session.asking.answering
        exchange, waited = answering.exchange, self._waiting
        self._waiting = answering.growing and exchange is not None and not exchange.tokens
        if self._eager is not None and waited != self._waiting:
            self._eager.resume() if self._waiting else self._eager.pause()
        return waited and not self._waiting

    async def _refused(self, message: Failed) -> None:
        """Say why there is no answer, or have room made for it."""
        if message.kind != "ContextOverflow" or not await when_full(self._front):
            self._front.tell_refusal(message)

    def _tell_trouble(self) -> None:
        """Say once why nothing is saved, and once that all is again; a disk may fill up at any time."""
        trouble = self._session.talk.history.trouble
        if trouble != self._trouble:
            self._view.tell(trouble or SAVED_AGAIN)
        self._trouble = trouble

    async def _react(self, message: Notice) -> None:
        match message:
            case ReplyDone() if self._is_answer(message):
                await self._settle()
                if message.reply.stop_reason is StopReason.CANCELLED:
                    self._front.take_back_waiting()
                    if not message.reply.text and not message.reply.thinking:
                        self._view.tell("stopped before the first token; F5 asks again")
                elif not self._session.asking.busy:
                    await self._front.attempt(when_nearly_full(self._front))
                    await self._front.attempt(self._front.ask_next())
            case Failed() if self._is_answer(message):
                self._front.take_back_waiting()
                await self._view.show_messages()
                await self._front.attempt(self._refused(message))
            case Failed(id=None):
                self._view.tell(self._session.models.instead or message.reason)
            case Ready():
                news = [each for each in (self._session.models.instead, *message.notes) if each]
                if not self._session.named and self._session.models.is_default:
                    news.append(f"{DEMONSTRATION}: F8 lists others")
                self._view.tell("; ".join(news)) if news else None
            case EngineDied():
                self._front.take_back_waiting()
                await self._settle()
                self._mourn(message)
            case _:
                pass

    def _is_answer(self, message: ReplyDone | Failed) -> bool:
        exchange = self._session.exchange
        return exchange is not None and exchange.id == message.id

    async def _settle(self) -> None:
        """Show the answer as it was kept; where there is none, the conversation without it."""
        talk, transcript = self._session.talk, self._view.transcript
        messages = talk.messages
        if messages and messages[-1].message.role == "assistant" and transcript.has_growing:
            last = shown(messages[-1], passages=talk.passages)
            transcript.settle(TranscriptItem(messages[-1].id, last))
        else:
            await self._view.show_messages()

    def _mourn(self, message: EngineDied) -> None:
        """Say that the engine died, and start it again unless it has just been started again."""
        now, state = time.monotonic(), self._session.state
        again = now - self._died_s >= _RESTART_AGAIN_S
        self._died_s = now
        if again:
            self._session.restart()
        then = "starting it again" if again else f"/restart starts it again; {_LESS_MEMORY}"
        self._view.tell(f"{message.reason}; {then}", lambda: state.phase is not Phase.READY)
