"""EngineClient: an engine whose notices are collected, in their order, by a test that drains them."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from localspec.chat.request import Request
from localspec.engine.engine import COMMAND, RemoteEngine
from localspec.engine.link import ServerLink
from localspec.engine.protocol import Count, EngineDied, Notice, Question
from localspec.messages import Message
from localspec.options import LaunchOptions, ReplyOptions


class EngineClient(RemoteEngine):
    """An engine whose notices are collected; `gate` is of requests that have none."""

    def __init__(
        self,
        command: Sequence[str] = COMMAND,
        find: Callable[[LaunchOptions], ServerLink | None] | None = None,
        gate: str = "",
    ) -> None:
        self._collected: list[Notice] = []
        super().__init__(command, find, watch=self._collected.append)
        self._gate = gate

    def ask(
        self, messages: Sequence[Message], options: ReplyOptions | None = None, **more: Any
    ) -> int:
        """Ask for a reply, see `Request`; return the id of its notices."""
        given = {name: value for name, value in more.items() if value is not None}
        return self.question(Request(0, tuple(messages), options or ReplyOptions(), **given))

    def ask_count(self, messages: Sequence[Message]) -> int:
        """Ask how many tokens a conversation takes; return the id of the answer."""
        return self.question(Count(0, tuple(messages)))

    def question(self, question: Question) -> int:
        """Send a question; return the id of its notices."""
        number = next(self._ids)
        if isinstance(question, Request):
            question = msgspec.structs.replace(question, gate=question.gate or self._gate)
        if self._link is None:
            self._deliver(EngineDied("the engine is not running: restart it"))
        self._send(msgspec.structs.replace(question, id=number))
        return number

    def drain(self) -> list[Notice]:
        """Return what came in since the last call, in order."""
        while self.receive():
            if self._link is None or not self._link.wait(0):
                break
        collected = [*self._collected]
        self._collected.clear()
        return collected
