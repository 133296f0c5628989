"""Layers on a second device, which llama.cpp's RPC server is: where they are, what they take, and that they say the same."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.llama.remote import rpc_library, tried, workers

pytestmark = [
    pytest.mark.weights,
    pytest.mark.skipif(rpc_library() is None, reason="llama.cpp was built without GGML_RPC"),
]
Memory = Mapping[str, Mapping[str, tuple[int, int]]]
Options = dict[str, Any]
CPU, REMOTE, BOTH = ["cpu"], ["RPC0"], ["RPC0", "RPC1"]
WANTED = 0.02
LAYERS = (0, 10, None)
EXACT: Options = {"n_ctx": 512, "threads": 1, "n_batch": 128, "repack": False}
PROMPT = "Write a short poem about the sea at night."

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


def memory_jobs(path: Path) -> list[Options]:
    """Return what is asked for the memory of each placement."""
    return [
        {"do": "memory", "path": str(path), "options": target, "draft_options": draft_model}
        for target, draft_model in placements().values()
    ]


def text_jobs(path: Path) -> list[Options]:
    """Return what is asked for an answer wherever the two models are, the CPU for both first."""
    places = [(CPU, CPU), (REMOTE, REMOTE), (REMOTE, CPU), (CPU, REMOTE), (BOTH, CPU)]
    return [
        {
            "do": "text",
            "path": str(path),
            "options": EXACT | {"devices": target},
            "draft_devices": draft_model,
            "prompt": PROMPT,
            "temperature": 0.8,
        }
        for target, draft_model in places
    ]


def gap_jobs(path: Path) -> list[Options]:
    """Return what is asked for the gap to the CPU, of exact kernels and of the usual ones."""
    usual = EXACT | {"repack": True}
    return [
        {
            "do": "gap",
            "path": str(path),
            "options": kernels | {"devices": CPU},
            "others": kernels | {"devices": devices, "gpu_layers": count},
        }
        for kernels, devices, count in (
            (EXACT, REMOTE, 10),
            (EXACT, REMOTE, None),
            (EXACT, BOTH, None),
            (usual, REMOTE, None),
        )
    ]


@pytest.fixture(scope="module")
def servers() -> Iterator[list[str]]:
    with workers(2) as places:
        yield places


@pytest.fixture(scope="module")
def memory(
    servers: list[str], smollm2_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Memory:
    """What is predicted and what is allocated in each place, by placements."""
    found = tried(servers, memory_jobs(smollm2_path), tmp_path_factory.mktemp("data"))
    return dict(zip(placements(), found, strict=True))


def test_memory_is_predicted_within_two_percent_in_every_place(memory: Memory) -> None:
    off = {
        (name, place): predicted / real - 1
        for name, places in memory.items()
        for place, (predicted, real) in places.items()
        if real
    }
    assert {key: part for key, part in off.items() if abs(part) > WANTED} == {}


def test_layers_are_where_they_were_sent(memory: Memory) -> None:
    names = [f"{count} layers of the target away" for count in (0, 10, "all")]
    none, ten, every = ({place: real for place, (_, real) in memory[n].items()} for n in names)
    assert none.get("RPC0", 0) == 0 < ten["RPC0"] < every["RPC0"]
    assert none["RAM"] > ten["RAM"] > every["RAM"]
    shared = memory["the target on two devices, 2 to 1"]
    assert shared["RPC0"][1] > shared["RPC1"][1] > 0


def test_the_same_text_wherever_the_two_models_are(
    servers: list[str], smollm2_path: Path, tmp_path: Path
) -> None:
    jobs = text_jobs(smollm2_path)
    found = tried(servers, jobs, tmp_path)
    assert [each["text"] for each in found] == [found[0]["text"]] * len(jobs)
    assert all(each["drafted"] for each in found)
    for job, each in zip(jobs, found, strict=True):
        assert set(job["options"]["devices"]) - {"cpu"} == set(each["places"]) - {"RAM"}
        assert set(job["draft_devices"]) - {"cpu"} == set(each["draft_places"]) - {"RAM"}


def test_rows_of_another_device_are_the_same_to_the_bit_with_exact_kernels(
    servers: list[str], smollm2_path: Path, tmp_path: Path
) -> None:
    *exact, _usual = gap_jobs(smollm2_path)
    assert tried(servers, exact, tmp_path) == [0.0] * len(exact)


def test_a_prompt_is_computed_when_it_is_said_to_be(
    servers: list[str], smollm2_path: Path, tmp_path: Path
) -> None:
    options = {"devices": ["RPC0"], "n_ctx": 1024, "n_batch": 64}
    job = {"do": "prompt", "path": str(smollm2_path), "options": options, "tokens": 512}
    in_time = (None, 1e-9, 1e9)
    found = tried(servers, [{**job, "pass_s": each} for each in in_time], tmp_path)
    assert [each["chunk"] for each in found] == [64, 32, 64]
    # Whatever would only have been sent, the row would have waited for.
    assert all(each["row_s"] < each["prompt_s"] for each in found)


def test_a_device_that_was_registered_since_is_one_like_any_other(
    servers: list[str], tmp_path: Path
) -> None:
    (found,) = tried(servers, [{"do": "devices"}], tmp_path)
    assert [each for each in found if each[0].startswith("RPC")] == [
        ["RPC0", "GPU", "RPC"],
        ["RPC1", "GPU", "RPC"],
    ]


def test_what_cannot_be_is_refused_on_one_line_that_says_what_can(
    servers: list[str], smollm2_path: Path, tmp_path: Path
) -> None:
    both = ["RPC0", "RPC1"]
    jobs = [
        {"do": "refusal", "path": str(path), "options": options}
        for path, options in (
            (smollm2_path, {"devices": ["RPC7"]}),
            (smollm2_path, {"devices": both, "tensor_split": "1,2,3"}),
            (smollm2_path, {"devices": ["RPC0"], "split": "tensor"}),
            (smollm2_path, {"devices": both, "split": "tensor"}),
        )
    ]
    found = tried(servers, jobs, tmp_path)
    for line, words in zip(
        found,
        (
            "choose one of CPU, RPC0, RPC1",
            "is for 3 devices, and those used are 2 (RPC0, RPC1)",
            "two devices or more, and has RPC0: use --split layers",
            "does not work over RPC (RPC0, RPC1): use --split layers",
        ),
        strict=True,
    ):
        assert words in line
        assert "\n" not in line
