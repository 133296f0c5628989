"""Service: what the interfaces share: who answers, by which names, and how a client that goes away ends its requests.

A stream's headers are sent within a second, and while nothing else is there to send, a line every few seconds: programs
give up on a silent server, and ask again.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, TypeVar

import msgspec
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import Response, StreamingResponse

from localspec.calls import Tool
from localspec.calls.policy import CallPolicy
from localspec.chat.events import Delta, Finished, Prefilling, Reply, Started, StreamEvent, Text
from localspec.chat.reply_figures import speculation
from localspec.chat.request import Request
from localspec.decoding.round import StopReason
from localspec.engine.engine import Busy
from localspec.engine.protocol import Detokenize, Tokenize, Tokens
from localspec.errors import ContextOverflow, LocalspecError
from localspec.messages import Message
from localspec.options import ReplyOptions
from localspec.serve.backend import Backend, pieces
from localspec.serve.catalogue import Catalogue
from localspec.serve.http import CLIENT, GATE, code_of, error_body, is_anthropic, status_of
from localspec.serve.residence import Residence, ServedModel

T = TypeVar("T")
HEADERS_WITHIN_S = 1.0
"""What goes wrong sooner has its own status."""
_CHECKED_WITHIN_S = 5.0
"""An engine in a long pass hears nothing."""
PING_EVERY_S = 5.0
_DELTA_EVERY = 12
"""One of so many pings is an event that every client of Anthropic's interface sees."""
_PROGRESS = "localspec.progress"


@dataclass(slots=True)
class PromptProgress:
    """How far the prompt of a request is read; of several prompts, the one that began last.

    Args:
        total: its tokens; 0 while none has begun.
        cached: how many of them needed no evaluation.
        done: how many are read.
    """

    total: int = 0
    cached: int = 0
    done: int = 0

    def note(self, event: StreamEvent) -> None:
        """Take in what happened."""
        if isinstance(event, Started):
            self.total, self.cached = event.prompt_tokens, event.cached_tokens
            self.done = self.cached
        elif isinstance(event, Prefilling):
            self.done = self.cached + event.done_tokens

    def __str__(self) -> str:
        """Say it in a line."""
        return f"reading {self.done} of {self.total} tokens" if self.total else "waiting for a slot"


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

    async def reply(
        self, request: HttpRequest, asked: Request, *, empty: bool = False
    ) -> AsyncGenerator[Delta | Finished]:
        """Yield the pieces of an answer to a request, and in the end the whole, once the model is there; raises as `Backend.answers` does.

        Args:
            request: of the client.
            asked: what is to be answered.
            empty: leave out all of the answer: only its prompt is to be read.
        """
        policy = asked.call_policy.under(self.rules)
        client = request.scope.get(CLIENT, "")
        gate = request.scope.get(GATE, "")
        asked = msgspec.structs.replace(
            asked, client=client, call_policy=policy, rounds=False, gate=gate
        )
        told = pieces(self.backend.answers(asked), progress_of(request).note)
        async with self.residence.use(self.model), aclosing(told) as events:
            async for event in events:
                if not empty:
                    yield event
                elif isinstance(event, Finished):
                    yield msgspec.structs.replace(event, reply=_emptied(event.reply))

    async def check(self, asked: Request) -> None:
        """Find out what is wrong with a prompt that waits; one for a model that is not loaded waits unseen.

        Raises:
            ContextOverflow: it is too long.
            Refused: it cannot be rendered.
        """
        ready = self.backend.ready
        if ready is None or self.residence.loaded != self.model or asked.infill is not None:
            return
        policy = asked.call_policy.under(self.rules)
        tools = [each for each in asked.tools if policy.offers(each.name)]
        try:
            if asked.raw is None:
                tokens = await self.backend.count(asked.messages, tools)
            else:
                raw = await self.backend.tokens(Tokenize(0, asked.raw, add_special=True))
                tokens = len(raw.tokens)
        except Busy:  # it is one of those that are under way itself
            return
        if tokens >= ready.n_ctx:
            raise ContextOverflow(
                f"the prompt has {tokens} tokens and the context holds {ready.n_ctx}: shorten it, or raise --ctx"
            )

    async def count(self, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> int:
        """Return how many tokens a conversation takes, once the model is there."""
        async with self.residence.use(self.model):
            offered = [each for each in tools if self.rules.offers(each.name)]
            return await self.backend.count(messages, offered)

    async def tokens(self, asked: Tokenize | Detokenize) -> Tokens:
        """Return the ids of a text, or what ids stand for, once the model is there."""
        async with self.residence.use(self.model):
            return await self.backend.tokens(asked)


def _emptied(reply: Reply) -> Reply:
    return replace(reply, text="", thinking="", calls=(), stop_reason=StopReason.LENGTH)


def drafting(done: Finished) -> dict[str, Any]:
    """Return how drafting went, and why it went so."""
    return {**speculation(done.reply), "reason": done.reason}


async def merged(
    replies: Sequence[AsyncGenerator[Delta | Finished]],
) -> AsyncGenerator[tuple[int, Delta | Finished]]:
    """Yield what several answers bring, each with its place, as it comes; an error of one ends all."""
    if len(replies) == 1:
        async with aclosing(replies[0]) as only:
            async for each in only:
                yield 0, each
        return
    queue: asyncio.Queue[tuple[int, Delta | Finished | Exception | None]] = asyncio.Queue()

    async def follow(at: int, reply: AsyncGenerator[Delta | Finished]) -> None:
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
    request: HttpRequest, replies: Sequence[AsyncGenerator[Delta | Finished]]
) -> list[tuple[Finished, list[Text]]]:
    """Return whole answers, and the texts that each came in; where the client goes away, all of them end."""

    async def whole() -> list[tuple[Finished, list[Text]]]:
        texts: list[list[Text]] = [[] for _ in replies]
        done: dict[int, Finished] = {}
        async with aclosing(merged(replies)) as events:
            async for at, event in events:
                if isinstance(event, Finished):
                    done[at] = event
                elif isinstance(event, Text):  # calls are in the reply
                    texts[at].append(event)
        return [(done[at], texts[at]) for at in sorted(done)]

    return await unless_gone(request, whole())


