"""Timing passes in a virtual world, where time is a number, and on real weights."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import Mock

import pytest

from localspec.decoding.cancel import CancelFlag, Cancelled
from localspec.decoding.costs import PassCosts
from localspec.llama.calibrate import (
    OF_DRAFT_MODEL,
    OF_TARGET,
    Measured,
    Schedule,
    measure_pass_costs,
    sample,
)
from localspec.llama.devices import Device
from localspec.llama.model import LlamaModel
from localspec.llama.pass_limit import PassLimit
from localspec.options import LoadOptions
from tests.llama.tiny_mamba import write

STAIRCASE = {1: 23, 2: 42, 3: 56, 4: 68, 5: 84, 6: 98, 7: 107, 8: 115, 9: 124, 12: 143, 16: 138}
LONG = replace(OF_TARGET, budget_s=9.0, first_s=9.0)


def staircase_s(width: int) -> float:
    return STAIRCASE.get(width, 100 + 5 * width) / 1000


@dataclass(slots=True)
class World:
    """Passes take what `seconds` says of their width and how often there was one of it, and nothing else takes time."""

    seconds: Callable[[int, int], float] = lambda width, _nth: staircase_s(width)
    now: float = 0.0
    passes: list[int] = field(default_factory=list)

    def run_pass(self, width: int) -> None:
        self.passes.append(width)
        self.now += self.seconds(width, self.passes.count(width))

    def measure(
        self, schedule: Schedule = OF_TARGET, *progress: Any, tries: bool = False
    ) -> Measured:
        return sample(self.run_pass, schedule, lambda: self.now, *progress, tries=tries)


def test_costs_are_what_the_clock_says_where_passes_are_undisturbed() -> None:
    costs = World().measure(LONG).costs
    assert costs.widths == tuple(sorted(OF_TARGET.widths))
    assert costs.seconds == pytest.approx([staircase_s(width) for width in costs.widths])
    random = Random(3)
    world = World(lambda width, _: staircase_s(width) * random.choice([1.0, 1.0, 1.7, 40.0]))
    long = replace(OF_TARGET, budget_s=1e9, most_s=1e9, needed=4, enough=40)
    costs = world.measure(replace(long, widths=(1, 2, 4, 8))).costs
    assert costs.seconds == pytest.approx([staircase_s(width) for width in (1, 2, 4, 8)])
    busy = World(lambda width, _: staircase_s(width) * random.uniform(1, 9))
    assert busy.measure().disturbed
    assert not World().measure().disturbed


def test_a_plain_pass_is_timed_behind_others_and_a_wide_one_behind_another_width() -> None:
    """A device prepares for each width anew, and for one that comes again it is ready at the third pass."""

    def preparing() -> World:
        world = World(lambda width, _: 0.001 if world.passes[-3:] == [width] * 3 else 0.003)
        return world

    world = preparing()
    costs = world.measure(replace(OF_TARGET, widths=(1, 2, 4, 8), needed=4)).costs
    assert costs.seconds == pytest.approx((0.001, 0.003, 0.003, 0.003))
    wide = [each for each in zip(world.passes, world.passes[1:], strict=False) if min(each) > 1]
    assert not [one for one, other in wide if one == other]
    draft = preparing().measure(replace(OF_DRAFT_MODEL, widths=(1, 2, 4), needed=3)).costs
    assert draft.of(1) == pytest.approx(0.003), "its passes come a few at a time"


def test_first_passes_that_take_more_are_not_timed_where_there_are_tries() -> None:
    def of_a_worker(width: int, nth: int) -> float:
        return 0.04 + staircase_s(width) + 0.2 * (nth == 1)

    found = World(of_a_worker).measure(tries=True).costs
    needed = OF_TARGET.widths[: OF_TARGET.needed]
    assert [found.of(each) for each in needed] == pytest.approx(
        [0.04 + staircase_s(each) for each in needed]
    )
    assert World(of_a_worker).measure().costs.of(7) > 0.2, "there was time for one pass"


def test_a_worker_gets_tries(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tried = Mock(return_value=Measured(PassCosts((1,), (0.1,)), None))
    monkeypatch.setattr("localspec.llama.calibrate.sample", tried)
    model = LlamaModel(write(tmp_path / "mamba.gguf"), LoadOptions(threads=1))
    for backend in ("RPC", "CUDA"):
        device = Device(f"{backend}0", "", 1 << 30, 1 << 30, "GPU", 0, backend)
        placed = Mock(return_value=[device])
        monkeypatch.setattr("localspec.llama.calibrate.placed_on", placed)
        measure_pass_costs(model, model.options, SHORT)
        assert tried.call_args.kwargs["tries"] == (backend == "RPC")
    model.close()


def test_the_budget_bounds_what_is_measured_and_narrow_widths_come_first() -> None:
    world = World()
    world.measure()
    assert world.now <= OF_TARGET.budget_s + 1e-6
    world = World(lambda width, _nth: 4.5 * staircase_s(width))
    assert {*world.measure().costs.widths} >= {*range(1, 9), 10, 12, 14, 16}
    assert world.now <= OF_TARGET.most_s
    for factor in (30, 1000):
        world = World(lambda width, _nth: factor * staircase_s(width))  # noqa: B023
        measured = world.measure()
        assert measured.costs.widths[0] == 1
        assert measured.costs.of(1) == pytest.approx(factor * 0.023)
        assert world.now <= OF_TARGET.most_s + factor * 0.16
        assert measured.spread is None
        assert measured.disturbed, "without a repetition it is not relied on"


def test_what_cannot_be_is_not_believed_and_what_fails_ends_the_measuring() -> None:
    # All that a pass of four does, one of six does, too: it cannot take less.
    world = World(lambda width, _: staircase_s(width) * (1.6 if width == 4 else 1))
    measured = world.measure(replace(OF_TARGET, budget_s=6.0))
    assert world.passes.count(4) > 4
    assert measured.disturbed, "the next start measures once more"
    ticks = iter(range(10**6))  # of a clock too coarse to see a pass
    costs = sample(lambda _width: None, OF_DRAFT_MODEL, lambda: next(ticks) // 40 / 64).costs
    assert min(costs.seconds) > 0
    with pytest.raises(Cancelled):
        sample(Mock(side_effect=[None, None, Cancelled]), OF_TARGET, lambda: next(ticks) / 900)


@pytest.mark.parametrize(
    ("width", "slow", "times", "schedule"),
    [
        (8, lambda nth: 1 + nth, 2, replace(OF_TARGET, budget_s=9.0)),
        (16, lambda _: 1.4, 2, replace(OF_TARGET, budget_s=6.0)),
        (4, lambda _: 1.6, 4, replace(OF_TARGET, budget_s=6.0)),
    ],
    ids=["passes disagree", "a wider pass was no slower", "one of six tokens took less"],
)
def test_a_width_whose_times_cannot_be_is_measured_until_they_can(
    width: int, slow: Callable[[int], float], times: int, schedule: Schedule
) -> None:
    def seconds(of: int, nth: int) -> float:
        return staircase_s(of) * (slow(nth) if of == width and nth <= times else 1)

    measured = World(seconds).measure(schedule)
    assert measured.costs.of(width) == pytest.approx(staircase_s(width))
    assert not measured.disturbed


def test_progress_rises_to_the_end_and_takes_time_that_does_not_count() -> None:
    world, shares = World(), list[float]()

    def show(share: float) -> None:
        shares.append(share)
        world.now += 0.05

    costs = world.measure(OF_TARGET, show).costs
    assert shares == sorted(shares)
    assert 0.8 < shares[-1] <= 1.0
    for width in (1, 16):
        assert costs.of(width) == pytest.approx(staircase_s(width))


SHORT = replace(OF_TARGET, widths=(1, 2, 8, 64), needed=4, budget_s=0.5, most_s=99.0)


def test_a_recurrent_model_is_measured_too_until_that_is_cancelled(tmp_path: Path) -> None:
    model = LlamaModel(write(tmp_path / "mamba.gguf"), LoadOptions(threads=1))
    assert measure_pass_costs(model, model.options, SHORT).costs.widths[0] == 1
    cancel = CancelFlag()
    with pytest.raises(Cancelled):
        measure_pass_costs(model, model.options, SHORT, cancel, lambda _share: cancel.set())
    model.close()


class Worker:
    """Takes so long for a token and for each pass, which cannot be stopped; its clock goes on while it is waited for."""

    def __init__(
        self, token_s: float, pass_s: float = 0.0, most: int = 512, within_s: float | None = 0.2
    ) -> None:
        self.now_s, self.sent, self.token_s, self.pass_s = 0.0, 0, token_s, pass_s
        self.queued = PassLimit(self.wait, most, within_s, lambda: self.now_s)

    def wait(self) -> None:
        self.now_s += self.pass_s + self.sent * self.token_s
        self.sent = 0

    def prompt(self, tokens: int) -> list[int]:
        """Evaluate a prompt; return its chunks."""
        chunks = []
        while tokens:
            start_s, self.sent = self.now_s, min(tokens, self.queued.tokens)
            chunks.append(self.sent)
            tokens -= self.sent
            self.queued.done(chunks[-1], start_s)
            assert not self.sent, "it was not waited for"
        return chunks


def test_what_is_known_decides_what_the_next_chunk_is() -> None:
    for token_s, first, later in ((0.0001, 256, 512), (0.002, 96, 96), (0.02, 32, 32)):
        assert Worker(token_s).prompt(4096)[:5] == [64, first, *[later] * 3]
    worker = Worker(0.0001)
    worker.prompt(2000)
    assert worker.prompt(2000)[0] == 512
    worker.token_s = 0.001
    assert worker.prompt(2000)[:3] == [512, 192, 192]
    worker = Worker(0.0001, pass_s=0.01)
    worker.prompt(2000)
    for worker.token_s, tokens in ((0.0001, 512), (0.1, 32)):
        worker.prompt(3)
        assert worker.queued.tokens == tokens
    assert Worker(0.02, within_s=None).prompt(1100) == [512, 512, 76]
    assert Worker(0.0, most=16).prompt(40) == [16, 16, 8]
