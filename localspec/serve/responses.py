"""OpenAI's responses, without a memory: every request holds the whole conversation, and nothing is stored.

Source: the API reference of OpenAI, and what its Python client sends and reads.
"""

import json
import secrets
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from functools import partial
from itertools import count
from typing import Any

import msgspec
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

from localspec.calls import Tool
from localspec.chat.events import CallBegun, CallDelta, CallDone, Delta, Finished, Reply, Text
from localspec.chat.request import Request
from localspec.decoding.round import StopReason
from localspec.errors import UsageError
from localspec.messages import Message, ToolCall, from_json
from localspec.options import ReplyOptions
from localspec.serve.answering import Service, collected, streamed
from localspec.serve.http import body_of
from localspec.serve.openai import (
    CUT,
    Own,
    figures,
    logprobs_asked,
    own_draft,
)
from localspec.serve.openai_forms import likely
from localspec.serve.reply_options import SamplingFields, reply_options
from localspec.serve.steady import steady
from localspec.serve.tools import ToolOffer, openai_offer, result_text

_LOGPROBS = "message.output_text.logprobs"
_PARTS = {"input_text": "text", "output_text": "text"}


class TextSettings(msgspec.Struct):
    """What the text has to look like."""

    format: dict[str, Any] | None = None


class ResponsesBody(SamplingFields, kw_only=True):
    """What is asked for. What is not named here is ignored, but for what would change the answer."""

    input: str | list[Any]
    model: str = ""
    instructions: str | None = None
    max_output_tokens: int | None = None
    text: TextSettings = msgspec.field(default_factory=TextSettings)
    stream: bool | None = None
    include: list[str] | None = None
    top_logprobs: int | None = None
    metadata: dict[str, Any] | None = None
    previous_response_id: Any = None
    conversation: Any = None
    prompt: Any = None
    tools: Any = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    localspec: Own = msgspec.field(default_factory=Own)


async def responses(request: HttpRequest, service: Service) -> Response:
    """Answer a conversation."""
    body = await body_of(request, ResponsesBody)
    service = service.of(body.model)
    if body.previous_response_id is not None or body.conversation is not None:
        raise UsageError("nothing is stored here: send the whole conversation as input")
    if body.prompt:
        raise UsageError("prompt is not supported by this server: send the text as input")
    offer = openai_offer(body.tools, body.tool_choice, body.parallel_tool_calls)
    wanted = _LOGPROBS in (body.include or ()) or body.top_logprobs
    most = logprobs_asked("top_logprobs", (body.top_logprobs or 0) if wanted else None)
    draft = own_draft(body.localspec, service)
    limit, form = body.max_output_tokens, body.text.format
    options = await reply_options(body, service.options, limit, response_format=form)
    ask = Request(
        0, steady(_messages(body)), options, draft=draft, logprobs=most, tools=offer.tools
    )
    ask = msgspec.structs.replace(ask, call_policy=offer.policy)
    shell = _shell(body, options, service.name, offer)
    reply = service.reply(request, ask, empty=body.max_output_tokens == 0)
    if body.stream:
        numbers = count()
        opening = _event(numbers, "response.created", {"response": shell})
        opening += _event(numbers, "response.in_progress", {"response": shell})
        events, check = _events(reply, shell, offer.notes, numbers), partial(service.check, ask)
        return await streamed(request, events, check, lambda _: opening)
    ((done, texts),) = await collected(request, [reply])
    told = done.reply
    thoughts = [_reasoning(_id("rs"), told.thinking)] if told.thinking else []
    answer = _message(_id("msg"), told.text, _status(told), likely(texts))
    words = [answer] if told.text or not told.calls else []
    calls = [_function_call(_id("fc"), each) for each in told.calls]
    return JSONResponse(_ended(shell, done, [*thoughts, *words, *calls], offer.notes))


async def _events(
    reply: AsyncGenerator[Delta | Finished],
    shell: dict[str, Any],
    notes: Sequence[str],
    numbers: Iterator[int],
) -> AsyncGenerator[str]:
    """Yield the events of a stream: an item of thoughts, where there are some, one of text, and one for each call."""
    begun: _Item | _Call | None = None
    items: list[dict[str, Any]] = []

    def event(kind: str, fields: dict[str, Any]) -> str:
        if kind == "response.output_item.done":
            items.append(fields["item"])
        return _event(numbers, kind, fields)

    async with aclosing(reply):
        async for each in reply:
            following = _following(begun, each, len(items) + (begun is not None))
            if following is not begun:
                ending = begun.ending("completed") if begun else []
                for told in [*ending, *following.beginning()]:
                    yield event(*told)
                begun = following
            if isinstance(each, Finished):
                for told in begun.ending(_status(each.reply)):
                    yield event(*told)
                ended = _ended(shell, each, items, notes)
                yield event(f"response.{ended['status']}", {"response": ended})
                return
            if not isinstance(each, CallBegun | CallDone):
                yield event(*begun.delta(each))


