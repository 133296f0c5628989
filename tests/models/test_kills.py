from pathlib import Path

import pytest

from lab.kills.pull import kill_until_done
from tests.models.loopback_hub import loopback_hub
from tests.models.toy_machine import ToyMachine

pytestmark = pytest.mark.slow

DATA = bytes(range(250)) * 20_000  # 5 MB
BUFFER_BYTES = 64 << 10
KILLS = 10  # lab/kills/pull.py does fifty


def test_killed_at_random_moments_a_pull_loses_nothing(tmp_path: Path) -> None:
    with loopback_hub(with_storage=True) as hub:
        hub.pause_s = 0.03  # ten seconds for all of it
        machine = ToyMachine(tmp_path, hub)
        machine.offer("toy", DATA)
        killed = kill_until_done(machine, "toy", KILLS, seed=0)
    assert killed.sent_bytes <= 1.05 * len(DATA) + KILLS * BUFFER_BYTES
    assert machine.partials == []
