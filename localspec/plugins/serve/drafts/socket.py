"""Drafts: beside an answer, a WebSocket on which its client proposes tokens. Whatever comes there, the answer and others go on as without it."""

import asyncio
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import msgspec
from starlette.websockets import WebSocket

from localspec.api import ReplyOptions, Request, RoundDone
from localspec.chat.events import Started, StreamEvent
from localspec.engine.drafts import Confirmed, DraftOpening, DraftProposal, decoded, encoded
from localspec.plugins.serve.backend import Backend
from localspec.plugins.serve.drafts import DRAFTER
from localspec.plugins.serve.http import OWNER

_COMES_WITHIN_S = 10.0
"""How long a WebSocket waits for the answer that it is for."""
_FRAMES = 16
"""Frames that are read of a client between two rounds; further ones wait at its side."""
_SEED_BITS = 32
_POLICY = 1008


class DraftedAnswer:
    """An answer that is being made, whose client may propose tokens.

    Args:
        options: how it is answered; its seed is set.
        backend: answers it.
    """

    def __init__(self, options: ReplyOptions, backend: Backend) -> None:
        self._options, self._backend = options, backend
        self._number: int | None = None
        self.opening: DraftOpening | None = None
        self.rounds: list[RoundDone] = []
        self.is_taken = self.ended = False
        self._changed = asyncio.Event()

    def begin(self, number: int) -> None:
        """Take in the number of its notices."""
        self._number = number

    def propose(self, proposal: DraftProposal) -> None:
        """Take what its client proposes."""
        if self._number is not None and not self.ended:
            self._backend.propose(self._number, proposal)

    def note(self, event: StreamEvent) -> None:
        """Take in an event of the answer."""
        if isinstance(event, Started):
            options, ready = self._options, self._backend.ready
            pass_s = () if ready is None else ready.pass_s
            self.opening = DraftOpening(event.tokens, options.seed or 0, options.sampling, pass_s)
        elif isinstance(event, RoundDone):
            self.rounds.append(event)
        else:
            return
        self._changed.set()

    def end(self) -> None:
        """Take in that there is no more of it."""
        self.ended = True
        self._changed.set()

    async def changed(self) -> None:
        """Wait until something has happened since the last call."""
        await self._changed.wait()
        self._changed.clear()


class Drafts:
    """The answers whose clients may propose, by the owners of the keys and by names that clients choose."""

    def __init__(self) -> None:
        self._answers: dict[tuple[str, str], asyncio.Future[DraftedAnswer]] = {}

    @contextmanager
    def answer(
        self, request: Request, backend: Backend
    ) -> Iterator[tuple[Request, DraftedAnswer | None]]:
        """Yield a request, and its answer where its client may propose: tokens would tell what a gate masks."""
        if not request.drafts or request.gate:
            yield msgspec.structs.replace(request, drafts=""), None
            return
        if request.options.seed is None:
            options = replace(request.options, seed=secrets.randbits(_SEED_BITS))
            request = msgspec.structs.replace(request, options=options)
        request = msgspec.structs.replace(request, rounds=True)
        answer, key = DraftedAnswer(request.options, backend), (request.owner, request.drafts)
        expected = self._expected(key)
        if not expected.done():
            expected.set_result(answer)
        try:
            yield request, answer
        finally:
            answer.end()
            if self._answers.get(key) is expected:
                del self._answers[key]

    def _expected(self, key: tuple[str, str]) -> asyncio.Future[DraftedAnswer]:
        new: asyncio.Future[DraftedAnswer] = asyncio.get_running_loop().create_future()
        return self._answers.setdefault(key, new)

    async def serve(self, socket: WebSocket) -> None:
        """Tell a client what is confirmed of its answer, and take what it proposes, until either ends."""
        key = (socket.scope.get(OWNER, ""), socket.path_params["name"])
        expected = self._expected(key)
        try:
            answer = await asyncio.wait_for(asyncio.shield(expected), _COMES_WITHIN_S)
        except TimeoutError:
            if self._answers.get(key) is expected and not expected.done():
                del self._answers[key]
            await socket.close(_POLICY, "there is no answer of this name")
            return
        if answer.is_taken:
            await socket.close(_POLICY, "another connection drafts for this answer")
            return
        answer.is_taken = True
        await socket.accept()
        turns = asyncio.Event()
        tasks = [
            asyncio.create_task(_tell(socket, answer, turns)),
            asyncio.create_task(_listen(socket, answer, turns)),
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in tasks:
                each.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _tell(socket: WebSocket, answer: DraftedAnswer, turns: asyncio.Event) -> None:
    """Send what is confirmed as it comes, joined where the client is slow; close in the end."""
    while answer.opening is None and not answer.ended:
        await answer.changed()
    if answer.opening is not None:
        await socket.send_text(encoded(answer.opening))
        at, told = len(answer.opening.prompt), 0
    while answer.opening is not None:
        while not answer.ended and told == len(answer.rounds):
            await answer.changed()
        new, told = [each.round for each in answer.rounds[told:]], len(answer.rounds)
        if not new:
            break
        tokens = tuple(token for each in new for token in each.confirmed)
        of_client = [each for each in new if each.draft.drafter == DRAFTER.name]
        confirmed = Confirmed(
            at,
            tokens,
            sum(each.drafted for each in of_client),
            round(sum(each.spent.draft_s for each in of_client), 4),
            new[0].width if len(new) == 1 else 0,
        )
        turns.set()
        await socket.send_text(encoded(confirmed))
        at += len(tokens)
    await socket.close()


async def _listen(socket: WebSocket, answer: DraftedAnswer, turns: asyncio.Event) -> None:
    """Take what a client proposes, and leave the rest where it is until the next round."""
    left = _FRAMES
    while (message := await socket.receive())["type"] == "websocket.receive":
        if left == 0:
            await turns.wait()
        if turns.is_set():
            turns.clear()
            left = _FRAMES
        left -= 1
        proposal = decoded(message.get("text") or message.get("bytes") or b"", DraftProposal)
        if proposal is not None:
            answer.propose(proposal)
