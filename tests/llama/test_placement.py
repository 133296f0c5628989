"""Layers on a second device, which llama.cpp's RPC server is: where they are, what they take, and that the text is the same."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.plugins.workers.remote import results
from tests.plugins.workers.workers import working

pytestmark = [pytest.mark.weights, pytest.mark.slow]
Memory = Mapping[str, Mapping[str, tuple[int, int]]]
Options = dict[str, Any]
CPU, REMOTE, BOTH = ["cpu"], ["RPC0"], ["RPC0", "RPC1"]
WANTED = 0.02
LAYERS = (0, 10, None)
EXACT: Options = {"n_ctx": 512, "threads": 1, "n_batch": 128, "repack": False}

_TARGET: Options = {"n_ctx": 4096, "max_rows": 16, "load_mode": "copy"}
_DRAFT: Options = {"n_ctx": 4096, "max_rows": 1, "load_mode": "copy"}


def placements() -> dict[str, tuple[Options, Options]]:
    """Return how target and draft model are loaded, by a name for it."""
    on_cpu = _TARGET | {"devices": CPU}, _DRAFT | {"devices": CPU}
    far = _TARGET | {"devices": REMOTE}, _DRAFT | {"devices": REMOTE}
    found = {}
    for count in LAYERS:
        layers = "all" if count is None else count
        of_count = {"gpu_layers": count}
        found[f"{layers} layers of the target away"] = (far[0] | of_count, on_cpu[1])
        found[f"{layers} layers of the draft model away"] = (on_cpu[0], far[1] | of_count)
    shared = _TARGET | {"devices": BOTH, "tensor_split": "2,1"}
    return found | {
        "both away": far,
        "the target away, its cache here": (far[0] | {"kv_offload": False}, on_cpu[1]),
        "the target on two devices, 2 to 1": (shared, on_cpu[1]),
        "20 layers of it on two devices, 2 to 1": (shared | {"gpu_layers": 20}, on_cpu[1]),
    }


@pytest.fixture(scope="module")
def servers() -> Iterator[list[str]]:
    with working("--device", "CPU") as one, working("--device", "CPU") as other:
        yield [one.address, other.address]


@pytest.fixture(scope="module")
def memory(
    servers: list[str], smollm2_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Memory:
    """What is predicted and what is allocated in each place, by placements."""
    job = {"do": "memory", "path": str(smollm2_path)}
    each = placements().values()
    jobs = [
        {**job, "options": target, "draft_options": draft_model} for target, draft_model in each
    ]
    uses = results(servers, jobs, tmp_path_factory.mktemp("data"))
    return dict(zip(placements(), uses, strict=True))


def test_memory_is_predicted_and_layers_are_where_they_were_sent(memory: Memory) -> None:
    off = {
        (name, place): predicted / real - 1
        for name, places in memory.items()
        for place, (predicted, real) in places.items()
        if real
    }
    assert {key: part for key, part in off.items() if abs(part) > WANTED} == {}
    names = [f"{count} layers of the target away" for count in (0, 10, "all")]
    none, ten, every = ({place: real for place, (_, real) in memory[n].items()} for n in names)
    assert none.get("RPC0", 0) == 0 < ten["RPC0"] < every["RPC0"]
    assert none["RAM"] > ten["RAM"] > every["RAM"]
    shared = memory["the target on two devices, 2 to 1"]
    assert shared["RPC0"][1] > shared["RPC1"][1] > 0


def test_the_same_bits_anywhere(servers: list[str], six_layers_path: Path, tmp_path: Path) -> None:
    job = {"do": "gap", "path": str(six_layers_path), "options": EXACT | {"devices": CPU}}
    others = ((REMOTE, 3), (REMOTE, None), (BOTH, None))
    jobs = [
        {**job, "others": EXACT | {"devices": devices, "gpu_layers": count}}
        for devices, count in others
    ]
    assert results(servers, jobs, tmp_path) == [0.0] * len(jobs)


def test_a_prompt_before_its_row(servers: list[str], six_layers_path: Path, tmp_path: Path) -> None:
    options = {"devices": ["RPC0"], "n_ctx": 1024, "n_batch": 64}
    job = {"do": "prompt", "path": str(six_layers_path), "options": options, "tokens": 512}
    times = results(servers, [{**job, "pass_s": each} for each in (None, 1e-9, 1e9)], tmp_path)
    assert [chunk for *_, chunk in times] == [64, 32, 64]
    # Whatever would only have been sent, the row would have waited for.
    assert all(row_s < prompt_s for prompt_s, row_s, _ in times)
