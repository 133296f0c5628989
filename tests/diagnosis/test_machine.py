"""Facts about the machine: versions, processor, memory, devices, and what setup would do."""

import sys
from dataclasses import replace

import pytest

from localspec.diagnosis import doctor
from localspec.diagnosis.doctor import gpu_build, hardware, software
from localspec.llama.backend import build
from localspec.llama.devices import Device, devices
from localspec.setup.plan import GpuFinding


def test_software_names_versions_and_backends() -> None:
    facts = {fact.name: fact.value for fact in software()}
    assert "CPU" in facts["backends"]
    assert facts["compiled with"].startswith("CPU: ")
    assert sys.executable in facts["Python"]
    assert facts["llama.cpp"].startswith("llama-cpp-python 0.")


def test_features_of_a_build_are_words(monkeypatch: pytest.MonkeyPatch) -> None:
    features = (
        "CUDA : ARCHS = 890",
        "USE_GRAPHS = 1",
        "CPU : SSE3 = 1",
        "AVX2 = 1",
        "SVE_CNT = 16",
    )
    monkeypatch.setattr(doctor, "build", lambda: replace(build(), features=features))
    facts = {fact.name: fact.value for fact in software()}
    assert facts["compiled with"] == "CUDA: ARCHS 890, USE_GRAPHS, CPU: SSE3, AVX2, SVE_CNT 16"


@pytest.mark.parametrize(
    ("found", "value", "state"),
    [
        (GpuFinding(), "no GPU was found: the CPU is used, and nothing changes", "ok"),
        (
            GpuFinding(("Card",), ("nvcc",)),
            "CUDA (Card) is not used: first install nvcc; then run localspec setup",
            "note",
        ),
    ],
)
def test_the_gpu_build_says_what_setup_would_do(
    monkeypatch: pytest.MonkeyPatch, found: GpuFinding, value: str, state: str
) -> None:
    monkeypatch.setattr(doctor, "find_gpus", lambda: {"cuda": found, "cpu": GpuFinding()})
    *_, fact = gpu_build()
    assert (fact.name, fact.value, fact.state) == ("setup", value, state)


def test_hardware_names_memory_and_every_device() -> None:
    gpu = Device("CUDA0", "Card", 6_000_000_000, 8_000_000_000, "GPU", 0)
    facts = {fact.name: fact.value for fact in hardware([*devices(), gpu])}
    assert facts["device CUDA0"] == "Card, 6.0 GB of 8.0 GB free"
    assert "device CPU" in facts
    assert facts["free RAM"].endswith("B")


def test_a_system_that_does_not_tell_its_memory_is_worth_a_note(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(doctor, "free_ram_bytes", lambda: None)
    (fact,) = [fact for fact in hardware([]) if fact.name == "free RAM"]
    assert fact.state == "note"


@pytest.mark.parametrize(("taken", "noted"), [((1.3, 2), True), ((0.2, 2), False), (None, False)])
def test_other_programs_that_slow_answers_are_told(
    monkeypatch: pytest.MonkeyPatch, taken: tuple[float, int] | None, noted: bool
) -> None:
    monkeypatch.setattr(doctor, "taken_by_others", lambda: taken)
    told = [fact for fact in hardware([]) if fact.name == "other programs"]
    assert len(told) == noted
    assert all(fact.value.startswith("using 1.3 of 2 cores") for fact in told)
