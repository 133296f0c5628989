"""The command against a hub on which everything goes wrong: code, one line, store, a second try."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.kills.pull import kill_until_done
from tests.models.loopback_hub import Fault, loopback_hub
from tests.models.toy_machine import PATIENCE_S, ToyMachine

pytestmark = pytest.mark.slow

DATA = bytes(range(250)) * 8000  # 2 MB
TRIES = 4


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[ToyMachine]:
    with loopback_hub(with_storage=True) as hub:
        machine = ToyMachine(tmp_path, hub)
        machine.offer("toy", DATA)
        yield machine
        assert hub.leaked == []  # whatever went wrong, the storage never saw the token


def fails(machine: ToyMachine, word: str, *arguments: str, **variables: str) -> None:
    """See that a pull ends with code 3 and one line that has a word."""
    ended = machine.run("pull", *arguments, "toy", **variables)
    assert (ended.code, ended.out) == (3, ""), ended.err
    lines = [
        line for line in ended.err.splitlines() if not line.startswith("localspec: downloading")
    ]
    assert len(lines) == 1
    assert lines[0].startswith("localspec: toy (2 MB) could not be downloaded")
    assert word in lines[0]


def completes(machine: ToyMachine) -> None:
    """See that a second try brings the file, and that nothing else ever had a name in the store."""
    machine.assert_only_verified()
    done = machine.run("pull", "toy", HF_TOKEN="hf_secret")
    assert done.code == 0, done.err
    assert Path(done.out.strip()).read_bytes() == DATA
    machine.assert_only_verified()
    assert machine.partials == []


@pytest.mark.parametrize(
    ("faults", "word"),
    [
        ([Fault("cut")] * TRIES, "the connection broke"),
        ([Fault("cut", 5000)] * TRIES, "the connection broke)"),
        ([Fault("cut", 1_200_000), *[Fault("cut")] * 3], "broke (1 MB of 2 MB are kept: the next"),
        ([Fault("status", status=503)] * TRIES, "HTTP 503"),
        ([Fault("status", status=500)] * TRIES, "HTTP 500"),
        ([Fault("status", status=418)], "HTTP 418"),
        ([Fault("html")], "a web page came instead of the file"),
        ([Fault("wrong_bytes")], "the sha256 is "),
        ([Fault("longer")], "the size is 2000001 bytes, not 2000000 bytes"),
        ([Fault("shorter")], "the size is 1999999 bytes, not 2000000 bytes"),
        ([Fault("cut", 900_000), Fault("wrong_bytes")], "the sha256 is "),
        ([Fault("cut", 1_200_000), Fault("html")], "a proxy's (1 MB of 2 MB are kept"),
    ],
)
def test_a_fault_of_the_storage(machine: ToyMachine, faults: list[Fault], word: str) -> None:
    machine.hub.faults.extend(faults)
    fails(machine, word, HF_TOKEN="hf_secret")
    assert machine.blobs == []
    assert not machine.hub.faults
    completes(machine)


@pytest.mark.parametrize(
    ("status", "code", "word"),
    [
        (401, None, "access refused (HTTP 401): the token has expired"),
        (401, "RepoNotFound", "access refused (HTTP 401)"),
        (403, "GatedRepo", "access refused (HTTP 403), it is gated: accept its terms"),
        (403, None, "access refused (HTTP 403)"),
        (404, "EntryNotFound", "HTTP 404, no such file"),
        (500, None, "HTTP 500"),
    ],
)
def test_a_refusal_of_the_hub(
    machine: ToyMachine, status: int, code: str | None, word: str
) -> None:
    machine.hub.status, machine.hub.error_code = status, code
    fails(machine, word, HF_TOKEN="hf_secret")
    if status == 401:
        fails(machine, "set HF_TOKEN")
    assert machine.blobs == machine.partials == []
    machine.hub.status = 200
    completes(machine)


def test_without_a_network_the_line_says_by_what_it_is_closed(machine: ToyMachine) -> None:
    machine.hub.portal = True
    fails(machine, "a web page came instead of the file")
    assert machine.blobs == machine.partials == []
    machine.hub.portal = False
    machine.hub.requests.clear()
    fails(machine, "not in the hub's cache, HF_HUB_OFFLINE is set", HF_HUB_OFFLINE="1")
    fails(machine, "not in the hub's cache, offline", "--offline")
    fails(machine, "no connection", HF_ENDPOINT="http://127.0.0.1:9")
    assert machine.hub.requests == []
    completes(machine)


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
    data, kills = bytes(range(250)) * 20_000, 10  # lab/kills/pull.py does fifty
    machine.hub.pause_s = 0.03  # ten seconds for all of it
    machine.offer("toy", data)
    killed = kill_until_done(machine, "toy", kills, seed=0)
    assert killed.sent_bytes <= 1.05 * len(data) + kills * (64 << 10)
    assert machine.partials == []
