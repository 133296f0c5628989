"""Ollama's interface: chat and generate.

Source: the API reference of Ollama, and what its Python client sends and reads.
"""

import asyncio
import json
import math
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import msgspec
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

from localspec.api import ReplyOptions, Request, UsageError
from localspec.messages import Infill
from localspec.options.option import cut
from localspec.plugins.serve import embeddings
from localspec.plugins.serve.answering import Answers, Service, unless_gone
from localspec.plugins.serve.bodies import body_of, logprobs_of, reply_options
from localspec.plugins.serve.media_parts import conversation, image_part
from localspec.plugins.serve.ollama_form import OllamaForm, ns
from localspec.plugins.serve.ollama_models import known_model
from localspec.plugins.serve.thinking import ThinkingFields
from localspec.plugins.serve.tools import openai_offer

_UNITS_S = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_TIME = re.compile(r"(\d{1,12}(?:\.\d{1,12})?)(ms|[smh]?)")
_WHOLE_CONTEXT = 1 << 30


class OllamaBody(ThinkingFields, kw_only=True):
    """What both requests have; the fields of `options` are read as the body's own."""

    stream: bool = True
    options: dict[str, Any] | None = None
    format: Any = None
    keep_alive: float | str | None = None
    num_predict: int | None = None
    repeat_last_n: int | None = None
    stop: str | list[str] | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None


class OllamaChatBody(OllamaBody, kw_only=True):
    """A conversation to answer; without messages the model is loaded, or let go."""

    messages: list[Any] = msgspec.field(default_factory=list)
    tools: Any = None
    truncate: bool = False


class GenerateBody(OllamaBody, kw_only=True):
    """A text to answer, to go on with, or with a gap; without any the model is loaded, or let go."""

    prompt: str = ""
    suffix: str = ""
    system: str = ""
    raw: bool = False
    images: list[Any] = msgspec.field(default_factory=list)


class EmbedBody(msgspec.Struct):
    """Texts to make vectors of; of the older path `prompt` is the one."""

    model: str = ""
    input: str | list[str] = ""
    prompt: str = ""
    truncate: bool = True
    dimensions: int | None = None
    keep_alive: float | str | None = None


async def chat(request: HttpRequest, service: Service) -> Answers | Response:
    """Answer a conversation."""
    body = await body_of(request, OllamaChatBody, "options", media=True)
    if not body.messages:
        return await _resident(request, body, service, chat=True)
    service = _service(body, service)
    offer = openai_offer(body.tools, None, None)
    prompt = Request(
        0,
        conversation(_messages(body.messages), service.folder),
        drop_oldest=body.truncate,
        tools=offer.tools,
        call_policy=offer.policy,
    )
    return await _answers(service, body, prompt, chat=True, notes=offer.notes)


async def generate(request: HttpRequest, service: Service) -> Answers | Response:
    """Answer a text by the template of the model, go on with it as it is, or fill the gap behind it."""
    body = await body_of(request, GenerateBody, "options", media=True)
    if not (body.prompt or body.suffix or body.images):
        return await _resident(request, body, service, chat=False)
    service = _service(body, service)
    if body.raw and body.system:
        raise UsageError("raw and system are given: a raw prompt has its system prompt in it")
    if (body.raw or body.suffix) and body.think_wanted() not in (None, "off"):
        raise UsageError("think needs a chat template: leave it out with raw or suffix")
    if body.images and (body.raw or body.suffix):
        raise UsageError(
            "images are given, and no template is used that has a place for them: leave them out"
        )
    if body.suffix:
        prompt = Request(0, infill=Infill(body.prompt, body.suffix))
    elif body.raw:
        prompt = Request(0, raw=body.prompt)
    else:
        system = [{"role": "system", "content": body.system}] if body.system else []
        content = _with_images(body.prompt, body.images)
        messages = [*system, {"role": "user", "content": content}]
        prompt = Request(0, conversation(messages, service.folder, "the prompt"))
    return await _answers(service, body, prompt, chat=False)


async def embed(request: HttpRequest, service: Service) -> Response:
    """Return a vector of each text, or by the older path that of one."""
    body, since_s = await body_of(request, EmbedBody), time.monotonic()
    older = request.url.path == "/api/embeddings"
    texts = body.prompt if older else body.input
    service = replace(service, keep_alive_s=_seconds(body.keep_alive))
    if not texts:  # which Ollama has a model loaded by
        model = await asyncio.to_thread(service.catalogue.embedder, body.model)
        nothing: dict[str, Any] = {"embedding": []} if older else {"embeddings": []}
        return JSONResponse({"model": body.model or model.name, **nothing})
    done = await unless_gone(
        request,
        embeddings.embed(
            service,
            body.model,
            [texts] if isinstance(texts, str) else texts,
            dimensions=body.dimensions,
            cut=body.truncate,
        ),
    )
    rows = await asyncio.to_thread(done.rows.tolist)
    if older:
        return JSONResponse({"embedding": rows[0]})
    figures = {"total_duration": ns(time.monotonic() - since_s), "prompt_eval_count": done.tokens}
    return JSONResponse({"model": done.model, "embeddings": rows, **figures})


def _service(body: OllamaBody, service: Service) -> Service:
    """Return the service of the model that a body names, with its `keep_alive`."""
    return replace(service.of(body.model), keep_alive_s=_seconds(body.keep_alive))


