"""Checks of every request (keys, hosts, origins, sizes, bodies), and the form of errors."""

import hashlib
import hmac
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from localspec.api import LocalspecError, data_dir
from localspec.errors import (
    Busy,
    ContextOverflow,
    EngineFault,
    EngineGone,
    MemoryShort,
    ModelChanged,
    NoRoom,
    PassFailed,
)
from localspec.plugins.serve.backend import WaitedTooLong
from localspec.plugins.serve.wire import Drained

CLIENT = "localspec.client"
"""The name of the client in a request's scope."""
OWNER = "localspec.owner"
"""Who of the clients may use what was evaluated for it: each of its key, and all without keys."""
GATE = "localspec.gate"
"""The gate of that client, empty without one."""
_RETRY_S = 2
_TRY_LATER = {429, 503}


class NotFound(LocalspecError):
    """What a request names is not here."""


class TooLarge(LocalspecError):
    """A body has more bytes than are read."""


@dataclass(frozen=True, slots=True)
class Guard:
    """Which requests are answered.

    Args:
        keys: API keys, of which a request has to bear one; without any, none is needed.
        hosts: names that the Host header may have; None takes any, as behind a key.
        origins: web pages that may ask, as `https://host:port`; pages of `hosts` may, too.
        gate: what is masked in answers, see `Request`.
        gates: the same for some of the keys, in place of `gate`.
    """

    keys: Collection[str] = ()
    hosts: Collection[str] | None = None
    origins: Collection[str] = ()
    gate: str = ""
    gates: Mapping[str, str] = field(default_factory=dict)

    def gate_of(self, headers: Headers) -> str:
        """Return what is masked for the sender of a request."""
        return self.gates.get(_key(headers), self.gate)

    def has_key(self, headers: Headers) -> bool:
        """Return whether a request bears a key, where it needs one."""
        given = _key(headers)
        # All are compared, so that the time tells nothing.
        matches = [hmac.compare_digest(given.encode(), each.encode()) for each in self.keys]
        return any(matches) or not self.keys

    def client(self, headers: Headers, peer: str) -> str:
        """Return a name for the client that reveals nothing: of its key, or without keys of its address and program.

        Args:
            headers: of a request that is let in.
            peer: where it comes from, without a port: a program may use many.
        """
        named = () if self.keys else (peer, headers.get("user-agent", ""))
        text = "\n".join((_key(headers), *named))
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def guarded(
    app: ASGIApp, guard: Guard, refused: Callable[[int], None], public: Collection[str] = ()
) -> ASGIApp:
    """Return an app behind a `Guard`.

    Args:
        app: sees only what is let in, with `CLIENT` and `GATE` in its scope.
        guard: lets in.
        refused: takes the status of every answer that is an error.
        public: paths that need no key.
    """
    hosts = guard.hosts or ()
    pages = rf"https?://({'|'.join(map(re.escape, hosts))})(:\d+)?" if hosts else None
    origins = _Origins(
        _Keys(app, guard, public),
        allow_origins=guard.origins,
        allow_origin_regex=pages,
        allow_methods=("GET", "POST"),
        allow_headers=("*",),
        allow_private_network=True,
    )
    any_host = ("*",) if guard.hosts is None else tuple(hosts)
    return Drained(_Counted(TrustedHostMiddleware(origins, any_host, www_redirect=False), refused))


class _Keys:
    """Answers 401 without a key; else puts the client and its gate into the scope."""

    def __init__(self, app: ASGIApp, guard: Guard, public: Collection[str]) -> None:
        self._app = app
        self._guard = guard
        self._public = public

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        if scope["path"] not in self._public and not self._guard.has_key(headers):
            reason = "the API key is missing or wrong: send it as Authorization: Bearer KEY"
            await error_of(scope, reason, 401)(scope, receive, send)
            return
        peer = (scope.get("client") or ("",))[0]
        scope[CLIENT] = self._guard.client(headers, str(peer))
        scope[OWNER] = scope[CLIENT] if self._guard.keys else ""
        scope[GATE] = self._guard.gate_of(headers)
        await self._app(scope, receive, send)


class _Origins(CORSMiddleware):
    """Tells web pages what they may ask; others get 403, since headers alone do not keep a page from sending a simple POST."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        origin = headers.get("origin")
        # The server's own page, whose host `TrustedHostMiddleware` let in; where it lets any in, a key is needed.
        own = origin is not None and origin.partition("://")[2] == headers.get("host")
        if origin is None or own or self.is_allowed_origin(origin):
            await super().__call__(scope, receive, send)
            return
        reason = f"web pages of {origin[:60]!r} may not ask: name them with --cors"
        await error_of(scope, reason, 403)(scope, receive, send)


class _Counted:
    """Counts answers that are errors."""

    def __init__(self, app: ASGIApp, refused: Callable[[int], None]) -> None:
        self._app = app
        self._refused = refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] >= 400:
                self._refused(message["status"])
            await send(message)

        await self._app(scope, receive, sending)


def status_of(error: LocalspecError) -> int:
    """Return the HTTP status that says what went wrong."""
    match error:
        case Busy():
            return 429
        case EngineGone() | WaitedTooLong() | MemoryShort() | NoRoom() | ModelChanged():
            return 503
        case NotFound():
            return 404
        case TooLarge():
            return 413
        case EngineFault() | PassFailed():
            return 500
    return 400


def error_of(scope: Scope, error: LocalspecError | str, status: int) -> JSONResponse:
    """Return an error in the form of the interface that was asked, see `error_body`."""
    headers = {"Retry-After": str(_RETRY_S)} if status in _TRY_LATER else {}
    return JSONResponse(error_body(scope, error, status), status, headers)


def public(reason: str) -> str:
    """Return the reason of an error as clients get it: without the places of this program's own files."""
    return re.sub(rf"{re.escape(str(data_dir()))}/[^\s:;,)]*", "its file", reason)


def error_body(scope: Scope, error: LocalspecError | str, status: int) -> dict[str, Any]:
    """Return an error object, as OpenAI's interface has it, or Ollama's for its paths, or Anthropic's for its paths and clients.

    Args:
        scope: of the request.
        error: what went wrong, or one line about it; of a prompt that is too long, the sizes are fields by llama-server's names.
        status: of the answer.
    """
    reason, code, more = public(str(error)), None, dict[str, int]()
    if isinstance(error, ContextOverflow):
        code, sizes = "context_length_exceeded", error.sizes or ()
        more = dict(zip(("n_prompt_tokens", "n_ctx"), sizes, strict=False))
    if scope["path"].startswith("/api/"):
        return {"error": reason}
    kind = _KINDS.get(status, "invalid_request_error" if status < 500 else "api_error")
    # Its clients ask for models, too.
    if scope["path"].startswith("/v1/messages") or "anthropic-version" in Headers(scope=scope):
        return {"type": "error", "error": {"type": kind, "message": reason, **more}}
    return {"error": {"message": reason, "type": kind, "param": None, "code": code, **more}}


_KINDS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    503: "overloaded_error",
}


def _key(headers: Headers) -> str:
    """Return the key that a request bears; empty where it bears none."""
    scheme, _, key = headers.get("authorization", "").partition(" ")
    return key if scheme.lower() == "bearer" else headers.get("x-api-key", "")
