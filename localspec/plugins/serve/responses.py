"""OpenAI's responses, without a memory: every request holds the whole conversation, and nothing is stored.

Source: the API reference of OpenAI, and what its Python client sends and reads.
"""

import secrets
import time
from collections.abc import Iterable, Sequence
from itertools import count
from typing import Any

import msgspec
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

from localspec.api import Finished, Message, ReplyOptions, Request, StopReason, Text, UsageError
from localspec.chat.events import Delta
from localspec.options.fields import with_fields
from localspec.plugins.serve.answering import (
    AnswerForm,
    Answers,
    Body,
    PromptProgress,
    Service,
    unless_gone,
)
from localspec.plugins.serve.blocks import AnswerBlock, Blocks
from localspec.plugins.serve.bodies import body_of, logprobs_of, reply_options
from localspec.plugins.serve.media_parts import conversation
from localspec.plugins.serve.openai_forms import CUT, figures, likely
from localspec.plugins.serve.response_items import ItemReader
from localspec.plugins.serve.thinking import Reasoning, ThinkingFields
from localspec.plugins.serve.tools import ToolOffer, openai_offer

_LOGPROBS = "message.output_text.logprobs"
_IDS = {"thinking": "rs", "text": "msg", "call": "fc"}
_NAMES = {"thinking": "reasoning_text", "text": "output_text", "call": "function_call_arguments"}


class TextSettings(msgspec.Struct):
    """How the text has to look."""

    format: dict[str, Any] | None = None


class ResponsesBody(ThinkingFields, kw_only=True):
    """A conversation to answer."""

    input: str | list[Any]
    instructions: str | None = None
    max_output_tokens: int | None = None
    text: TextSettings = msgspec.field(default_factory=TextSettings)
    include: list[str] = msgspec.field(default_factory=list)
    top_logprobs: int | None = None
    metadata: dict[str, Any] | None = None
    prompt_cache_key: str | None = None
    safety_identifier: str | None = None
    previous_response_id: Any = None
    conversation: Any = None
    prompt: Any = None
    tools: Any = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None


async def responses(request: HttpRequest, service: Service) -> Answers:
    """Answer a conversation."""
    body = await body_of(request, ResponsesBody, media=True)
    service = service.of(body.model)
    if body.previous_response_id is not None or body.conversation is not None:
        raise UsageError("nothing is stored here: send the whole conversation as input")
    if body.prompt:
        raise UsageError("prompt is not supported by this server: send the text as input")
    offer = openai_offer(body.tools, body.tool_choice, body.parallel_tool_calls)
    wanted = _LOGPROBS in body.include or body.top_logprobs
    limit = body.max_output_tokens
    form, wanted_of = body.text.format, body.template_wanted()
    options = await reply_options(body, service.options, limit, response_format=form, **wanted_of)
    messages, left_out = _messages(body, service)
    prompt = Request(
        0,
        messages,
        options,
        draft=body.draft(exact=service.exact),
        most_cached=body.most_cached,
        logprobs=logprobs_of("top_logprobs", (body.top_logprobs or 0) if wanted else None),
        tools=offer.tools,
        call_policy=offer.policy,
    )
    notes = (*offer.notes, *left_out)
    written = ResponseForm(_shell(body, options, service.name, offer), notes)
    return Answers(service, [prompt], written, body.stream, limit == 0)


async def count_tokens(request: HttpRequest, service: Service) -> Response:
    """Return how many tokens a conversation takes."""
    body = await body_of(request, ResponsesBody, media=True)
    service = service.of(body.model)
    offer = openai_offer(body.tools, body.tool_choice, body.parallel_tool_calls)
    options = with_fields(service.options, body.template_wanted())
    messages, _ = _messages(body, service)
    tokens = await unless_gone(request, service.count(request, messages, offer.tools, options))
    return JSONResponse({"object": "response.input_tokens", "input_tokens": tokens})


