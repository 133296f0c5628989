"""`python -m localspec.plugins.remote.child`: the process in which a server is the engine. It speaks the engine's protocol with its client, and HTTP with the server."""

import asyncio
import os
import sys
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from localspec import __version__
from localspec.api import Event, Finished, LocalspecError, Request, UsageError
from localspec.engine import protocol
from localspec.engine.child import private_pipes
from localspec.engine.outbox import Outbox
from localspec.engine.request_runner import failure
from localspec.plugins.remote.client import Client

_LAST_NOTICES_S = 2.0


class Program:
    """Answers one client by one server.

    Args:
        outbox: takes what is sent to the client.
    """

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._client: Client | None = None
        self._tasks: dict[int | None, asyncio.Task[None]] = {}

    def take(self, command: protocol.Command) -> None:
        """Begin what the client wants; what runs goes on."""
        match command:
            case protocol.Load():
                self._outbox.pace(command.text_every_s)
                self._start(None, self._load(command))
            case protocol.Cancel(id=number):
                if (task := self._tasks.get(number)) is not None:
                    # It must have begun, so that it can say how it ended.
                    asyncio.get_running_loop().call_soon(task.cancel)
            case (
                Request()
                | protocol.Count()
                | protocol.Tokenize()
                | protocol.Detokenize()
                | protocol.Embed()
            ):
                self._start(command.id, self._answer(command))

    async def end(self) -> None:
        """End everything; servers end their work with the connections."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        if self._client is not None:
            await self._client.close()

    def _start(self, number: int | None, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks[number] = task
        task.add_done_callback(lambda done: self._forget(number, done))

    def _forget(self, number: int | None, done: asyncio.Task[None]) -> None:
        if self._tasks.get(number) is done:
            del self._tasks[number]

    async def _load(self, load: protocol.Load) -> None:
        before = self._client
        try:
            client = Client(load.options, load.given)
            try:
                ready = await client.open(self._outbox.put)
            except BaseException:
                await client.close()
                raise
        except asyncio.CancelledError:
            self._outbox.put(protocol.LoadCancelled(None if before is None else before.model))
        except Exception as error:  # it is the client who must know
            self._outbox.put(failure(None, error))
        else:
            self._client = client
            self._outbox.put(ready)
            if before is not None:
                await before.close()

    async def _answer(self, question: protocol.Question) -> None:
        def send(events: list[Event]) -> None:
            for event in events:
                if isinstance(event, Finished):
                    self._outbox.put(event)
                else:
                    self._outbox.put(protocol.ReplyEvents(question.id, (event,)))

        try:
            if (load := self._tasks.get(None)) is not None:
                await asyncio.wait([load])
            client = self._client
            if client is not None and isinstance(question, Request):
                await client.answer(question, send)
            elif client is not None and isinstance(question, protocol.Count):
                self._outbox.put(await client.count(question))
            else:
                why = "no server was named" if client is None else "a server gives no tokens"
                self._outbox.put(failure(question.id, UsageError(why)))
        except asyncio.CancelledError:  # an answer that has begun ends otherwise
            stopped = LocalspecError("stopped before the server was there")
            self._outbox.put(failure(question.id, stopped))
        except Exception as error:  # one request costs no other
            self._outbox.put(failure(question.id, error))


async def _run() -> None:
    commands, notices = private_pipes()

    def write(notice: protocol.Notice) -> None:
        notices.write(protocol.encode(notice))

    outbox = Outbox(write, notices.flush)
    outbox.put(protocol.Hello(__version__, os.getpid()))
    program, reader = Program(outbox), asyncio.StreamReader(protocol.MAX_FRAME_BYTES + 1)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), commands)
    with suppress(ValueError, OSError):  # a line without an end: it is none of ours
        while (line := await reader.readline()).endswith(b"\n"):
            try:
                command = protocol.COMMANDS.decode(line)
            except protocol.FrameError as error:
                outbox.put(protocol.Failed(None, "FrameError", str(error)))
                continue
            if isinstance(command, protocol.Bye):
                break
            program.take(command)
    await program.end()
    outbox.close(_LAST_NOTICES_S)


if __name__ == "__main__":
    asyncio.run(_run())
    sys.stderr.flush()
    os._exit(0)  # a thread may still stand at a pipe