def _event(numbers: Iterator[int], kind: str, fields: dict[str, Any]) -> str:
    body = {"type": kind, "sequence_number": next(numbers), **fields}
    return f"event: {kind}\ndata: {json.dumps(body, separators=(',', ':'))}\n\n"


def _following(
    begun: "_Item | _Call | None", told: Delta | Finished, index: int
) -> "_Item | _Call":
    """Return the item that an event belongs to: another one, or the one that has begun. An answer without a word is one, too."""
    if isinstance(told, CallBegun):
        return _Call(told, index)
    thinking = isinstance(told, Text) and told.thinking
    if begun is None or (isinstance(begun, _Item) and begun.thinking != thinking):
        return _Item(thinking, index)
    if isinstance(told, Text) and isinstance(begun, _Call):
        return _Item(thinking, index)
    return begun


class _Item:
    """An item of a stream, and its events.

    Args:
        thinking: whether it is thoughts.
        index: its place in the output.
    """

    def __init__(self, thinking: bool, index: int) -> None:
        self.thinking = thinking
        self._id = _id("rs" if thinking else "msg")
        self._at = {"item_id": self._id, "output_index": index, "content_index": 0}
        self._index = index
        self._texts: list[Text] = []
        self._kind = "response.reasoning_text" if thinking else "response.output_text"

    def beginning(self) -> list[tuple[str, dict[str, Any]]]:
        item = self._whole("in_progress")
        item["content"] = []
        added = ("response.output_item.added", {"output_index": self._index, "item": item})
        if self.thinking:
            return [added]
        return [added, ("response.content_part.added", {**self._at, "part": _part("", [])})]

    def delta(self, text: Delta) -> tuple[str, dict[str, Any]]:
        assert isinstance(text, Text), "it has begun with one"  # noqa: S101
        self._texts.append(text)
        told = {} if self.thinking else {"logprobs": likely([text])}
        return f"{self._kind}.delta", {**self._at, "delta": text.text, **told}

    def ending(self, status: str) -> list[tuple[str, dict[str, Any]]]:
        item = self._whole(status)
        text = "".join(each.text for each in self._texts)
        done = ("response.output_item.done", {"output_index": self._index, "item": item})
        if self.thinking:
            return [(f"{self._kind}.done", {**self._at, "text": text}), done]
        logprobs = likely(self._texts)
        part = _part(text, logprobs)
        return [
            (f"{self._kind}.done", {**self._at, "text": text, "logprobs": logprobs}),
            ("response.content_part.done", {**self._at, "part": part}),
            done,
        ]

    def _whole(self, status: str) -> dict[str, Any]:
        text = "".join(each.text for each in self._texts)
        if self.thinking:
            return _reasoning(self._id, text, status)
        return _message(self._id, text, status, likely(self._texts))


class _Call:
    """A call of a stream, and its events.

    Args:
        begun: the call.
        index: its place in the output.
    """

    def __init__(self, begun: CallBegun, index: int) -> None:
        self._begun = begun
        self._id = _id("fc")
        self._index = index
        self._arguments = ""

    def beginning(self) -> list[tuple[str, dict[str, Any]]]:
        item = self._whole("in_progress")
        return [("response.output_item.added", {"output_index": self._index, "item": item})]

    def delta(self, told: Delta) -> tuple[str, dict[str, Any]]:
        assert isinstance(told, CallDelta), "it has begun with a call"  # noqa: S101
        self._arguments += told.text
        at = {"item_id": self._id, "output_index": self._index}
        return "response.function_call_arguments.delta", {**at, "delta": told.text}

    def ending(self, status: str) -> list[tuple[str, dict[str, Any]]]:
        at = {"output_index": self._index}
        told = {"item_id": self._id, **at, "name": self._begun.name, "arguments": self._arguments}
        item = self._whole(status)
        return [
            ("response.function_call_arguments.done", told),
            ("response.output_item.done", {**at, "item": item}),
        ]

    def _whole(self, status: str) -> dict[str, Any]:
        call = ToolCall(self._begun.id, self._begun.name, self._arguments)
        return _function_call(self._id, call, status)


