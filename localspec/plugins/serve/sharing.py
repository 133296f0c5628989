"""SharedEngineServer: what a server has in memory, for other programs of its user: `run`, `chat` and `batch` ask over a private socket.

They speak the engine's own protocol, each with its own numbers. What would change the models, or save what they have
evaluated, is refused. A program that goes away ends its requests.
"""

import asyncio
import os
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace

import msgspec

from localspec import __version__
from localspec.api import LaunchOptions, LocalspecError, Request, UsageError
from localspec.decoding.round import OFF
from localspec.engine import protocol
from localspec.models.requested import with_full_names
from localspec.plugins.serve.backend import Backend
from localspec.plugins.serve.model_pool import ModelPool, ServedModel

FRAME_BYTES = protocol.MAX_FRAME_BYTES + 1
"""Most bytes of a line that are read."""


def has(loaded: LaunchOptions, n_ctx: int, wanted: LaunchOptions) -> bool:
    """Return whether what is loaded answers as what is wanted would.

    Args:
        loaded: with which options it was loaded, by full names.
        n_ctx: tokens of context that it has.
        wanted: by full names, too; a request may do without the drafter, and nothing else may differ.
    """
    wanted_ctx, usual_ctx = wanted.load.n_ctx, loaded.load.n_ctx
    roomy = wanted_ctx is None and n_ctx >= wanted.load.context
    if wanted_ctx not in {usual_ctx, n_ctx} and not roomy:
        return False
    alike = replace(
        wanted, offline=loaded.offline, fit=loaded.fit, load=replace(wanted.load, n_ctx=usual_ctx)
    )
    if wanted.draft == OFF:
        alike = replace(
            alike,
            draft=loaded.draft,
            draft_length=loaded.draft_length,
            draft_model=loaded.draft_model,
            draft_lora=loaded.draft_lora,
        )
    return alike == loaded


class SharedEngineServer:
    """Answers other programs.

    Args:
        pool: has the models.
    """

    def __init__(self, pool: ModelPool) -> None:
        self._pool = pool

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one program until it goes away."""
        program = _Client(self._pool, writer)
        program.send(protocol.Hello(__version__, os.getpid(), {**self._pool.states}))
        try:
            while (line := await reader.readline()).endswith(b"\n"):
                try:
                    command = protocol.COMMANDS.decode(line)
                except protocol.FrameError as error:
                    program.send(protocol.Failed.of(None, error))
                    continue
                if isinstance(command, protocol.Bye):
                    break
                program.take(command)
                await writer.drain()
        except (OSError, ValueError):  # it is gone; ValueError: a line without an end
            pass
        finally:
            await program.end()
            writer.close()


@dataclass(slots=True, eq=False)
class _Client:
    """One program at the socket."""

    pool: ModelPool
    writer: asyncio.StreamWriter
    model: ServedModel | None = None
    draft: str | None = None
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    numbers: dict[int, tuple[Backend, int]] = field(default_factory=dict)
    asked: set[int] = field(default_factory=set)
    cancelled: set[int] = field(default_factory=set)

    def send(self, notice: protocol.Notice) -> None:
        """Send it a notice."""
        with suppress(protocol.FrameError):  # no reply is as large
            self.writer.write(protocol.encode(notice))

    def take(self, command: protocol.Command) -> None:
        """Do what it wants."""
        match command:
            case protocol.Load(options=wanted):
                self._load(wanted)
            case protocol.Cancel(id=int(number)) if number in self.asked:
                self.cancelled.add(number)
                if number in self.numbers:
                    backend, engines = self.numbers[number]
                    backend.cancel(engines)
            case Request() | protocol.Count() | protocol.Tokenize() | protocol.Detokenize():
                self.asked.add(command.id)
                task = asyncio.create_task(self._answer(command))
                self.tasks.add(task)
                task.add_done_callback(self.tasks.discard)

    async def end(self) -> None:
        """End its requests."""
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    def _load(self, wanted: LaunchOptions) -> None:
        for entry in self.pool.entries:
            ready = entry.ready
            if entry.model.embeds or ready is None:
                continue
            if _has(entry.model.launch, ready.n_ctx, wanted):
                self.model = entry.model
                self.draft = OFF if wanted.draft == OFF else None
                if entry.unloaded:  # loaded with the first question
                    self.send(protocol.Loading(ready.target, 0.0))
                self.send(ready)
                return
        self.send(protocol.Failed(None, LocalspecError.__name__, "something else is loaded here"))

    async def _answer(self, question: protocol.Question) -> None:
        own = question.id

        if isinstance(question, Request):
            question = msgspec.structs.replace(
                question, draft=question.draft or self.draft, client=f"program {id(self)}"
            )
        try:
            if self.model is None:
                raise UsageError("no model was asked for: load one first")
            # In memory again, if it was unloaded meanwhile.
            async with self.pool.use(self.model) as backend:

                def began(number: int) -> None:
                    self.numbers[own] = backend, number
                    if own in self.cancelled:
                        backend.cancel(number)

                async with aclosing(backend.notices(question, began)) as answers:
                    async for notice in answers:
                        self.send(msgspec.structs.replace(notice, id=own))
                        await self.writer.drain()
        except LocalspecError as error:
            self.send(protocol.Failed.of(own, error))
        except OSError:
            pass  # it is gone
        finally:
            self.numbers.pop(own, None)
            self.asked.discard(own)
            self.cancelled.discard(own)


def _has(loaded: LaunchOptions, n_ctx: int, wanted: LaunchOptions) -> bool:
    """Return whether it does, resolving its names; False where they mean nothing any more."""
    try:
        return has(with_full_names(loaded), n_ctx, wanted)
    except (LocalspecError, OSError, RuntimeError, ValueError):
        return False
