"""What gives way on battery and in heat, by the option."""

import pytest

from localspec.power.conditions import Conditions
from localspec.power.throttle import PowerWatch, Throttle, throttle, usual_threads
from localspec.resources import default_threads

HOT = Conditions(hot=("package 97 °C",))
SLOWED = Conditions(throttled=True)
NEARLY_EMPTY, HALF_FULL = Conditions(battery=20), Conditions(battery=50)


@pytest.mark.parametrize(
    ("power", "taken", "words"),
    [
        ("balanced", Conditions(), ""),
        ("balanced", HALF_FULL, ""),
        ("balanced", NEARLY_EMPTY, "battery 20 %: no draft model"),
        ("balanced", HOT, "too hot: 6 of 8 threads, no draft model"),
        ("balanced", SLOWED, "too hot: 6 of 8 threads, no draft model"),
        ("quiet", Conditions(), ""),
        ("quiet", HALF_FULL, "battery 50 %: 4 of 8 threads, no draft model"),
        (
            "quiet",
            Conditions(battery=9, throttled=True),
            "too hot, battery 9 %: 4 of 8 threads, no draft model",
        ),
        ("fast", Conditions(battery=1, hot=("all",), throttled=True), ""),
        # Other programs' load has a watch of its own, and slower clocks make passes dearer by themselves.
        ("quiet", Conditions(cores_taken=3.0, n_cores=8, clock_share=0.5), ""),
    ],
)
def test_what_gives_way(power: str, taken: Conditions, words: str) -> None:
    assert throttle(power, taken).words(8) == words


def test_only_quiet_takes_layers_from_a_gpu() -> None:
    assert throttle("balanced", HOT).gpu_layers == 1
    assert throttle("quiet", HOT).gpu_layers == 0.5


def test_one_thread_is_always_left() -> None:
    assert [Throttle("why", threads=0.5).threads_of(n) for n in (1, 2, 3, 8)] == [1, 1, 2, 4]
    # Of two, one and a half are two.
    assert [throttle("balanced", HOT).threads_of(n) for n in (1, 2, 4)] == [1, 2, 3]


def test_quiet_starts_with_half_of_the_threads() -> None:
    assert usual_threads("balanced") == usual_threads("fast") == default_threads()
    assert default_threads() <= 2 * usual_threads("quiet") <= default_threads() + 1


def test_the_machine_is_looked_at_every_few_seconds() -> None:
    now_s, seen = [0.0], [Conditions(), HOT, Conditions()]
    pace = PowerWatch("balanced", lambda: seen.pop(0), lambda: now_s[0])
    assert (pace.drafts(), pace.threads_of(4), len(seen)) == (True, 4, 2)
    now_s[0] = 6.0
    assert (pace.drafts(), pace.threads_of(4), len(seen)) == (False, 3, 1)
    now_s[0] = 12.0
    assert (pace.drafts(), pace.words(4)) == (True, "")
