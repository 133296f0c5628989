"""Service and Answers: which model answers a request, and how its answers reach the client in an interface's form.

A stream's headers are sent within a second, and while nothing else is there to send, a line every few seconds: programs
give up on a silent server, and send the request again.
"""

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Iterable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import compress, count
from typing import Any, Self, TypeVar

import msgspec
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse
from starlette.types import Send

from localspec.api import (
    Finished,
    LocalspecError,
    Message,
    Prefilling,
    ReplyOptions,
    Request,
    StopReason,
)
from localspec.calls import Tool
from localspec.calls.policy import CallPolicy
from localspec.chat.events import Delta, Echo, Started, StreamEvent
from localspec.engine.protocol import Detokenize, ReplyEvents, Tokenize, Tokens
from localspec.errors import ContextOverflow, EngineGone
from localspec.plugins.serve.backend import Backend
from localspec.plugins.serve.catalogue import Catalogue, senses_of
from localspec.plugins.serve.drafts.socket import Drafts
from localspec.plugins.serve.http import CLIENT, GATE, OWNER, error_body, status_of
from localspec.plugins.serve.model_pool import ModelPool, ServedModel, State
from localspec.toolbox.folder import Folder

T = TypeVar("T")
Body = Mapping[str, Any]
HEADERS_WITHIN_S = 1.0
"""An error that comes sooner has its own status."""
CHECKED_WITHIN_S = 5.0
"""An engine in a long pass hears nothing."""
PING_EVERY_S = 5.0
_ESCAPING = json.JSONEncoder(separators=(",", ":"))


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
        """Take in an event."""
        if isinstance(event, Started):
            self.total, self.cached = event.prompt_tokens, event.cached_tokens
            self.done = self.cached
        elif isinstance(event, Prefilling):
            self.done = self.cached + event.done_tokens

    @property
    def figures(self) -> dict[str, int]:
        """How many tokens there are, and how many are read; none while it has not begun."""
        return {"prompt_tokens": self.total, "read_tokens": self.done} if self.total else {}

    def __str__(self) -> str:
        """Return it in a line."""
        return f"reading {self.done} of {self.total} tokens" if self.total else "waiting for a slot"


