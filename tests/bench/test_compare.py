"""Pairs of runs for a verdict: their number, and what an interruption leaves."""

import math
from typing import Any

import pytest

from localspec.bench.arms import parse_arm
from localspec.bench.measure import Bench, Result, Runs, measure
from localspec.bench.prompts import BenchPrompt
from localspec.bench.report import compared, document, table
from localspec.bench.trial import Arrival, Slot, Trial
from localspec.decoding.cancel import Cancelled
from localspec.errors import UsageError
from localspec.options import LaunchOptions, ReplyOptions

PROMPTS = [BenchPrompt("chat", f"prompt {n}") for n in range(5)]


class Timed:
    """Runs that take as long as they should; notes them in a shared log."""

    def __init__(self, token_s: float, log: list[Slot]) -> None:
        self.token_s, self.log, self.left = token_s, log, math.inf

    def warm_up(self, modes: Any) -> None:
        pass

    def run(self, slot: Slot) -> Trial:
        self.left -= 1
        if self.left < 0:
            raise Cancelled
        self.log.append(slot)
        token_s = self.token_s * (1 + 0.004 * (len(self.log) % 3))
        arrivals = tuple(Arrival(n, n * token_s) for n in range(1, 11))
        return Trial(slot, tuple(range(10)), arrivals, 0.0, (), 0, 0)


def wanted(pairs: int | None = None) -> Bench:
    arms = [parse_arm("a", "off", LaunchOptions()), parse_arm("b", "auto", LaunchOptions())]
    reply = ReplyOptions(seed=1, max_tokens=10)
    return Bench(arms, PROMPTS, "", [0.8], reply, verdict=True, pairs=pairs)


def compared_runs(pairs: int | None = None, left: float = math.inf) -> Result:
    """Return the result where b is a tenth slower; a ends after some runs."""
    bench, log = wanted(pairs), list[Slot]()
    a, b = Timed(0.02, log), Timed(0.02 / 0.9, log)
    a.left = left
    runs: dict[str, Runs] = {"a": a, "b": b}
    trials, planned = measure(bench, runs)
    return Result(bench, {}, trials, planned)


def test_slower_arm_is_found_and_printed() -> None:
    found = compared_runs()
    values = document(found)
    assert values["ratio"] == pytest.approx(0.9, rel=0.02)
    assert values["high"] < 1
    assert values["differs"]
    assert 2 * values["pairs"] == values["runs"] == values["runs_planned"] >= 24
    lines = table(found).splitlines()
    assert lines[-1].startswith("b (auto) is slower than a (off): 0.9")
    assert any("0.90" in line and f"{values['pairs']}/{values['pairs']}" in line for line in lines)


def test_number_of_pairs_can_be_given() -> None:
    assert len(compared_runs(pairs=7).neighbours) == 7
    with pytest.raises(UsageError, match="5 or more"):
        wanted(pairs=4)


@pytest.mark.parametrize(("runs", "enough"), [(3, False), (9, True)])
def test_interruption_leaves_what_was_measured(runs: int, enough: bool) -> None:
    found = compared_runs(left=runs)
    assert len(found.neighbours) == runs
    assert (compared(found) is not None) is enough
    assert ("verdict" in document(found)) is enough
    assert not found.is_whole
