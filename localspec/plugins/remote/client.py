"""Client: one server, over HTTP: which model it has, answers as streams of events, and counts of tokens.

The key goes to the server that was named and nowhere else: no redirect is followed, and no message contains it.
"""

import asyncio
import ipaddress
import json
import os
import secrets
import stat
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import replace
from email.utils import parsedate_to_datetime
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import SplitResult, quote, urlsplit

import httpx2
import msgspec

from localspec import __version__
from localspec.api import (
    Event,
    Finished,
    LaunchOptions,
    LocalspecError,
    Message,
    Request,
    StopReason,
    UsageError,
    printable_line,
)
from localspec.calls import Tool
from localspec.chat.calling import calls_made
from localspec.decoding.round import OFF
from localspec.engine.protocol import Count, Counted, Loading, Measuring, Ready
from localspec.errors import Busy, ContextOverflow, EngineGone, ModelUnavailable
from localspec.messages import MediaPart, to_json
from localspec.plugins.remote.body import KINDS, LLAMA, LOCALSPEC, body_of
from localspec.plugins.remote.reply import SPARE, Chunk, RemoteReply

if TYPE_CHECKING:
    from localspec.chat.gated import GatedReply
    from localspec.plugins.remote.drafting import LocalDrafts

KEY = "LOCALSPEC_SERVER_KEY"
"""The environment variable with the key; `--server-key-file` comes before it."""
MOST_LINE_BYTES, MOST_REPLY_BYTES = 8 << 20, 64 << 20
_CONNECT_S, _SHORT_S, _LOADING_S, _AGAIN_S = 10.0, 30.0, 900.0, 0.5
_FIRST_S, _FIRST_S_PER_TOKEN, _BETWEEN_S, _END_S = 600.0, 0.1, 300.0, 0.1
"""How long a server may be silent: before the first byte, which long prompts and those of others delay, and then."""
_MOST_BODY_BYTES = 4 << 20
_CHARS_PER_TOKEN, _AROUND = 3, 4
_PER_MEDIA = 500
"""Tokens of a picture, about: encoders make 64 to 4,000 of one."""
_USUAL_TOKENS = 2048
"""How far a text goes on where a server does not say how large its context is: small ones refuse much more."""
_MOST_NAMES, _LONGEST_KEY = 8, 4096
_TOO_LONG = ("exceed_context_size", "context_length_exceeded", "context length", "context size")
_SEED_BITS = 31  # some servers take no more
_WITHOUT = "without exactness, the lens, and statistics of rounds"
_ESTIMATES = "counts of tokens before an answer are estimates"
_MOST_REASON = 2000
_STATUSES: dict[int, tuple[type[LocalspecError], str]] = {
    404: (ModelUnavailable, "has no such model or route"),
    429: (Busy, "is busy"),
    **dict.fromkeys((400, 413, 422), (UsageError, "refused this")),
    **dict.fromkeys((502, 503, 504), (EngineGone, "does not answer now")),
}
_JSON = ((b"content-type", b"application/json"),)
T = TypeVar("T")


class _Meta(msgspec.Struct):
    n_ctx: int | None = None
    vocabulary: str = ""


class _Model(msgspec.Struct):
    id: str
    owned_by: str | None = None
    max_model_len: int | None = None
    meta: _Meta | None = None
    architecture: Any = None

    def takes(self, kind: str) -> bool:
        """Return whether it takes pictures or sounds; also where the server does not say."""
        fields = self.architecture if isinstance(self.architecture, dict) else {}
        kinds = fields.get("input_modalities")
        return kind in kinds if isinstance(kinds, list) else True


class _Models(msgspec.Struct):
    data: list[_Model]


class _Tokens(msgspec.Struct):
    tokens: list[Any] | None = None
    count: int | None = None


def base_of(url: str) -> str:
    """Return the address of a server's OpenAI interface.

    Raises:
        UsageError: it is no address of a server, or has a password in it.
    """
    shown = printable_line(url.rpartition("@")[2])[:200]
    try:
        parts: SplitResult | None = urlsplit(url)
        usable = parts is not None and parts.hostname and parts.port != 0
    except ValueError:
        parts, usable = None, False
    if parts is None or not usable or parts.scheme not in {"http", "https"}:
        raise UsageError(f"--server {shown}: give an address like http://192.168.1.20:8080")
    if "@" in parts.netloc:
        raise UsageError(
            f"--server {shown} has a name or password in it: give a key with --server-key-file"
        )
    if parts.query or parts.fragment:
        raise UsageError(f"--server {shown}: leave out what follows the path")
    path = parts.path.rstrip("/").removesuffix("/chat/completions")
    return f"{parts.scheme}://{parts.netloc}{path if path.endswith('/v1') else f'{path}/v1'}"