async def unless_gone(request: HttpRequest, work: Coroutine[Any, Any, T]) -> T:
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


def progress_of(request: HttpRequest) -> PromptProgress:
    """Return how far the prompt of a request is read."""
    found: PromptProgress = request.scope.setdefault(_PROGRESS, PromptProgress())
    return found


async def streamed(
    request: HttpRequest,
    events: AsyncGenerator[str],
    check: Callable[[], Coroutine[Any, Any, None]],
    opening: Callable[[PromptProgress], str] = lambda _progress: "",
    end: str = "",
) -> Response:
    """Return a stream of events. What goes wrong before its headers are sent is an error with a status, later an event.

    Args:
        request: of the client.
        events: none of them empty.
        check: raises what is wrong with a prompt that has not begun after `HEADERS_WITHIN_S`.
        opening: returns the events that come before all others.
        end: comes last, unless an error does.
    """
    stream = _Stream(request, events)
    try:
        await unless_gone(request, stream.begin(check))
    except BaseException:
        await stream.close()
        raise
    sent = stream.send(opening, end)
    headers = {"Cache-Control": "no-store"}
    return StreamingResponse(sent, media_type="text/event-stream", headers=headers)


class _Stream:
    """Events on their way to a client, which hears from the server also while there are none."""

    def __init__(self, request: HttpRequest, events: AsyncGenerator[str]) -> None:
        self._request = request
        self._events = events
        self._progress = progress_of(request)
        self._next = self._following()

    async def begin(self, check: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Wait until headers can be sent; raise what is wrong by then."""
        await asyncio.wait({self._next}, timeout=HEADERS_WITHIN_S)
        if not self._next.done() and not self._progress.total:
            with suppress(TimeoutError):
                await asyncio.wait_for(check(), _CHECKED_WITHIN_S)
        if self._next.done():
            self._next.result()

    async def send(self, opening: Callable[[PromptProgress], str], end: str) -> AsyncGenerator[str]:
        """Yield all that is sent."""
        try:
            if first := opening(self._progress):
                yield first
            async for each in self._all():
                yield each
            if end:
                yield end
        except LocalspecError as error:
            body = error_body(self._request.scope, status_of(error), str(error), code_of(error))
            name = "event: error\n" if body.get("type") == "error" else ""
            yield f"{name}data: {json.dumps(body)}\n\n"
        finally:
            await self.close()

    async def close(self) -> None:
        """End the events, and what they come from."""
        self._next.cancel()
        await asyncio.gather(self._next, return_exceptions=True)
        await self._events.aclose()

    async def _all(self) -> AsyncGenerator[str]:
        for number in count(1):
            done, _ = await asyncio.wait({self._next}, timeout=PING_EVERY_S)
            if not done:
                yield _ping(self._request, self._progress, number)
            elif event := self._next.result():
                yield event
                self._next = self._following()
            else:
                return

    def _following(self) -> "asyncio.Future[str]":
        """Return the next event; an empty one at the end."""
        return asyncio.ensure_future(anext(self._events, ""))


def _ping(request: HttpRequest, progress: PromptProgress, number: int) -> str:
    """Return what tells a client that it is still served: a comment, and the event that Anthropic's interface has for it.

    Anthropic's own clients leave pings out before they look how long nothing came, and Claude Code gives up after 300 s;
    so now and then there is a `message_delta` without a change, of which a stream may have several.
    """
    if not is_anthropic(request.scope):
        return f": {progress}\n\n"
    name = "ping"
    told: dict[str, Any] = {"type": name}
    if number % _DELTA_EVERY == 0:
        nothing = {"stop_reason": None, "stop_sequence": None}
        name = "message_delta"
        told = {"type": name, "delta": nothing, "usage": {"output_tokens": 0}}
    return f": {progress}\nevent: {name}\ndata: {json.dumps(told)}\n\n"
