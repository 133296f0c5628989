"""Which devices share a model's layers."""

from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest

from localspec.llama.devices import Device, _describe, devices, offloads, placed_on
from localspec.options import LoadOptions
from tests.support.checks import refuses

Patch = pytest.MonkeyPatch

CPU = Device("CPU", "cpu", 8, 8, "CPU", 1, "CPU")
BLAS = Device("BLAS", "blas", 0, 0, "ACCEL", 2, "BLAS")
CARD = Device("CUDA0", "card", 4, 8, "GPU", 3, "CUDA", "0000:01:00.0")
OTHER = Device("CUDA1", "card", 4, 8, "GPU", 4, "CUDA", "0000:02:00.0")
SAME_CARD = Device("Vulkan0", "card", 4, 8, "GPU", 5, "Vulkan", "0000:01:00.0")
IN_CPU = Device("Vulkan1", "graphics", 4, 8, "IGPU", 6, "Vulkan", "0000:00:02.0")
FAR = Device("RPC0", "host:1", 4, 8, "GPU", 7, "RPC")


def placed(known: list[Device], monkeypatch: Patch, **options: object) -> list[str]:
    monkeypatch.setattr("localspec.llama.devices.devices", lambda: known)
    return [each.name for each in placed_on(LoadOptions(**options))]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("known", "names"),
    [
        ([CPU, BLAS], []),
        ([CPU, CARD, OTHER], ["CUDA0", "CUDA1"]),
        ([CARD, CPU, FAR], ["RPC0", "CUDA0"]),
        ([CARD, SAME_CARD, IN_CPU, CPU], ["CUDA0"]),
        ([IN_CPU, CPU], ["Vulkan1"]),
        ([FAR, IN_CPU, CPU], ["RPC0", "Vulkan1"]),
    ],
)
def test_llama_cpps_own_choice(known: list[Device], names: list[str], monkeypatch: Patch) -> None:
    assert placed(known, monkeypatch) == names
    assert placed(known, monkeypatch, devices=("auto",)) == names
    assert placed(known, monkeypatch, split="none") == names[:1]
    assert placed(known, monkeypatch, devices=("cpu",)) == []
    assert not offloads(LoadOptions(gpu_layers=0))
    known = [CPU, CARD, OTHER, IN_CPU, FAR]  # those that are named are taken in their order, once
    assert placed(known, monkeypatch, devices=("cuda1", "RPC0", "CUDA1")) == ["CUDA1", "RPC0"]
    assert placed(known, monkeypatch, devices=("Vulkan1",)) == ["Vulkan1"]


def test_memory_of_gpus_that_have_none_is_the_cpus(monkeypatch: Patch) -> None:
    cpu = next(device for device in devices() if device.name == "CPU")
    assert not cpu.is_gpu
    assert cpu.total_bytes > 0
    known = [CPU, BLAS, CARD, IN_CPU, FAR, replace(CARD, description="llvmpipe (LLVM 15.0.6)")]
    known.append(replace(IN_CPU, total_bytes=1 << 60))  # more than the RAM: it is its own
    for system, machine in (("linux", "arm64"), ("darwin", "x86_64"), ("darwin", "arm64")):
        monkeypatch.setattr("sys.platform", system)
        monkeypatch.setattr("platform.machine", lambda machine=machine: machine)
        apple = (system, machine) == ("darwin", "arm64")
        shares = [False, False, apple, True, False, True, apple]
        assert [each.shares_ram for each in known] == shares


def test_what_cannot_be_is_refused(monkeypatch: Patch) -> None:
    known = [CPU, CARD, FAR]
    cases: list[tuple[dict[str, object], str]] = [
        ({"devices": ("CUDA7",)}, "choose one of CPU, CUDA0, RPC0"),
        ({"devices": ("CUDA0",), "split": "tensor"}, "two devices or more, and has CUDA0"),
        ({"devices": ("cpu",), "split": "tensor"}, "has none"),
        ({"split": "tensor"}, r"does not work over RPC \(RPC0, CUDA0\): use --split layers"),
        ({"tensor_split": "1,2,3"}, r"for 3 devices, and those used are 2 \(RPC0, CUDA0\)"),
    ]
    for options, word in cases:
        refuses(word, placed, known, monkeypatch, **options)
        assert placed(known, monkeypatch, **options, gpu_layers=0) == []


def test_three_quarters_of_another_machines_ram_are_free(monkeypatch: Patch) -> None:
    for backend, reported, free in (("RPC", 800, 600), ("RPC", 799, 799), ("CPU", 800, 800)):

        def fill(_handle: int, props: Any, reported: int = reported) -> None:
            props._obj.name, props._obj.type = b"some", 1
            props._obj.memory_free, props._obj.memory_total = reported, 800

        named = Mock(return_value=backend.encode())
        its = {"ggml_backend_dev_get_props": fill, "ggml_backend_reg_name": named}
        function = Mock(side_effect=lambda name, *_, its=its: its.get(name, Mock()))
        monkeypatch.setattr("localspec.llama.devices.library_function", function)
        device = _describe(1)
        assert (device.free_bytes, device.total_bytes) == (free, 800)
