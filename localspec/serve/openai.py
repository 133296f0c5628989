"""OpenAI's interface: chat completions, completions, and the list of models.

Source: the API reference of OpenAI, and what its Python client sends and reads.
"""

import asyncio
import json
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

from localspec import __version__
from localspec.chat.events import CallDone, Delta, Finished, Reply
from localspec.chat.reply_figures import timings
from localspec.chat.request import Request
from localspec.decoding.round import StopReason
from localspec.errors import UsageError
from localspec.messages import Infill, from_json
from localspec.options import ReplyOptions
from localspec.serve.answering import Service, collected, drafting, merged, streamed
from localspec.serve.http import body_of
from localspec.serve.openai_forms import ChatForm, TextForm
from localspec.serve.reply_options import SamplingFields, reply_options
from localspec.serve.steady import steady
from localspec.serve.tools import openai_offer

_MOST_CHOICES = 16
_MOST_LOGPROBS = 20
CUT = {StopReason.LENGTH, StopReason.CONTEXT_FULL, StopReason.LOOP}
"""Why an answer may end before its end."""


class StreamOptions(msgspec.Struct):
    """What a stream tells beside the text."""

    include_usage: bool | None = None


class Own(msgspec.Struct):
    """What only localspec knows."""

    draft: str | None = None
    exact: bool | None = None


class CompletionBody(SamplingFields):
    """What both kinds of completions take. What is not named here is ignored, but for what would change the answer."""

    model: str = ""
    stream: bool = False
    stream_options: StreamOptions | None = None
    max_tokens: int | None = None
    n_predict: int | None = None
    n: int | None = None
    stop: str | list[str] | None = None
    logit_bias: dict[str, float] | None = None
    grammar: str | None = None
    json_schema: dict[str, Any] | bool | None = None
    localspec: Own = msgspec.field(default_factory=Own)


class ChatBody(CompletionBody):
    """A chat completion's body."""

    messages: list[Any] = msgspec.field(default_factory=list)
    max_completion_tokens: int | None = None
    response_format: dict[str, Any] | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    tools: Any = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    functions: Any = None
    function_call: Any = None


class TextBody(CompletionBody):
    """A completion's body."""

    prompt: str | list[str] = ""
    suffix: str | None = None
    logprobs: int | None = None


async def models(_: HttpRequest, service: Service) -> Response:
    """List what may be named in a request, what is loaded before the others."""
    names = await asyncio.to_thread(service.catalogue.listed)
    listed = [_model(name, service.since) for name in dict.fromkeys([service.loaded.name, *names])]
    return JSONResponse({"object": "list", "data": listed})


async def model(request: HttpRequest, service: Service) -> Response:
    """Describe one of them."""
    name = request.path_params["name"]
    await asyncio.to_thread(service.catalogue.find, name)
    return JSONResponse(_model(name, service.since))


def _model(name: str, since: int) -> dict[str, Any]:
    """Return a model as OpenAI's clients and Anthropic's read it."""
    openai = {"id": name, "object": "model", "created": since, "owned_by": "localspec"}
    when = datetime.fromtimestamp(since, UTC).isoformat()
    return {**openai, "type": "model", "display_name": name, "created_at": when}


async def chat_completions(request: HttpRequest, service: Service) -> Response:
    """Answer a conversation."""
    body = await body_of(request, ChatBody)
    service = service.of(body.model)
    if body.functions or body.function_call:
        raise UsageError(
            "functions and function_call are what tools and tool_choice have replaced: send those"
        )
    offer = openai_offer(body.tools, body.tool_choice, body.parallel_tool_calls)
    messages = steady(
        [from_json(each, f"message {at}") for at, each in enumerate(body.messages, 1)]
    )
    limit = first_given(body.max_completion_tokens, body.max_tokens, body.n_predict)
    options = await reply_options(body, service.options, limit)
    if body.top_logprobs and not body.logprobs:
        raise UsageError("top_logprobs is given without logprobs: set logprobs to true, too")
    most = logprobs_asked("top_logprobs", (body.top_logprobs or 0) if body.logprobs else None)
    ask = Request(0, messages, options, logprobs=most, tools=offer.tools, call_policy=offer.policy)
    form = ChatForm(service.name, most is not None, offer.notes)
    return await _answered(request, service, body, [ask], form, empty=limit == 0)


async def completions(request: HttpRequest, service: Service) -> Response:
    """Go on with a text as it is."""
    body = await body_of(request, TextBody)
    service = service.of(body.model)
    texts = [body.prompt] if isinstance(body.prompt, str) else body.prompt
    limit = first_given(body.max_tokens, body.n_predict, 16)
    options = await reply_options(body, service.options, limit)
    most = logprobs_asked("logprobs", body.logprobs)
    gap = body.suffix
    asked = [
        Request(0, (), options, raw=each, logprobs=most)
        if gap is None
        else Request(0, (), options, infill=Infill(each, gap), logprobs=most)
        for each in texts
    ]
    form = TextForm(service.name, most is not None)
    return await _answered(request, service, body, asked, form, empty=limit == 0)


