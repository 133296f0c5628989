"""Pairs of runs for a verdict: their number, and what an interruption leaves."""

import math
from typing import Any

import pytest

from localspec.bench.arms import parse_arm
from localspec.bench.measure import Bench, Result, measure
from localspec.bench.prompts import BenchPrompt
from localspec.bench.report import compared, document, table
from localspec.bench.trial import Arrival, Slot, Trial
from localspec.decoding.cancel import Cancelled
from localspec.errors import UsageError
from localspec.options import LaunchOptions, ReplyOptions

TOKEN_S = {"a": 0.02, "b": 0.02 / 0.9}


class Timed:
    """Runs of known times, b a tenth slower; cancelled after so many of a."""

    def __init__(self, left: float) -> None:
        self.left, self.count = left, 0

    def warm_up(self, modes: Any) -> None:
        pass

    def run(self, slot: Slot) -> Trial:
        self.left -= slot.mode == "a"
        if self.left < 0:
            raise Cancelled
        self.count += 1
        token_s = TOKEN_S[slot.mode] * (1 + 0.004 * (self.count % 3))
        arrivals = tuple(Arrival(n, n * token_s) for n in range(1, 11))
        return Trial(slot, tuple(range(10)), arrivals, 0.0, (), 0, 0)


def measured(pairs: int | None = None, left: float = math.inf) -> Result:
    arms = [parse_arm("a", "off", LaunchOptions()), parse_arm("b", "auto", LaunchOptions())]
    prompts = [BenchPrompt("chat", f"prompt {n}") for n in range(5)]
    reply = ReplyOptions(seed=1, max_tokens=10)
    bench = Bench(arms, prompts, "", [0.8], reply, verdict=True, pairs=pairs)
    trials, planned = measure(bench, dict.fromkeys("ab", Timed(left)))
    return Result(bench, {}, trials, planned)


def test_a_slower_arm_is_noticed_and_printed() -> None:
    result = measured()
    values = document(result)
    assert values["ratio"] == pytest.approx(0.9, rel=0.02)
    assert values["high"] < 1
    assert values["differs"]
    assert 2 * values["pairs"] == values["runs"] == values["runs_planned"] >= 24
    lines = table(result).splitlines()
    assert lines[-1].startswith("b (auto) is slower than a (off): 0.9")
    assert any("0.90" in line and f"{values['pairs']}/{values['pairs']}" in line for line in lines)


def test_the_number_of_pairs_can_be_given() -> None:
    assert len(measured(pairs=7).neighbours) == 7
    with pytest.raises(UsageError, match="5 or more"):
        measured(pairs=4)


@pytest.mark.parametrize(("runs", "enough"), [(3, False), (9, True)])
def test_an_interruption_leaves_what_was_measured(runs: int, enough: bool) -> None:
    result = measured(left=runs)
    assert len(result.neighbours) == runs
    assert (compared(result) is not None) is enough
    assert ("verdict" in document(result)) is enough
    assert not result.is_whole
