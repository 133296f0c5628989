import time

import pytest

from localspec.llama import weights_speed
from localspec.llama.weights_speed import multiplied_per_second


def test_multiplying_weights_tells_something_at_once() -> None:
    speed = multiplied_per_second(2, budget_s=0, all_bytes=1 << 24)
    assert speed is not None
    assert 1e7 < speed < 1e14


def test_it_is_the_time_of_so_many_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three matrices of 2,048 rows, which are as many blocks of 256 weights in 144, 144 and 210 bytes."""
    monkeypatch.setattr(time, "thread_time", iter((1.0, 1.5)).__next__)
    speed = multiplied_per_second(1, budget_s=0, all_bytes=1)
    assert speed == 2 * 2048 * (2048 // 256) * (144 + 144 + 210)


def test_a_fast_machine_does_not_run_out_of_room() -> None:
    # Every multiplication takes some: a process that had no more of it was gone.
    assert multiplied_per_second(1, budget_s=3, all_bytes=1)


def test_a_build_without_the_functions_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(name: str, *_types: object) -> object:
        raise AttributeError(name)

    monkeypatch.setattr(weights_speed, "library_function", none)
    assert multiplied_per_second(1) is None
