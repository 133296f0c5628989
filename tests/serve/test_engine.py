"""The model in memory, by itself: turns among requests for different ones, rest, and how often an engine may die."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from typing import Any, cast

import pytest

from localspec.chat.events import Finished, Reply, Text
from localspec.chat.request import Request
from localspec.decoding.round import Spent, StopReason
from localspec.engine.engine import Answer, Busy, EngineGone, RemoteEngine
from localspec.engine.protocol import EngineDied, Failed, Notice, Question, Ready, ReplyEvents
from localspec.errors import ModelLoadError
from localspec.messages import Message
from localspec.options import LaunchOptions, ReplyOptions
from localspec.serve import backend as serving
from localspec.serve.backend import Backend, WaitedTooLong
from localspec.serve.residence import Residence, ServedModel
from tests.waiting import PATIENCE_S

A, B, C = (ServedModel(each, LaunchOptions(target=each), ReplyOptions()) for each in "abc")


class Loads:
    """A backend that notes what it does, and cannot load C."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.running = self.under_way = 0

    async def load(self, launch: LaunchOptions) -> None:
        assert self.running == 0
        self.log.append(f"load {launch.target}")
        await asyncio.sleep(0)
        if launch == C.launch:
            raise ModelLoadError("too large")

    async def unload(self) -> None:
        assert self.running == 0
        self.log.append("unload")


def follow(
    work: Callable[[Residence, Loads], Coroutine[Any, Any, None]],
    keep_alive_s: float | None = None,
    most: int = 99,
    max_wait_s: float | None = None,
) -> list[str]:
    loads = Loads()

    async def run() -> None:
        residence = Residence(cast("Backend", loads), A, keep_alive_s, most, max_wait_s)
        await work(residence, loads)

    asyncio.run(run())
    return loads.log


async def use(residence: Residence, loads: Loads, model: ServedModel, steps: int = 3) -> None:
    async with residence.use(model):
        assert residence.loaded == model
        loads.running += 1
        loads.log.append(model.name)
        for _ in range(steps):
            await asyncio.sleep(0)
            assert residence.loaded == model
        loads.running -= 1


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not holds():
            await asyncio.sleep(0.001)


@pytest.mark.parametrize(
    ("wanted", "most", "errors", "log"),
    [
        ([A, A, B, A, B, B, A], 99, [], ["a", "a", "load b", "b", "b", "b", "load a", "a", "a"]),
        ([C, C, A], 99, [ModelLoadError] * 2, ["load c", "load a", "a"]),
        ([A, B, B, B], 2, [Busy], ["a", "load b", "b", "b"]),
    ],
    ids=["none is overtaken", "only those for C fail", "one too many"],
)
def test_requests_for_several_models(
    wanted: list[ServedModel], most: int, errors: list[type], log: list[str]
) -> None:
    async def work(residence: Residence, loads: Loads) -> None:
        uses = (use(residence, loads, each) for each in wanted)
        ends = await asyncio.gather(*uses, return_exceptions=True)
        assert [type(each) for each in ends if each is not None] == errors

    assert follow(work, most=most) == log


def test_who_waits_and_goes_away_is_not_waited_for() -> None:
    async def work(residence: Residence, loads: Loads) -> None:
        first = asyncio.create_task(use(residence, loads, A, steps=20))
        await asyncio.sleep(0)
        gone = asyncio.create_task(use(residence, loads, B))
        await asyncio.sleep(0)
        assert residence.waiting == 1
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        await use(residence, loads, A)
        await first
        assert residence.waiting == 0

    assert follow(work) == ["a", "a"]


def test_who_waits_too_long_or_goes_away_is_not_waited_for() -> None:
    async def work(residence: Residence, loads: Loads) -> None:
        first = asyncio.create_task(use(residence, loads, A, steps=10_000))
        await asyncio.sleep(0)
        with pytest.raises(WaitedTooLong):
            await use(residence, loads, B)
        assert residence.waiting == 0
        await first

    assert follow(work, max_wait_s=0.001) == ["a"]


def test_a_model_at_rest_is_unloaded_and_loaded_again() -> None:
    for keep_alive_s in [0.0, 0.01]:

        async def work(residence: Residence, loads: Loads) -> None:
            assert residence.resting is None
            await use(residence, loads, A, steps=50)
            await until(lambda: residence.loaded is None)
            await until(lambda: residence.resting == A)
            await use(residence, loads, A)
            await use(residence, loads, B)
            assert residence.resting is None
            await until(lambda: residence.resting == B)

        log = follow(work, keep_alive_s)
        assert log[:4] == ["a", "unload", "load a", "a"]
        assert log[-3:] == ["load b", "b", "unload"]


def test_one_that_is_never_to_rest_does_not() -> None:
    async def work(residence: Residence, loads: Loads) -> None:
        await use(residence, loads, A)
        await asyncio.sleep(0.02)

    assert follow(work) == ["a"]


