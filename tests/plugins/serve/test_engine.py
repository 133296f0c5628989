"""The models in memory, by themselves: turns among requests for different ones, rest, and how often an engine may die."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, cast

import pytest

from localspec.chat.events import Finished, Reply, Text
from localspec.chat.request import Request
from localspec.decoding.round import Spent, StopReason
from localspec.engine.protocol import EngineDied, Notice, Question, Ready, ReplyEvents, Response
from localspec.engine.remote_engine import RemoteEngine
from localspec.errors import Busy, EngineGone, ModelLoadError, NoRoom
from localspec.messages import Held, Message
from localspec.options import LaunchOptions, ReplyOptions
from localspec.plugins.serve.backend import Backend, WaitedTooLong
from localspec.plugins.serve.model_pool import ModelPool, ServedModel
from tests.waiting import PATIENCE_S

A, B, C, D = (ServedModel(each, LaunchOptions(target=each), ReplyOptions()) for each in "abcd")


class Memory:
    """Engines that note what they do; as many as there is room for are loaded, and C cannot be."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.log: list[str] = []
        self.loaded: list[str] = []
        self.running: list[str] = []

    def engine(self, model: ServedModel) -> Backend:
        return cast("Backend", Loads(self, model.name))


class Loads:
    lost = ""

    def __init__(self, memory: Memory, name: str) -> None:
        self.memory, self.name = memory, name

    @property
    def ready(self) -> str | None:
        return self.name if self.name in self.memory.loaded else None

    async def held(self) -> Held:
        return Held({"RAM": 1})

    async def load(self, others: Held | None = None) -> None:
        memory = self.memory
        assert self.name not in memory.loaded
        assert (others or Held()).places.get("RAM", 0) == len(memory.loaded)
        await asyncio.sleep(0)
        if others is not None and len(memory.loaded) == memory.room:
            raise NoRoom(self.name)
        memory.log.append(f"load {self.name}")
        if self.name == C.name:
            raise ModelLoadError("too large")
        memory.loaded.append(self.name)

    async def unload(self) -> None:
        assert self.name not in self.memory.running
        if self.name in self.memory.loaded:
            self.memory.loaded.remove(self.name)
            self.memory.log.append(f"unload {self.name}")

    async def close(self) -> None:
        self.memory.log.append(f"close {self.name}")


def follow(
    work: Callable[[ModelPool, Memory], Coroutine[Any, Any, None]],
    keep_alive_s: float | None = None,
    most: int = 99,
    room: int = 1,
    started: tuple[ServedModel, ...] = (A,),
) -> list[str]:
    memory = Memory(room)

    async def run() -> None:
        pool = ModelPool(memory.engine, keep_alive_s, most)
        await pool.start(started)
        await work(pool, memory)

    asyncio.run(run())
    return memory.log[len(started) :]


async def use(pool: ModelPool, memory: Memory, model: ServedModel, steps: int = 3) -> None:
    async with pool.use(model):
        assert model in pool.loaded
        memory.running.append(model.name)
        memory.log.append(model.name)
        for _ in range(steps):
            await asyncio.sleep(0)
            assert model in pool.loaded
        memory.running.remove(model.name)


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not holds():
            await asyncio.sleep(0.001)


@pytest.mark.parametrize(
    ("room", "wanted", "most", "errors", "log"),
    [
        # While it is foreseen whether B fits, A answers what comes.
        (1, [A, A, B, A, B, B], 99, [], "a a a -a +b b b b"),
        (1, [C, C, A], 99, [ModelLoadError] * 2, "a -a +c"),
        (1, [A, B, B, B], 2, [Busy] * 2, "a -a +b b"),
        (2, [A, B, A, B, D, A], 99, [], "a a a +b b b -a +d d"),
        (3, [D, B, A, D, B, A], 99, [], "a a +d d d +b b b"),
    ],
    ids=["one after the other", "only those for C fail", "one too many", "two of three", "all"],
)
def test_requests_for_several_models(
    room: int, wanted: list[ServedModel], most: int, errors: list[type], log: str
) -> None:
    async def work(pool: ModelPool, memory: Memory) -> None:
        uses = (use(pool, memory, each) for each in wanted)
        ends = await asyncio.gather(*uses, return_exceptions=True)
        assert [type(each) for each in ends if each is not None] == errors
        assert pool.under_way == 0

    short = {"+": "load ", "-": "unload "}
    assert follow(work, most=most, room=room) == [
        short.get(each[0], each[0]) + each[1:] if each[0] in short else each for each in log.split()
    ]


