"""What every request has to get past, and how errors are told: keys, hosts, origins, sizes, bodies."""

import hashlib
import hmac
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from localspec.errors import ContextOverflow, LocalspecError, UsageError
from localspec.gates.gate import Gate
from localspec.serve.backend import Busy, EngineLost, Refused, WaitedTooLong

CLIENT = "localspec.client"
"""Under which a request's scope has the name of who asks."""
GATE = "localspec.gate"
"""Under which it has what the one who asks must not see; nothing where they may see all."""
MOST_BODY_BYTES = 16 << 20
_RETRY_S = 2
_TRY_LATER = {429, 503}
_FAULTS = {"Fault", "PassFailed", "FrameError"}
T = TypeVar("T")


class NotFound(LocalspecError):
    """What a request names is not here."""


class TooLarge(LocalspecError):
    """A body has more bytes than are read."""


@dataclass(frozen=True, slots=True)
class Guard:
    """Who is let in.

    Args:
        keys: API keys, of which a request has to bear one; empty lets everybody in.
        hosts: names that the Host header may have; None lets every name pass, as behind a key.
        origins: web pages that may ask, as `https://host:port`; pages of `hosts` may, too.
        gate: what must not be seen in answers; None lets everything through.
        gates: the same for some of the keys, which it then holds for instead.
    """

    keys: Collection[str] = ()
    hosts: Collection[str] | None = None
    origins: Collection[str] = ()
    gate: Gate | None = None
    gates: Mapping[str, Gate | None] = field(default_factory=dict)

    def gate_of(self, headers: Headers) -> Gate | None:
        """Return what must not be seen by whoever sends a request that is let in."""
        return self.gates.get(_key(headers), self.gate)

    def refusal(self, headers: Headers) -> tuple[int, str] | None:
        """Return status and reason where a request is not let in."""
        host = _name(headers.get("host", ""))
        if self.hosts is not None and host not in self.hosts:
            return 403, f"the Host {host[:60]!r} is not one of this server: name it with --host"
        origin = headers.get("origin")
        if origin is not None and origin not in self.origins:
            page = _name(origin.partition("://")[2])
            if page not in (self.hosts or ()):
                return 403, f"web pages of {origin[:60]!r} may not ask: name them with --cors"
        if self.keys and not self._has_key(headers):
            return 401, "the API key is missing or wrong: send it as Authorization: Bearer KEY"
        return None

    def client(self, headers: Headers, peer: str) -> str:
        """Return a name for who asks, of which nothing can be read: the key, or where none is needed whatever tells programs apart.

        Args:
            headers: of a request that is let in.
            peer: where it comes from, without a port: a program may use many.
        """
        named = () if self.keys else (peer, headers.get("user-agent", ""))
        text = "\n".join((_key(headers), *named))
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()

    def _has_key(self, headers: Headers) -> bool:
        given = _key(headers)
        # All are compared, so that the time tells nothing.
        found = [hmac.compare_digest(given.encode(), each.encode()) for each in self.keys]
        return any(found)


class Guarded:
    """An ASGI app behind a `Guard`.

    Args:
        app: sees only what is let in, with `CLIENT` and `GATE` in its scope.
        guard: lets in.
        refused: is told the status of every answer that is an error.
    """

    def __init__(self, app: ASGIApp, guard: Guard, refused: Callable[[int], None]) -> None:
        self._app = app
        self._guard = guard
        self._refused = refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer that it is not let in."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers, send = Headers(scope=scope), self._counting(send)
        origin = headers.get("origin")
        allowed = origin is not None and origin in self._guard.origins
        if allowed and scope["method"] == "OPTIONS":
            preflight = {
                "Access-Control-Allow-Methods": "GET, POST",
                # Browsers leave `Authorization` out of `*`.
                "Access-Control-Allow-Headers": "Authorization, *",
            }
            await JSONResponse({}, headers=preflight)(
                scope, receive, _with_origin(send, str(origin))
            )
            return
        refusal = self._guard.refusal(headers)
        if refusal is not None:
            status, reason = refusal
            await error_of(scope["path"], status, reason)(scope, receive, send)
            return
        peer = (scope.get("client") or ("",))[0]
        scope[CLIENT] = self._guard.client(headers, str(peer))
        scope[GATE] = self._guard.gate_of(headers)
        await self._app(scope, receive, _with_origin(send, str(origin)) if allowed else send)

    def _counting(self, send: Send) -> Send:
        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] >= 400:
                self._refused(message["status"])
            await send(message)

        return sending


async def body_of(request: Request, kind: type[T]) -> T:
    """Return a request's body as a record.

    Raises:
        TooLarge: it is.
        UsageError: it is no JSON, or no such record.
    """
    pieces, size = [], 0
    async for piece in request.stream():
        size += len(piece)
        if size > MOST_BODY_BYTES:
            raise TooLarge(f"the body has more than {MOST_BODY_BYTES >> 20} MB: send a shorter one")
        pieces.append(piece)
    try:
        return msgspec.json.decode(b"".join(pieces), type=kind)
    except RecursionError:
        raise UsageError("the body is nested too deeply: send a flatter one") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"the body is not valid: {error}") from None


def status_of(error: LocalspecError) -> int:
    """Return the HTTP status that says what went wrong."""
    match error:
        case Busy():
            return 429
        case EngineLost() | WaitedTooLong():
            return 503
        case NotFound():
            return 404
        case TooLarge():
            return 413
        case Refused(kind=kind):
            return 500 if kind in _FAULTS else 400
    return 400


def told(path: str, error: LocalspecError) -> JSONResponse:
    """Return an error as an answer."""
    kind = error.kind if isinstance(error, Refused) else type(error).__name__
    code = "context_length_exceeded" if kind == ContextOverflow.__name__ else None
    return error_of(path, status_of(error), str(error), code)


def error_of(path: str, status: int, reason: str, code: str | None = None) -> JSONResponse:
    """Return an error in the form of the interface that was asked."""
    headers = {"Retry-After": str(_RETRY_S)} if status in _TRY_LATER else {}
    return JSONResponse(error_body(path, status, reason, code), status, headers)


def error_body(path: str, status: int, reason: str, code: str | None = None) -> dict[str, Any]:
    """Return an error object, as OpenAI's interface has it, or Anthropic's under its paths."""
    kind = _KINDS.get(status, "invalid_request_error" if status < 500 else "api_error")
    if path.startswith("/v1/messages"):
        return {"type": "error", "error": {"type": kind, "message": reason}}
    return {"error": {"message": reason, "type": kind, "param": None, "code": code}}


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


def _name(host: str) -> str:
    """Return a host's name without its port."""
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0].lower()


def _with_origin(send: Send, origin: str) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            named = (b"access-control-allow-origin", origin.encode("latin-1", "replace"))
            message["headers"] = [*message.get("headers", []), named, (b"vary", b"Origin")]
        await send(message)

    return sending
