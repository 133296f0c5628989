"""Which model is in memory: turns among those who ask for different ones, and rest after a while."""

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
    """A backend that notes what it is told, and refuses what it cannot have."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.running = 0
        self.under_way = 0

    async def load(self, launch: LaunchOptions) -> None:
        assert self.running == 0
        self.told.append(f"load {launch.target}")
        await asyncio.sleep(0)
        if launch == C.launch:
            raise ModelLoadError("too large")

    async def unload(self) -> None:
        assert self.running == 0
        self.told.append("unload")


def switched(
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
    return loads.told


async def use(residence: Residence, loads: Loads, model: ServedModel, steps: int = 3) -> None:
    async with residence.use(model):
        assert residence.loaded == model
        loads.running += 1
        loads.told.append(model.name)
        for _ in range(steps):
            await asyncio.sleep(0)
            assert residence.loaded == model
        loads.running -= 1


async def until(holds: Callable[[], bool]) -> None:
    """Wait for what comes after a rest."""
    async with asyncio.timeout(PATIENCE_S):
        while not holds():
            await asyncio.sleep(0.001)


def test_those_for_the_old_model_end_first_and_nobody_overtakes() -> None:
    async def work(residence: Residence, loads: Loads) -> None:
        wanted = [A, A, B, A, B, B, A]
        await asyncio.gather(*(use(residence, loads, each) for each in wanted))

    assert switched(work) == ["a", "a", "load b", "b", "b", "b", "load a", "a", "a"]


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

    assert switched(work) == ["a", "a"]


def test_what_cannot_be_loaded_is_told_to_those_who_wait_for_it_alone() -> None:
    async def work(residence: Residence, loads: Loads) -> None:
        wanted = [C, C, A]
        found = await asyncio.gather(
            *(use(residence, loads, each) for each in wanted), return_exceptions=True
        )
        assert [type(each) for each in found] == [ModelLoadError, ModelLoadError, type(None)]

    assert switched(work) == ["load c", "load a", "a"]


def test_more_than_may_wait_are_refused() -> None:
    async def work(residence: Residence, loads: Loads) -> None:
        found = await asyncio.gather(
            *(use(residence, loads, each) for each in (A, B, B, B)), return_exceptions=True
        )
        assert [type(each) for each in found].count(Busy) == 1

    assert switched(work, most=2) == ["a", "load b", "b", "b"]


@pytest.mark.parametrize("keep_alive_s", [0.0, 0.01])
def test_after_a_while_of_rest_it_is_let_go_and_loaded_again(keep_alive_s: float) -> None:
    async def work(residence: Residence, loads: Loads) -> None:
        await use(residence, loads, A, steps=50)
        await until(lambda: residence.loaded is None)
        await use(residence, loads, A)
        await use(residence, loads, B)

    told = switched(work, keep_alive_s)
    assert told[:4] == ["a", "unload", "load a", "a"]
    assert told[-2:] == ["load b", "b"]


def test_who_is_never_to_rest_does_not() -> None:
    async def work(residence: Residence, loads: Loads) -> None:
        await use(residence, loads, A)
        await asyncio.sleep(0.02)

    assert switched(work) == ["a"]


def test_who_waited_too_long_is_told_and_not_waited_for() -> None:
    async def work(residence: Residence, loads: Loads) -> None:
        first = asyncio.create_task(use(residence, loads, A, steps=10_000))
        await asyncio.sleep(0)
        with pytest.raises(WaitedTooLong):
            await use(residence, loads, B)
        assert residence.waiting == 0
        await first

    assert switched(work, max_wait_s=0.001) == ["a"]


def test_what_rests_is_known_until_something_else_is_loaded() -> None:
    async def work(residence: Residence, loads: Loads) -> None:
        assert residence.resting is None
        await use(residence, loads, A)
        await until(lambda: residence.resting == A)
        await use(residence, loads, B)
        assert residence.resting is None
        await until(lambda: residence.resting == B)

    assert switched(work, 0.0) == ["a", "unload", "load b", "b", "unload"]


def test_a_rest_begins_anew_after_every_request(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(residence: Residence, loads: Loads) -> None:
        loop, later_s = asyncio.get_running_loop(), 0.0
        start_s, clock = loop.time(), loop.time
        monkeypatch.setattr(loop, "time", lambda: clock() + later_s)
        await use(residence, loads, A)
        for _ in range(3):
            later_s += 600.0
            for _ in range(5):
                await asyncio.sleep(0)
            assert residence.loaded == A, loop.time() - start_s
            await use(residence, loads, A)
        later_s += 1100.0
        for _ in range(5):
            await asyncio.sleep(0)
        assert residence.loaded is None

    assert switched(work, 1000.0) == ["a"] * 4 + ["unload"]


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
        await asyncio.wait_for(use(residence, loads, A), PATIENCE_S)

    assert switched(work) == [f"load {model.name}", "load a", "a"]
