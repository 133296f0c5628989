"""Answers as whoever asks may see them."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

from localspec.chat.events import Finished, Told
from localspec.chat.gated import GatedReply
from localspec.engine.ask import Ask
from localspec.engine.protocol import ReplyDone
from localspec.gates.gate import Gate
from localspec.launch.recording import note
from localspec.serve.backend import Backend


async def gated_pieces(
    backend: Backend, asked: Ask, gate: Gate
) -> AsyncGenerator[Told | ReplyDone]:
    """Yield the pieces of an answer, and in the end the whole, as they may be seen; see `Backend.reply`."""
    reply, number = GatedReply(gate), 0

    def began(its: int) -> None:
        nonlocal number
        number = its

    async with aclosing(backend.reply(asked, began)) as events:
        async for event in events:
            before = reply.stopped
            told = reply.take(Finished(event.reply) if isinstance(event, ReplyDone) else event)
            for each in told:
                if isinstance(each, Told):
                    yield each
            if isinstance(event, ReplyDone):
                await asyncio.to_thread(note, reply.counts)
                message = reply.message(event.message, event.reply)
                yield replace(event, reply=reply.of(event.reply), message=message)
            elif reply.stopped and not before:
                backend.cancel(number)