def test_one_that_leaves_takes_no_more_and_those_that_wait_have_their_turn() -> None:
    async def work(pool: ModelPool, memory: Memory) -> None:
        tasks = [asyncio.create_task(use(pool, memory, A, steps=50))]
        await asyncio.sleep(0)
        tasks.append(asyncio.create_task(use(pool, memory, B)))
        for _ in range(10):
            await asyncio.sleep(0)
        assert pool.states == {"a": "loaded", "b": "loading"}
        tasks.append(asyncio.create_task(use(pool, memory, A)))
        await asyncio.gather(*tasks)

    assert follow(work) == ["a", "unload a", "load b", "b", "unload b", "load a", "a"]


def test_what_was_used_longest_ago_is_let_go_and_first_what_nothing_uses() -> None:
    async def work(pool: ModelPool, memory: Memory) -> None:
        await use(pool, memory, A)  # B was never used
        await use(pool, memory, D)
        busy = asyncio.create_task(use(pool, memory, A, steps=99))
        await use(pool, memory, B)
        assert not busy.done()
        await busy

    log = follow(work, room=2, started=(A, B))
    assert log == ["a", "unload b", "load d", "d", "a", "unload d", "load b", "b"]


def test_of_busy_models_the_first_that_nothing_uses_is_let_go() -> None:
    async def work(pool: ModelPool, memory: Memory) -> None:
        long, short = (
            asyncio.create_task(use(pool, memory, each, steps))
            for each, steps in ((B, 900), (A, 50))
        )
        await asyncio.sleep(0)
        last = asyncio.create_task(use(pool, memory, D))
        for _ in range(20):
            await asyncio.sleep(0)
        assert [each.model for each in pool.entries if each.evicting] == [B]
        assert not short.done()
        more = asyncio.create_task(use(pool, memory, B))  # B was used longest ago, and leaves
        await asyncio.gather(short, last, more)
        assert not long.done()
        await long

    log = follow(work, room=2, started=(A, B))
    assert log == ["b", "a", "unload a", "b", "load d", "d"]


@pytest.mark.parametrize("where", ["load", "__init__"])
def test_a_fault_in_loading_ends_the_wait_and_the_next_model_is_loaded(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = getattr(Loads, where)

    def fail(loads: Loads, *given: Any, **named: Any) -> Any:
        if B.name in {getattr(loads, "name", ""), *given[1:]}:
            raise RuntimeError("a bug")
        return right(loads, *given, **named)

    async def work(pool: ModelPool, memory: Memory) -> None:
        monkeypatch.setattr(Loads, where, fail)
        tasks = [asyncio.create_task(use(pool, memory, each)) for each in (B, B, D)]
        async with asyncio.timeout(PATIENCE_S):
            ends = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(each) for each in ends] == [RuntimeError, RuntimeError, type(None)]
        assert pool.states == {"a": "loaded", "d": "loaded"}

    assert follow(work, room=2) == ["load d", "d"]


def test_all_that_it_was_started_with_is_loaded_also_where_little_is_left() -> None:
    async def work(pool: ModelPool, memory: Memory) -> None:
        assert pool.loaded == [A, B]

    assert follow(work, room=9, started=(A, B)) == []
    with pytest.raises(ModelLoadError):
        follow(work, room=9, started=(A, C))


def test_a_server_that_stops_while_it_loads_tells_what_waits() -> None:
    async def work(pool: ModelPool, memory: Memory) -> None:
        stuck = asyncio.Event()

        async def load(_loads: Loads, others: Held | None = None) -> None:
            stuck.set()
            await asyncio.Event().wait()

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Loads, "load", load)
            waiting = asyncio.create_task(use(pool, memory, B))
            await stuck.wait()
            await use(pool, memory, A)
            await pool.close()
            with pytest.raises(EngineGone, match="stops"):
                await waiting
            with pytest.raises(EngineGone, match="stops"):
                await use(pool, memory, D)

    assert follow(work, room=2) == ["a", "close a", "close b"]


