"""EngineClient: an engine whose notices are collected: those of its models, and of all requests, in their order."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from localspec.calls import Tool
from localspec.chat.events import Withheld
from localspec.chat.request import Request
from localspec.engine.engine import COMMAND, RemoteEngine
from localspec.engine.link import ServerLink
from localspec.engine.protocol import Count, EngineDied, Load, Notice, Question, ReplyEvents
from localspec.messages import Message
from localspec.options import LaunchOptions, ReplyOptions


class EngineClient(RemoteEngine):
    """An engine whose notices are collected: by `collect` where a loop is followed, by `drain` elsewhere.

    Args:
        command: as for `RemoteEngine`.
        find: as for `RemoteEngine`.
        settings: as for `RemoteEngine`.
        gate: of requests that have none.

    Attributes:
        withheld: what an `ask` rule of a gate masked in the last reply that belongs to a conversation.
    """

    def __init__(
        self,
        command: Sequence[str] = COMMAND,
        find: Callable[[LaunchOptions], ServerLink | None] | None = None,
        settings: Load | None = None,
        gate: str = "",
    ) -> None:
        super().__init__(command, find, settings)
        self._gate = gate
        self._collected: list[Notice] = []
        self._arrived = asyncio.Event()
        self.withheld: list[Withheld] = []
        self._revealing = 0

    def ask(
        self, messages: Sequence[Message], options: ReplyOptions | None = None, **more: Any
    ) -> int:
        """Ask for a reply, see `Request`; return the id of its notices."""
        given = {name: value for name, value in more.items() if value is not None}
        return self.question(Request(0, tuple(messages), options or ReplyOptions(), **given))

    def ask_count(self, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> int:
        """Ask how many tokens a conversation takes; return the id of the answer."""
        return self.question(Count(0, tuple(messages), tuple(tools)))

    def question(self, question: Question) -> int:
        """Send a question; return the id of its notices."""
        number = next(self._ids)
        if isinstance(question, Request):
            question = msgspec.structs.replace(question, gate=question.gate or self._gate)
            if not question.ephemeral:
                self._revealing, self.withheld = number, []
        if self._link is None:
            self._deliver(EngineDied("the engine is not running: restart it"))
        self._send(msgspec.structs.replace(question, id=number))
        return number

    def drain(self) -> list[Notice]:
        """Return what came in since the last call, in order."""
        while self.receive():
            if self._link is None or not self._link.wait(0):
                break
        return self.collect()

    def collect(self) -> list[Notice]:
        """Return what came in since the last call, in order, on the loop that is followed."""
        collected, self._collected = self._collected, []
        self._arrived.clear()
        return collected

    async def arrival(self, timeout_s: float) -> None:
        """Wait until something has come in since `collect`, for so long at most."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._arrived.wait()

    def _deliver(self, notice: Notice) -> None:
        super()._deliver(notice)
        if isinstance(notice, ReplyEvents) and notice.id == self._revealing:
            self.withheld += (each for each in notice.events if isinstance(each, Withheld))
        self._collected.append(notice)
        self._arrived.set()
