"""Anthropic's interface: messages, and how many tokens they take.

Source: the API reference of Anthropic, and what its Python client sends and reads.
"""

import secrets
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

from localspec.api import Finished, Message, Reply, Request, StopReason, UsageError
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
from localspec.plugins.serve.bodies import body_of, reply_options
from localspec.plugins.serve.media_parts import conversation
from localspec.plugins.serve.openai_forms import CUT, figures
from localspec.plugins.serve.thinking import Thinking, ThinkingFields
from localspec.plugins.serve.tools import anthropic_messages, anthropic_offer, arguments_object

_DELTA_EVERY = 12
"""One of so many pings is another event, for Anthropic's own SDKs alone.

They leave pings out before they look how long nothing came, and Claude Code gives up after 300 s; so now and then there is a
`message_delta` without a change, of which a stream may have several. Others take the first one for the end (litellm).
"""
_SDK = "x-stainless-lang"
"""A header that each of these SDKs sends."""
_ENDS = {
    **dict.fromkeys(CUT, "max_tokens"),
    StopReason.STOP_STRING: "stop_sequence",
    StopReason.TOOL_CALL: "tool_use",
    StopReason.GATED: "refusal",
}


class OutputConfig(msgspec.Struct):
    """How the answer has to look, and how much is thought before it."""

    format: dict[str, Any] | None = None
    effort: str | None = None


class CountBody(ThinkingFields, kw_only=True):
    """A conversation."""

    answers = False
    messages: list[Any]
    system: str | list[Any] = ""
    tools: Any = None
    tool_choice: Any = None
    output_config: OutputConfig = msgspec.field(default_factory=OutputConfig)

    def effort(self) -> Iterator[tuple[str, str | None]]:
        """Yield the effort, which is one of words alone where nothing says that there are thoughts."""
        if isinstance(self.thinking, Thinking) and self.thinking.type is not None:
            yield "output_config.effort", self.output_config.effort


class MessagesBody(CountBody, kw_only=True):
    """A conversation to answer."""

    answers = True
    max_tokens: int | None = None
    output_format: dict[str, Any] | None = None
    stop_sequences: list[str] = msgspec.field(default_factory=list)


async def messages(request: HttpRequest, service: Service) -> Answers:
    """Answer a conversation."""
    body = await body_of(request, MessagesBody, media=True)
    service = service.of(body.model)
    if body.max_tokens is None:
        raise UsageError("max_tokens is missing: give 1 or more, or -1 for no limit")
    wanted = body.output_config.format or body.output_format
    stop, form = body.stop_sequences or None, {"strict": True, **wanted} if wanted else None
    options = await reply_options(
        body,
        service.options,
        body.max_tokens,
        stop=stop,
        response_format=form,
        **body.template_wanted(),
    )
    offer = anthropic_offer(body.tools, body.tool_choice)
    prompt = Request(
        0,
        _messages(body, service),
        options,
        draft=body.draft(exact=service.exact),
        most_cached=body.most_cached,
        tools=offer.tools,
        call_policy=offer.policy,
    )
    written = MessageForm(service.name, options.stop, offer.notes, sdk=_SDK in request.headers)
    return Answers(service, [prompt], written, body.stream, body.max_tokens == 0)


async def count_tokens(request: HttpRequest, service: Service) -> Response:
    """Return how many tokens a conversation takes."""
    body = await body_of(request, CountBody, media=True)
    service = service.of(body.model)
    offer = anthropic_offer(body.tools, body.tool_choice)
    options = with_fields(service.options, body.template_wanted())
    counted = service.count(request, _messages(body, service), offer.tools, options)
    tokens = await unless_gone(request, counted)
    return JSONResponse({"input_tokens": tokens})


