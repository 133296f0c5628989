"""Service: what the interfaces share: who answers, by which names, and how a client that goes away ends its requests."""

import asyncio
import json
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse

from localspec.calls import Tool
from localspec.calls.policy import CallPolicy
from localspec.chat.events import Text, Told
from localspec.chat.reply_figures import speculation
from localspec.engine.ask import Ask
from localspec.engine.protocol import Detokenize, ReplyDone, Tokenize, Tokens
from localspec.errors import LocalspecError
from localspec.messages import Message
from localspec.options import ReplyOptions
from localspec.serve.backend import Backend
from localspec.serve.catalogue import Catalogue
from localspec.serve.gating import gated_pieces
from localspec.serve.http import CLIENT, GATE, error_body, status_of
from localspec.serve.residence import Residence, ServedModel

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Service:
    """Who answers, and with which model.

    Args:
        backend: answers.
        residence: has it load the model.
        catalogue: what a request may name.
        since: when the server was started, in Unix seconds.
        model: what answers.
        rules: for what any request may call, beside its own.
    """

    backend: Backend
    residence: Residence
    catalogue: Catalogue
    since: int
    model: ServedModel
    rules: CallPolicy = field(default_factory=CallPolicy)

    @property
    def name(self) -> str:
        """How answers call the model."""
        return self.model.name

    @property
    def loaded(self) -> ServedModel:
        """What is in memory; where nothing is, what a request gets that names nothing."""
        return self.residence.loaded or self.model

    @property
    def state(self) -> str:
        """Whether it can answer: `ok`, `loading`, `unloaded`, which asking ends, or `lost`."""
        if self.backend.lost:
            return "lost"
        if self.backend.ready:
            return "ok"
        resting = self.residence.loaded is None and not self.residence.changing
        return "unloaded" if resting else "loading"

    @property
    def options(self) -> ReplyOptions:
        """How it answers where a request does not say."""
        return self.model.options

    def of(self, name: str) -> "Service":
        """Return what answers a request that names a model; where it names none, what the server was started with.

        Raises:
            NotFound: there is none of this name.
        """
        return replace(self, model=self.catalogue.find(name))

    async def reply(self, request: Request, asked: Ask) -> AsyncGenerator[Told | ReplyDone]:
        """Yield the pieces of an answer to whoever sent a request, once the model is there; see `Backend.reply`."""
        policy = asked.call_policy.under(self.rules)
        client = request.scope.get(CLIENT, "")
        asked = replace(asked, client=client, call_policy=policy, rounds=False)
        gate = request.scope.get(GATE)
        pieces = (
            self.backend.reply(asked) if gate is None else gated_pieces(self.backend, asked, gate)
        )
        async with self.residence.use(self.model), aclosing(pieces) as events:
            async for event in events:
                yield event

    async def count(self, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> int:
        """Return how many tokens a conversation takes, once the model is there."""
        async with self.residence.use(self.model):
            offered = [each for each in tools if self.rules.offers(each.name)]
            return await self.backend.count(messages, offered)

    async def tokens(self, asked: Tokenize | Detokenize) -> Tokens:
        """Return the ids of a text, or what ids stand for, once the model is there."""
        async with self.residence.use(self.model):
            return await self.backend.tokens(asked)


def drafting(done: ReplyDone) -> dict[str, Any]:
    """Return how drafting went, and why it went so."""
    return {**speculation(done.reply), "reason": done.reason}


async def merged(
    replies: Sequence[AsyncGenerator[Told | ReplyDone]],
) -> AsyncGenerator[tuple[int, Told | ReplyDone]]:
    """Yield what several answers bring, each with its place, as it comes; an error of one ends all."""
    queue: asyncio.Queue[tuple[int, Told | ReplyDone | Exception | None]] = asyncio.Queue()

    async def follow(at: int, reply: AsyncGenerator[Told | ReplyDone]) -> None:
        try:
            async with aclosing(reply):
                async for event in reply:
                    queue.put_nowait((at, event))
            queue.put_nowait((at, None))
        except Exception as error:  # it is raised where the events are read
            queue.put_nowait((at, error))

    tasks = [asyncio.create_task(follow(at, each)) for at, each in enumerate(replies)]
    try:
        left = len(tasks)
        while left:
            at, event = await queue.get()
            if isinstance(event, Exception):
                raise event
            if event is None:
                left -= 1
            else:
                yield at, event
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def collected(
    request: Request, replies: Sequence[AsyncGenerator[Told | ReplyDone]]
) -> list[tuple[ReplyDone, list[Text]]]:
    """Return whole answers, and the texts that each came in; where the client goes away, all of them end."""

    async def whole() -> list[tuple[ReplyDone, list[Text]]]:
        texts: list[list[Text]] = [[] for _ in replies]
        done: dict[int, ReplyDone] = {}
        async with aclosing(merged(replies)) as events:
            async for at, event in events:
                if isinstance(event, ReplyDone):
                    done[at] = event
                elif isinstance(event, Text):  # calls are in the reply
                    texts[at].append(event)
        return [(done[at], texts[at]) for at in sorted(done)]

    return await unless_gone(request, whole())


async def unless_gone(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Return what some work brings; where the client goes away, the work ends.

    Raises:
        ClientDisconnect: it went away.
    """

    async def gone() -> None:  # its body was read: nothing else comes any more
        while (await request.receive())["type"] != "http.disconnect":
            pass

    task, watcher = asyncio.create_task(work), asyncio.create_task(gone())
    try:
        await asyncio.wait({task, watcher}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnect
        return task.result()
    finally:
        task.cancel()
        watcher.cancel()
        await asyncio.gather(task, watcher, return_exceptions=True)


async def streamed(request: Request, events: AsyncGenerator[str], end: str = "") -> Response:
    """Return a stream of events. What goes wrong before the first of them is an error of its own, with its status."""

    async def begun() -> str:
        return await anext(events)

    first = await unless_gone(request, begun())

    async def sent() -> AsyncGenerator[str]:
        async with aclosing(events):
            yield first
            try:
                async for each in events:
                    yield each
            except LocalspecError as error:
                body = error_body(request.scope, status_of(error), str(error))
                name = "event: error\n" if body.get("type") == "error" else ""
                yield f"{name}data: {json.dumps(body)}\n\n"
                return
            if end:
                yield end

    return StreamingResponse(
        sent(), media_type="text/event-stream", headers={"Cache-Control": "no-store"}
    )
