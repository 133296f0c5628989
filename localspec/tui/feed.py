"""Feed: follows the engine in a worker, which posts each notice to the app; here the session takes it, and the screen shows it."""

import gc
import os
import time
from typing import TYPE_CHECKING

from textual.app import App
from textual.message import Message

from localspec.decoding.round import StopReason
from localspec.engine.protocol import EngineDied, Failed, Notice, Ready, ReplyDone
from localspec.tui.actions import when_full, when_nearly_full
from localspec.tui.models import DEMONSTRATION, Phase
from localspec.tui.screens import Screens
from localspec.tui.shown import SAVED_AGAIN, shown
from localspec.tui.transcript import TranscriptItem
from localspec.tui.typeset import prepare

if TYPE_CHECKING:
    from localspec.session.approval import CallRunner
    from localspec.tui.approval_sheet import ApprovalSheet

TICK_S = 0.1
_RESTART_AGAIN_S = 60.0
_LESS_MEMORY = "a smaller model (F8) or context (/set ctx) needs less memory"


class EngineNotice(Message):
    """The engine sent something."""

    def __init__(self, notice: Notice) -> None:
        self.notice = notice
        super().__init__()


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


class Feed:
    """Between session and screen.

    Args:
        app: has the worker and the timer.
        front: shows what comes.

    Attributes:
        started: whether the engine was started.
    """

    def __init__(self, app: App[None], front: Screens) -> None:
        self._app, self._front = app, front
        self._session, self._view = front.session, front.view
        self.started = False
        self._trouble: str | None = None
        self._pace = Pace()
        self._calls_shown = 0
        self._asked: ApprovalSheet | None = None
        self._died_s = -_RESTART_AGAIN_S

    def start(self) -> None:
        """Start the engine, and let the user choose a model if none was chosen."""
        app, session = self._app, self._session
        if not session.named:
            session.engine.start()
            self._front.choose_model(first=True)
        else:
            session.start()
        self.started = True
        if session.work is not None and session.work.notes:
            self._view.tell("; ".join(session.work.notes))
        # All that is here will stay: without looking through it, collecting garbage stops no frame for 50 ms.
        gc.freeze()
        self._view.tell_state()
        # Beside the engine, which loads now, and not when the first answer comes.
        app.run_worker(prepare, thread=True, exit_on_error=False)
        app.run_worker(self._follow())
        app.set_interval(TICK_S, self._tick)

    async def _follow(self) -> None:
        async for notice in self._session.notices():
            self._app.post_message(EngineNotice(notice))

    async def take(self, notice: Notice) -> None:
        """Have the session take a notice, and show what it changes."""
        waited = self._session.waits_for_text
        self._session.take(notice)
        await self._react(notice)
        self._draw(at_once=waited and not self._session.waits_for_text)

    async def _tick(self) -> None:
        """Show what time brings: calls that run or have ended, trouble with the disk, a terminal that is gone."""
        session = self._session
        if not (self._app.is_headless or os.isatty(0)):  # no signal may have come
            self._app.exit()
        session.tick()
        if session.work is not None:
            for note in session.work.news():
                self._view.tell(note)
            await self._show_work(session.work)
        trouble = session.talk.history.trouble
        if trouble != self._trouble:
            self._view.tell(trouble or SAVED_AGAIN)
        self._trouble = trouble
        self._draw()

    def _draw(self, *, at_once: bool = False) -> None:
        """Show the answer that grows and the figures together, or each would have the screen composed."""
        growing, now_s, cpu_s = self._session.growing, time.monotonic(), time.thread_time()
        if growing and not at_once and not self._pace.is_due(now_s, cpu_s):
            return
        if growing:
            self._pace.drawn(now_s, cpu_s)
            self._view.grow()
        self._view.tell_state()
        self._view.tell_place()

    async def _show_work(self, work: "CallRunner") -> None:
        """Show what calls came to, what runs, and what the user is asked."""
        session = self._session
        if session.results != self._calls_shown:
            self._calls_shown = session.results
            if session.growing:
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
            from localspec.tui.approval_sheet import ApprovalSheet  # noqa: PLC0415 - few have tools

            self._asked = sheet = ApprovalSheet(work.question)
            self._app.push_screen(sheet, lambda decision: work.answer(sheet.question, decision))

    async def _refused(self, notice: Failed) -> None:
        """Say why there is no answer, or have room made for it."""
        if notice.kind != "ContextOverflow" or not await when_full(self._front):
            self._front.tell_refusal(notice)

    async def _react(self, notice: Notice) -> None:
        session, front, view = self._session, self._front, self._view
        exchange = session.exchange
        match notice:
            case ReplyDone() if exchange is not None and exchange.id == notice.id:
                await self._settle()
                if notice.reply.stop_reason is StopReason.CANCELLED:
                    front.take_back_waiting()
                    if not notice.reply.text and not notice.reply.thinking:
                        view.tell("stopped before the first token; F5 asks again")
                elif not session.busy:
                    await front.attempt(when_nearly_full(front))
                    await front.attempt(front.ask_next())
            case Failed(id=None):
                view.tell(session.models.replaced or notice.reason)
            case Failed() if exchange is not None and exchange.id == notice.id:
                front.take_back_waiting()
                await view.show_messages()
                await front.attempt(self._refused(notice))
            case Ready():
                news = [each for each in (session.models.replaced, *notice.notes) if each]
                if not session.named and session.models.is_default:
                    news.append(f"{DEMONSTRATION}: F8 lists others")
                view.tell("; ".join(news)) if news else None
            case EngineDied():
                front.take_back_waiting()
                await self._settle()
                self._restart(notice)
            case _:
                pass

    async def _settle(self) -> None:
        """Show the answer as it was saved; if there is none, the conversation without it."""
        talk, transcript = self._session.talk, self._view.transcript
        messages = talk.messages
        if messages and messages[-1].message.role == "assistant" and transcript.has_growing:
            last = shown(messages[-1], passages=talk.passages)
            transcript.settle(TranscriptItem(messages[-1].id, last))
        else:
            await self._view.show_messages()

    def _restart(self, notice: EngineDied) -> None:
        """Say that the engine died, and start it again unless it has just been started again."""
        now, models = time.monotonic(), self._session.models
        again = now - self._died_s >= _RESTART_AGAIN_S
        self._died_s = now
        if again:
            self._session.restart()
        then = "starting it again" if again else f"/restart starts it again; {_LESS_MEMORY}"
        self._view.tell(f"{notice.reason}; {then}", lambda: models.phase is not Phase.READY)