class ResponseForm(AnswerForm):
    """The form of a response.

    Args:
        shell: a response of which nothing is there yet.
        notes: on the request.
    """

    def __init__(self, shell: Body, notes: Sequence[str]) -> None:
        self._shell = shell
        self._notes = notes
        self._numbers = count()
        self._blocks = Blocks()

    def opening(self, progress: PromptProgress) -> Iterable[Body]:  # noqa: ARG002 - see AnswerForm
        """Return the empty response."""
        for kind in ("created", "in_progress"):
            yield self._event(kind, response=self._shell)

    def pieces(self, at: int, event: Delta | Finished) -> Iterable[Body]:  # noqa: ARG002 - the only one
        """Return the events of items, and the end."""
        status = _status(event) if isinstance(event, Finished) else "completed"
        for step, block in self._blocks.take(event):
            yield from self._item(step, block, status)
        if isinstance(event, Finished):
            yield self._event(status, response=self._ended(event, self._blocks))

    def whole(self, answers: Sequence[Sequence[Delta]], done: Sequence[Finished]) -> Body:
        """Return the response."""
        for event in (*answers[0], *done):
            for _ in self._blocks.take(event):
                pass
        return self._ended(done[0], self._blocks.whole)

    def _item(self, step: str, block: AnswerBlock, status: str) -> Iterable[Body]:
        index, name = block.index, _NAMES[block.kind]
        at = {"item_id": _id(block), "output_index": index}
        at |= {} if block.kind == "call" else {"content_index": 0}
        if step == "start":
            empty = {} if block.kind == "call" else {"content": list[Any]()}
            item = {**_output(block, "in_progress"), **empty}
            yield self._event("output_item.added", output_index=index, item=item)
            if block.kind == "text":
                yield self._event("content_part.added", **at, part=_part(block))
        elif step == "delta":
            piece = block.pieces[-1]
            spelled = isinstance(piece, Text) and not piece.thinking
            more = {"logprobs": likely([piece])} if spelled else {}  # type: ignore[list-item]
            yield self._event(f"{name}.delta", **at, delta=piece.text, **more)
        else:
            yield self._event(f"{name}.done", **at, **_content(block))
            if block.kind == "text":
                yield self._event("content_part.done", **at, part=_part(block))
            done = _output(block, status)
            yield self._event("output_item.done", output_index=index, item=done)

    def _event(self, kind: str, **fields: Any) -> Body:
        return {"type": f"response.{kind}", "sequence_number": next(self._numbers), **fields}

    def _ended(self, done: Finished, blocks: Sequence[AnswerBlock]) -> Body:
        reply, status = done.reply, _status(done)
        gated = reply.stop_reason is StopReason.GATED
        reason = {"reason": "content_filter" if gated else "max_output_tokens"}
        return {
            **self._shell,
            "status": status,
            "completed_at": int(time.time()) if status == "completed" else None,
            "incomplete_details": reason if status == "incomplete" else None,
            "output": [
                _output(each, status if each is blocks[-1] else "completed") for each in blocks
            ],
            "usage": {
                "input_tokens": reply.prompt_tokens,
                "input_tokens_details": {"cached_tokens": reply.cached_tokens},
                "output_tokens": reply.completion_tokens,
                # How many tokens thoughts took is not known.
                "output_tokens_details": {} if reply.thinking else {"reasoning_tokens": 0},
                "total_tokens": reply.prompt_tokens + reply.completion_tokens,
            },
            **figures(done, self._notes),
        }


def _status(done: Finished) -> str:
    cut = done.reply.stop_reason in {*CUT, StopReason.CANCELLED, StopReason.GATED}
    return "incomplete" if cut else "completed"


def _id(block: AnswerBlock) -> str:
    return f"{_IDS[block.kind]}_{block.id}"


def _output(block: AnswerBlock, status: str) -> Body:
    """Return an item of the output."""
    head = {"id": _id(block), "status": status}
    if block.kind == "thinking":
        content = [{"type": "reasoning_text", "text": block.text}]
        return {**head, "type": "reasoning", "summary": [], "content": content}
    if block.kind == "text":
        return {**head, "type": "message", "role": "assistant", "content": [_part(block)]}
    return {**head, "type": "function_call", "call_id": block.call.id, **_content(block)}


def _part(block: AnswerBlock) -> Body:
    return {"type": "output_text", "annotations": [], **_content(block)}


def _content(block: AnswerBlock) -> Body:
    """Return the content of an item."""
    if block.kind == "call":
        return {"name": block.call.name, "arguments": block.text}
    logprobs = {"logprobs": likely(block.texts)} if block.kind == "text" else {}
    return {"text": block.text, **logprobs}


def _messages(body: ResponsesBody, service: Service) -> tuple[tuple[Message, ...], tuple[str, ...]]:
    """Return the conversation, and what was left out of it, in a sentence."""
    given: Sequence[Any] = body.input
    if isinstance(body.input, str):
        given = [{"role": "user", "content": body.input}]
    system = [{"role": "system", "content": body.instructions}] if body.instructions else []
    reader = ItemReader(service.sees, [*system])
    reader.read(given)
    return conversation(reader.messages, service.folder, "item {}"), reader.notes


def _shell(
    body: ResponsesBody, options: ReplyOptions, model: str, offer: ToolOffer
) -> dict[str, Any]:
    """Return a response of which nothing is there yet."""
    effort = body.reasoning.effort if isinstance(body.reasoning, Reasoning) else None
    return {
        "id": f"resp_{secrets.token_hex(12)}",
        "object": "response",
        "background": False,
        "created_at": int(time.time()),
        "completed_at": None,
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "instructions": body.instructions,
        "frequency_penalty": options.sampling.frequency_penalty,
        "presence_penalty": options.sampling.presence_penalty,
        "max_output_tokens": options.max_tokens,
        "max_tool_calls": None,
        "metadata": body.metadata or {},
        "model": model,
        "output": [],
        "parallel_tool_calls": offer.policy.parallel,
        "previous_response_id": None,
        "prompt_cache_key": body.prompt_cache_key,
        "safety_identifier": body.safety_identifier,
        "service_tier": "default",
        "reasoning": {"effort": effort, "summary": None},
        "store": False,
        "temperature": options.sampling.temperature,
        "text": {"format": body.text.format or {"type": "text"}},
        "tool_choice": body.tool_choice or "auto",
        "tools": [
            {
                "type": "function",
                "name": each.name,
                "description": each.description,
                "parameters": dict(each.parameters),
                "strict": each.strict,
            }
            for each in offer.tools
        ],
        "top_logprobs": body.top_logprobs or 0,
        "top_p": options.sampling.top_p,
        "truncation": "disabled",
        "usage": None,
    }
