"""Figures by kind of text, and as text and JSON: only neighbours are compared, at equal lengths."""

import json
from collections.abc import Sequence

import pytest

from localspec.bench.arms import mode_arms
from localspec.bench.measure import Bench, Result
from localspec.bench.prompts import BenchPrompt
from localspec.bench.report import ALL, Figure, document, figures, table
from localspec.bench.trial import Arrival, Trial, fork, speed_ratio
from localspec.options import LaunchOptions, ReplyOptions
from tests.bench.runs import a_round, a_trial, pair

PROMPTS = [BenchPrompt("code", "a"), BenchPrompt("code", "b"), BenchPrompt("chat", "c")]
SETTING: dict[str, object] = {
    "machine": "a machine, 2 cores",
    "target": {"name": "a toy", "bytes": 10},
    "draft_model": None,
}


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


@pytest.mark.parametrize(
    ("one", "other", "at"),
    [
        ((1, 2), (1, 2), None),
        ((1, 2, 3), (1, 5, 3), 1),
        ((1, 2), (1, 2, 3), 2),
        ((), (1,), 0),
        ((), (), None),
    ],
)
def test_a_fork_is_the_first_difference(
    one: tuple[int, ...], other: tuple[int, ...], at: int | None
) -> None:
    assert fork(one, other) == at


def test_a_run_is_compared_with_the_off_of_its_own_group() -> None:
    """The machine was three times slower during group 1; the ratio does not see it."""
    trials = pair(2.0)
    trials += [a_trial(wall_s=3.0, group=1), a_trial("model:3", wall_s=1.5, group=1)]
    for mode in ("auto", "model:3"):
        assert ratio(trials, mode=mode) == pytest.approx(2.0)
    assert figure(trials, mode="off").ratio is None


def test_kinds_count_alike_in_all_however_many_prompts_they_have() -> None:
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


def test_forks_are_counted_and_placed() -> None:
    trials = []
    for repeat, tokens in enumerate([(1, 2, 3), (1, 9, 3), (1, 2, 8)]):
        trials += [a_trial(repeat=repeat, n_tokens=3, tokens=(1, 2, 3))]
        trials += [a_trial("auto", repeat=repeat, n_tokens=3, tokens=tokens)]
    assert (figure(trials).same_text, figure(trials).forks_at) == (1, [1, 2])


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
