"""The backend by itself: how often an engine may die, and what it is asked."""

import asyncio
from collections.abc import Coroutine
from typing import Any, cast

import pytest

from localspec.chat.events import Finished, Reply, Text
from localspec.chat.request import Request
from localspec.decoding.round import Spent, StopReason
from localspec.engine.engine import EngineGone, RemoteEngine
from localspec.engine.protocol import (
    EngineDied,
    Failed,
    Notice,
    Question,
    Ready,
    ReplyEvents,
)
from localspec.messages import Message
from localspec.options import LaunchOptions
from localspec.serve import backend as serving
from localspec.serve.backend import Backend, pieces
from tests.waiting import PATIENCE_S

READY = Ready("a-model", None, "off", 100, (), 0.0, False)
REPLY = Reply("", "", (), StopReason.EOG, 7, 1, 0, 1, 0.1, 0.1, 0.1, Spent(), "off")
MOST = 5


class Dying(RemoteEngine):
    """An engine that dies as often as it is told, and gets ready in between or not."""

    def __init__(self, *, gets_ready: bool) -> None:
        super().__init__(revives=True)
        self.asked: list[Question] = []
        self.starts = 0
        self.gets_ready = gets_ready

    def tell(self, notice: Notice) -> None:
        if isinstance(notice, EngineDied):
            self._die(notice.reason)
        else:
            self._deliver(notice)

    def start(self) -> None:
        self.starts += 1

    def load(self, options: LaunchOptions) -> None:
        if not self.starts:
            self.start()
        self._requested, self._outcome, self._ready = options, None, None
        if self.starts == 1 or self.gets_ready:
            asyncio.get_running_loop().call_soon(self.tell, READY)

    def _submit(self, question: Question) -> None:
        self.asked.append(question)

    def cancel(self, number: int | None = None) -> None:
        pass


def with_backend(
    engine: Dying, launch: LaunchOptions, work: Any, max_wait_s: float | None = None
) -> None:
    async def run() -> None:
        backend = Backend(engine, launch, 8, max_wait_s=max_wait_s)
        await backend.start()
        try:
            await cast("Coroutine[Any, Any, None]", work(backend))
        finally:
            await backend.close()

    asyncio.run(run())


async def die(backend: Backend, engine: Dying) -> None:
    """Let the engine die, and wait until it was started again, or given up."""
    starts = engine.starts
    engine.tell(EngineDied("gone"))
    async with asyncio.timeout(PATIENCE_S):
        while not backend.lost and not (
            engine.starts > starts and (backend.ready or not engine.gets_ready)
        ):
            await asyncio.sleep(0.001)


def test_an_engine_that_dies_too_often_and_is_never_ready_stays_down() -> None:
    engine = Dying(gets_ready=False)

    async def work(backend: Backend) -> None:
        for death in range(MOST):
            assert not backend.lost, death
            await die(backend, engine)
        assert backend.lost == "gone"
        assert engine.starts == MOST, "the first start, and one after each death but the last"
        with pytest.raises(EngineGone, match="gone"):
            await backend.count((Message.user("hello"),))

    with_backend(engine, LaunchOptions(), work)


def test_one_that_gets_ready_in_between_is_started_again_and_again() -> None:
    engine = Dying(gets_ready=True)

    async def work(backend: Backend) -> None:
        for _ in range(2 * MOST):
            await die(backend, engine)
            assert not backend.lost

    with_backend(engine, LaunchOptions(), work)


@pytest.mark.parametrize("exact", [False, True])
def test_where_bits_count_nothing_is_taken_from_what_was_asked_before(exact: bool) -> None:
    engine = Dying(gets_ready=True)

    async def work(backend: Backend) -> None:
        reply = backend.answers(Request(0, (Message.user("hello"),)))
        pending = asyncio.ensure_future(anext(reply))
        while not engine.asked:
            await asyncio.sleep(0)
        pending.cancel()
        await asyncio.gather(pending, return_exceptions=True)

    with_backend(engine, LaunchOptions(exact=exact), work)
    assert [each.deterministic for each in engine.asked if isinstance(each, Request)] == [exact]


def test_what_happens_to_several_in_one_go_reaches_each() -> None:
    engine = Dying(gets_ready=True)

    async def text_of(backend: Backend) -> str:
        asked = Request(0, (Message.user("hello"),))
        told = [each async for each in pieces(backend.answers(asked))]
        return "".join(each.text for each in told if isinstance(each, Text))

    async def work(backend: Backend) -> None:
        asking = asyncio.gather(text_of(backend), text_of(backend))
        while len(engine.asked) < 2:
            await asyncio.sleep(0)
        for letter in "abc":
            for number in (1, 2):
                engine.tell(ReplyEvents(number, (Text(letter * number),)))
        for number in (1, 2):
            engine.tell(Finished(REPLY, Message.assistant(""), id=number))
        assert list(await asking) == ["abc", "aabbcc"]

    with_backend(engine, LaunchOptions(), work)


def test_who_leaves_when_the_answer_begins_has_left() -> None:
    engine = Dying(gets_ready=True)

    async def work(backend: Backend) -> None:
        reply = backend.answers(Request(0, (Message.user("hello"),)))
        pending = asyncio.ensure_future(anext(reply))
        while not engine.asked:
            await asyncio.sleep(0)
        engine.tell(ReplyEvents(1, ()))
        pending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await pending
        assert backend.under_way == 0

    with_backend(engine, LaunchOptions(), work, max_wait_s=PATIENCE_S)


class AtWorker(Dying):
    """An engine whose worker may be away, and then cannot load."""

    def __init__(self) -> None:
        super().__init__(gets_ready=True)
        self.away = False
        self.loads = 0

    def load(self, options: LaunchOptions) -> None:
        self.loads += 1
        self.gets_ready = not self.away
        super().load(options)
        if self.away:
            asyncio.get_running_loop().call_soon(
                self.tell, Failed(None, "UsageError", "worker a:1 cannot be reached")
            )


def test_what_a_worker_was_missing_for_is_loaded_again_when_it_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = AtWorker()

    async def asked(backend: Backend) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not backend.lost:
                await asyncio.sleep(0.001)
        with pytest.raises(EngineGone, match="worker a:1 cannot be reached"):
            await backend.count((Message.user("hello"),))

    async def work(backend: Backend) -> None:
        engine.away = True
        await die(backend, engine)
        loads = engine.loads
        await asked(backend)
        await asked(backend)
        assert engine.loads == loads + 1, "not at every request"
        engine.away = False
        monkeypatch.setattr(serving, "_AGAIN_S", 0.0)
        backend._again_s = 0.0
        await asked(backend)
        async with asyncio.timeout(PATIENCE_S):
            while not backend.ready:
                await asyncio.sleep(0.001)
        assert not backend.lost

    with_backend(engine, LaunchOptions(workers=("a:1",)), work)
