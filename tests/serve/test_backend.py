"""The backend by itself: how often an engine may die, and what it is asked."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable

import pytest

from localspec.chat.events import Finished, Reply, Text
from localspec.chat.request import Request
from localspec.decoding.round import Spent, StopReason
from localspec.engine.engine import Answer, EngineGone, RemoteEngine
from localspec.engine.protocol import EngineDied, Failed, Notice, Question, Ready, ReplyEvents
from localspec.messages import Message
from localspec.options import LaunchOptions
from localspec.serve import backend as serving
from localspec.serve.backend import Backend
from tests.waiting import PATIENCE_S

READY = Ready("a-model", None, "off", 100, (), 0.0, False)
REPLY = Reply("", "", (), StopReason.EOG, 7, 1, 0, 1, 0.1, 0.1, 0.1, Spent(), "off")
HELLO = (Message.user("hello"),)
MOST = 5


class Dying(RemoteEngine):
    """An engine that dies as often as it is told, and gets ready in between or not; its worker may be away."""

    def __init__(self, *, gets_ready: bool = True) -> None:
        super().__init__(revives=True)
        self.questions: list[Question] = []
        self.starts = self.loads = 0
        self.gets_ready, self.away = gets_ready, False

    def tell(self, notice: Notice) -> None:
        if isinstance(notice, EngineDied):
            self._die(notice.reason)
        else:
            self._deliver(notice)

    def start(self) -> None:
        self.starts += 1

    def load(self, options: LaunchOptions) -> None:
        self.loads += 1
        if not self.starts:
            self.start()
        self._requested, self._outcome, self._ready = options, None, None
        soon = asyncio.get_running_loop().call_soon
        if self.away:
            soon(self.tell, Failed(None, "UsageError", "worker a:1 cannot be reached"))
        elif self.starts == 1 or self.gets_ready:
            soon(self.tell, READY)

    def _submit(self, question: Question) -> None:
        self.questions.append(question)

    def cancel(self, number: int | None = None) -> None:
        pass


def follow(
    engine: Dying,
    work: Callable[[Backend], Awaitable[None]],
    launch: LaunchOptions | None = None,
    max_wait_s: float | None = None,
) -> None:
    async def run() -> None:
        backend = Backend(engine, launch or LaunchOptions(), 8, max_wait_s=max_wait_s)
        await backend.start()
        try:
            await work(backend)
        finally:
            await backend.close()

    asyncio.run(run())


async def wait(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not holds():
            await asyncio.sleep(0.001)


async def die(backend: Backend, engine: Dying) -> None:
    """Let the engine die, and wait until it was started again, or given up."""
    starts = engine.starts
    engine.tell(EngineDied("gone"))
    await wait(lambda: backend.lost or (engine.starts > starts and (backend.ready or not engine.gets_ready)))  # fmt: skip


def test_an_engine_that_dies_too_often_and_is_never_ready_stays_down() -> None:
    engine = Dying(gets_ready=False)

    async def work(backend: Backend) -> None:
        for death in range(MOST):
            assert not backend.lost, death
            await die(backend, engine)
        assert backend.lost == "gone"
        assert engine.starts == MOST, "the first start, and one after each death but the last"
        with pytest.raises(EngineGone, match="gone"):
            await backend.count(HELLO)

    follow(engine, work)


def test_one_that_gets_ready_in_between_is_started_again_and_again() -> None:
    engine = Dying()

    async def work(backend: Backend) -> None:
        for _ in range(2 * MOST):
            await die(backend, engine)
            assert not backend.lost

    follow(engine, work)


async def begun(backend: Backend, engine: Dying) -> "asyncio.Task[Answer]":
    """Return the first notice of an answer, to come, once the engine has the question."""

    async def first(answers: AsyncGenerator[Answer]) -> Answer:
        return await anext(answers)

    pending = asyncio.create_task(first(backend.answers(Request(0, HELLO))))
    await wait(lambda: engine.questions)
    return pending


@pytest.mark.parametrize("exact", [False, True])
def test_who_leaves_when_the_answer_begins_has_left(exact: bool) -> None:
    engine = Dying()

    async def work(backend: Backend) -> None:
        pending = await begun(backend, engine)
        engine.tell(ReplyEvents(1, ()))
        pending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await pending
        assert backend.under_way == 0

    follow(engine, work, LaunchOptions(exact=exact), PATIENCE_S)
    # Where bits count, nothing comes from what was answered before.
    assert [each.deterministic for each in engine.questions if isinstance(each, Request)] == [exact]


def test_what_happens_to_several_in_one_go_reaches_each() -> None:
    engine = Dying()

    async def text_of(backend: Backend) -> str:
        notices = [each async for each in backend.answers(Request(0, HELLO))]
        events = [one for each in notices if isinstance(each, ReplyEvents) for one in each.events]
        return "".join(each.text for each in events if isinstance(each, Text))

    async def work(backend: Backend) -> None:
        texts = asyncio.gather(text_of(backend), text_of(backend))
        await wait(lambda: len(engine.questions) == 2)
        for letter in "abc":
            for number in (1, 2):
                engine.tell(ReplyEvents(number, (Text(letter * number),)))
        for number in (1, 2):
            engine.tell(Finished(REPLY, Message.assistant(""), id=number))
        assert list(await texts) == ["abc", "aabbcc"]

    follow(engine, work)


def test_what_a_worker_was_missing_for_is_loaded_again_when_it_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = Dying()

    async def ask(backend: Backend) -> None:
        await wait(lambda: backend.lost)
        with pytest.raises(EngineGone, match="worker a:1 cannot be reached"):
            await backend.count(HELLO)

    async def work(backend: Backend) -> None:
        engine.away = True
        await die(backend, engine)
        loads = engine.loads
        await ask(backend)
        await ask(backend)
        assert engine.loads == loads + 1, "not at every request"
        engine.away = False
        monkeypatch.setattr(serving, "_AGAIN_S", 0.0)
        backend._again_s = 0.0
        await ask(backend)
        await wait(lambda: backend.ready)
        assert not backend.lost

    follow(engine, work, LaunchOptions(workers=("a:1",)))
