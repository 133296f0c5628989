"""Replies on a machine that is made up, of which the truth is known."""

import random
import statistics
from collections.abc import Sequence
from dataclasses import replace

import pytest

from localspec.decoding.round import Round
from localspec.tui.stats import measure, seconds
from tests.tui.answers import plain, round_of

LENGTH = 120


def reply(seed: int) -> list[Round]:
    """Return rounds of which two in five are drafted, and none takes quite as long as another."""
    drawn = random.Random(seed)
    rounds = []
    for _ in range(LENGTH):
        noise = drawn.gauss(1.0, 0.05)
        if drawn.random() < 0.4:
            drafted = drawn.choice([1, 2, 3, 4, 6])
            accepted = drawn.randint(0, drafted)
            rounds.append(round_of(drafted, accepted, 0.02 * (1 + 0.15 * drafted) * noise))
        else:
            rounds.append(plain(0.02 * noise))
    return rounds


def true_speed_up(rounds: Sequence[Round]) -> float:
    plain_s = statistics.fmean(seconds(each) for each in rounds if not each.drafted)
    return sum(len(each.confirmed) for each in rounds) * plain_s / sum(map(seconds, rounds))


def slower(each: Round, factor: float) -> Round:
    spent = each.spent
    longer = replace(
        spent,
        draft_s=spent.draft_s * factor,
        verify_s=spent.verify_s * factor,
        other_s=spent.other_s * factor,
    )
    return replace(each, spent=longer)


@pytest.mark.parametrize("seed", range(20))
def test_what_is_measured_is_true(seed: int) -> None:
    rounds = reply(seed)
    measured = measure(rounds)
    assert measured is not None
    assert measured.estimate == pytest.approx(true_speed_up(rounds), rel=0.02)
    assert measured.low < true_speed_up(rounds) < measured.high


@pytest.mark.parametrize("seed", range(20))
def test_a_machine_that_is_busy_for_a_while_does_not_move_it(seed: int) -> None:
    calm = reply(seed)
    drawn = random.Random(seed)
    start, length = drawn.randrange(LENGTH - 10), drawn.randrange(5, LENGTH // 2)
    busy = [
        slower(each, 3.0 if start <= at < start + length else 1.0) for at, each in enumerate(calm)
    ]
    measured = measure(busy)
    assert measured is not None
    assert measured.estimate == pytest.approx(true_speed_up(calm), rel=0.08)
    assert measured.low < true_speed_up(calm) < measured.high


@pytest.mark.parametrize("seed", range(20))
def test_one_round_that_waited_for_a_core_does_not_move_it(seed: int) -> None:
    calm = reply(seed)
    waited = random.Random(seed).randrange(LENGTH)
    measured = measure(
        [slower(each, 100.0 if at == waited else 1.0) for at, each in enumerate(calm)]
    )
    assert measured is not None
    assert measured.estimate == pytest.approx(true_speed_up(calm), rel=0.02)


def test_nothing_is_measured_without_drafts_or_without_plain_rounds_beside_them() -> None:
    assert measure([]) is None
    assert measure([plain()] * 100) is None
    assert measure([round_of(3, 3)] * 100) is None
    assert measure([plain()] * 50 + [round_of(3, 3)] * 100) is None, (
        "only the first have neighbours"
    )


def test_too_few_rounds_measure_nothing() -> None:
    assert measure([plain(), round_of(3, 3)] * 7) is None
    assert measure([plain(), round_of(3, 3)] * 8) is not None


def test_the_interval_grows_with_the_noise() -> None:
    def width(noise: float) -> float:
        drawn = random.Random(1)
        rounds = []
        for _ in range(40):
            rounds += [
                plain(0.02 * drawn.gauss(1, noise)),
                round_of(3, 2, 0.03 * drawn.gauss(1, noise)),
            ]
        measured = measure(rounds)
        assert measured is not None
        return measured.high - measured.low

    assert width(0.01) < width(0.1) / 5