def test_who_waits_and_goes_away_or_waits_too_long_is_not_waited_for() -> None:
    async def work(pool: ModelPool, memory: Memory) -> None:
        first = asyncio.create_task(use(pool, memory, A, steps=10_000))
        await asyncio.sleep(0)
        gone = asyncio.create_task(use(pool, memory, B))
        await until(lambda: pool.waiting == {"b": 1})
        last = asyncio.create_task(use(pool, memory, A))
        await until(lambda: pool.waiting == {"b": 1, "a": 1})
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        await last
        pool._max_wait_s = 0.001
        with pytest.raises(WaitedTooLong):
            await use(pool, memory, B)
        assert not first.done()
        await first
        assert not pool.waiting
        assert pool.states == {"a": "loaded"}

    assert follow(work) == ["a", "a"]


def test_a_model_at_rest_is_unloaded_and_loaded_again() -> None:
    def resting(pool: ModelPool) -> list[ServedModel]:
        return [each.model for each in pool.entries if each.unloaded]

    for keep_alive_s in [0.0, 0.01]:

        async def work(pool: ModelPool, memory: Memory) -> None:
            assert resting(pool) == []
            await use(pool, memory, A, steps=50)
            await until(lambda: pool.states == {"a": "unloaded"})
            await until(lambda: resting(pool) == [A])
            await use(pool, memory, A)
            await use(pool, memory, B)
            await until(lambda: B in resting(pool))

        log = follow(work, keep_alive_s)
        log = log[log.index("a") :]
        assert log[:4] == ["a", "unload a", "load a", "a"]
        assert log[-3:] == ["load b", "b", "unload b"]


def test_each_rests_by_itself() -> None:
    async def work(pool: ModelPool, memory: Memory) -> None:
        busy = asyncio.create_task(use(pool, memory, B, steps=10_000))
        await asyncio.sleep(0)
        await until(lambda: pool.states == {"a": "unloaded", "b": "loaded"})
        assert not busy.done()
        await use(pool, memory, A)
        busy.cancel()

    log = follow(work, 0.001, room=2, started=(A, B))
    assert log[:4] == ["b", "unload a", "load a", "a"]


def test_what_rests_goes_too_when_there_is_no_room_for_another() -> None:
    async def work(pool: ModelPool, memory: Memory) -> None:
        await until(lambda: pool.entries[0].unloaded)
        busy = asyncio.create_task(use(pool, memory, B, steps=50))
        await asyncio.sleep(0)
        await use(pool, memory, D)
        await busy
        assert [each.model for each in pool.entries] == [D]

    assert follow(work, 0.02)[:5] == ["unload a", "load b", "b", "unload b", "load d"]


def test_one_whose_rest_is_about_to_begin_is_loaded_again_for_who_comes() -> None:
    async def work(pool: ModelPool, memory: Memory) -> None:
        pool.entries[0].expired = True
        pool._advance()  # the next line runs before the task that unloads
        await use(pool, memory, A)

    assert follow(work) == ["unload a", "load a", "a"]