@dataclass(frozen=True, slots=True, eq=False)
class Service:
    """Answers with a model.

    Args:
        pool: has the engines, and loads models.
        catalogue: the models that a request may name.
        since: when the server was started, in Unix seconds.
        model: the model that answers.
        rules: for calls of any request, beside its own.
        keep_alive_s: how long the model stays in memory after this request and later ones; None leaves that as it is.
        folder: holds the pictures and sounds that `file://` URLs may name; None where they may name none.
        drafts: the answers that clients draft for.
    """

    pool: ModelPool
    catalogue: Catalogue
    since: int
    model: ServedModel
    rules: CallPolicy = field(default_factory=CallPolicy)
    keep_alive_s: float | None = None
    folder: Folder | None = None
    drafts: Drafts = field(default_factory=Drafts)

    @property
    def name(self) -> str:
        """The model's name in answers."""
        return self.model.name

    @property
    def exact(self) -> bool:
        """Whether no bit depends on drafting, see `LaunchOptions`."""
        return self.model.launch.exact

    @property
    def loaded(self) -> ServedModel:
        """The model in memory, the one for requests that name none before others; that one, too, where none is."""
        loaded = self.pool.loaded
        return self.model if self.model in loaded or not loaded else loaded[0]

    @property
    def states(self) -> dict[str, State]:
        """The states of the models that are or were in memory, by all names."""
        states = self.pool.states
        for model in self.catalogue.models:
            if model.name in states:
                states |= dict.fromkeys(model.names, states[model.name])
        return states

    @property
    def state(self) -> str:
        """Whether it can answer: `ok`, `loading`, `unloaded` until the next request, or `lost`, as the model for requests that name none may be."""
        states = self.pool.states
        if states.get(self.name) == "lost":
            return "lost"
        order = ("loaded", "loading", "lost")
        best = next((each for each in order if each in states.values()), "unloaded")
        return "ok" if best == "loaded" else best

    @property
    def sees(self) -> bool:
        """Whether the model takes pictures."""
        return "vision" in self.capabilities(self.model)

    def capabilities(self, model: ServedModel) -> list[str]:
        """Return what a model does, and takes beside text, in Ollama's words."""
        if model.embeds:
            return ["embedding"]
        entry = self.pool.entry(model)
        ready = None if entry is None else entry.ready
        media = senses_of(model) if ready is None else (ready.sees, ready.hears)
        return ["completion", *compress(("vision", "audio"), media)]

    @property
    def options(self) -> ReplyOptions:
        """How it answers where a request does not say."""
        return self.model.options

    def of(self, name: str) -> "Service":
        """Return the service of a model that a request names; without a name, of the one that the server was started with.

        Raises:
            NotFound: there is none of this name.
        """
        return replace(self, model=self.catalogue.find(name))

    async def reply(
        self, http: HttpRequest, request: Request, progress: PromptProgress, *, empty: bool = False
    ) -> AsyncGenerator[Delta | Finished]:
        """Yield the pieces of an answer, and in the end the whole, once the model is there; raises as `Backend.answers` does.

        Args:
            http: of the client.
            request: to answer.
            progress: notes how far its prompt is read.
            empty: leave out all of the answer: only its prompt is to be read.
        """
        request = msgspec.structs.replace(
            request,
            client=http.scope.get(CLIENT, ""),
            owner=http.scope.get(OWNER, ""),
            gate=http.scope.get(GATE, ""),
            call_policy=request.call_policy.under(self.rules),
            rounds=False,
        )
        async with self.use() as backend:
            with self.drafts.answer(request, backend) as (asked, drafted):
                began = (lambda _number: None) if drafted is None else drafted.begin
                async with aclosing(backend.notices(asked, began)) as notices:
                    async for notice in notices:
                        if isinstance(notice, Finished):
                            yield _emptied(notice) if empty else notice
                        elif isinstance(notice, ReplyEvents):
                            for event in notice.events:
                                if drafted is not None:
                                    drafted.note(event)
                                if not isinstance(event, Delta):
                                    progress.note(event)
                                elif not empty or isinstance(event, Echo):
                                    yield event

    @asynccontextmanager
    async def use(self) -> AsyncIterator[Backend]:
        """Keep the model in memory while this lasts, and after it as long as the request says; yield its engine once it is there."""
        async with self.pool.use(self.model) as backend:
            if self.keep_alive_s is not None:
                self.pool.set_keep_alive(self.model, self.keep_alive_s)
            yield backend

    async def check(self, http: HttpRequest, request: Request) -> None:
        """Look for errors in a prompt that waits; one for a model that is not loaded waits unseen.

        Raises:
            ContextOverflow: it is too long.
            Refused: it cannot be rendered.
        """
        entry, ready = self.pool.entry(self.model), self.pool.ready(self.model)
        fits = request.infill is not None or request.drop_oldest
        if entry is None or ready is None or fits:
            return
        policy = request.call_policy.under(self.rules)
        if request.raw is None:
            tools = [each for each in request.tools if policy.offers(each.name)]
            owner = http.scope.get(OWNER, "")
            tokens = await entry.backend.count(request.messages, tools, request.options, owner)
        else:
            ids = request.raw
            if isinstance(ids, str):
                ids = (await entry.backend.tokens(Tokenize(0, ids, add_special=True))).tokens
            tokens = len(ids)
        if tokens >= ready.n_ctx:
            raise ContextOverflow(
                f"the prompt has {tokens} tokens and the context holds {ready.n_ctx}: shorten it",
                (tokens, ready.n_ctx, ready.longest),
            )

    async def count(
        self,
        http: HttpRequest,
        messages: Sequence[Message],
        tools: Sequence[Tool] = (),
        options: ReplyOptions | None = None,
    ) -> int:
        """Return how many tokens a conversation takes, once the model is there, where the reply is made so."""
        async with self.use() as backend:
            offered = [each for each in tools if self.rules.offers(each.name)]
            return await backend.count(messages, offered, options, http.scope.get(OWNER, ""))

    async def tokens(self, question: Tokenize | Detokenize) -> Tokens:
        """Return the ids of a text, or the texts of ids, once the model is there."""
        async with self.use() as backend:
            return await backend.tokens(question)


def json_of(event: Body) -> bytes:
    """Return an object as JSON in ASCII: some clients take U+2028 and its like for the end of a line."""
    encoded = msgspec.json.encode(event)
    return encoded if encoded.isascii() else _ESCAPING.encode(event).encode()


def _emptied(done: Finished) -> Finished:
    changes: dict[str, Any] = {"text": "", "thinking": "", "calls": ()}
    reply = replace(done.reply, stop_reason=StopReason.LENGTH, **changes)
    return msgspec.structs.replace(done, reply=reply)


class AnswerForm(ABC):
    """Writes the answers to one request as an interface has them; an event of a stream is a JSON object."""

    media_type = "text/event-stream; charset=utf-8"
    """Of a stream."""
    end = b""
    """Comes last in a stream, unless an error does."""

    def encoded(self, events: Iterable[Body]) -> bytes:
        """Return events as server-sent events; one with a type bears it as its name."""
        lines = list[bytes]()
        for each in events:
            lines += [f"event: {each['type']}\n".encode()] if "type" in each else []
            lines += [b"data: ", json_of(each), b"\n\n"]
        return b"".join(lines)

    def waiting(self, progress: PromptProgress, number: int) -> bytes:
        """Return what a stream has as its n-th ping."""
        ping = self.encoded(self.ping(number, progress)) or b"\n"
        return f": {progress}\n".encode() + ping

    def opening(self, progress: PromptProgress) -> Iterable[Body]:  # noqa: ARG002 - the protocol's signature
        """Return the events that come before all others."""
        return ()

    @abstractmethod
    def pieces(self, at: int, event: Delta | Finished) -> Iterable[Body]:
        """Return the events for what happened of one answer.

        Args:
            at: its place among the answers.
            event: what happened.
        """

    def closing(self) -> Iterable[Body]:
        """Return the events that come after all answers."""
        return ()

    def ping(self, number: int, progress: PromptProgress) -> Iterable[Body]:  # noqa: ARG002 - the protocol's signature
        """Return the events of the n-th ping beside its comment."""
        return ()

    @abstractmethod
    def whole(self, answers: Sequence[Sequence[Delta]], done: Sequence[Finished]) -> Any:
        """Return a whole answer as JSON.

        Args:
            answers: the pieces of each.
            done: the end of each.
        """