def test_the_time_of_rest_begins_with_every_request(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(residence: Residence, loads: Loads) -> None:
        loop, later_s = asyncio.get_running_loop(), 0.0
        clock = loop.time
        monkeypatch.setattr(loop, "time", lambda: clock() + later_s)
        await use(residence, loads, A)
        for step_s in (600.0, 600.0, 600.0, 1100.0):
            later_s += step_s
            for _ in range(5):
                await asyncio.sleep(0)
            assert (residence.loaded is None) is (step_s > 1000.0)
            if residence.loaded:
                await use(residence, loads, A)

    assert follow(work, 1000.0) == ["a"] * 4 + ["unload"]


@pytest.mark.parametrize("model", [B, C])
def test_who_leaves_at_the_very_moment_of_his_turn_is_not_counted_for_ever(
    model: ServedModel,
) -> None:
    async def work(residence: Residence, loads: Loads) -> None:
        leaving = asyncio.create_task(use(residence, loads, model))
        load = loads.load

        async def load_and_leave(launch: LaunchOptions) -> None:
            try:
                await load(launch)
            finally:
                if launch == model.launch:  # after it was let in or refused, before it goes on
                    asyncio.get_running_loop().call_soon(leaving.cancel)

        loads.load = load_and_leave  # type: ignore[method-assign]
        with pytest.raises(asyncio.CancelledError):
            await leaving
        async with asyncio.timeout(PATIENCE_S):
            await use(residence, loads, A)

    assert follow(work) == [f"load {model.name}", "load a", "a"]


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


def follow_backend(
    engine: Dying,
    doing: Callable[[Backend], Awaitable[None]],
    launch: LaunchOptions | None = None,
    max_wait_s: float | None = None,
) -> None:
    async def run() -> None:
        backend = Backend(engine, launch or LaunchOptions(), 8, max_wait_s=max_wait_s)
        await backend.start()
        try:
            await doing(backend)
        finally:
            await backend.close()

    asyncio.run(run())


async def wait_for(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not holds():
            await asyncio.sleep(0.001)


async def die(backend: Backend, engine: Dying) -> None:
    """Let the engine die, and wait_for until it was started again, or given up."""
    starts = engine.starts
    engine.tell(EngineDied("gone"))
    await wait_for(lambda: backend.lost or (engine.starts > starts and (backend.ready or not engine.gets_ready)))  # fmt: skip


def test_an_engine_that_dies_too_often_and_is_never_ready_stays_down() -> None:
    engine = Dying(gets_ready=False)

    async def doing(backend: Backend) -> None:
        for death in range(MOST):
            assert not backend.lost, death
            await die(backend, engine)
        assert backend.lost == "gone"
        assert engine.starts == MOST, "the first start, and one after each death but the last"
        with pytest.raises(EngineGone, match="gone"):
            await backend.count(HELLO)

    follow_backend(engine, doing)


def test_one_that_gets_ready_in_between_is_started_again_and_again() -> None:
    engine = Dying()

    async def doing(backend: Backend) -> None:
        for _ in range(2 * MOST):
            await die(backend, engine)
            assert not backend.lost

    follow_backend(engine, doing)


async def begun(backend: Backend, engine: Dying) -> "asyncio.Task[Answer]":
    """Return the first notice of an answer, to come, once the engine has the question."""

    async def first(answers: AsyncGenerator[Answer]) -> Answer:
        return await anext(answers)

    pending = asyncio.create_task(first(backend.answers(Request(0, HELLO))))
    await wait_for(lambda: engine.questions)
    return pending


@pytest.mark.parametrize("exact", [False, True])
def test_who_leaves_when_the_answer_begins_has_left(exact: bool) -> None:
    engine = Dying()

    async def doing(backend: Backend) -> None:
        pending = await begun(backend, engine)
        engine.tell(ReplyEvents(1, ()))
        pending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await pending
        assert backend.under_way == 0

    follow_backend(engine, doing, LaunchOptions(exact=exact), PATIENCE_S)
    # Where bits count, nothing comes from what was answered before.
    assert [each.deterministic for each in engine.questions if isinstance(each, Request)] == [exact]


def test_what_happens_to_several_in_one_go_reaches_each() -> None:
    engine = Dying()

    async def text_of(backend: Backend) -> str:
        notices = [each async for each in backend.answers(Request(0, HELLO))]
        events = [one for each in notices if isinstance(each, ReplyEvents) for one in each.events]
        return "".join(each.text for each in events if isinstance(each, Text))

    async def doing(backend: Backend) -> None:
        texts = asyncio.gather(text_of(backend), text_of(backend))
        await wait_for(lambda: len(engine.questions) == 2)
        for letter in "abc":
            for number in (1, 2):
                engine.tell(ReplyEvents(number, (Text(letter * number),)))
        for number in (1, 2):
            engine.tell(Finished(REPLY, Message.assistant(""), id=number))
        assert list(await texts) == ["abc", "aabbcc"]

    follow_backend(engine, doing)


def test_what_a_worker_was_missing_for_is_loaded_again_when_it_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = Dying()

    async def ask(backend: Backend) -> None:
        await wait_for(lambda: backend.lost)
        with pytest.raises(EngineGone, match="worker a:1 cannot be reached"):
            await backend.count(HELLO)

    async def doing(backend: Backend) -> None:
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
        await wait_for(lambda: backend.ready)
        assert not backend.lost

    follow_backend(engine, doing, LaunchOptions(workers=("a:1",)))
