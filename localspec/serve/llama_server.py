"""What llama-server has beside OpenAI's interface, and editors ask for: a gap filled in, tokens of a text, and back.

Source: the README of llama.cpp's server.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

from localspec.chat.events import Delta, Finished, Text
from localspec.chat.request import Request
from localspec.decoding.round import StopReason
from localspec.engine.protocol import Detokenize, Tokenize
from localspec.messages import Infill
from localspec.serve.answering import AnswerForm, Answers, Body, Service, unless_gone
from localspec.serve.bodies import body_of, reply_options
from localspec.serve.openai import CompletionBody, choices
from localspec.serve.openai_forms import drafting
from localspec.serve.thinking import THINKING

_STOPS = {StopReason.EOG: "eos", StopReason.STOP_STRING: "word"}


class TokenizeBody(msgspec.Struct):
    """A text, and whether each id comes with its piece of it."""

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


class InfillBody(CompletionBody, kw_only=True):
    """A gap, and how to fill it in, or a text to go on with. What limits the time of a prompt, and other fields are ignored."""

    unread = THINKING
    input_prefix: str = ""
    input_suffix: str = ""
    input_extra: list[Snippet] = msgspec.field(default_factory=list)
    prompt: str = ""
    n_indent: int = 0
    t_max_predict_ms: float = 0
    n_cmpl: int | None = None
    response_fields: list[str] = msgspec.field(default_factory=list)


async def infill(request: HttpRequest, service: Service) -> Answers:
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
    return await _continued(body, service, Request(0, (), infill=gap))


async def completion(request: HttpRequest, service: Service) -> Answers:
    """Go on with a text as it is, as Continue asks for it."""
    body = await body_of(request, InfillBody)
    return await _continued(body, service.of(body.model), Request(0, (), raw=body.prompt))


async def _continued(body: InfillBody, service: Service, prompt: Request) -> Answers:
    """Return the answers to a prompt, as its body says."""
    if body.seed is not None and body.seed < 0:
        body.seed = None
    options = await reply_options(body, service.options, body.n_predict)
    draft = body.draft(exact=service.exact)
    prompt = msgspec.structs.replace(prompt, options=options, keep=body.keep)
    prompts = choices([prompt], body.n_cmpl or body.n or 1, draft)
    form = InfillForm(service, body.response_fields)
    return Answers(service, prompts, form, body.stream, body.n_predict == 0)


class InfillForm(AnswerForm):
    """The form of what fills a gap.

    Args:
        service: answers.
        fields: the paths of those that are wanted, as `timings/prompt_n`; without any all are.
    """

    def __init__(self, service: Service, fields: Sequence[str]) -> None:
        self._service = service
        self._fields = fields

    def pieces(self, at: int, event: Delta | Finished) -> Iterable[Body]:
        """Return a piece of text, or the end; there are no calls."""
        if isinstance(event, Finished):
            yield self._filled(at, event, "")
        elif isinstance(event, Text):
            yield {"index": at, "content": event.text, "stop": False}

    def whole(self, answers: Sequence[Sequence[Delta]], done: Sequence[Finished]) -> Any:  # noqa: ARG002 - the replies have it
        """Return the answer, or a list of several."""
        filled = [self._filled(at, each, each.reply.text) for at, each in enumerate(done)]
        return filled if len(filled) > 1 else filled[0]

    def _filled(self, at: int, done: Finished, content: str) -> Body:
        whole = _filled(done, content, at, self._service)
        if not self._fields:
            return whole
        chosen = {}
        for path in self._fields:
            value: Any = whole
            for name in path.split("/"):
                value = value.get(name) if isinstance(value, dict) else None
            if value is not None:
                chosen[path] = value
        return chosen


def _filled(done: Finished, content: str, at: int, service: Service) -> dict[str, Any]:
    reply, ready = done.reply, service.residence.ready(service.model)
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


async def tokenize(request: HttpRequest, service: Service) -> Response:
    """Return the ids of a text; where asked, each with its piece, or the bytes of one that is no text by itself."""
    body = await body_of(request, TokenizeBody)
    question = Tokenize(0, body.content, body.add_special)
    tokens = await unless_gone(request, service.tokens(question))
    if not body.with_pieces:
        return JSONResponse({"tokens": tokens.tokens})
    pairs = zip(tokens.tokens, tokens.pieces, strict=True)
    return JSONResponse({"tokens": [{"id": each, "piece": _piece(text)} for each, text in pairs]})


async def detokenize(request: HttpRequest, service: Service) -> Response:
    """Return what ids stand for, control tokens included."""
    body = await body_of(request, DetokenizeBody)
    tokens = await unless_gone(request, service.tokens(Detokenize(0, tuple(body.tokens))))
    whole = "".join(tokens.pieces).encode("latin-1")
    return JSONResponse({"content": whole.decode(errors="replace")})


def _piece(text: str) -> Any:
    raw = text.encode("latin-1")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return list(raw)