@dataclass(frozen=True, slots=True, eq=False)
class Answers:
    """Answers to the prompts of one HTTP request, on their way to its client.

    Args:
        service: answers.
        prompts: one for each answer.
        form: writes them.
        stream: send events as they come, and not the whole.
        empty: only read the prompts.
    """

    service: Service
    prompts: Sequence[Request]
    form: AnswerForm
    stream: bool = False
    empty: bool = False

    async def send(self, request: HttpRequest, send: Send) -> None:
        """Answer; an error before anything was sent is raised, a later one is an event.

        Raises:
            ClientDisconnect: the client went away, and the answers were ended.
            LocalspecError: there is no answer.
        """
        way = self._streamed if self.stream else self._whole
        await unless_gone(request, way(request, send))

    async def _whole(self, request: HttpRequest, send: Send) -> None:
        answers: list[list[Delta]] = [[] for _ in self.prompts]
        done: dict[int, Finished] = {}
        async with self._events(request, PromptProgress()) as events:
            while len(done) < len(answers):
                for at, event in await events.next():
                    if isinstance(event, Finished):
                        done[at] = event
                    else:
                        answers[at].append(event)
        body = self.form.whole(answers, [done[at] for at in sorted(done)])
        await JSONResponse(body)(request.scope, request.receive, send)

    async def _streamed(self, request: HttpRequest, send: Send) -> None:
        async def write(chunk: bytes, *, more: bool = True) -> None:
            await send({"type": "http.response.body", "body": chunk, "more_body": more})

        progress = PromptProgress()
        async with self._events(request, progress) as events:
            first = await events.next(HEADERS_WITHIN_S)
            if not first and not progress.total:
                with suppress(TimeoutError, EngineGone):  # it may be unloaded meanwhile
                    async with asyncio.timeout(CHECKED_WITHIN_S):
                        for each in self.prompts:
                            await self.service.check(request, each)
                first = await events.next(0)
            media_type = self.form.media_type.encode()
            headers = [(b"content-type", media_type), (b"cache-control", b"no-store")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            try:
                if opening := self.form.encoded(self.form.opening(progress)):
                    await write(opening)
                left, pings = len(self.prompts), count(1)
                while left:
                    happened = first or await events.next(PING_EVERY_S)
                    first = []
                    if not happened:
                        await write(self.form.waiting(progress, next(pings)))
                    left -= sum(isinstance(event, Finished) for _, event in happened)
                    pieces = (self.form.encoded(self.form.pieces(*each)) for each in happened)
                    if chunk := b"".join(pieces):
                        await write(chunk)
                await write(self.form.encoded(self.form.closing()) + self.form.end, more=False)
            except LocalspecError as error:
                body = error_body(request.scope, error, status_of(error))
                await write(self.form.encoded([body]), more=False)

    def _events(self, request: HttpRequest, progress: PromptProgress) -> "_Events":
        reply = partial(self.service.reply, request, progress=progress, empty=self.empty)
        return _Events([reply(each) for each in self.prompts])


class _Events:
    """The events of several answers as they come, each with its place; left, all of them end."""

    def __init__(self, replies: Sequence[AsyncGenerator[Delta | Finished]]) -> None:
        self._happened: list[tuple[int, Delta | Finished]] = []
        self._errors: list[Exception] = []
        self._changed = asyncio.Event()
        # In tasks of their own, which no wait that takes too long cancels: an event is never lost.
        self._tasks = [asyncio.create_task(self._take(*each)) for each in enumerate(replies)]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for each in self._tasks:
            each.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _take(self, at: int, reply: AsyncGenerator[Delta | Finished]) -> None:
        try:
            async with aclosing(reply):
                async for event in reply:
                    self._happened.append((at, event))
                    self._changed.set()
        except Exception as error:  # raised where events are read
            self._errors.append(error)
            self._changed.set()

    async def next(self, within_s: float | None = None) -> list[tuple[int, Delta | Finished]]:
        """Return what has happened since the last call; nothing only where nothing happens in time.

        Raises:
            LocalspecError: one of the answers cannot be given, and what happened before that was returned.
        """
        if not self._happened and not self._errors:
            self._changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(within_s):
                    await self._changed.wait()
        events, self._happened = self._happened, []
        if not events and self._errors:
            raise self._errors.pop()  # no name holds it, see `unless_gone`
        return events


async def unless_gone(request: HttpRequest, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of some work; where the client goes away, the work ends.

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
        # An error's traceback holds this frame, and the frame would hold the error: pictures would stay in memory.
        del task, watcher
