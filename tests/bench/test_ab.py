"""Pairs of runs: their order, their number, and what an interruption leaves."""

import math
from itertools import islice
from typing import Any, cast

import pytest

from localspec.bench import ab as under_test
from localspec.bench.ab import Ab, LoadedArm, paired_runs, run_ab
from localspec.bench.arms import parse_arm
from localspec.bench.loading import Watchers
from localspec.bench.prompts import Prompt
from localspec.bench.schedule import Slot
from localspec.bench.trial import Arrival, Trial
from localspec.decoding.cancel import CancelFlag, Cancelled
from localspec.errors import UsageError
from localspec.options import LaunchOptions, ReplyOptions

PROMPTS = [Prompt("chat", f"prompt {n}") for n in range(5)]


class Timed:
    """A side whose runs take as long as they are told to; notes them in a shared log."""

    def __init__(self, name: str, token_s: float, log: list[tuple[str, int, int]]) -> None:
        self.name, self.token_s, self.log = name, token_s, log
        self.left = math.inf

    def warm_up(self) -> None:
        self.log.append((self.name, -1, -1))

    def run(self, prompt: int, temperature: float, repeat: int) -> Trial:
        self.left -= 1
        if self.left < 0:
            raise Cancelled
        self.log.append((self.name, prompt, repeat))
        token_s = self.token_s * (1 + 0.004 * (len(self.log) % 3))
        arrivals = tuple(Arrival(n, n * token_s) for n in range(1, 11))
        return Trial(
            Slot(prompt, temperature, repeat, self.name, 0),
            tuple(range(10)),
            arrivals,
            0.0,
            (),
            0,
            0,
        )


def asked(pairs: int | None = None) -> Ab:
    asked = ReplyOptions(seed=1, max_tokens=10)
    return Ab(
        parse_arm("off", LaunchOptions()),
        parse_arm("auto", LaunchOptions()),
        PROMPTS,
        asked,
        pairs,
    )


def sides(log: list[tuple[str, int, int]], b_token_s: float = 0.02) -> tuple[LoadedArm, LoadedArm]:
    return cast(LoadedArm, Timed("a", 0.02, log)), cast(LoadedArm, Timed("b", b_token_s, log))


def test_both_answer_every_prompt_one_after_the_other_in_changing_order() -> None:
    log: list[tuple[str, int, int]] = []
    pairs = list(islice(paired_runs(asked(), *sides(log)), 10))
    assert {pair.a.slot.mode for pair in pairs} == {"a"}
    assert [one[1:] for one in log[::2]] == [other[1:] for other in log[1::2]]
    assert sorted(prompt for _, prompt, repeat in log[::2] if repeat == 0) == [0, 1, 2, 3, 4]
    first = [name for name, _, _ in log[::2]]
    assert first[0] != first[1]
    assert first[2] != first[3]


@pytest.fixture
def ready(monkeypatch: pytest.MonkeyPatch) -> Any:
    log: list[tuple[str, int, int]] = []
    made = sides(log, 0.02 / 0.9)
    monkeypatch.setattr(under_test, "_sides", lambda *_: made)
    return made


def test_slower_arm_is_found_and_said(ready: Any) -> None:
    found = run_ab(asked(), CancelFlag(), Watchers())
    assert found.comparison is not None
    assert found.comparison.ratio == pytest.approx(0.9, rel=0.02)
    assert found.comparison.high < 1
    assert len(found.pairs) == found.planned >= 12


def test_number_of_pairs_can_be_given(ready: Any) -> None:
    assert len(run_ab(asked(pairs=7), CancelFlag(), Watchers()).pairs) == 7
    with pytest.raises(UsageError, match="5 or more"):
        asked(pairs=4)


@pytest.mark.parametrize(("runs", "enough"), [(3, False), (9, True)])
def test_interruption_leaves_what_was_measured(ready: Any, runs: int, enough: bool) -> None:
    ready[0].left = runs
    found = run_ab(asked(), CancelFlag(), Watchers())
    assert len(found.pairs) == runs
    assert (found.comparison is not None) is enough
