"""Answers as whoever asks may see them."""

import asyncio
import threading
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

from localspec.chat.events import Event, Finished, RoundDone, StreamEvent
from localspec.chat.gated import GatedReply
from localspec.engine.ask import Ask
from localspec.engine.protocol import ReplyDone, ReplyEvents
from localspec.gates.gate import Gate
from localspec.launch.recording import note
from localspec.serve.backend import Answer, Backend


async def gated_notices(backend: Backend, asked: Ask, gate: Gate | None) -> AsyncGenerator[Answer]:
    """Yield what the engine says of an answer, as it may be seen; see `Backend.notices`. Rounds say how many tokens, not which."""
    if gate is None:
        async with aclosing(backend.notices(asked)) as notices:
            async for notice in notices:
                yield notice
        return
    gone, number = threading.Event(), 0
    reply = GatedReply(gate, question=asked.asked, cancelled=gone.is_set)

    def began(its: int) -> None:
        nonlocal number
        number = its

    async with aclosing(backend.notices(asked, began)) as notices:
        async for notice in notices:
            before = reply.stopped
            if isinstance(notice, ReplyEvents):
                events = tuple(told for each in notice.events for told in _taken(reply, each))
                yield replace(notice, events=events)
                if reply.stopped and not before:
                    backend.cancel(number)
            elif isinstance(notice, ReplyDone):
                # A guard may take its time.
                try:
                    *rest, last = await asyncio.to_thread(reply.take, Finished(notice.reply))
                finally:
                    gone.set()  # where the client goes away, the thread waits for no more verdicts
                assert isinstance(last, Finished)  # noqa: S101 - it was taken last
                yield ReplyEvents(number, _streamed(rest))
                await asyncio.to_thread(note, reply.counts)
                message = reply.message(notice.message, notice.reply)
                yield replace(notice, reply=last.reply, message=message)
            else:
                yield notice


def _taken(reply: GatedReply, event: StreamEvent) -> tuple[StreamEvent, ...]:
    if isinstance(event, RoundDone):
        return (replace(event, texts=("",) * len(event.texts)),)
    return _streamed(reply.take(event))


def _streamed(events: list[Event]) -> tuple[StreamEvent, ...]:
    return tuple(each for each in events if not isinstance(each, Finished))
