"""The application: which path does what."""

import sys
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from localspec.api import LocalspecError
from localspec.engine.drafts import PATH
from localspec.plugins.serve import (
    anthropic,
    llama_server,
    ollama,
    ollama_models,
    openai,
    responses,
    vectors,
)
from localspec.plugins.serve.answering import Answers, Service
from localspec.plugins.serve.http import Guard, error_of, guarded, public, status_of
from localspec.plugins.serve.metrics import CONTENT_TYPE, Metrics

Handler = Callable[[Request, Service], Awaitable[Response | Answers]]


_GETS: dict[str, Handler] = {
    "/v1/models": openai.models,
    "/v1/models/{name:path}": openai.model,
    "/models": openai.models,
    "/api/tags": ollama_models.tags,
    "/api/ps": ollama_models.running,
    "/api/version": ollama_models.version,
}
# Some programs add `/v1` to these, and some do not.
_WITH_OR_WITHOUT_V1: dict[str, Handler] = {
    "/chat/completions": openai.chat_completions,
    "/chat/completions/input_tokens": openai.count_chat,
    "/completions": openai.completions,
    "/responses": responses.responses,
    "/responses/input_tokens": responses.count_tokens,
    **dict.fromkeys(("/rerank", "/reranking"), vectors.rerank),
}
_POSTS: dict[str, Handler] = {
    **{f"{head}{path}": e for path, e in _WITH_OR_WITHOUT_V1.items() for head in ("/v1", "")},
    "/v1/messages": anthropic.messages,
    "/v1/messages/count_tokens": anthropic.count_tokens,
    "/completion": llama_server.completion,
    "/infill": llama_server.infill,
    "/tokenize": llama_server.tokenize,
    "/detokenize": llama_server.detokenize,
    "/v1/embeddings": vectors.embeddings,
    "/api/chat": ollama.chat,
    "/api/generate": ollama.generate,
    "/api/show": ollama_models.show,
    "/api/pull": ollama_models.pull,
    **dict.fromkeys(("/api/embed", "/api/embeddings"), ollama.embed),
    **dict.fromkeys(("/api/create", "/api/copy", "/api/push"), ollama_models.change),
}
_METHODS: dict[str, dict[str, Handler]] = {
    "GET": _GETS,
    "POST": _POSTS,
    "DELETE": {"/api/delete": ollama_models.change},
}
_PAGE = {
    "/": ("index.html", "text/html"),
    "/page.js": ("page.js", "text/javascript"),
    "/page.css": ("page.css", "text/css"),
}
"""A page for people; it holds no data, so that it needs no key."""
_HEALTH = ("/health", "/v1/health")
"""As in llama-server, open to all; without a key only the state."""
_PAGE_HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "Vary": "Accept",
    "X-Content-Type-Options": "nosniff",
}


def application(service: Service, metrics: Metrics, guard: Guard) -> ASGIApp:
    """Return the server as an ASGI application.

    Args:
        service: answers.
        metrics: count.
        guard: lets in.
    """

    async def health(request: Request) -> Response:
        pool, state = service.pool, service.state
        code = 503 if state == "lost" else 200  # while it loads requests wait
        if not guard.has_key(request.headers):  # what watches over containers has none
            return JSONResponse({"status": state}, code)
        waiting = pool.waiting
        figures: dict[str, Any] = {
            "status": state,
            "model": service.loaded.name,
            "under_way": pool.under_way,
            "running": metrics.running(),
            "waiting": metrics.waiting() + waiting.total(),
            "reading": metrics.reading,
            "models": {
                name: {
                    "status": each,
                    "running": metrics.running(name),
                    "waiting": metrics.waiting(name) + waiting[name],
                }
                for name, each in pool.states.items()
            },
        }
        lost = {each.model.name: each.backend.lost for each in pool.entries}
        for name, reason in lost.items():
            if reason:
                figures["models"][name]["reason"] = figures["reason"] = public(reason)
        return JSONResponse(figures, code)

    async def measured(_: Request) -> Response:
        text = metrics.text(service.pool.states)
        return Response(text, headers={"Content-Type": CONTENT_TYPE})

    async def page(request: Request) -> Response:
        if request.url.path == "/" and "text/html" not in request.headers.get("accept", ""):
            # Ollama's clients look for these words; browsers name HTML.
            return PlainTextResponse("Ollama is running", headers={"Vary": "Accept"})
        name, kind = _PAGE[request.url.path]
        text = (Path(__file__).parent / "page" / name).read_bytes()
        return Response(text, media_type=kind, headers=_PAGE_HEADERS)

    app = Starlette(
        routes=[
            *(Route(path, page) for path in _PAGE),
            *(Route(path, health) for path in _HEALTH),
            Route("/metrics", measured),
            WebSocketRoute(PATH + "{name}", service.drafts.serve),
            *(
                Route(path, _Endpoint(each, service), methods=[method])
                for method, handlers in _METHODS.items()
                for path, each in handlers.items()
            ),
        ],
        exception_handlers={HTTPException: _wrong_address, Exception: _fault},
    )
    app.state.large = set[Request]()  # the requests whose bodies are, see `body_of`
    return guarded(app, guard, metrics.refuse, (*_PAGE, *_HEALTH))


@dataclass(frozen=True, slots=True, eq=False)
class _Endpoint:
    """One path: the answer of its handler, or an error."""

    handler: Handler
    service: Service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request, started = Request(scope, receive), False

        async def sent(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            answer = await self.handler(request, self.service)
            if isinstance(answer, Answers):
                await answer.send(request, sent)
            else:
                await answer(scope, receive, sent)
        except LocalspecError as error:
            await error_of(scope, error, status_of(error))(scope, receive, send)
        except ClientDisconnect:
            if not started:
                await Response(status_code=499)(scope, receive, send)  # nobody reads it
        finally:
            request.app.state.large.discard(request)


async def _wrong_address(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - it is registered for nothing else
    path = request.url.path[:80]
    if error.status_code == 405:
        reason = f"{path} takes no {request.method}: see docs/serve.md"
        return error_of(request.scope, reason, 405)
    reason = f"there is no {path}: programs ask /v1/chat/completions and others, see docs/serve.md"
    return error_of(request.scope, reason, 404)


async def _fault(request: Request, error: Exception) -> Response:
    traceback.print_exception(error, file=sys.stderr)
    reason = f"this is a bug in localspec, report it ({type(error).__name__})"
    return error_of(request.scope, reason, 500)
