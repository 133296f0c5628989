"""OpenAI's interface: chat completions, completions, and the list of models.

Source: the API reference of OpenAI, and what its Python client sends and reads.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

from localspec.api import ReplyOptions, Request, UsageError
from localspec.errors import ModelFileError
from localspec.messages import Infill
from localspec.models.gguf import read_model
from localspec.models.tokenizer import vocabulary_of
from localspec.options import cut
from localspec.options.fields import with_fields
from localspec.plugins.serve.answering import Answers, Service, unless_gone
from localspec.plugins.serve.bodies import body_of, logprobs_of, reply_options
from localspec.plugins.serve.catalogue import target_of
from localspec.plugins.serve.http import NotFound
from localspec.plugins.serve.media_parts import conversation
from localspec.plugins.serve.ollama_models import file_of, known_model
from localspec.plugins.serve.openai_forms import ChatForm, CompletionForm, TextForm
from localspec.plugins.serve.thinking import THINKING, ThinkingFields
from localspec.plugins.serve.token_bias import GivenBiases, biases_by_id
from localspec.plugins.serve.tools import openai_offer

_MOST_CHOICES = 16
_MEDIA = {"vision": "image", "audio": "audio"}
"""What a model takes, in Ollama's words and in llama-server's."""
_MOST_IDS = 1 << 31


class StreamOptions(msgspec.Struct):
    """What a stream has beside the text."""

    include_usage: bool | None = None


class PredictedText(msgspec.Struct, tag="text"):
    """A part of such a text."""

    text: str


class Prediction(msgspec.Struct, tag="content"):
    """A text that the answer is expected to be like."""

    content: str | list[PredictedText]

    @property
    def text(self) -> str:
        """All of it."""
        if isinstance(self.content, str):
            return self.content
        return "".join(each.text for each in self.content)


class CompletionBody(ThinkingFields, kw_only=True):
    """The body of both kinds of completions; `samplers`, which editors send, are ignored."""

    stream_options: StreamOptions = msgspec.field(default_factory=StreamOptions)
    max_tokens: int | None = None
    n_predict: int | None = None
    n: int | None = None
    stop: str | list[str] | None = None
    logit_bias: GivenBiases | None = None
    grammar: str | None = None
    json_schema: dict[str, Any] | bool | None = None
    samplers: Any = None


class ChatBody(CompletionBody, kw_only=True):
    """A chat completion's body."""

    messages: list[Any] = msgspec.field(default_factory=list)
    max_completion_tokens: int | None = None
    response_format: dict[str, Any] | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    tools: Any = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    prediction: Prediction | None = None
    functions: Any = None
    function_call: Any = None
    continue_final_message: bool = False
    add_generation_prompt: bool | None = None


class TextBody(CompletionBody, kw_only=True):
    """A completion's body."""

    unread = THINKING
    prompt: str | list[str | int | list[int]] = ""
    suffix: str | None = None
    echo: bool = False
    logprobs: int | None = None


async def models(_: HttpRequest, service: Service) -> Response:
    """List what may be named in a request, what is loaded before the others."""
    names = await asyncio.to_thread(service.catalogue.listed)
    states = service.states
    every = dict.fromkeys([*names, *states])
    listed = sorted(every, key=lambda name: states.get(str(name)) != "loaded")

    def described() -> list[dict[str, Any]]:
        return [_model(each, service, states.get(each)) for each in listed]

    return JSONResponse({"object": "list", "data": await asyncio.to_thread(described)})


async def model(request: HttpRequest, service: Service) -> Response:
    """Describe one of them."""
    name = request.path_params["name"]
    try:
        known = (await asyncio.to_thread(service.catalogue.find, name)).name
    except NotFound:
        if name not in await asyncio.to_thread(service.catalogue.listed):
            raise
        known = name
    state = service.states.get(known)
    described = await asyncio.to_thread(_model, name, service, state, unread=False)
    return JSONResponse(described)


def _model(
    name: str, service: Service, state: str | None, *, unread: bool = True
) -> dict[str, Any]:
    """Return a model as OpenAI's clients and Anthropic's read it; its state and its context as llama-server has them.

    Args:
        name: of it.
        service: which has it.
        state: see `Service.states`.
        unread: whether the file of a model that is not loaded is left so, as in a list of many.
    """
    since = service.since
    openai = {"id": name, "object": "model", "created": since, "owned_by": "localspec"}
    when = datetime.fromtimestamp(since, UTC).isoformat()
    status = (
        {"value": "unloaded", "failed": True} if state == "lost" else {"value": state or "unloaded"}
    )
    anthropic = {"type": "model", "display_name": name, "created_at": when}
    named = (each for each in service.catalogue.models if name in (each.name, *each.names))
    ready = next(filter(None, map(service.pool.ready, named)), None)
    meta: dict[str, Any] = {} if ready is None else {"n_ctx": ready.n_ctx}
    does: dict[str, Any] = {}
    with suppress(NotFound):  # it was removed just now
        known = known_model(service, name)
        able = service.capabilities(known)
        takes = ["text", *(kind for word, kind in _MEDIA.items() if word in able)]
        does = {"capabilities": able, "architecture": {"input_modalities": takes}}
        file = file_of(target_of(known)) if ready or not unread else None
        if file is not None and not known.embeds:
            with suppress(ModelFileError, OSError):  # a damaged one is known all the same
                meta["vocabulary"] = _vocabulary(file, file.stat().st_mtime_ns)
    return {**openai, **anthropic, "status": status, **({"meta": meta} if meta else {}), **does}


