"""Figures by kind of text, and as text and JSON: only neighbours are compared."""

import json
from collections.abc import Sequence

import pytest

from localspec.bench.arms import mode_arms
from localspec.bench.measure import Bench, Result
from localspec.bench.prompts import BenchPrompt
from localspec.bench.report import ALL, Figure, document, figures, table
from localspec.bench.trial import Trial
from localspec.options import LaunchOptions, ReplyOptions
from tests.bench.runs import a_round, a_trial

PROMPTS = [BenchPrompt("code", "a"), BenchPrompt("code", "b"), BenchPrompt("chat", "c")]
SETTING: dict[str, object] = {
    "machine": "a machine, 2 cores",
    "target": {"name": "a toy", "bytes": 10},
    "draft_model": None,
}


def made(
    trials: Sequence[Trial], prompts: Sequence[BenchPrompt] = PROMPTS, planned: int | None = None
) -> Result:
    arms = mode_arms("off,auto,model:3", LaunchOptions())
    bench = Bench(arms, prompts, "", [0.0], ReplyOptions())
    return Result(bench, SETTING, trials, planned or len(trials))


def summarise(trials: Sequence[Trial]) -> dict[tuple[float, str, str], Figure]:
    found = figures(made(trials))
    return {(each.temperature, each.workload, each.mode): each for each in found}


def test_a_run_is_compared_with_the_off_of_its_own_group() -> None:
    """The machine was three times slower during group 1; the ratio does not see it."""
    trials = [
        a_trial("off", wall_s=1.0, group=0),
        a_trial("auto", wall_s=0.5, group=0),
        a_trial("off", wall_s=3.0, group=1),
        a_trial("model:3", wall_s=1.5, group=1),
    ]
    found = summarise(trials)
    for mode in ("auto", "model:3"):
        ratio = found[0.0, "code", mode].ratio
        assert ratio is not None
        assert ratio.ratio == pytest.approx(2.0)
    assert found[0.0, "code", "off"].ratio is None


def test_kinds_count_alike_in_all_however_many_prompts_they_have() -> None:
    trials: list[Trial] = []
    for prompt, speed in ((0, 2.0), (1, 2.0), (2, 0.5)):
        trials += [
            a_trial(prompt=prompt),
            a_trial("auto", prompt=prompt, wall_s=1 / speed, first_s=0.1 / speed),
        ]
    found = summarise(trials)
    ratio = found[0.0, ALL, "auto"].ratio
    assert ratio is not None
    assert ratio.ratio == pytest.approx(1.0)
    assert [kind for _, kind, _ in found] == ["code", "code", "chat", "chat", ALL, ALL]
    assert [mode for _, _, mode in found][:2] == ["off", "auto"]


def test_acceptance_and_length_are_over_all_rounds() -> None:
    rounds = [a_round(4, 4), a_round(4, 0), a_round()]
    trials = [a_trial(), a_trial("auto", rounds=rounds)]
    its = summarise(trials)[0.0, "code", "auto"]
    assert its.acceptance_rate == 0.5
    assert its.mean_acceptance_length == pytest.approx(7 / 3)


def test_shares_of_time_add_up_to_the_whole() -> None:
    rounds = [a_round(2, 2, verify_s=0.2, draft_s=0.1, draft_prefill_s=0.05)] * 2
    trial = a_trial("auto", wall_s=1.0, prefill_s=0.1, rounds=rounds)
    stages = summarise([a_trial(), trial])[0.0, "code", "auto"].time
    assert stages is not None
    assert stages["verify"] == pytest.approx(0.4)
    assert stages["draft_prefill"] == pytest.approx(0.1)
    assert stages["other"] == pytest.approx(0.2)
    assert sum(stages.values()) == pytest.approx(1.0)


def test_forks_are_counted_and_placed() -> None:
    trials = []
    for repeat, tokens in enumerate([(1, 2, 3), (1, 9, 3), (1, 2, 8)]):
        trials += [
            a_trial(repeat=repeat, n_tokens=3, tokens=(1, 2, 3)),
            a_trial("auto", repeat=repeat, n_tokens=3, tokens=tokens),
        ]
    its = summarise(trials)[0.0, "code", "auto"]
    assert (its.same_text, its.forks_at) == (1, [1, 2])


SPEEDS = {"off": 1.0, "auto": 1.2, "model:3": 0.5}
TWO = [BenchPrompt("code", "a"), BenchPrompt("summarise", "b")]


def measured(planned: int = 12) -> Result:
    """Return two repeats of every mode, each speed exact, all in one group."""
    found = []
    for prompt in (0, 1):
        for repeat in (0, 1):
            for mode, speed in SPEEDS.items():
                drafted = [a_round(3, 2, drafter="model", draft_s=0.03)]
                rounds = [a_round()] if mode == "off" else drafted
                found.append(
                    a_trial(
                        mode,
                        wall_s=1 / speed,
                        first_s=0.1 / speed,
                        prompt=prompt,
                        repeat=repeat,
                        rounds=rounds,
                    )
                )
    return made(found, TWO, planned)


def test_every_ratio_has_a_row_in_the_json() -> None:
    found = json.loads(json.dumps(document(measured())))
    rows = {(row["workload"], row["mode"]): row for row in found["ratios"]}
    assert len(rows) == 3 * (len(SPEEDS) - 1)
    for (_, mode), row in rows.items():
        assert row["ratio"] == pytest.approx(SPEEDS[mode])
        assert row["low"] == pytest.approx(row["ratio"])
        assert row["high"] == pytest.approx(row["ratio"])
        assert row["temperature"] == 0
    assert found["runs"] == found["runs_planned"] == 12
    assert {"tokens_per_s", "first_token_s", "acceptance_rate", "time", "same_text"} < {
        *found["figures"][0]
    }


def test_a_single_pair_of_runs_has_no_interval_in_the_json() -> None:
    (row,) = document(made([a_trial(), a_trial("auto")]))["ratios"]
    assert (row["low"], row["high"], row["pairs"]) == (None, None, 1)


def test_repeats_of_one_prompt_say_nothing_of_other_prompts() -> None:
    def ratio(n: int) -> float:
        trials = []
        for prompt, speed in ((0, 0.8), (1, 1.25)):
            for repeat in range(n):
                trials += [
                    a_trial(prompt=prompt, repeat=repeat),
                    a_trial(
                        "auto",
                        prompt=prompt,
                        repeat=repeat,
                        wall_s=1 / speed,
                        first_s=0.1 / speed,
                    ),
                ]
        its = summarise(trials)[0.0, "code", "auto"].ratio
        assert its is not None
        assert its.interval is not None
        return its.interval[1]

    assert ratio(30) == pytest.approx(ratio(1))


def test_no_line_is_wider_than_eighty_columns_and_a_row_is_one_line() -> None:
    lines = table(measured()).splitlines()
    assert max(map(len, lines)) <= 80
    assert any("1.200" in line and "acc." not in line and "67%" in line for line in lines)


def test_an_interruption_is_told_with_what_there_is() -> None:
    text = table(measured(planned=100))
    assert "interrupted: 12 of 100 runs" in text
    assert "1.200" in text
    assert "interrupted" not in table(measured())