async def _resident(
    request: HttpRequest, body: OllamaBody, service: Service, *, chat: bool
) -> Response:
    """Load a model, or unload it where `keep_alive` is 0; return an answer without a word."""
    model = known_model(service, body.model)
    service = replace(service, model=model, keep_alive_s=_seconds(body.keep_alive))
    form = OllamaForm(service.name, chat=chat)
    if service.keep_alive_s == 0:
        for each in list(service.pool.entries):
            if each.model.name == model.name:  # what makes its vectors, too
                service.pool.set_keep_alive(each.model, 0)
        return JSONResponse(form.empty("unload"))

    async def load() -> None:
        async with service.use():
            pass

    await unless_gone(request, load())
    return JSONResponse(form.empty("load"))


async def _answers(
    service: Service, body: OllamaBody, prompt: Request, *, chat: bool, notes: Sequence[str] = ()
) -> Answers:
    """Return the answer to a prompt, which lacks what both bodies have."""
    if body.top_logprobs and not body.logprobs:
        raise UsageError("top_logprobs is given without logprobs: set logprobs to true, too")
    most = logprobs_of("top_logprobs", (body.top_logprobs or 0) if body.logprobs else None)
    options = await _options(body, service.options)
    draft = body.draft(exact=service.exact)
    prompt = msgspec.structs.replace(
        prompt, options=options, most_cached=body.most_cached, logprobs=most, draft=draft
    )
    form = OllamaForm(service.name, chat=chat, logprobs=most is not None, notes=notes)
    return Answers(service, [prompt], form, body.stream, body.num_predict == 0)


async def _options(body: OllamaBody, usual: ReplyOptions) -> ReplyOptions:
    """Return how to answer."""
    last = body.repeat_last_n
    body.seed = None if body.seed is not None and body.seed < 0 else body.seed
    return await reply_options(
        body,
        usual,
        body.num_predict,
        penalty_last_n=_WHOLE_CONTEXT if last is not None and last < 0 else last,
        response_format=_form(body.format),
        **body.template_wanted(),
    )


def _form(wanted: Any) -> dict[str, Any] | None:
    """Return what OpenAI's interface calls a format: any JSON, or a schema, which need not hold to the letter."""
    if wanted in (None, ""):
        return None
    if wanted == "json":
        return {"type": "json_object"}
    if isinstance(wanted, dict):
        return {"type": "json_schema", "json_schema": {"schema": wanted}}
    given = cut(wanted) if isinstance(wanted, str) else "no schema"
    raise UsageError(f"format is {given}: write json, or a schema")


def _seconds(keep_alive: float | str | None) -> float | None:
    """Return how many seconds a time such as `5m`, `1h30m` or 300 is; less than none is infinity.

    Raises:
        UsageError: it is no time.
    """
    if isinstance(keep_alive, str):
        text = keep_alive.removeprefix("-")
        parts = _TIME.findall(text)
        if not text or "".join(number + unit for number, unit in parts) != text:
            raise UsageError(
                f"keep_alive is {cut(keep_alive)}: write seconds, a time such as 5m or 1h30m, 0, or -1 for no end"
            )
        seconds = sum(float(number) * _UNITS_S[str(unit)] for number, unit in parts)
        keep_alive = seconds if text == keep_alive else -seconds
    return math.inf if keep_alive is not None and keep_alive < 0 else keep_alive


def _messages(given: Sequence[Any]) -> Iterator[Any]:
    """Yield messages in OpenAI's form: calls need no id in Ollama's, nor do results, which name their function, if anything."""
    waiting = list[tuple[str, str]]()  # ids and names of the calls without a result
    for at, each in enumerate(given, 1):
        if not isinstance(each, dict):
            yield each
            continue
        role = each.get("role")
        message = {**each, "role": role.lower() if isinstance(role, str) else role}
        if images := each.get("images"):
            message["content"] = _with_images(each.get("content"), images)
        message["reasoning_content"] = each.get("thinking")
        if message["role"] == "tool":
            message["tool_call_id"] = _answered(each, waiting) or f"call_{at}"
        elif isinstance(calls := each.get("tool_calls"), list):
            calls = [_call(call, f"call_{at}_{number}") for number, call in enumerate(calls)]
            waiting += [(call["id"], call["function"].get("name")) for call in calls]
            message["tool_calls"] = calls
        yield message


def _with_images(text: Any, images: Any) -> Any:
    """Return a content in OpenAI's form: pictures and sounds, and the text behind them."""
    if not images:
        return text
    if not isinstance(images, list):
        raise UsageError("images is no list: write a list of texts in base64")
    return [*map(image_part, images), *([{"type": "text", "text": text}] if text else [])]


def _call(call: Any, name: str) -> dict[str, Any]:
    """Return a call in OpenAI's form.

    Args:
        call: in Ollama's.
        name: its id, where it has none.
    """
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        raise UsageError("a call has no function: write its name and arguments")
    arguments = function.get("arguments")
    if not isinstance(arguments, str):
        try:
            arguments = json.dumps(arguments or {}, ensure_ascii=False)
        except RecursionError:
            raise UsageError(
                "the arguments of a call are nested too deeply: send flatter ones"
            ) from None
    return {"id": call.get("id") or name, "function": {**function, "arguments": arguments}}


def _answered(result: dict[str, Any], waiting: list[tuple[str, str]]) -> Any:
    """Return the id of the call that a result answers, which waits no more: by that id, by its function, or the first."""
    given, name = result.get("tool_call_id"), result.get("tool_name") or result.get("name")
    named = [each for each in waiting if given in each or (not given and name in each)]
    call = next(iter(named or ([] if given else waiting)), None)
    if call is None:
        return given
    waiting.remove(call)
    return call[0]
