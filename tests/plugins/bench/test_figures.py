"""What figures come to: ratios, intervals, verdicts, tables and JSON."""

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from localspec.decoding.cancel import Cancelled
from localspec.decoding.round import Draft, Round, Spent, Verdict
from localspec.options import LaunchOptions, ReplyOptions
from localspec.plugins.bench.arms import mode_arms, parse_arm
from localspec.plugins.bench.estimate import (
    FIRST_PAIRS,
    MOST_PAIRS,
    Estimate,
    combined,
    compare,
    estimate,
    pairs_needed,
    student_quantile,
)
from localspec.plugins.bench.measure import Bench, Result, measure
from localspec.plugins.bench.prompts import BenchPrompt
from localspec.plugins.bench.report import ALL, Figure, compared, document, figures, table
from localspec.plugins.bench.trial import Arrival, Slot, Trial, fork, speed_ratio
from tests.support.checks import refuses

_RUNS = 2000


def noise(rng: np.random.Generator, kind: str, size: float) -> NDArray[np.float64]:
    """Return as many values as there may be pairs."""
    if kind == "heavy tails":
        return rng.standard_t(3, MOST_PAIRS) * size / math.sqrt(3)
    spikes = rng.choice([-1, 1], MOST_PAIRS) * rng.exponential(5 * size, MOST_PAIRS)
    share = 0.1 * (kind == "spikes")
    return np.asarray(rng.normal(0, size, MOST_PAIRS) + (rng.random(MOST_PAIRS) < share) * spikes)


def verdicts(kind: str, size: float, effect: float) -> list[Estimate]:
    """Return the verdicts of 2,000 comparisons, each of as many pairs as it asks for."""
    rng = np.random.default_rng(7)
    values = [(noise(rng, kind, size) + effect).tolist() for _ in range(_RUNS)]
    return [compare(each[: pairs_needed(each[:FIRST_PAIRS])]) for each in values]


@pytest.mark.first(1)
@pytest.mark.parametrize(
    ("kind", "size"), [("normal", 0.05), ("heavy tails", 0.1), ("spikes", 0.02)]
)
def test_few_of_2000_verdicts_are_wrong(kind: str, size: float) -> None:
    assert sum(each.differs for each in verdicts(kind, size, 0.0)) <= 0.05 * _RUNS
    slower = verdicts(kind, size, math.log(0.95))
    assert sum(each.interval is not None and each.interval[1] < 1 for each in slower) >= 0.9 * _RUNS


def test_a_verdict_in_words() -> None:
    for ratio, error, words in [
        (1.3, 0.02, "b is faster than a: 1.300 times"),
        (0.8, 0.02, "b is slower than a"),
        (1.001, 0.005, "equally fast, within 3 %"),
        (1.1, 0.09, "undecided"),
    ]:
        assert words in Estimate(math.log(ratio), error, 11, 12).verdict("a", "b")
    for share, freedom, value in [(0.975, 1, 12.7062), (0.975, 2, 4.3027), (0.975, 3, 3.1824), (0.975, 7, 2.3646), (0.95, 10, 1.8125), (0.995, 30, 2.75)]:  # fmt: skip
        assert student_quantile(share, freedom) == pytest.approx(value, rel=2e-3)


def test_one_wild_pair_does_not_move_the_verdict_and_more_noise_asks_for_more() -> None:
    values = np.random.default_rng(1).normal(0.1, 0.01, 20).tolist()
    wild = compare([*values, 9.0])
    assert wild.ratio == pytest.approx(compare(values).ratio, rel=0.01)
    assert wild.differs
    single = estimate([math.log(1.1)])
    assert single.interval is combined([single, estimate([0.0, 0.1])]).interval is None
    assert single.ratio == pytest.approx(1.1)
    assert estimate([0.2, 0.2, 0.2]).interval == pytest.approx((math.exp(0.2),) * 2)
    assert combined([estimate([0.1, 0.1])] * 2).interval == pytest.approx((math.exp(0.1),) * 2)
    quiet = [0.01 * (-1) ** n for n in range(FIRST_PAIRS)]
    once, more, most = (pairs_needed([k * value for value in quiet]) for k in (1, 5, 90))
    assert (once, most) == (FIRST_PAIRS, MOST_PAIRS)
    assert once < more < most


