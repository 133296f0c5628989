"""Answers as whoever asks may see them."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec

from localspec.chat.events import Event, Finished, RoundDone, StreamEvent
from localspec.chat.gated import GatedReply
from localspec.chat.request import Request
from localspec.engine.protocol import ReplyDone, ReplyEvents
from localspec.gates.gate import Gate
from localspec.launch.recording import note
from localspec.serve.backend import Answer, Backend


async def gated_notices(
    backend: Backend, asked: Request, gate: Gate | None
) -> AsyncGenerator[Answer]:
    """Yield what the engine says of an answer, as it may be seen; see `Backend.notices`. Rounds say how many tokens, not which."""
    if gate is None:
        async with aclosing(backend.notices(asked)) as notices:
            async for notice in notices:
                yield notice
        return
    reply, number = GatedReply(gate), 0

    def began(its: int) -> None:
        nonlocal number
        number = its

    async with aclosing(backend.notices(asked, began)) as notices:
        async for notice in notices:
            before = reply.stopped
            if isinstance(notice, ReplyEvents):
                events = tuple(told for each in notice.events for told in _taken(reply, each))
                yield msgspec.structs.replace(notice, events=events)
                if reply.stopped and not before:
                    backend.cancel(number)
            elif isinstance(notice, ReplyDone):
                *rest, last = reply.take(Finished(notice.reply))
                assert isinstance(last, Finished)  # noqa: S101 - it was taken last
                yield ReplyEvents(number, _streamed(rest))
                await asyncio.to_thread(note, reply.counts)
                message = reply.message(notice.message, notice.reply)
                yield msgspec.structs.replace(notice, reply=last.reply, message=message)
            else:
                yield notice


def _taken(reply: GatedReply, event: StreamEvent) -> tuple[StreamEvent, ...]:
    if isinstance(event, RoundDone):
        return (msgspec.structs.replace(event, texts=("",) * len(event.texts)),)
    return _streamed(reply.take(event))


def _streamed(events: list[Event]) -> tuple[StreamEvent, ...]:
    return tuple(each for each in events if not isinstance(each, Finished))
