"""What llama-server has beside OpenAI's interface, and editors ask for: a gap filled in, tokens of a text, and back.

Source: the README of llama.cpp's server.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

from localspec.api import Finished, Request, StopReason, Text, UsageError
from localspec.chat.events import Delta
from localspec.engine.protocol import Detokenize, Tokenize
from localspec.messages import Infill
from localspec.plugins.serve.answering import AnswerForm, Answers, Body, Service, unless_gone
from localspec.plugins.serve.bodies import body_of, logprobs_of, reply_options
from localspec.plugins.serve.openai import CompletionBody, choices, first_given, prompts_of
from localspec.plugins.serve.openai_forms import drafting, likely, paces
from localspec.plugins.serve.thinking import THINKING
from localspec.plugins.serve.token_bias import biases_by_id

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

    text: str
    filename: str = "tmp"


class PromptText(msgspec.Struct, forbid_unknown_fields=True):
    """A text in an object, without pictures."""

    prompt_string: str


_Pieces = list[str | int]
GivenPrompt = str | PromptText | list[str | int | _Pieces | PromptText]


class InfillBody(CompletionBody, kw_only=True):
    """A gap, and how to fill it in. What limits the time of a prompt, and other fields are ignored."""

    unread = THINKING
    input_prefix: str = ""
    input_suffix: str = ""
    input_extra: list[Snippet] = msgspec.field(default_factory=list)
    prompt: str = ""
    n_indent: int = 0
    t_max_predict_ms: float = 0
    n_cmpl: int | None = None
    response_fields: list[str] = msgspec.field(default_factory=list)
    n_probs: int | None = None
    return_tokens: bool = False


class ContinueBody(InfillBody, kw_only=True):
    """A text to go on with as it is, or several, each of them a text, ids, or both in turns."""

    prompt: GivenPrompt = ""  # type: ignore[assignment]  # a gap has a text alone


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
    return await _continued(body, service, [Request(0, (), infill=gap)])


async def completion(request: HttpRequest, service: Service) -> Answers:
    """Go on with texts as they are, as Continue asks for it."""
    body = await body_of(request, ContinueBody)
    service = service.of(body.model)
    prompts = prompts_of([await _ids_or_text(each, service) for each in _each_prompt(body.prompt)])
    return await _continued(body, service, [Request(0, (), raw=each) for each in prompts])


def _each_prompt(given: GivenPrompt) -> Sequence[str | _Pieces | PromptText]:
    """Return each prompt; ids, and texts between them, are one."""
    if not isinstance(given, list):
        return [given]
    if any(isinstance(each, int) for each in given):
        pieces = [each for each in given if isinstance(each, int | str)]
        if len(pieces) < len(given):
            raise UsageError("prompt has ids beside whole prompts: give a list of either")
        return [pieces]
    return [each for each in given if not isinstance(each, int)]


async def _ids_or_text(given: str | _Pieces | PromptText, service: Service) -> str | list[int]:
    """Return a prompt as one text, or as ids."""
    if isinstance(given, PromptText):
        return given.prompt_string
    if isinstance(given, str):
        return given
    ids = list[int]()
    for at, piece in enumerate(given):
        if isinstance(piece, int):
            ids.append(piece)
        else:
            ids += (await service.tokens(Tokenize(0, piece, add_special=at == 0))).tokens
    return ids


async def _continued(body: InfillBody, service: Service, prompts: Sequence[Request]) -> Answers:
    """Return the answers to prompts, as their body says."""
    if body.seed is not None and body.seed < 0:
        body.seed = None
    limit = first_given(body.n_predict, body.max_tokens)
    body.logit_bias = await biases_by_id(body.logit_bias, service)
    options = await reply_options(body, service.options, limit)
    most = logprobs_of("n_probs", body.n_probs or None)
    draft = body.draft(exact=service.exact)
    given = [
        msgspec.structs.replace(each, options=options, most_cached=body.most_cached, logprobs=most)
        for each in prompts
    ]
    form = InfillForm(service, body.response_fields, probs=most is not None, ids=body.return_tokens)
    several = choices(given, body.n_cmpl or body.n or 1, draft)
    return Answers(service, several, form, body.stream, limit == 0)


class InfillForm(AnswerForm):
    """The form of what fills a gap.

    Args:
        service: answers.
        fields: the paths of those that are wanted, as `timings/prompt_n`; without any all are.
        probs: whether there are probabilities of tokens.
        ids: whether there are ids of the answer; of a stream at its end.
    """

    def __init__(
        self, service: Service, fields: Sequence[str], *, probs: bool = False, ids: bool = False
    ) -> None:
        self._service = service
        self._fields = fields
        self._probs = probs
        self._ids = ids

    def pieces(self, at: int, event: Delta | Finished) -> Iterable[Body]:
        """Return a piece of text, or the end; there are no calls."""
        if isinstance(event, Finished):
            yield self._filled(at, event, "")
        elif isinstance(event, Text):
            piece = {"index": at, "content": event.text, "stop": False}
            yield {**piece, **self._likely([event])}

    def whole(self, answers: Sequence[Sequence[Delta]], done: Sequence[Finished]) -> Any:
        """Return the answer, or a list of several."""
        filled = [
            self._filled(at, each, each.reply.text, [x for x in pieces if isinstance(x, Text)])
            for at, (pieces, each) in enumerate(zip(answers, done, strict=True))
        ]
        return filled if len(filled) > 1 else filled[0]

    def _likely(self, texts: Sequence[Text]) -> dict[str, Any]:
        """Return how likely tokens were, by llama-server's name; without ids of them."""
        return {"completion_probabilities": likely(texts)} if self._probs else {}

    def _filled(
        self, at: int, done: Finished, content: str, texts: Sequence[Text] | None = None
    ) -> Body:
        whole = _filled(done, content, at, self._service)
        whole |= {} if texts is None else self._likely(texts)
        whole |= {"tokens": done.reply.tokens} if self._ids else {}
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
    reply, ready = done.reply, service.pool.ready(service.model)
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
        "timings": paces(reply),
        "speculation": drafting(done),
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