@pytest.mark.parametrize("n", [3, 12])
def test_the_interval_holds_the_truth_as_often_as_it_says(n: int) -> None:
    rng = np.random.default_rng(3)
    intervals = [estimate(rng.normal(0.1, 0.05, n).tolist()).interval for _ in range(_RUNS)]
    held = sum(each is not None and each[0] <= math.exp(0.1) <= each[1] for each in intervals)
    assert 0.93 * _RUNS <= held <= 0.97 * _RUNS


def test_kinds_of_text_count_alike_and_together_are_surer() -> None:
    rng = np.random.default_rng(1)
    held, widths = 0, list[float]()
    for _ in range(_RUNS):
        parts = [estimate(rng.normal(0.1, 0.05, 6).tolist()) for _ in range(9)]
        whole = combined(parts)
        assert whole.mean == pytest.approx(np.mean([part.mean for part in parts]))
        assert whole.pairs == 54
        low, high = whole.interval or (0, 0)
        held += low <= math.exp(0.1) <= high
        widths.append(math.log(high / low))
    assert 0.93 * _RUNS <= held <= 0.975 * _RUNS
    assert np.median(widths) == pytest.approx(2 * 1.96 * 0.05 / math.sqrt(54), rel=0.15)


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


def compared_runs(pairs: int | None = None, left: float = math.inf) -> Result:
    arms = [parse_arm("a", "off", LaunchOptions()), parse_arm("b", "auto", LaunchOptions())]
    prompts = [BenchPrompt("chat", f"prompt {n}") for n in range(5)]
    reply = ReplyOptions(seed=1, max_tokens=10)
    bench = Bench(arms, prompts, "", [0.8], reply, verdict=True, pairs=pairs)
    trials, planned = measure(bench, dict.fromkeys("ab", Timed(left)))
    return Result(bench, {}, trials, planned)


def test_a_slower_arm_is_noticed_and_printed() -> None:
    result = compared_runs()
    values = document(result)
    assert values["ratio"] == pytest.approx(0.9, rel=0.02)
    assert values["high"] < 1
    assert values["differs"]
    assert 2 * values["pairs"] == values["runs"] == values["runs_planned"] >= 24
    lines = table(result).splitlines()
    assert lines[-1].startswith("b (auto) is slower than a (off): 0.9")
    assert any("0.90" in line and f"{values['pairs']}/{values['pairs']}" in line for line in lines)
    assert len(compared_runs(pairs=7).neighbours) == 7
    refuses("give 5 to 1000", compared_runs, pairs=4)


def test_an_interruption_leaves_what_was_measured() -> None:
    for runs, enough in [(3, False), (9, True)]:
        result = compared_runs(left=runs)
        assert len(result.neighbours) == runs
        assert (compared(result) is not None) is enough
        assert ("verdict" in document(result)) is enough
        assert not result.is_whole


def a_round(drafted: int = 0, accepted: int = 0, verify_s: float = 0.1, **spent: float) -> Round:
    draft = Draft((1,) * drafted, (), "lookup")
    times = Spent(verify_s=verify_s, **spent)
    return Round(draft, Verdict(accepted, 1), (1,) * (accepted + 1), times)


