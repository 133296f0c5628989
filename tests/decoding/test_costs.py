import pytest

from localspec.decoding.costs import PassCosts, RunningCosts

TABLE = PassCosts((1, 2, 4, 8), (1.0, 1.8, 1.4, 3.0))


@pytest.mark.parametrize(
    ("width", "seconds"), [(1, 1.0), (2, 1.8), (3, 1.6), (4, 1.4), (6, 2.2), (8, 3.0), (16, 6.0)]
)
def test_between_measured_widths_the_cost_lies_on_the_line(width: int, seconds: float) -> None:
    assert TABLE.of(width) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("widths", "seconds"),
    [((), ()), ((2, 3), (1.0, 1.0)), ((1, 2), (1.0,)), ((1, 3, 2), (1.0,) * 3), ((1,), (0.0,))],
)
def test_a_table_that_is_none_is_refused(
    widths: tuple[int, ...], seconds: tuple[float, ...]
) -> None:
    with pytest.raises(ValueError, match=r"width|time"):
        PassCosts(widths, seconds)


def test_what_passes_really_take_corrects_every_width() -> None:
    running = RunningCosts(TABLE)
    for _ in range(60):
        running.add(2, 2 * TABLE.of(2))
    assert running.of(2) == pytest.approx(2 * TABLE.of(2), rel=0.05)
    assert 1.5 * TABLE.of(8) < running.of(8) < 2.1 * TABLE.of(8)


def test_one_disturbed_pass_changes_little() -> None:
    running = RunningCosts(TABLE)
    for _ in range(12):
        running.add(1, 1.0)
    running.add(1, 100.0)
    assert running.of(1) < 1.06


def test_the_first_passes_correct_a_table_of_another_day() -> None:
    running = RunningCosts(TABLE)
    for _ in range(4):
        running.add(1, 1.4)
    assert running.of(8) == pytest.approx(1.4 * 3.0, rel=0.1)


def test_a_width_that_differs_from_the_others_is_learnt_apart() -> None:
    running = RunningCosts(TABLE)
    for _ in range(200):
        running.add(1, 1.0)
        running.add(4, 2.1)
    assert running.of(4) / running.of(1) == pytest.approx(2.1, rel=0.1)


def test_what_slows_wide_passes_alone_is_learnt_from_the_first_of_them_for_all() -> None:
    running = RunningCosts(TABLE)
    for _ in range(4):
        for _ in range(8):
            running.add(1, 1.0)
        running.add(4, 1.3 * TABLE.of(4))
    assert running.of(1) == pytest.approx(1.0, rel=0.03)
    assert running.of(4) == pytest.approx(1.3 * TABLE.of(4), rel=0.08)
    assert running.of(8) == pytest.approx(1.3 * TABLE.of(8), rel=0.12)


def test_what_slowed_wide_passes_is_forgotten_while_none_is_made() -> None:
    running = RunningCosts(TABLE)
    for _ in range(12):
        running.add(4, 2 * TABLE.of(4))
    slow = [running.of(width) / running.of(1) / TABLE.of(width) for width in (4, 8)]
    for _ in range(1600):
        running.add(1, 1.0)
    after = [running.of(width) / running.of(1) / TABLE.of(width) for width in (4, 8)]
    assert min(slow) > 1.2
    assert after == pytest.approx([1.0, 1.0], abs=0.03)


def test_what_wide_passes_show_is_kept_however_rare_they_are() -> None:
    running = RunningCosts(TABLE)
    for _ in range(100):
        for _ in range(20):
            running.add(1, 1.0)
        running.add(4, 1.35 * TABLE.of(4))
    assert running.of(4) == pytest.approx(1.35 * TABLE.of(4), rel=0.03)


def test_costs_of_all_widths_are_those_of_each() -> None:
    running = RunningCosts(TABLE)
    assert running.upto(3) == [running.of(width) for width in (1, 2, 3)]
    for width, seconds in ((1, 1.7), (4, 1.1), (2, 3.0), (6, 2.0)):
        running.add(width, seconds)
        assert running.upto(8) == [running.of(each) for each in range(1, 9)]
    alone = RunningCosts(TABLE)  # widths that nobody asked for all together
    for width, seconds in ((1, 1.7), (4, 1.1), (2, 3.0), (6, 2.0)):
        alone.add(width, seconds)
    assert running.upto(8) == [alone.of(each) for each in range(1, 9)]