def test_the_time_of_rest_begins_with_every_request(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(pool: ModelPool, memory: Memory) -> None:
        loop, later_s = asyncio.get_running_loop(), 0.0
        clock = loop.time
        monkeypatch.setattr(loop, "time", lambda: clock() + later_s)
        await use(pool, memory, A)
        for step_s in (600.0, 600.0, 600.0, 1100.0):
            later_s += step_s
            for _ in range(5):
                await asyncio.sleep(0)
            assert (not pool.loaded) is (step_s > 1000.0)
            if pool.loaded:
                await use(pool, memory, A)

    assert follow(work, 1000.0) == ["a"] * 4 + ["unload a"]


@pytest.mark.parametrize("model", [B, C])
def test_who_leaves_at_the_very_moment_of_his_turn_is_not_counted_for_ever(
    model: ServedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(pool: ModelPool, memory: Memory) -> None:
        leaving = asyncio.create_task(use(pool, memory, model))
        load = Loads.load

        async def load_and_leave(loads: Loads, others: Held | None = None) -> None:
            try:
                await load(loads, others)
            finally:
                if loads.name == model.name:  # after it was let in or refused, before it goes on
                    asyncio.get_running_loop().call_soon(leaving.cancel)

        monkeypatch.setattr(Loads, "load", load_and_leave)
        with pytest.raises(asyncio.CancelledError):
            await leaving
        assert pool.under_way == 0
        async with asyncio.timeout(PATIENCE_S):
            await use(pool, memory, A)

    assert follow(work, room=2) == [f"load {model.name}", "a"]


READY = Ready("a-model", None, "off", 100, (), 0.0, False)
REPLY = Reply("", "", (), StopReason.EOG, 7, 1, 0, 1, 0.1, 0.1, 0.1, Spent(), "off")
HELLO = (Message.user("hello"),)
MOST = 5


class Dying(RemoteEngine):
    """An engine that dies as often as it is told, and gets ready in between or not."""

    def __init__(self, *, gets_ready: bool = True) -> None:
        super().__init__(revives=True)
        self.questions: list[Question] = []
        self.starts, self.gets_ready = 0, gets_ready

    def tell(self, notice: Notice) -> None:
        if isinstance(notice, EngineDied):
            self._die(notice.reason)
        else:
            self._deliver(notice)

    def start(self) -> None:
        self.starts += 1

    def load(self, options: LaunchOptions, others: Held | None = None) -> None:
        if not self.starts:
            self.start()
        self._requested, self._outcome, self._ready = options, None, None
        if self.starts == 1 or self.gets_ready:
            asyncio.get_running_loop().call_soon(self.tell, READY)

    def _submit(self, question: Question) -> None:
        self.questions.append(question)

    def cancel(self, number: int | None = None) -> None:
        pass


def follow_backend(
    engine: Dying, doing: Callable[[Backend], Awaitable[None]], **launch: Any
) -> None:
    async def run() -> None:
        backend = Backend(engine, LaunchOptions(**launch), max_wait_s=PATIENCE_S)
        await backend.load()
        try:
            await doing(backend)
        finally:
            await backend.close()

    asyncio.run(run())


async def die(backend: Backend, engine: Dying) -> None:
    """Let the engine die, and wait until it was started again, or given up."""
    starts = engine.starts
    engine.tell(EngineDied("gone"))

    def again() -> object:
        return engine.starts > starts and (backend.ready or not engine.gets_ready)

    await until(lambda: backend.lost or again())


@pytest.mark.parametrize("gets_ready", [True, False])
def test_an_engine_that_dies_too_often_stays_down_unless_it_got_ready_in_between(
    gets_ready: bool,
) -> None:
    engine = Dying(gets_ready=gets_ready)

    async def doing(backend: Backend) -> None:
        for _ in range(2 * MOST if gets_ready else MOST):
            assert not backend.lost
            await die(backend, engine)
        assert backend.lost == ("" if gets_ready else "gone")
        if not gets_ready:
            assert engine.starts == MOST, "the first start, and one after each death but the last"
            with pytest.raises(EngineGone, match="gone"):
                await backend.count(HELLO)

    follow_backend(engine, doing)


@pytest.mark.parametrize("exact", [False, True])
def test_who_leaves_when_the_answer_begins_has_left(exact: bool) -> None:
    engine = Dying()

    async def doing(backend: Backend) -> None:
        async def first() -> Response:
            return await anext(backend.notices(Request(0, HELLO)))

        pending = asyncio.create_task(first())
        await until(lambda: engine.questions)
        engine.tell(ReplyEvents(1, ()))
        pending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await pending

    follow_backend(engine, doing, exact=exact)
    # Where bits count, nothing comes from what was answered before.
    assert [each.deterministic for each in engine.questions if isinstance(each, Request)] == [exact]


def test_what_happens_to_several_in_one_go_reaches_each() -> None:
    engine = Dying()

    async def text_of(backend: Backend) -> str:
        notices = [each async for each in backend.notices(Request(0, HELLO))]
        events = [one for each in notices if isinstance(each, ReplyEvents) for one in each.events]
        return "".join(each.text for each in events if isinstance(each, Text))

    async def doing(backend: Backend) -> None:
        texts = asyncio.gather(text_of(backend), text_of(backend))
        await until(lambda: len(engine.questions) == 2)
        for letter in "abc":
            for number in (1, 2):
                engine.tell(ReplyEvents(number, (Text(letter * number),)))
        for number in (1, 2):
            engine.tell(Finished(REPLY, Message.assistant(""), id=number))
        assert list(await texts) == ["abc", "aabbcc"]

    follow_backend(engine, doing)