def a_trial(
    mode: str = "off",
    wall_s: float = 1.0,
    *,
    n_tokens: int = 10,
    tokens: Sequence[int] | None = None,
    first_s: float = 0.1,
    rounds: Sequence[Round] = (),
    prefill_s: float = 0.0,
    **place: int,
) -> Trial:
    """Return a run whose tokens came at an even pace."""
    pace = (wall_s - first_s) / max(1, n_tokens - 1)
    slot = Slot(**{"prompt": 0, "repeat": 0, "group": 0, **place}, temperature=0.0, mode=mode)
    arrivals = tuple(Arrival(n + 1, first_s + n * pace) for n in range(n_tokens))
    counts = sum(each.drafted for each in rounds), sum(each.accepted for each in rounds)
    known = tuple(range(n_tokens) if tokens is None else tokens)
    return Trial(slot, known, arrivals, prefill_s, tuple(rounds), *counts)


def pair(speed: float, mode: str = "auto", **how: int) -> list[Trial]:
    """Return a run of `off`, and one of another mode that is so many times as fast."""
    return [a_trial(**how), a_trial(mode, wall_s=1 / speed, first_s=0.1 / speed, **how)]  # type: ignore[arg-type]


PROMPTS = [BenchPrompt("code", "a"), BenchPrompt("code", "b"), BenchPrompt("chat", "c")]
SETTING: dict[str, object] = {"machine": "a machine", "target": {"name": "a toy"}}


def made(trials: Sequence[Trial], planned: int | None = None) -> Result:
    arms = mode_arms("off,auto,model:3", LaunchOptions())
    bench = Bench(arms, PROMPTS, "", [0.0], ReplyOptions())
    return Result(bench, SETTING, trials, planned or len(trials))


def figure(trials: Sequence[Trial], kind: str = "code", mode: str = "auto") -> Figure:
    (one,) = [each for each in figures(made(trials)) if (each.workload, each.mode) == (kind, mode)]
    return one


def ratio(trials: Sequence[Trial], kind: str = "code", mode: str = "auto") -> float:
    value = figure(trials, kind, mode).ratio
    assert value is not None
    return value.ratio


def test_a_ratio_is_of_whole_times_at_equal_lengths() -> None:
    assert speed_ratio(a_trial("auto", wall_s=0.8), a_trial(wall_s=1.0)) == pytest.approx(1.25)
    # Twenty tokens at 0.1 s each after 1 s; the short one stops at ten, at the same pace.
    long = a_trial("auto", wall_s=2.9, n_tokens=20, first_s=1.0)
    short = a_trial(wall_s=1.9, n_tokens=10, first_s=1.0)
    assert speed_ratio(long, short) == pytest.approx(1.0)
    assert speed_ratio(short, long) == pytest.approx(1.0)
    # A round that reaches beyond the shorter length counts with all its tokens.
    off = a_trial(n_tokens=4, wall_s=0.4)
    drafted = Trial(off.slot, (), (Arrival(1, 0.1), Arrival(9, 0.45)), 0.0, (), 8, 8)
    assert drafted.token_s(4) == pytest.approx(0.05)
    assert speed_ratio(drafted, off) == pytest.approx(2.0)


def test_a_fork_is_the_first_difference() -> None:
    for one, other, at in [("ab", "ab", None), ("abc", "axc", 1), ("ab", "abc", 2), ("", "a", 0)]:
        assert fork([*map(ord, one)], [*map(ord, other)]) == at
    trials = []
    for repeat, tokens in enumerate([(1, 2, 3), (1, 9, 3), (1, 2, 8)]):
        trials += [a_trial(repeat=repeat, n_tokens=3, tokens=(1, 2, 3))]
        trials += [a_trial("auto", repeat=repeat, n_tokens=3, tokens=tokens)]
    assert (figure(trials).same_text, figure(trials).forks_at) == (1, [1, 2])


def test_kinds_count_alike_and_a_run_is_compared_with_its_own_group() -> None:
    """The machine was three times slower during group 1; the ratio does not see it."""
    trials = pair(2.0)
    trials += [a_trial(wall_s=3.0, group=1), a_trial("model:3", wall_s=1.5, group=1)]
    for mode in ("auto", "model:3"):
        assert ratio(trials, mode=mode) == pytest.approx(2.0)
    assert figure(trials, mode="off").ratio is None
    trials = [*pair(2.0), *pair(2.0, prompt=1), *pair(0.5, prompt=2)]
    assert ratio(trials, ALL) == pytest.approx(1.0)
    rows = [(each.workload, each.mode) for each in figures(made(trials))]
    assert rows == [(kind, mode) for kind in ("code", "chat", ALL) for mode in ("off", "auto")]


