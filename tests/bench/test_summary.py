"""Figures by kind of text: only neighbours are compared."""

import pytest

from localspec.bench.prompts import BenchPrompt
from localspec.bench.summary import ALL, Cell, summarise
from localspec.bench.trial import Trial
from tests.bench.runs import a_round, a_trial

PROMPTS = [BenchPrompt("code", "a"), BenchPrompt("code", "b"), BenchPrompt("chat", "c")]
MODES = ["off", "auto", "server:none"]


def test_a_run_is_compared_with_the_off_of_its_own_group() -> None:
    """The machine was three times slower during group 1; the ratio does not see it."""
    trials = [
        a_trial("off", wall_s=1.0, group=0),
        a_trial("auto", wall_s=0.5, group=0),
        a_trial("off", wall_s=3.0, group=1),
        a_trial("server:none", wall_s=1.5, group=1),
    ]
    found = summarise(trials, PROMPTS, MODES)
    for mode in ("auto", "server:none"):
        ratio = found[Cell(0.0, "code", mode)].ratio
        assert ratio is not None
        assert ratio.ratio == pytest.approx(2.0)
    assert found[Cell(0.0, "code", "off")].ratio is None


def test_kinds_count_alike_in_all_however_many_prompts_they_have() -> None:
    trials: list[Trial] = []
    for prompt, speed in ((0, 2.0), (1, 2.0), (2, 0.5)):
        trials += [
            a_trial(prompt=prompt),
            a_trial("auto", prompt=prompt, wall_s=1 / speed, first_s=0.1 / speed),
        ]
    found = summarise(trials, PROMPTS, MODES)
    ratio = found[Cell(0.0, ALL, "auto")].ratio
    assert ratio is not None
    assert ratio.ratio == pytest.approx(1.0)
    assert [cell.workload for cell in found] == ["code", "code", "chat", "chat", ALL, ALL]
    assert [cell.mode for cell in found][:2] == ["off", "auto"]


def test_acceptance_and_length_are_over_all_rounds() -> None:
    rounds = [a_round(4, 4), a_round(4, 0), a_round()]
    trials = [a_trial(), a_trial("auto", rounds=rounds)]
    figures = summarise(trials, PROMPTS, MODES)[Cell(0.0, "code", "auto")]
    assert figures.acceptance_rate == 0.5
    assert figures.mean_acceptance_length == pytest.approx(7 / 3)


def test_shares_of_time_add_up_to_the_whole() -> None:
    rounds = [a_round(2, 2, verify_s=0.2, draft_s=0.1, draft_prefill_s=0.05)] * 2
    trial = a_trial("auto", wall_s=1.0, prefill_s=0.1, rounds=rounds)
    stages = summarise([a_trial(), trial], PROMPTS, MODES)[Cell(0.0, "code", "auto")].stages
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
    figures = summarise(trials, PROMPTS, MODES)[Cell(0.0, "code", "auto")]
    assert (figures.same, figures.forks) == (1, (1, 2))


def test_texts_of_a_peer_are_compared_only_where_no_noise_is_drawn() -> None:
    trials = [
        a_trial(mode, temperature=temperature)
        for temperature in (0.0, 0.8)
        for mode in ("off", "server:none")
    ]
    found = summarise(trials, PROMPTS, MODES)
    assert found[Cell(0.0, "code", "server:none")].same == 1
    assert found[Cell(0.8, "code", "server:none")].same is None
    assert found[Cell(0.8, "code", "server:none")].stages is None
