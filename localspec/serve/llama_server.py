"""What llama-server has beside OpenAI's interface, and editors ask for: a gap filled in, tokens of a text, and back.

Source: the README of llama.cpp's server.
"""

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from localspec.chat.events import Text, Told
from localspec.decoding.round import StopReason
from localspec.engine.ask import Ask
from localspec.engine.protocol import Detokenize, ReplyDone, Tokenize
from localspec.messages import Infill
from localspec.serve.answering import Service, collected, drafting, streamed, unless_gone
from localspec.serve.http import body_of
from localspec.serve.openai import CompletionBody, completion_options, own_draft

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
    """A gap, and how to fill it in. What limits time, and other fields, are ignored."""

    input_prefix: str = ""
    input_suffix: str = ""
    input_extra: list[Snippet] = msgspec.field(default_factory=list)
    prompt: str = ""
    n_predict: int | None = None
    response_fields: list[str] = msgspec.field(default_factory=list)


async def infill(request: Request, service: Service) -> Response:
    """Fill in a gap, as llama.vim and llama.vscode ask for it."""
    body = await body_of(request, InfillBody)
    service = service.of(body.model)
    files = tuple((each.filename, each.text) for each in body.input_extra)
    gap = Infill(body.input_prefix + body.prompt, body.input_suffix, files=files)
    # Editors ask for no token at all so that the context is read ahead; -1 is no limit.
    wanted = -1 if body.n_predict is None else body.n_predict
    if body.seed is not None and body.seed < 0:
        body.seed = None
    options = completion_options(body, service.options, None if wanted < 0 else max(1, wanted))
    draft = own_draft(body.localspec, service)
    reply = service.reply(request, Ask(0, (), options, draft=draft, infill=gap))
    if body.stream:
        return await streamed(request, _filling(reply, body, service.name))
    ((done, _),) = await collected(request, [reply])
    text = done.reply.text if wanted else ""
    return JSONResponse(_chosen(_filled(done, text, service.name), body.response_fields))


async def _filling(
    reply: AsyncGenerator[Told | ReplyDone], body: InfillBody, model: str
) -> AsyncGenerator[str]:
    async with aclosing(reply):
        async for each in reply:
            if isinstance(each, ReplyDone):
                told = _chosen(_filled(each, "", model), body.response_fields)
            elif isinstance(each, Text):
                told = {"content": "" if body.n_predict == 0 else each.text, "stop": False}
            else:
                continue  # it is offered no functions
            yield f"data: {json.dumps(told, separators=(',', ':'))}\n\n"


def _filled(done: ReplyDone, content: str, model: str) -> dict[str, Any]:
    reply = done.reply
    evaluated = reply.prompt_tokens - reply.cached_tokens
    return {
        "content": content,
        "model": model,
        "stop": True,
        "stop_type": _STOPS.get(reply.stop_reason, "limit"),
        "tokens_predicted": reply.completion_tokens,
        "tokens_evaluated": reply.prompt_tokens,
        "tokens_cached": reply.cached_tokens,
        "truncated": reply.stop_reason is StopReason.CONTEXT_FULL,
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


def _chosen(answer: dict[str, Any], paths: list[str]) -> dict[str, Any]:
    """Return the fields of an answer that are asked for, each under its path, as `timings/prompt_n`."""
    if not paths:
        return answer
    chosen = {}
    for path in paths:
        value: Any = answer
        for name in path.split("/"):
            value = value.get(name) if isinstance(value, dict) else None
        if value is not None:
            chosen[path] = value
    return chosen


async def tokenize(request: Request, service: Service) -> Response:
    """Return the ids of a text; where asked, each with its piece, or the bytes of one that is no text by itself."""
    body = await body_of(request, TokenizeBody)
    asked = Tokenize(0, body.content, body.add_special)
    found = await unless_gone(request, service.tokens(asked))
    if not body.with_pieces:
        return JSONResponse({"tokens": found.tokens})
    pairs = zip(found.tokens, found.pieces, strict=True)
    return JSONResponse({"tokens": [{"id": each, "piece": _piece(text)} for each, text in pairs]})


async def detokenize(request: Request, service: Service) -> Response:
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