@lru_cache(32)
def _vocabulary(path: Path, _changed_ns: int) -> str:
    return vocabulary_of(read_model(path).tokenizer)


async def chat_completions(request: HttpRequest, service: Service) -> Answers:
    """Answer a conversation."""
    body = await body_of(request, ChatBody, media=True)
    service = service.of(body.model)
    if body.functions or body.function_call:
        raise UsageError("functions and function_call are deprecated: use tools and tool_choice")
    offer = openai_offer(body.tools, body.tool_choice, body.parallel_tool_calls)
    limit = first_given(body.max_completion_tokens, body.max_tokens, body.n_predict)
    messages = conversation(body.messages, service.folder)
    if body.continue_final_message and body.add_generation_prompt:
        raise UsageError(
            "continue_final_message and add_generation_prompt are true: a message goes on, or one begins: choose one"
        )
    if body.continue_final_message and not (messages and messages[-1].role == "assistant"):
        raise UsageError(
            "continue_final_message is true, and the last message is not the assistant's: leave it out"
        )
    body.logit_bias = await biases_by_id(body.logit_bias, service)
    options = await reply_options(body, service.options, limit, **body.template_wanted())
    if body.top_logprobs and not body.logprobs:
        raise UsageError("top_logprobs is given without logprobs: set logprobs to true, too")
    most = logprobs_of("top_logprobs", (body.top_logprobs or 0) if body.logprobs else None)
    prompt = Request(
        0,
        messages,
        options,
        most_cached=body.most_cached,
        logprobs=most,
        tools=offer.tools,
        call_policy=offer.policy,
        prediction="" if body.prediction is None else body.prediction.text,
    )
    return _answers(service, body, [prompt], ChatForm, limit, offer.notes)


async def count_chat(request: HttpRequest, service: Service) -> Response:
    """Return how many tokens a conversation takes."""
    body = await body_of(request, ChatBody, media=True)
    service = service.of(body.model)
    offer = openai_offer(body.tools, body.tool_choice, body.parallel_tool_calls)
    options = with_fields(service.options, body.template_wanted())
    messages = conversation(body.messages, service.folder)
    tokens = await unless_gone(request, service.count(request, messages, offer.tools, options))
    return JSONResponse({"input_tokens": tokens})


async def completions(request: HttpRequest, service: Service) -> Answers:
    """Go on with a text as it is."""
    body = await body_of(request, TextBody)
    service = service.of(body.model)
    prompts = prompts_of(body.prompt)
    if body.suffix is not None and (
        body.echo or not all(isinstance(each, str) for each in prompts)
    ):
        raise UsageError("suffix takes a prompt that is a text, without echo: leave it out")
    limit = first_given(body.max_tokens, body.n_predict, 16)
    body.logit_bias = await biases_by_id(body.logit_bias, service)
    options = await reply_options(body, service.options, limit)
    most = logprobs_of("logprobs", body.logprobs)
    # Logprobs of a prompt are those of all its tokens: none can be left out because it was evaluated before.
    keep = 0 if body.echo and most is not None else body.most_cached
    prompt = Request(0, (), options, most_cached=keep, logprobs=most, echo=body.echo)
    requests = [
        msgspec.structs.replace(prompt, raw=each)
        if body.suffix is None
        else msgspec.structs.replace(prompt, infill=Infill(str(each), body.suffix))
        for each in prompts
    ]
    return _answers(service, body, requests, TextForm, limit)


def prompts_of(given: str | list[str | int | list[int]]) -> list[str | tuple[int, ...]]:
    """Return texts, or ids of them.

    Raises:
        UsageError: a list has both, or a number that is no id.
    """
    if isinstance(given, str):
        return [given]
    if given and all(isinstance(each, int) for each in given):
        given = [given]  # type: ignore[list-item]  # of ids
    prompts = list[str | tuple[int, ...]]()
    for each in given:
        if isinstance(each, int):
            raise UsageError(
                "prompt has ids beside texts: give a text, its ids, or a list of either"
            )
        wrong = () if isinstance(each, str) else [id_ for id_ in each if not 0 <= id_ < _MOST_IDS]
        if wrong:
            raise UsageError(f"prompt has the id {cut(wrong[0])}: none has more than 31 bits")
        prompts.append(each if isinstance(each, str) else tuple(each))
    return prompts


def _answers(
    service: Service,
    body: CompletionBody,
    prompts: Sequence[Request],
    form: type[CompletionForm],
    limit: int | None,
    notes: Sequence[str] = (),
) -> Answers:
    draft = body.draft(exact=service.exact)
    several = choices(prompts, body.n or 1, draft)
    if body.localspec.drafts:
        if len(several) > 1:
            raise UsageError(f"localspec.drafts is given for {len(several)} answers: request one")
        several = [msgspec.structs.replace(several[0], drafts=body.localspec.drafts)]
    made = form(
        service.name,
        logprobs=prompts[0].logprobs is not None,
        count=len(several),
        each=len(several) // len(prompts),
        counted=bool(body.stream_options.include_usage),
        notes=notes,
    )
    return Answers(service, several, made, body.stream, limit == 0)


def choices(prompts: Sequence[Request], each: int, draft: str | None) -> list[Request]:
    """Return the prompts for so many answers to each.

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


def first_given(*limits: int | None) -> int | None:
    """Return the first that is given."""
    return next((each for each in limits if each is not None), None)


def _numbered(options: ReplyOptions, number: int) -> ReplyOptions:
    """Return the options of one of several answers: each has a seed of its own."""
    if number == 0 or options.seed is None:
        return options
    return replace(options, seed=options.seed + number)
