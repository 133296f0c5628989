import sys
from pathlib import Path

import pytest

from localspec.diagnosis import machine
from localspec.diagnosis.machine import cpu_features, hardware, software
from localspec.llama.build import build
from localspec.llama.devices import Device, devices


def test_the_features_that_kernels_use_are_picked_out(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("model name\t: x\nflags\t\t: fpu avx2 avx512f vmx fma\n\nflags\t\t: fpu\n")
    assert cpu_features(cpuinfo) == ["avx2", "avx512f", "fma"]
    cpuinfo.write_text("BogoMIPS\t: 48\nFeatures\t: fp asimd asimddp i8mm crc32\n")
    assert cpu_features(cpuinfo) == ["asimd", "asimddp", "i8mm"]


@pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's file")
def test_this_machine_has_some() -> None:
    assert cpu_features() != []


def test_software_names_versions_and_backends() -> None:
    facts = {fact.name: fact.value for fact in software(build())}
    assert "CPU" in facts["backends"]
    assert "CPU :" in facts["compiled for"]
    assert sys.executable in facts["Python"]
    assert facts["llama.cpp"].startswith("llama-cpp-python 0.")


def test_hardware_names_memory_and_every_device() -> None:
    gpu = Device("CUDA0", "Card", 6_000_000_000, 8_000_000_000, "GPU", 0)
    facts = {fact.name: fact.value for fact in hardware([*devices(), gpu])}
    assert facts["device CUDA0"] == "Card, 6.0 GB of 8.0 GB free"
    assert "device CPU" in facts
    assert facts["free RAM"].endswith("B")


def test_a_system_that_does_not_tell_its_memory_is_worth_a_note(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(machine, "free_ram_bytes", lambda: None)
    (fact,) = [fact for fact in hardware([]) if fact.name == "free RAM"]
    assert fact.state == "note"


@pytest.mark.parametrize(("taken", "noted"), [((1.3, 2), True), ((0.2, 2), False), (None, False)])
def test_other_programs_that_slow_answers_are_told(
    monkeypatch: pytest.MonkeyPatch, taken: tuple[float, int] | None, noted: bool
) -> None:
    monkeypatch.setattr(machine, "taken_by_others", lambda: taken)
    told = [fact for fact in hardware([]) if fact.name == "other programs"]
    assert len(told) == noted
    assert all(fact.value.startswith("using 1.3 of 2 cores") for fact in told)