def is_here(url: str) -> bool:
    """Return whether a server is one of this machine."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def key_of(file: str | None) -> str:
    """Return the key for a server; empty without one.

    Raises:
        UsageError: it cannot be read, or is none. No message contains it.
    """
    source, key = f"the variable {KEY}", os.environ.get(KEY, "").strip()
    if file is not None:
        source, path = f"--server-key-file {file}", Path(file).expanduser()
        try:
            with path.open(encoding="utf-8-sig") as stream:
                key = stream.read(_LONGEST_KEY + 1).strip()
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "not text"
            raise UsageError(f"{source} cannot be read: {reason}") from None
        if not key:
            raise UsageError(f"{source} is empty: write the key into it")
    if len(key) > _LONGEST_KEY or not (key.isascii() and key.isprintable()) or " " in key:
        raise UsageError(f"{source} is no key: it is one word of letters, digits and signs")
    return key


class Client:
    """One server.

    Args:
        options: name it, its model, and the file of the key.
        given: see `body_of`.
        first_s: how long it may be silent before the first byte of an answer, without what the prompt's length adds.
        between_s: how long it may be silent after that.

    Raises:
        UsageError: the address or the key is none.
    """

    def __init__(
        self,
        options: LaunchOptions,
        given: Sequence[str] = (),
        *,
        first_s: float = _FIRST_S,
        between_s: float = _BETWEEN_S,
    ) -> None:
        assert options.server is not None, "it names one"  # noqa: S101
        self._options, self._given = options, given
        self._base = base_of(options.server)
        self._root = self._base.removesuffix("/v1")
        self._first_s, self._between_s = first_s, between_s
        self._key = key_of(options.server_key_file)
        here = is_here(self._base)
        if options.offline and not here:
            raise UsageError(f"--offline and --server {self._root}: it is another machine")
        headers = {"user-agent": f"localspec/{__version__}", "accept-encoding": "identity"}
        if self._key:
            headers["authorization"] = f"Bearer {self._key}"
        make = partial(
            httpx2.AsyncClient,
            headers=headers,
            timeout=httpx2.Timeout(None, connect=_CONNECT_S),
            follow_redirects=False,
            trust_env=not here,  # no proxy stands between two programs of one machine
        )
        self._http = make(limits=httpx2.Limits(max_connections=None))
        # Each of its requests has a connection of its own.
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=0)
        self._anew = cache(partial(make, limits=limits))
        self._headers = httpx2.Headers([*self._http.headers.raw, *_JSON])
        self._address = cache(lambda path: httpx2.URL(f"{self._base}{path}"))
        self.model = options.target or options.pair or ""
        self._kind, self._n_ctx, self._counts = "the server", 0, False
        self._sees = self._hears = True
        self._vocabulary = ""
        self._drafts: LocalDrafts | None = None

    async def open(
        self, progress: Callable[[Loading | Measuring], None] = lambda _notice: None
    ) -> Ready:
        """Look what the server has, waiting while it loads, and return that.

        Raises:
            LocalspecError: it does not answer, or has no such model.
        """
        models = await self._models(progress)
        if models is not None:
            self._choose(models)
        elif not self.model:
            raise ModelUnavailable(f"{self._root} lists no models: name one with -m NAME")
        self._n_ctx = self._options.load.n_ctx or self._n_ctx
        self._counts = await self._tokenized("a") is not None
        drafting = await self._drafting(progress)
        counts = "" if self._counts else f"; {_ESTIMATES}"
        notes = [f"answered by {self._kind} at {self._root}: {_WITHOUT}{counts}"]
        notes += [drafting] if drafting else []
        if self._key and self._base.startswith("http:") and not is_here(self._base):
            notes.append("the key goes there over http, which others may read: use https")
        name, others_read = self._options.server_key_file, stat.S_IRGRP | stat.S_IROTH
        if name is not None and Path(name).expanduser().stat().st_mode & others_read:
            notes.append(f"--server-key-file {name} is open to other users: run `chmod 600` on it")
        return Ready(
            _name(self.model),
            self._drafts.name or None if self._drafts is not None else None,
            "server",
            self._n_ctx,
            tuple(notes),
            0.0,
            thinks=True,
            sees=self._sees,
            hears=self._hears,
        )

    async def close(self) -> None:
        """Close all connections, which ends what is being answered."""
        await self._http.aclose()
        if self._anew.cache_info().currsize:
            await self._anew().aclose()
        if self._drafts is not None:
            await asyncio.to_thread(self._drafts.close)

    async def answer(self, request: Request, send: Callable[[list[Event]], None]) -> None:
        """Answer: send events as they happen, `Finished` last; of a task that is cancelled, too, with what there is.

        Raises:
            LocalspecError: it cannot be answered, or the server broke off.
        """
        if request.options.seed is None:
            options = replace(request.options, seed=secrets.randbits(_SEED_BITS))
            request = msgspec.structs.replace(request, options=options)
        request, dropped = self._shortened(request)
        names = [each.name for each in request.tools if request.call_policy.offers(each.name)]
        offer = request.call_policy.offer(names, calls_made(request.messages))
        body = body_of(request, self._kind, self.model, offer, {*self._given, *request.given})
        body |= await self._proposed(request.prediction)
        path = "/chat/completions" if request.raw is None else "/completions"
        tokens = self._estimate(request.messages, request.tools, str(request.raw or ""))
        reply = RemoteReply(request, offer, tokens, self._n_ctx)
        gate, reason = _gate(request), None

        def emit(events: Iterable[Event]) -> None:
            visible = [*events]
            if gate is not None:
                visible = [each for event in visible for each in gate.take(event)]
            if visible:
                send(visible)

        try:
            if isinstance(request.raw, str) and "max_tokens" not in body:
                body["max_tokens"] = await self._room(request.raw, tokens)
            opening = self._chunks(path, body, tokens, lambda: emit([reply.begin()]))
            async with aclosing(opening) as chunks:
                async for chunk in chunks:
                    emit(reply.take(chunk))
                    if gate is not None and gate.stopped:
                        break
            if not reply.ended and (gate is None or not gate.stopped):
                raise EngineGone(f"{self._root} ended in the middle of the answer")
        except asyncio.CancelledError:
            reason = StopReason.CANCELLED
        last = list(reply.finish(reason))
        done = last.pop()
        assert isinstance(done, Finished)  # noqa: S101 - it always is
        emit([*last, msgspec.structs.replace(done, id=request.id, dropped_turns=dropped)])

    async def _proposed(self, prediction: str) -> dict[str, Any]:
        """Begin to draft for an answer, if wanted, and return what its body says of drafts; a prediction stays here."""
        if self._drafts is None:
            off = self._kind == LOCALSPEC and self._options.draft == OFF
            return {"localspec": {"draft": OFF}} if off else {}
        ids = await asyncio.to_thread(self._drafts.ids, prediction) if prediction else ()
        name = secrets.token_hex(16)
        self._drafts.begin(name, ids)
        return {"localspec": {"drafts": name}}

    async def count(self, question: Count) -> Counted:
        """Return how many tokens a conversation takes, or about how many where the server counts none."""
        tokens = None
        if self._counts:
            tokens = await self._tokenized(_words(question.messages, question.tools))
        if tokens is None:
            tokens = self._estimate(question.messages, question.tools)
        else:
            tokens += _around(question.messages)
        return Counted(question.id, tokens, self._n_ctx)

    # The models.

    async def _models(self, progress: Callable[[Loading], None]) -> list[_Model] | None:
        """Return what the server lists, once it has loaded; None where it has no list."""
        end_s = time.monotonic() + _LOADING_S
        while True:
            response, raw = await self._short("GET", f"{self._base}/models")
            status = response.status_code
            if status == 503 and time.monotonic() < end_s:
                progress(Loading(self.model or self._root, 0.0))
                await asyncio.sleep(_AGAIN_S)
                continue
            if status == 404 and self.model:
                return None
            if status != 200:
                raise self._refusal(response, raw)
            return self._decoded(raw, _Models, "list of models").data

    def _choose(self, models: Sequence[_Model]) -> None:
        """Take the model that was named, or the only one; of a localspec's list the first, which is loaded."""
        kinds = {KINDS.get(each.owned_by or "", "") for each in models}
        self._kind = kinds.pop() or self._kind if len(kinds) == 1 else self._kind
        names = [printable_line(_name(each.id)) for each in models]
        several = f"{', '.join(names[:_MOST_NAMES])}{' …' * (len(names) > _MOST_NAMES)}"
        if not self.model and (len(models) == 1 or (models and self._kind == LOCALSPEC)):
            self.model = models[0].id
        if not models or not self.model:
            raise ModelUnavailable(
                f"{self._root} has several models: name one with -m, {several}"
                if models
                else f"{self._root} has no model: load one there"
            )
        model = next((each for each in models if self.model in {each.id, _name(each.id)}), None)
        if model is None:
            raise ModelUnavailable(f"{self._root} has no {self.model[:80]}: it has {several}")
        self.model = model.id
        self._n_ctx = (model.meta and model.meta.n_ctx) or model.max_model_len or 0
        self._vocabulary = model.meta.vocabulary if model.meta else ""
        self._sees, self._hears = model.takes("image"), model.takes("audio")

    async def _drafting(self, progress: Callable[[Loading | Measuring], None]) -> str:
        """Load what drafts here, where a localspec answers and drafts are wanted; return a line about that."""
        options, wanted = self._options, self._options.draft != OFF
        if self._kind == LOCALSPEC and wanted and not self._vocabulary:
            # A list says it of what is loaded alone.
            _, raw = await self._short("GET", f"{self._base}/models/{quote(self.model)}")
            with suppress(LocalspecError):
                meta = self._decoded(raw, _Model, "model").meta
                self._vocabulary = meta.vocabulary if meta else ""
        if self._kind != LOCALSPEC or not wanted or not self._vocabulary:
            if wanted and (options.draft != "auto" or options.draft_model):
                raise UsageError(
                    f"{self._root} takes no drafts of this machine: leave --draft and --draft-model out, or use --own"
                )
            return ""
        from localspec.plugins.remote.drafting import local_drafts  # noqa: PLC0415 - one kind of server

        headers = {"authorization": f"Bearer {self._key}"} if self._key else {}
        address = self._base, headers
        ahead = not is_here(self._base)
        make = partial(
            local_drafts, options, self.model, self._vocabulary, address, progress, ahead=ahead
        )
        self._drafts, line = await asyncio.to_thread(make)
        return line

    # Tokens.

    def _estimate(self, messages: Sequence[Message], tools: Sequence[Tool], raw: str = "") -> int:
        size = len((raw + _words(messages, tools)).encode(errors="replace"))
        return size // _CHARS_PER_TOKEN + _around(messages)

    async def _tokenized(self, text: str) -> int | None:
        """Return how many tokens a text has; None where the server does not count. llama-server reads `content`, others `prompt`."""
        body = {"model": self.model, "content": text, "prompt": text, "add_special_tokens": False}
        try:
            response, raw = await self._short("POST", f"{self._root}/tokenize", body)
            if response.status_code != 200:
                return None
            counted = self._decoded(raw, _Tokens, "count of tokens")
        except LocalspecError:
            return None
        return counted.count if counted.count is not None else len(counted.tokens or ()) or None

    async def _room(self, raw: str, tokens: int) -> int:
        """Return how far a text of about so many tokens may go on: without a word, servers take 16 tokens."""
        if self._kind in {LLAMA, LOCALSPEC}:
            return -1  # as far as there is context
        if not self._n_ctx:
            return _USUAL_TOKENS
        counted = await self._tokenized(raw) if self._counts else None
        return max(1, self._n_ctx - (counted or tokens) - SPARE)

    def _shortened(self, request: Request) -> tuple[Request, int]:
        """Return a request without the oldest messages that do not fit, where that is wanted, and how many these are."""
        if not (request.drop_oldest and self._n_ctx and request.messages):
            return request, 0
        from localspec.engine.request_runner import shortened  # noqa: PLC0415 - few contexts are full

        return shortened(request, self._n_ctx, lambda each: self._estimate(each, request.tools))

    # The connection.

    async def _short(
        self, method: str, url: str, body: Any = None
    ) -> tuple[httpx2.Response, bytes]:
        """Return the response and the body of what is answered at once."""
        async with self._trouble(_SHORT_S), asyncio.timeout(_SHORT_S):
            response = await self._sent(self._http.build_request(method, url, json=body))
            async with aclosing(response):
                return response, await _read(response)

    async def _sent(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request; once more where the connection was an earlier one's and nothing came back: servers close what is idle, and perhaps just now."""
        steps = list[str]()

        async def note(step: str, _info: object) -> None:
            steps.append(step)

        request.extensions["trace"] = note
        try:
            return await self._http.send(request, stream=True)
        except (httpx2.RemoteProtocolError, httpx2.ReadError, httpx2.WriteError):
            if any("connect_tcp" in each for each in steps):
                raise
        return await self._anew().send(request, stream=True)

    async def _chunks(
        self, path: str, body: dict[str, Any], tokens: int, begin: Callable[[], None]
    ) -> AsyncGenerator[Chunk]:
        """Yield the chunks of a stream; `begin` is called once the server has accepted the request."""
        first_s = self._first_s + _FIRST_S_PER_TOKEN * tokens
        # Not by the client: reading the address once more, and merging what is the same, takes a tenth of a request.
        request = httpx2.Request(
            "POST", self._address(path), headers=self._headers, content=_encoded(body)
        )
        async with self._trouble(first_s):
            async with asyncio.timeout(first_s):
                response = await self._sent(request)
        try:
            async with self._trouble(first_s):
                if response.status_code != 200:
                    async with asyncio.timeout(_SHORT_S):
                        raw = await _read(response)
                    raise self._refusal(response, raw)
            kind = response.headers.get("content-type", "")
            if not kind.startswith("text/event-stream"):
                what = printable_line(kind.partition(";")[0])[:40] or "something"
                raise UsageError(
                    f"{self._root} answered with {what} and no stream: give --server the address of an OpenAI-compatible server"
                )
            begin()
            async with aclosing(self._lines(response, first_s)) as lines:
                async for line in lines:
                    if not line.startswith(b"data:"):
                        continue
                    data = line[5:].strip()
                    if data == b"[DONE]":
                        await _read_end(lines)
                        return
                    chunk = self._decoded(data, Chunk, "part of an answer")
                    if chunk.error is not None or chunk.object == "error":
                        reason = self._printable(_reason_in(data))
                        raise LocalspecError(f"{self._root} broke off: {reason}")
                    yield chunk
        finally:
            await response.aclose()

    async def _lines(self, response: httpx2.Response, first_s: float) -> AsyncGenerator[bytes]:
        """Yield lines as bytes: a text's own line breaks, such as U+2028, may stand inside one."""
        unread, size, silent_s = bytearray(), 0, first_s
        pieces = response.aiter_raw()
        while True:
            async with self._trouble(silent_s):
                async with asyncio.timeout(silent_s):
                    piece = await anext(pieces, b"")
            silent_s = self._between_s
            size += len(piece)
            *lines, rest = (piece or b"\n").split(b"\n")  # the last line may lack its end
            if lines:
                lines[0], unread = bytes(unread) + lines[0], bytearray()
            unread += rest
            if len(unread) > MOST_LINE_BYTES or size > MOST_REPLY_BYTES:
                raise LocalspecError(
                    f"{self._root} sent more than {MOST_LINE_BYTES >> 20} MB in a line, or {MOST_REPLY_BYTES >> 20} MB in all: stopped reading"
                )
            for line in lines:
                yield line.rstrip(b"\r")
            if not piece:
                return

    @asynccontextmanager
    async def _trouble(self, silent_s: float) -> AsyncGenerator[None]:
        """Raise what goes wrong with a connection as one line."""
        try:
            yield
        except TimeoutError:
            raise EngineGone(f"{self._root} sent nothing for {silent_s:.0f} s") from None
        except httpx2.ConnectTimeout:
            raise EngineGone(
                f"{self._root} does not answer within {_CONNECT_S:.0f} s: is it running, and --server right?"
            ) from None
        except httpx2.ConnectError as error:
            raise EngineGone(
                f"{self._root} cannot be reached ({self._printable(str(error)) or 'no connection'}): is it running, and --server right?"
            ) from None
        except (httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL, OSError) as error:
            reason = self._printable(str(error)) or type(error).__name__
            raise EngineGone(f"{self._root} broke off ({reason})") from None

    def _decoded(self, raw: bytes, kind: type[T], what: str) -> T:
        try:
            return msgspec.json.decode(raw, type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            reason = self._printable(str(error))
            raise LocalspecError(f"{self._root} sent no {what} ({reason})") from None

    def _printable(self, text: str) -> str:
        """Return words of a server as they may stand in a message of one line: without the key."""
        if self._key:
            text = text.replace(self._key, "***")
        return printable_line(" ".join(text.split()))[:300]

    def _refusal(self, response: httpx2.Response, raw: bytes) -> LocalspecError:
        """Return the error that a status means."""
        status = response.status_code
        if 300 <= status < 400:
            where = response.headers.get("location", "")
            return UsageError(
                f"{self._root} redirects to {self._printable(where) or 'elsewhere'}, which is not followed: if that is right, give it to --server"
            )
        if status in {401, 403}:
            if self._key:
                return UsageError(f"{self._root} refuses the key ({status}): see --server-key-file")
            return UsageError(f"{self._root} wants a key ({status}): give --server-key-file FILE")
        reason = self._printable(_reason_in(raw))
        if any(words in raw[:_MOST_REASON].decode(errors="replace").lower() for words in _TOO_LONG):
            return ContextOverflow(f"the server's context is too small: {reason}")
        kind, what = _STATUSES.get(status, (LocalspecError, "failed"))
        error = kind(f"{self._root} {what} ({status}): {reason or 'without a reason'}")
        if isinstance(error, Busy):
            error.again_s = _seconds(response.headers.get("retry-after", ""))
        return error


def _name(model: str) -> str:
    """Return a model's name for people: of a path, the file."""
    return model.rpartition("/")[2] if model.startswith("/") else model


def _seconds(text: str) -> float:
    """Return after how many seconds to ask again, from a number or a date; 0 where a server gives neither."""
    if len(text) < 9 and text.replace(".", "", 1).isdecimal():
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    except (ValueError, OverflowError):
        return 0.0


def _gate(request: Request) -> "GatedReply | None":
    if not request.gate:
        return None
    from localspec.chat.gated import GatedReply, gate_of  # noqa: PLC0415 - few have one

    return GatedReply(gate_of(request.gate))


def _words(messages: Sequence[Message], tools: Sequence[Tool]) -> str:
    """Return all that a model reads of a conversation, but for media and what a template adds."""
    values = [to_json(_in_words(each)) for each in messages] + [each.to_json() for each in tools]
    texts = [str(each.get("content") or "") for each in values if "content" in each]
    others = [each.get("tool_calls") or each.get("function") for each in values]
    return "\n".join([*texts, *(msgspec.json.encode(each).decode() for each in others if each)])


def _in_words(message: Message) -> Message:
    parts = (each for each in message.parts if not isinstance(each, MediaPart))
    return replace(message, parts=tuple(parts)) if message.media else message


def _around(messages: Sequence[Message]) -> int:
    """Return about how many tokens there are beside words: what a template adds, and media."""
    return _AROUND * len(messages) + _PER_MEDIA * sum(len(each.media) for each in messages)


def _encoded(body: dict[str, Any]) -> bytes:
    """Return a body as JSON; half of a character, which a paste may hold, becomes U+FFFD."""
    text = json.dumps(body, ensure_ascii=False)
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


async def _read_end(lines: AsyncGenerator[bytes]) -> None:
    """Read what follows the end of a stream, as far as it comes at once: only then is the connection good for the next request."""
    with suppress(TimeoutError, LocalspecError):
        async with asyncio.timeout(_END_S):
            async for _ in lines:
                pass


async def _read(response: httpx2.Response) -> bytes:
    """Return the body of a response, as much of it as one may have."""
    raw = b""
    async for piece in response.aiter_raw():
        raw += piece
        if len(raw) > _MOST_BODY_BYTES:
            break
    return raw


def _reason_in(raw: bytes) -> str:
    """Return a server's reason for an error, in whichever of the usual forms."""
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        value = None
    for name in ("error", "message", "detail", "msg"):
        if isinstance(value, dict) and value.get(name):
            value = value[name]
            if name == "error" and isinstance(value, dict):
                value = value.get("message") or value
            break
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode() if value else ""
    return text or raw[:_MOST_REASON].decode(errors="replace")