async def _answered(
    request: HttpRequest,
    service: Service,
    body: CompletionBody,
    prompts: list[Request],
    form: ChatForm | TextForm,
    *,
    empty: bool,
) -> Response:
    asked = choices(prompts, body.n or 1, own_draft(body.localspec, service))
    head = {
        "id": f"{form.prefix}-{secrets.token_hex(12)}",
        "created": int(time.time()),
        "model": form.model,
        "system_fingerprint": f"localspec-{__version__}",
    }
    replies = [service.reply(request, each, empty=empty) for each in asked]
    if body.stream:
        counted = body.stream_options is not None and bool(body.stream_options.include_usage)
        line = _line(head, form, counted=counted)
        beginning = form.opening()
        opening = "".join(
            line([{"index": at, **beginning, "finish_reason": None}])
            for at in range(len(replies))
            if beginning is not None
        )
        chunks = _chunks(replies, line, form, counted=counted)
        check = partial(check_all, service, prompts)
        return await streamed(request, chunks, check, lambda _: opening, "data: [DONE]\n\n")
    whole = await collected(request, replies)
    done = [each for each, _ in whole]
    answer: dict[str, Any] = {
        **head,
        "object": form.whole,
        "choices": [
            {"index": at, **form.choice(each.reply, texts), "finish_reason": _finish(each.reply)}
            for at, (each, texts) in enumerate(whole)
        ],
        "usage": _usage([each.reply for each in done]),
        **figures(done, form.notes),
    }
    return JSONResponse(answer)


def choices(prompts: Sequence[Request], each: int, draft: str | None) -> list[Request]:
    """Return what is asked for so many answers to each prompt.

    Raises:
        UsageError: they are too many, or none.
    """
    if not prompts or not 1 <= each * len(prompts) <= _MOST_CHOICES:
        raise UsageError(f"{each * len(prompts)} answers requested: request 1 to {_MOST_CHOICES}")
    return [
        msgspec.structs.replace(prompt, options=_numbered(prompt.options, number), draft=draft)
        for prompt in prompts
        for number in range(each)
    ]


async def check_all(service: Service, prompts: Sequence[Request]) -> None:
    """Find out what is wrong with prompts that wait, see `Service.check`."""
    for each in prompts:
        await service.check(each)


def _line(
    head: Mapping[str, Any], form: ChatForm | TextForm, *, counted: bool
) -> Callable[..., str]:
    """Return what makes the events of a stream."""

    def line(choices: list[dict[str, Any]], **more: Any) -> str:
        usage = {"usage": None} if counted else {}
        value = {**head, "object": form.chunk, "choices": choices, **usage, **more}
        return f"data: {json.dumps(value, separators=(',', ':'))}\n\n"

    return line


async def _chunks(
    replies: list[AsyncGenerator[Delta | Finished]],
    line: Callable[..., str],
    form: ChatForm | TextForm,
    *,
    counted: bool,
) -> AsyncGenerator[str]:
    """Yield the events of a stream; of several answers as they come."""
    done: list[Finished] = []
    async for at, event in merged(replies):
        if isinstance(event, Finished):
            done.append(event)
            last = {"index": at, **form.piece(at, None), "finish_reason": _finish(event.reply)}
            yield line([last], **(figures([event], form.notes) if len(replies) == 1 else {}))
        elif not isinstance(event, CallDone):
            yield line([{"index": at, **form.piece(at, event), "finish_reason": None}])
    if counted:
        yield line([], usage=_usage([each.reply for each in done]))


def first_given(*limits: int | None) -> int | None:
    """Return the first that is given."""
    return next((each for each in limits if each is not None), None)


def logprobs_asked(name: str, most: int | None) -> int | None:
    """Return how many of the likeliest tokens are asked for; None where no logprobs are."""
    if most is not None and not 0 <= most <= _MOST_LOGPROBS:
        raise UsageError(f"{name} is {most}: give 0 to {_MOST_LOGPROBS}")
    return most


def own_draft(own: Own, service: Service) -> str | None:
    """Return what is to draft for a request; None takes what the server was started with.

    Raises:
        UsageError: `exact` is not as the server was started.
    """
    if own.exact is not None and own.exact != service.backend.exact:
        started = "with" if service.backend.exact else "without"
        raise UsageError(
            f"localspec.exact is {str(own.exact).lower()}, and this server was started {started} --exact, "
            "which holds for all requests: leave it out, or start another server"
        )
    return None if own.draft == "auto" else own.draft


def _numbered(options: ReplyOptions, number: int) -> ReplyOptions:
    """Return the options of one of several answers: each has a seed of its own."""
    if number == 0 or options.seed is None:
        return options
    return replace(options, seed=options.seed + number)


def _finish(reply: Reply) -> str:
    if reply.stop_reason is StopReason.TOOL_CALL:
        return "tool_calls"
    if reply.stop_reason is StopReason.GATED:
        return "content_filter"
    return "length" if reply.stop_reason in CUT else "stop"


def _usage(replies: list[Reply]) -> dict[str, Any]:
    prompt, completion = (
        sum(each.prompt_tokens for each in replies),
        sum(each.completion_tokens for each in replies),
    )
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": sum(each.cached_tokens for each in replies)},
    }


def figures(done: list[Finished], notes: Sequence[str] = ()) -> dict[str, Any]:
    """Return what only localspec tells: seed, where the time went, and how drafting went; of several answers, of the first."""
    first = done[0]
    own = {"seed": first.reply.seed, "stop_reason": first.reply.stop_reason.value}
    return {
        "localspec": {**own, **({"notes": list(notes)} if notes else {})},
        "timings": timings(first.reply),
        "speculation": drafting(first),
    }
