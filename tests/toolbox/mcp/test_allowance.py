"""How much a server may say."""

import pytest

from localspec.toolbox.mcp.allowance import Allowance, Flood


def test_so_much_at_once_and_more_with_time() -> None:
    now = 0.0
    allowance = Allowance(lambda: now)
    allowance.take(16 << 20)
    with pytest.raises(Flood):
        allowance.take(1)
    now = 10.0
    allowance.take(2 << 20)
    with pytest.raises(Flood):
        allowance.take(1 << 20)


def test_time_fills_no_more_than_it_holds() -> None:
    now = 0.0
    allowance = Allowance(lambda: now)
    now = 1e6
    with pytest.raises(Flood):
        allowance.take((16 << 20) + 1)


def test_small_messages_are_counted_too() -> None:
    allowance = Allowance(lambda: 0.0)
    for _ in range(4_000):
        allowance.take(60, 1)
    with pytest.raises(Flood):
        allowance.take(60, 1)
