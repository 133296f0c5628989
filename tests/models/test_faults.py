"""Several pulls of a model at once, and some that are killed: no byte is fetched twice, and nothing is lost."""

import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.models.loopback_hub import loopback_hub
from tests.models.toy_machine import PATIENCE_S, ToyMachine

pytestmark = pytest.mark.slow

DATA = bytes(range(250)) * 8000  # 2 MB


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[ToyMachine]:
    with loopback_hub(with_storage=True) as hub:
        machine = ToyMachine(tmp_path, hub)
        machine.offer("toy", DATA)
        yield machine
        assert hub.leaked == []  # whatever went wrong, the storage never saw the token


def test_processes_that_pull_the_same_model_wait_for_the_first(machine: ToyMachine) -> None:
    machine.hub.pause_s = 0.005
    processes = [machine.start("pull", "toy") for _ in range(3)]
    ended = [process.communicate(timeout=PATIENCE_S) for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0], ended
    machine.assert_only_verified()
    assert (len(machine.blobs), machine.partials) == (1, [])
    assert machine.hub.sent_bytes == len(DATA)


def test_a_pair_of_processes_survives_the_death_of_the_first(machine: ToyMachine) -> None:
    machine.hub.pause_s = 0.005
    with machine.start("pull", "toy") as first, machine.start("pull", "toy") as second:
        while machine.hub.sent_bytes < len(DATA) // 4:
            assert None in (first.poll(), second.poll())
            time.sleep(0.005)
        first.kill()
        out, err = second.communicate(timeout=PATIENCE_S)
    assert second.returncode == 0, err
    assert Path(out.decode().strip()).read_bytes() == DATA
    assert machine.hub.sent_bytes <= len(DATA) * 1.05 + (1 << 18)


def test_killed_at_random_moments_a_pull_loses_nothing(machine: ToyMachine) -> None:
    data, kills, chance, hub = bytes(range(250)) * 12_000, 3, Random(0), machine.hub
    hub.pause_s = 0.03
    machine.offer("toy", data)
    for _ in range(kills):
        before = hub.sent_bytes
        with machine.start("pull", "--quiet", "toy") as process:
            # Most moments lie in the transfer, some before it.
            end_s = time.monotonic() + chance.uniform(0.2, 1.0)
            while hub.sent_bytes == before and time.monotonic() < end_s:
                time.sleep(0.005)
            time.sleep(chance.uniform(0.0, 0.25))
            alive = process.poll() is None
            process.kill()
            process.communicate()
        machine.assert_only_verified()
        assert alive, "the hub is too fast for so many kills"
    hub.pause_s = 0.0
    ended = machine.run("pull", "--quiet", "toy")
    assert ended.code == 0, ended.err
    machine.assert_only_verified()
    assert hub.sent_bytes <= 1.05 * len(data) + kills * (64 << 10)
    assert machine.partials == []