class MessageForm(AnswerForm):
    """The form of a message.

    Args:
        model: its name.
        stop: the texts that end the answer.
        notes: on the request.
        sdk: Anthropic's own reads it.
    """

    def __init__(self, model: str, stop: Sequence[str], notes: Sequence[str], *, sdk: bool) -> None:
        self._stop = stop
        self._notes = notes
        self._sdk = sdk
        self._blocks = Blocks()
        name = f"msg_{secrets.token_hex(12)}"
        self._head = {"id": name, "type": "message", "role": "assistant", "model": model}

    def opening(self, progress: PromptProgress) -> Iterable[Body]:
        """Return an empty message; the tokens of a prompt that has not begun are not known."""
        ending = {"stop_reason": None, "stop_sequence": None}
        usage = _usage(progress.total, progress.cached, 0)
        message: Body = {**self._head, "content": [], **ending, "usage": usage}
        yield {"type": "message_start", "message": message}

    def pieces(self, at: int, event: Delta | Finished) -> Iterable[Body]:  # noqa: ARG002 - the only one
        """Return the events of the blocks, and the end."""
        for step, block in self._blocks.take(event):
            body: Body = {"type": f"content_block_{step}", "index": block.index}
            if step == "start":
                yield {**body, "content_block": _block(block)}
            elif step == "stop":
                yield body
            elif block.kind == "call":
                text = block.pieces[-1].text
                yield {**body, "delta": {"type": "input_json_delta", "partial_json": text}}
            else:
                text = block.pieces[-1].text
                yield {**body, "delta": {"type": f"{block.kind}_delta", block.kind: text}}
        if isinstance(event, Finished):
            yield {"type": "message_delta", "delta": self._ending(event.reply), **self._end(event)}
            yield {"type": "message_stop"}

    def ping(self, number: int, progress: PromptProgress) -> Iterable[Body]:
        """Return a ping with how far the prompt is read; for the SDKs now and then an event that changes nothing."""
        if number % _DELTA_EVERY or not self._sdk:
            yield {"type": "ping", **progress.figures}
        else:
            nothing = {"stop_reason": None, "stop_sequence": None}
            yield {"type": "message_delta", "delta": nothing, "usage": {"output_tokens": 0}}

    def whole(self, answers: Sequence[Sequence[Delta]], done: Sequence[Finished]) -> Body:
        """Return the message."""
        for event in (*answers[0], *done):
            for _ in self._blocks.take(event):
                pass
        content = [_block(each) for each in self._blocks.whole]
        return {
            **self._head,
            "content": content,
            **self._ending(done[0].reply),
            **self._end(done[0]),
        }

    def _ending(self, reply: Reply) -> Body:
        """Return why it ended; which of several stop texts it was is not known."""
        stopped = reply.stop_reason is StopReason.STOP_STRING
        text = self._stop[0] if stopped and len(self._stop) == 1 else None
        return {"stop_reason": _ENDS.get(reply.stop_reason, "end_turn"), "stop_sequence": text}

    def _end(self, done: Finished) -> Body:
        reply = done.reply
        usage = _usage(reply.prompt_tokens, reply.cached_tokens, reply.completion_tokens)
        return {"usage": usage, **figures(done, self._notes)}


def _messages(body: CountBody, service: Service) -> tuple[Message, ...]:
    system = [{"role": "system", "content": body.system}] if body.system else []
    given = anthropic_messages(body.messages, sees=service.sees)
    return conversation([*system, *given], service.folder)


def _block(block: AnswerBlock) -> Body:
    """Return a block as it is by now."""
    if block.kind == "call":
        call = block.call
        return {
            "type": "tool_use",
            "id": call.id,
            "name": call.name,
            "input": arguments_object(call),
        }
    signature = {"signature": ""} if block.kind == "thinking" else {}
    return {"type": block.kind, block.kind: block.text, **signature}


def _usage(prompt: int, cached: int, completion: int) -> dict[str, int]:
    """Return tokens; those from the cache are not counted twice."""
    return {
        "input_tokens": prompt - cached,
        "cache_read_input_tokens": cached,
        "output_tokens": completion,
    }
