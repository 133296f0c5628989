"""A session without a screen, on an engine without a process: a test sees what is sent, and delivers what comes."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from localspec.chat.events import Finished
from localspec.chat.request import Request
from localspec.engine.protocol import Cancel, Command, Load, Notice, Ready
from localspec.engine.remote_engine import RemoteEngine
from localspec.history.archive import History
from localspec.options import LaunchOptions, ReplyOptions
from localspec.session.conversation import SavedConversation
from localspec.tui.session import Session
from tests.tui.answers import finished, started, streamed

READY = Ready("toy", None, "lookup", 2048, (), 0.1, True)
_TURNS = 12


class ScriptedEngine(RemoteEngine):
    """Records what is sent."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[Command] = []

    @property
    def requests(self) -> list[Request]:
        return [each for each in self.sent if isinstance(each, Request)]

    @property
    def loads(self) -> list[LaunchOptions]:
        return [each.options for each in self.sent if isinstance(each, Load)]

    @property
    def cancelled(self) -> list[int | None]:
        return [each.id for each in self.sent if isinstance(each, Cancel)]

    def _start(self) -> None:
        pass

    def _send(self, command: Command) -> None:
        self.sent.append(command)


class Window:
    """A session that has begun, on a loop that runs only while something is heard."""

    def __init__(self, folder: Path, conversation: int | None = None, **resumes: Any) -> None:
        self.engine, self.loop = ScriptedEngine(), asyncio.new_event_loop()
        talk = SavedConversation(History(folder / "history"), "Be brief.")
        launch = LaunchOptions(pair="p")
        self.session = Session(self.engine, talk, launch, ReplyOptions(), folder)
        self.news: list[str] = []
        self.session.notify = lambda text, _holds: self.news.append(text)
        if conversation is not None:
            self.session.resume(conversation, **resumes)
        self.loop.run_until_complete(self._start())
        self.hear(READY)

    async def _start(self) -> None:
        self.session.start()
        await asyncio.sleep(0)

    async def _answer(self) -> None:
        async for _ in self.session.answer():
            pass

    async def _turn(self, seconds: float) -> None:
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        await asyncio.sleep(seconds)

    def hear(self, *notices: Notice, seconds: float = 0.0) -> None:
        """Deliver notices, each when all before it have been taken."""
        if self.session.growing and self.session.exchange and self.session.exchange.number is None:
            self._answering = self.loop.create_task(self._answer())
        self.loop.run_until_complete(self._turn(0))
        for each in notices:
            self.engine._deliver(each)
            self.loop.run_until_complete(self._turn(seconds))

    @property
    def number(self) -> int:
        """The engine's number of the last request."""
        self.hear()
        assert self.session.exchange is not None
        assert self.session.exchange.number is not None
        return self.session.exchange.number

    def answer(self, text: str, **changes: Any) -> Finished:
        """Deliver a whole answer."""
        number, whole = self.number, finished(self.number, text, **changes)
        self.hear(started(number, 10, 4), streamed(number, text), whole)
        return whole

    def ask(self, question: str, text: str | None = None) -> None:
        """Ask, and deliver the answer."""
        self.session.ask(question)
        self.hear()
        if text is not None:
            self.answer(text)

    @property
    def request(self) -> Request:
        """What was requested last."""
        self.hear()
        return self.engine.requests[-1]

    @property
    def turns(self) -> list[str]:
        """The texts that were sent last, without the system prompt."""
        return [each.text for each in self.request.messages][1:]

    @property
    def contents(self) -> list[str]:
        return [each.message.text for each in self.session.talk.messages]

    @property
    def conversation(self) -> int:
        assert self.session.talk.conversation is not None
        return self.session.talk.conversation

    def close(self) -> None:
        for each in asyncio.all_tasks(self.loop):
            each.cancel()
        self.hear()
        self.session.close()
        self.loop.close()


@contextmanager
def window(folder: Path, conversation: int | None = None, **resumes: Any) -> Iterator[Window]:
    """Open a window, and close it."""
    opened = Window(folder, conversation, **resumes)
    try:
        yield opened
    finally:
        opened.close()
