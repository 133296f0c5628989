"""Anthropic's interface: messages, and how many tokens they take.

Source: the API reference of Anthropic, and what its Python client sends and reads.
"""

import json
import secrets
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any

import msgspec
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

from localspec.chat.events import CallBegun, CallDelta, CallDone, Delta, Finished, Reply, Text
from localspec.chat.request import Request
from localspec.decoding.round import StopReason
from localspec.errors import UsageError
from localspec.messages import Message, ToolCall, from_json
from localspec.options import ReplyOptions
from localspec.serve.answering import PromptProgress, Service, collected, streamed, unless_gone
from localspec.serve.http import body_of
from localspec.serve.openai import Own, figures, own_draft
from localspec.serve.reply_options import SamplingFields, reply_options
from localspec.serve.steady import steady
from localspec.serve.tools import anthropic_messages, anthropic_offer, arguments_object

_ENDS = {
    StopReason.LENGTH: "max_tokens",
    StopReason.CONTEXT_FULL: "max_tokens",
    StopReason.LOOP: "max_tokens",
    StopReason.STOP_STRING: "stop_sequence",
    StopReason.TOOL_CALL: "tool_use",
    StopReason.GATED: "refusal",
}


class CountBody(SamplingFields, kw_only=True):
    """What is asked about a conversation."""

    messages: list[Any]
    model: str = ""
    system: str | list[Any] = ""
    tools: Any = None
    tool_choice: Any = None


class OutputConfig(msgspec.Struct):
    """What the answer has to look like."""

    format: dict[str, Any] | None = None


class MessagesBody(CountBody, kw_only=True):
    """What is asked for."""

    max_tokens: int | None = None
    output_config: OutputConfig | None = None
    output_format: dict[str, Any] | None = None
    stream: bool = False
    stop_sequences: list[str] = msgspec.field(default_factory=list)
    localspec: Own = msgspec.field(default_factory=Own)


async def messages(request: HttpRequest, service: Service) -> Response:
    """Answer a conversation."""
    body = await body_of(request, MessagesBody)
    service = service.of(body.model)
    options = await _options(body, service.options)
    offer = anthropic_offer(body.tools, body.tool_choice)
    draft = own_draft(body.localspec, service)
    ask = Request(0, _said(body), options, draft=draft, tools=offer.tools, call_policy=offer.policy)
    reply = service.reply(request, ask, empty=body.max_tokens == 0)
    head = {"id": f"msg_{secrets.token_hex(12)}", "type": "message", "role": "assistant"}
    if body.stream:
        head = {**head, "model": service.name}
        events, check = _events(reply, options, offer.notes), partial(service.check, ask)
        return await streamed(request, events, check, partial(_opening, head))
    ((done, _),) = await collected(request, [reply])
    answer = {
        **head,
        "model": service.name,
        "content": _blocks(done.reply),
        **_ending(done.reply, options),
        "usage": _usage(done.reply),
        **figures([done], offer.notes),
    }
    return JSONResponse(answer)


async def count_tokens(request: HttpRequest, service: Service) -> Response:
    """Say how many tokens a conversation takes."""
    body = await body_of(request, CountBody)
    service = service.of(body.model)
    offer = anthropic_offer(body.tools, body.tool_choice)
    tokens = await unless_gone(request, service.count(_said(body), offer.tools))
    return JSONResponse({"input_tokens": tokens})


async def _events(
    reply: AsyncGenerator[Delta | Finished], options: ReplyOptions, notes: Sequence[str]
) -> AsyncGenerator[str]:
    """Yield the events of a stream: a block of thoughts, where there are some, one of text, and one for each call."""
    block, kind = -1, ""
    async with aclosing(reply):
        async for event in reply:
            if isinstance(event, Finished):
                if block < 0:
                    block = 0
                    yield _event("content_block_start", index=0, content_block=_block("text"))
                yield _event("content_block_stop", index=block)
                ending, told = _ending(event.reply, options), figures([event], notes)
                yield _event("message_delta", delta=ending, usage=_usage(event.reply), **told)
                yield _event("message_stop")
                return
            first, delta = _piece(event)
            if first is not None and first["type"] != kind:
                if block >= 0:
                    yield _event("content_block_stop", index=block)
                block, kind = block + 1, first["type"]
                yield _event("content_block_start", index=block, content_block=first)
            if delta is not None:
                yield _event("content_block_delta", index=block, delta=delta)
            kind = "" if isinstance(event, CallDone) else kind  # the next call is another block


def _opening(head: Mapping[str, Any], progress: PromptProgress) -> str:
    """Return what a stream begins with; the tokens of a prompt that has not begun are not known."""
    usage = {
        "input_tokens": progress.total - progress.cached,
        "cache_read_input_tokens": progress.cached,
        "output_tokens": 0,
    }
    message = {**head, "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
    return _event("message_start", message=message)


def _piece(event: Delta) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """Return the block that an event belongs to, where it may begin one, and what it adds."""
    match event:
        case Text():
            kind = "thinking" if event.thinking else "text"
            return _block(kind), {"type": f"{kind}_delta", kind: event.text}
        case CallBegun():
            return _call(ToolCall(event.id, event.name, "{}")), None
        case CallDelta():
            return None, {"type": "input_json_delta", "partial_json": event.text}
    return None, None


def _event(kind: str, **fields: Any) -> str:
    body = json.dumps({"type": kind, **fields}, separators=(",", ":"))
    return f"event: {kind}\ndata: {body}\n\n"


def _said(body: CountBody) -> tuple[Message, ...]:
    system = [{"role": "system", "content": body.system}] if body.system else []
    said = [*system, *anthropic_messages(body.messages)]
    return steady([from_json(each, f"message {at}") for at, each in enumerate(said, 1)])


async def _options(body: MessagesBody, usual: ReplyOptions) -> ReplyOptions:
    if body.max_tokens is None:
        raise UsageError("max_tokens is missing: give 1 or more, or -1 for no limit")
    form = body.output_format
    if body.output_config is not None:
        form = body.output_config.format or form
    if form:
        form = {"strict": True, **form}
    stop = body.stop_sequences or None
    return await reply_options(
        body, usual, body.max_tokens, stop=stop, response_format=form or None
    )


def _block(kind: str, text: str = "") -> dict[str, Any]:
    return {"type": kind, kind: text, **({"signature": ""} if kind == "thinking" else {})}


def _blocks(reply: Reply) -> list[dict[str, Any]]:
    thoughts = [_block("thinking", reply.thinking)] if reply.thinking else []
    words = [_block("text", reply.text)] if reply.text or not reply.calls else []
    return [*thoughts, *words, *map(_call, reply.calls)]


def _call(call: ToolCall) -> dict[str, Any]:
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": arguments_object(call)}


def _ending(reply: Reply, options: ReplyOptions) -> dict[str, Any]:
    """Return why it ended; which of several stop texts it was is not known."""
    stopped = reply.stop_reason is StopReason.STOP_STRING
    met = options.stop[0] if stopped and len(options.stop) == 1 else None
    return {"stop_reason": _ENDS.get(reply.stop_reason, "end_turn"), "stop_sequence": met}


def _usage(reply: Reply) -> dict[str, int]:
    """Return tokens; what was cached is not counted twice."""
    return {
        "input_tokens": reply.prompt_tokens - reply.cached_tokens,
        "cache_read_input_tokens": reply.cached_tokens,
        "output_tokens": reply.completion_tokens,
    }