def _messages(body: ResponsesBody) -> list[Message]:
    """Return the conversation."""
    given: Sequence[Any] = body.input
    if isinstance(body.input, str):
        given = [{"role": "user", "content": body.input}]
    system = [{"role": "system", "content": body.instructions}] if body.instructions else []
    # Thoughts of earlier answers, which clients send back, are not read again.
    items = [each for each in given if _kind(each) != "reasoning"]
    said: list[Any] = [*system]
    for item in items:
        message = _as_message(item)
        last = said[-1] if said and isinstance(said[-1], dict) else {}
        if _kind(item) == "function_call" and last.get("role") == "assistant":
            # The words and the calls of an answer are items, and one message.
            calls = [*last.get("tool_calls", ()), *message["tool_calls"]]
            said[-1] = {**last, "tool_calls": calls}
        else:
            said.append(message)
    return [from_json(each, f"item {at}") for at, each in enumerate(said, 1)]


def _as_message(item: Any) -> Any:
    """Return an item as a chat's message."""
    if not isinstance(item, dict):
        return item
    if _kind(item) == "function_call":
        function = {"name": item.get("name"), "arguments": item.get("arguments")}
        call: dict[str, Any] = {"id": item.get("call_id"), "function": function}
        return {"role": "assistant", "content": "", "tool_calls": [call]}
    if _kind(item) == "function_call_output":
        output = result_text(item.get("output"))
        return {"role": "tool", "tool_call_id": item.get("call_id"), "content": output}
    if _kind(item) != "message":
        raise UsageError(
            f"an item is of type {str(_kind(item))[:40]!r}: only messages, calls and their results are read"
        )
    content = item.get("content")
    if isinstance(content, list):
        content = [
            {**each, "type": _PARTS.get(str(each.get("type")), each.get("type"))}
            if isinstance(each, dict)
            else each
            for each in content
        ]
    return {"role": item.get("role"), "content": content}


def _kind(item: Any) -> Any:
    return item.get("type", "message") if isinstance(item, dict) else None


def _shell(
    body: ResponsesBody, options: ReplyOptions, model: str, offer: ToolOffer
) -> dict[str, Any]:
    """Return a response of which nothing is there yet."""
    return {
        "id": _id("resp"),
        "object": "response",
        "created_at": int(time.time()),
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "instructions": body.instructions,
        "max_output_tokens": options.max_tokens,
        "metadata": body.metadata or {},
        "model": model,
        "output": [],
        "parallel_tool_calls": offer.policy.parallel,
        "previous_response_id": None,
        "store": False,
        "temperature": options.sampling.temperature,
        "text": {"format": body.text.format or {"type": "text"}},
        "tool_choice": body.tool_choice or "auto",
        "tools": [_function(each) for each in offer.tools],
        "top_p": options.sampling.top_p,
        "truncation": "disabled",
        "usage": None,
    }


def _ended(
    shell: dict[str, Any],
    done: Finished,
    output: list[dict[str, Any]],
    notes: Sequence[str],
) -> dict[str, Any]:
    reply, status = done.reply, _status(done.reply)
    why = "content_filter" if reply.stop_reason is StopReason.GATED else "max_output_tokens"
    cut = {"reason": why} if status == "incomplete" else None
    usage = {
        "input_tokens": reply.prompt_tokens,
        "input_tokens_details": {"cached_tokens": reply.cached_tokens},
        "output_tokens": reply.completion_tokens,
        # How many tokens thoughts took is not known.
        "output_tokens_details": {} if reply.thinking else {"reasoning_tokens": 0},
        "total_tokens": reply.prompt_tokens + reply.completion_tokens,
    }
    told = {"status": status, "incomplete_details": cut, "output": output, "usage": usage}
    return {**shell, **told, **figures([done], notes)}


def _status(reply: Reply) -> str:
    cut = reply.stop_reason in {*CUT, StopReason.CANCELLED, StopReason.GATED}
    return "incomplete" if cut else "completed"


def _reasoning(name: str, text: str, status: str = "completed") -> dict[str, Any]:
    content = [{"type": "reasoning_text", "text": text}]
    return {"type": "reasoning", "id": name, "summary": [], "content": content, "status": status}


def _function(tool: Tool) -> dict[str, Any]:
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": dict(tool.parameters),
        "strict": tool.strict,
    }


def _function_call(name: str, call: ToolCall, status: str = "completed") -> dict[str, Any]:
    head = {"type": "function_call", "id": name, "call_id": call.id, "status": status}
    return {**head, "name": call.name, "arguments": call.arguments}


def _message(name: str, text: str, status: str, logprobs: list[dict[str, Any]]) -> dict[str, Any]:
    content = [_part(text, logprobs)]
    head = {"type": "message", "id": name, "role": "assistant", "status": status}
    return {**head, "content": content}


def _part(text: str, logprobs: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs}


def _id(prefix: str) -> str:
    return f"{prefix}_{secrets.token_hex(12)}"
