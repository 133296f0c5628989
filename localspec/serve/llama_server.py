"""What llama-server has beside OpenAI's interface, and editors ask for: a gap filled in, tokens of a text, and back.

Source: the README of llama.cpp's server.
"""

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any

import msgspec
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

from localspec.chat.events import Delta, Finished, Text
from localspec.chat.request import Request
from localspec.decoding.round import StopReason
from localspec.engine.protocol import Detokenize, Tokenize
from localspec.messages import Infill
from localspec.serve.answering import (
    Service,
    collected,
    drafting,
    merged,
    streamed,
    unless_gone,
)
from localspec.serve.http import body_of
from localspec.serve.openai import (
    CompletionBody,
    choices,
    own_draft,
)
from localspec.serve.reply_options import reply_options

_STOPS = {StopReason.EOG: "eos", StopReason.STOP_STRING: "word"}


class TokenizeBody(msgspec.Struct):
    """A text, and whether the ids stand alone, or each with what it stands for."""

    content: str
    add_special: bool = False
    with_pieces: bool = False


class DetokenizeBody(msgspec.Struct):
    """Ids."""

    tokens: list[int]


class Snippet(msgspec.Struct):
    """A part of another file."""

    text: str = ""
    filename: str = "tmp"


class InfillBody(CompletionBody):
    """A gap, and how to fill it in. What limits the time of a prompt, `samplers`, and other fields are ignored."""

    input_prefix: str = ""
    input_suffix: str = ""
    input_extra: list[Snippet] = msgspec.field(default_factory=list)
    prompt: str = ""
    n_indent: int = 0
    t_max_predict_ms: float = 0
    n_cmpl: int | None = None
    samplers: Any = None
    response_fields: list[str] = msgspec.field(default_factory=list)


async def infill(request: HttpRequest, service: Service) -> Response:
    """Fill in a gap, as llama.vim and llama.vscode ask for it; several times, where they ask for several."""
    body = await body_of(request, InfillBody)
    service = service.of(body.model)
    gap = Infill(
        body.input_prefix + body.prompt,
        body.input_suffix,
        files=tuple((each.filename, each.text) for each in body.input_extra),
        indent=body.n_indent,
        within_s=body.t_max_predict_ms / 1000 if body.t_max_predict_ms > 0 else None,
    )
    if body.seed is not None and body.seed < 0:
        body.seed = None
    options = await reply_options(body, service.options, body.n_predict)
    count = body.n_cmpl or body.n or 1
    asked = choices(
        [Request(0, (), options, infill=gap)], count, own_draft(body.localspec, service)
    )
    replies = [service.reply(request, each, empty=body.n_predict == 0) for each in asked]
    if body.stream:
        return await streamed(
            request, _filling(replies, body, service), partial(service.check, asked[0])
        )
    found = await collected(request, replies)
    filled = [
        _chosen(_filled(done, done.reply.text, at, service), body)
        for at, (done, _) in enumerate(found)
    ]
    return JSONResponse(filled if count > 1 else filled[0])


async def _filling(
    replies: Sequence[AsyncGenerator[Delta | Finished]], body: InfillBody, service: Service
) -> AsyncGenerator[str]:
    async with aclosing(merged(replies)) as events:
        async for at, each in events:
            if isinstance(each, Finished):
                told = _chosen(_filled(each, "", at, service), body)
            elif isinstance(each, Text):
                told = {"index": at, "content": each.text, "stop": False}
            else:
                continue  # it is offered no functions
            yield f"data: {json.dumps(told, separators=(',', ':'))}\n\n"


def _filled(done: Finished, content: str, at: int, service: Service) -> dict[str, Any]:
    reply, ready = done.reply, service.backend.ready
    evaluated = reply.prompt_tokens - reply.cached_tokens
    return {
        "index": at,
        "content": content,
        "model": service.name,
        "stop": True,
        "stop_type": _STOPS.get(reply.stop_reason, "limit"),
        "tokens_predicted": reply.completion_tokens,
        "tokens_evaluated": reply.prompt_tokens,
        "tokens_cached": reply.cached_tokens,
        "truncated": reply.stop_reason is StopReason.CONTEXT_FULL,
        "generation_settings": {"n_ctx": 0 if ready is None else ready.n_ctx},
        "timings": {
            **_pace("prompt", evaluated, reply.prefill_s),
            **_pace("predicted", reply.completion_tokens, reply.decode_s),
        },
        "speculation": drafting(done),
    }


def _pace(name: str, count: int, seconds: float) -> dict[str, float]:
    return {
        f"{name}_n": count,
        f"{name}_ms": 1000 * seconds,
        f"{name}_per_token_ms": 1000 * seconds / count if count else 0.0,
        f"{name}_per_second": count / seconds if seconds else 0.0,
    }


def _chosen(answer: dict[str, Any], body: InfillBody) -> dict[str, Any]:
    """Return the fields of an answer that are asked for, each under its path, as `timings/prompt_n`."""
    if not body.response_fields:
        return answer
    chosen = {}
    for path in body.response_fields:
        value: Any = answer
        for name in path.split("/"):
            value = value.get(name) if isinstance(value, dict) else None
        if value is not None:
            chosen[path] = value
    return chosen


async def tokenize(request: HttpRequest, service: Service) -> Response:
    """Return the ids of a text; where asked, each with its piece, or the bytes of one that is no text by itself."""
    body = await body_of(request, TokenizeBody)
    asked = Tokenize(0, body.content, body.add_special)
    found = await unless_gone(request, service.tokens(asked))
    if not body.with_pieces:
        return JSONResponse({"tokens": found.tokens})
    pairs = zip(found.tokens, found.pieces, strict=True)
    return JSONResponse({"tokens": [{"id": each, "piece": _piece(text)} for each, text in pairs]})


async def detokenize(request: HttpRequest, service: Service) -> Response:
    """Return what ids stand for, control tokens included."""
    body = await body_of(request, DetokenizeBody)
    found = await unless_gone(request, service.tokens(Detokenize(0, tuple(body.tokens))))
    whole = "".join(found.pieces).encode("latin-1")
    return JSONResponse({"content": whole.decode(errors="replace")})


def _piece(text: str) -> Any:
    raw = text.encode("latin-1")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return list(raw)
