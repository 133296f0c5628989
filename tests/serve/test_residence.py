"""The model in memory: turns among requests for different ones, and rest after a while."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest

from localspec.engine.engine import Busy
from localspec.errors import ModelLoadError
from localspec.options import LaunchOptions, ReplyOptions
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


def test_who_waited_too_long_is_not_waited_for() -> None:
    async def work(residence: Residence, loads: Loads) -> None:
        first = asyncio.create_task(use(residence, loads, A, steps=10_000))
        await asyncio.sleep(0)
        with pytest.raises(WaitedTooLong):
            await use(residence, loads, B)
        assert residence.waiting == 0
        await first

    assert follow(work, max_wait_s=0.001) == ["a"]


@pytest.mark.parametrize("keep_alive_s", [0.0, 0.01])
def test_a_model_at_rest_is_unloaded_and_loaded_again(keep_alive_s: float) -> None:
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