def test_repeats_of_one_prompt_say_nothing_of_other_prompts() -> None:
    def high(n: int) -> float:
        trials = [each for repeat in range(n) for prompt, speed in ((0, 0.8), (1, 1.25)) for each in pair(speed, prompt=prompt, repeat=repeat)]  # fmt: skip
        value = figure(trials).ratio
        assert value is not None
        assert value.interval is not None
        return value.interval[1]

    assert high(30) == pytest.approx(high(1))


def test_acceptance_and_shares_of_time_are_over_all_rounds() -> None:
    rounds = [a_round(2, 2, verify_s=0.2, draft_s=0.1, draft_prefill_s=0.05), a_round(6, 2, verify_s=0.2)]  # fmt: skip
    it = figure([a_trial(), a_trial("auto", wall_s=1.0, prefill_s=0.1, rounds=rounds)])
    assert (it.acceptance_rate, it.mean_acceptance_length) == (0.5, 3)
    assert it.time == pytest.approx(
        {"prefill": 0.1, "draft_prefill": 0.05, "draft": 0.1, "verify": 0.4, "sample": 0, "other": 0.35}
    )  # fmt: skip


SPEEDS = {"off": 1.0, "auto": 1.2, "model:3": 0.5}


def measured(planned: int = 12) -> Result:
    """Return two repeats of every mode, each speed exact, all in one group."""
    trials = [
        a_trial(
            mode,
            wall_s=1 / speed,
            first_s=0.1 / speed,
            prompt=prompt,
            repeat=repeat,
            rounds=[a_round() if mode == "off" else a_round(3, 2, draft_s=0.03)],
        )
        for prompt in (0, 2)
        for repeat in (0, 1)
        for mode, speed in SPEEDS.items()
    ]
    return made(trials, planned)


def test_every_ratio_has_a_row_in_the_json() -> None:
    values = json.loads(json.dumps(document(measured())))
    rows = {(row["workload"], row["mode"]): row for row in values["ratios"]}
    assert len(rows) == 3 * (len(SPEEDS) - 1)
    for (_, mode), row in rows.items():
        assert [row["ratio"], row["low"], row["high"]] == pytest.approx([SPEEDS[mode]] * 3)
        assert row["temperature"] == 0
    assert values["runs"] == values["runs_planned"] == 12
    assert {"tokens_per_s", "first_token_s", "acceptance_rate", "time", "same_text"} < {*values["figures"][0]}  # fmt: skip
    (row,) = document(made(pair(1.0)))["ratios"]
    assert (row["low"], row["high"], row["pairs"]) == (None, None, 1)


def test_the_table_is_eighty_columns_wide_and_says_what_is_missing() -> None:
    lines = table(measured()).splitlines()
    assert max(map(len, lines)) <= 80
    assert any("1.200" in line and "acc." not in line and "67%" in line for line in lines)
    assert not any("interrupted" in line for line in lines)
    text = table(measured(planned=100))
    assert "interrupted: 12 of 100 runs" in text
    assert "1.200" in text


def test_where_it_was_interrupted_every_mode_has_answered_the_same_prompts() -> None:
    whole = measured()
    cut = made([*whole.trials, a_trial(wall_s=9.0, prompt=1), a_trial("auto", wall_s=9.0, prompt=1)], 100)  # fmt: skip
    assert figures(cut) == figures(whole)
    assert "14 of 100 runs were made; the figures leave out the last 2, of" in table(cut).replace("\n", " ")  # fmt: skip
    first = made([a_trial(), a_trial("auto")], 100)
    assert "leave out" not in table(first)
    assert {each.runs for each in figures(first)} == {1}
