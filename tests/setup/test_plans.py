"""What of GPUs is found, on made-up trees and with made-up programs, and what setup will do."""

from pathlib import Path
from typing import Any

import pytest

from localspec.setup.plan import GpuFinding, SetupPlan, decide, find_gpus
from tests.support.checks import refuses

TOOLS = {"cc": "/bin/cc", "c++": "/bin/c++"}


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CC", "CXX", "CUDAARCHS", "VULKAN_SDK"):
        monkeypatch.delenv(name, raising=False)


def vulkaninfo(folder: Path, *devices: tuple[str, str], code: int = 0) -> str:
    """A program that prints devices as `vulkaninfo --summary` does."""
    program = folder / "vulkaninfo"
    lines = ["WARNING: [Loader Message] a layer is missing", "", "Devices:", "========"]
    for number, (kind, name) in enumerate(devices):
        lines += [
            f"GPU{number}:",
            "\tapiVersion         = 1.3.230",
            f"\tdeviceType         = PHYSICAL_DEVICE_TYPE_{kind}",
            f"\tdeviceName         = {name}",
            "\tdriverName         = llvmpipe",
        ]
    text = "\n".join(lines)
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\nexit {code}\n")
    program.chmod(0o755)
    return str(program)


def found(backend: str, root: Path, **programs: str) -> GpuFinding:
    return find_gpus({**TOOLS, **programs}.get, root, "linux")[backend]


def test_a_bare_machine_has_none_and_a_mac_has_metal(tmp_path: Path) -> None:
    machine = find_gpus(TOOLS.get, tmp_path, "linux")
    assert list(machine) == ["cuda", "rocm", "vulkan", "cpu"]
    assert {each.gpus for each in machine.values()} == {()}
    assert machine["cpu"].lacks == ()
    without = find_gpus(lambda _name: None, tmp_path, "linux")["cpu"].lacks
    assert [each[:3] for each in without] == ["cc ", "c++"]
    machine = find_gpus(TOOLS.get, tmp_path, "darwin")
    assert machine == {"metal": GpuFinding(("Metal",)), "cpu": GpuFinding()}


def test_nvidias_program_is_asked_and_else_its_driver(tmp_path: Path) -> None:
    smi = tmp_path / "nvidia-smi"
    smi.write_text("#!/bin/sh\nprintf 'Card A, 8 GB, 1.0\\nCard B, 9 GB, 1.0\\n'\n")
    smi.chmod(0o755)
    cuda = found("cuda", tmp_path, nvcc="/x/nvcc", **{"nvidia-smi": str(smi)})
    assert (cuda.gpus, cuda.lacks) == (("Card A, 8 GB, 1.0", "Card B, 9 GB, 1.0"), ())
    smi.write_text("#!/bin/sh\necho no driver; exit 9\n")
    assert found("cuda", tmp_path, **{"nvidia-smi": str(smi)}).gpus == ()
    told = tmp_path / "proc/driver/nvidia/gpus/0000:01:00.0/information"
    told.parent.mkdir(parents=True)
    told.write_text("Model: \t\t Card C\nIRQ:   7\n")
    assert found("cuda", tmp_path, **{"nvidia-smi": str(smi)}).gpus == ("Card C",)
    assert found("cuda", tmp_path).lacks == ("nvcc (the CUDA toolkit)",)
    nvcc = tmp_path / "usr/local/cuda/bin/nvcc"
    nvcc.parent.mkdir(parents=True)
    nvcc.touch()
    cuda = found("cuda", tmp_path)
    assert (cuda.lacks, cuda.variables) == ((), {"CUDACXX": str(nvcc)})


def test_cuda_without_a_driver_and_its_stub(tmp_path: Path) -> None:
    nvcc = str(tmp_path / "cuda/bin/nvcc")
    card = tmp_path / "proc/driver/nvidia/gpus/0/information"
    card.parent.mkdir(parents=True)
    card.write_text("Model: Card\n")
    for place in [
        "cuda/lib64/stubs",
        "cuda/targets/x86_64-linux/lib/stubs",
        "usr/lib/x86_64-linux-gnu",
        "usr/lib64",
    ]:
        assert list(found("cuda", tmp_path, nvcc=nvcc).instead) == ["-DGGML_CUDA_NO_VMM=ON"]
        library = tmp_path / place / "libcuda.so"
        library.parent.mkdir(parents=True)
        library.touch()
        assert found("cuda", tmp_path, nvcc=nvcc).instead == {}
        library.unlink()


def test_an_architecture_without_a_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ((option, note), _) = found("cuda", tmp_path, nvcc="/nvcc").instead.items()
    assert option == "-DCMAKE_CUDA_ARCHITECTURES=75"
    assert "compiled for architecture 75" in note
    monkeypatch.setenv("CUDAARCHS", "80;90")
    first, _ = found("cuda", tmp_path, nvcc="/nvcc").instead
    assert first == "-DCMAKE_CUDA_ARCHITECTURES=80;90"


def test_nodes_of_amd_and_headers_of_vulkan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, (gpu_id, name) in enumerate([("0", ""), ("4711", "gfx1100")]):
        node = tmp_path / f"sys/class/kfd/kfd/topology/nodes/{number}"
        node.mkdir(parents=True)
        (node / "gpu_id").write_text(f"{gpu_id}\n")
        (node / "name").write_text(f"{name}\n")
    assert found("rocm", tmp_path).gpus == ("gfx1100",)
    assert found("rocm", tmp_path).lacks == ("hipcc (ROCm's compiler)",)
    assert found("rocm", tmp_path, hipcc="/x/hipcc").lacks == ()
    lacks = found("vulkan", tmp_path).lacks
    assert [each.split()[0] for each in lacks] == ["glslc", "libvulkan-dev", "spirv-headers"]
    monkeypatch.setenv("VULKAN_SDK", "/sdk")
    assert found("vulkan", tmp_path, glslc="/x/glslc").lacks == ()


def test_headers_that_are_too_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    core = "include/vulkan/vulkan_core.h"
    for folder, version in (("usr", 239), ("old", 271), ("sdk", 272)):
        (tmp_path / folder / core).parent.mkdir(parents=True)
        (tmp_path / folder / core).write_text(
            f"// Vulkan\n#define VK_HEADER_VERSION {version}\n#define VK_HEADER_VERSION_COMPLETE 1\n"
        )
    (tmp_path / "usr/include/spirv").mkdir()

    def lacks() -> list[str]:
        return list(found("vulkan", tmp_path, glslc="/x/glslc").lacks)

    assert ["1.3.272) or newer (239 is here;" in each for each in lacks()] == [True]
    monkeypatch.setenv("VULKAN_SDK", str(tmp_path / "old"))
    assert ["271 is here" in each for each in lacks()] == [True]
    monkeypatch.setenv("VULKAN_SDK", str(tmp_path / "empty"))
    assert ["239 is here" in each for each in lacks()] == [True]
    monkeypatch.setenv("VULKAN_SDK", str(tmp_path / "sdk"))
    assert lacks() == []


SOFTWARE = {"GGML_VK_VISIBLE_DEVICES": "0", "GGML_VK_DISABLE_FUSION": "1"}
IRIS, ARC, LLVM = ("INTEGRATED_GPU", "Iris (R) Xe"), ("DISCRETE_GPU", "Arc"), ("CPU", "llvmpipe")


def test_gpus_with_a_vulkan_driver_are_those_of_vulkaninfo(tmp_path: Path) -> None:
    for devices, code, gpus, hint, variables in [
        ((IRIS, LLVM, ARC), 0, ("Iris (R) Xe", "Arc"), "", {}),
        ((LLVM,), 0, (), "llvmpipe computes on the CPU", SOFTWARE),
        ((ARC,), 1, (), "", {}),
    ]:
        program = vulkaninfo(tmp_path, *devices, code=code)
        vulkan = found("vulkan", tmp_path, vulkaninfo=program)
        assert (vulkan.gpus, vulkan.hint, vulkan.variables) == (gpus, hint, variables)
    assert "vulkaninfo is not installed" in found("vulkan", tmp_path).hint


BARE = {each: GpuFinding() for each in ("cuda", "rocm", "vulkan", "cpu")}
BARE["cuda"] = GpuFinding(lacks=("nvcc",))
CARD = {**BARE, "cuda": GpuFinding(("Card",))}


def decided(
    found: dict[str, GpuFinding], *built_in: str, is_made: bool = False, **request: Any
) -> SetupPlan:
    return decide(found, built_in or ("CPU",), is_made=is_made, **request)


def test_the_gpu_that_is_there_is_built_for_and_how_long_it_takes_is_told() -> None:
    assert decided(BARE).backend is None
    found = {**BARE, "vulkan": GpuFinding(hint="llvmpipe computes on the CPU")}
    assert decided(found).reason.startswith("no GPU was found (llvmpipe computes on the CPU)")
    assert decided(found, backend="vulkan").options == ("-DGGML_VULKAN=ON",)
    plan = decided(CARD)
    assert (plan.options, plan.gpus, plan.lacks) == (("-DGGML_CUDA=ON",), ("Card",), ())
    found = {**BARE, "cuda": GpuFinding(("Card",), instead={"-DLESS=ON": "it has less"})}
    plan = decided(found, rpc=True)
    assert (plan.defaults, plan.reason) == (("-DLESS=ON",), "CUDA (Card); it has less")
    assert decided(found, wheels="https://wheels.example").defaults == ()
    rocm = {**BARE, "rocm": GpuFinding(("Card",))}
    assert decided(rocm).minutes(8).endswith("(an estimate, not measured)")
    assert decided(CARD).minutes(2) == "about 37 minutes on 2 cores"


def test_what_is_in_use_stays_and_what_can_be_built_at_once_goes_first() -> None:
    lacking = {**BARE, "cuda": GpuFinding(("Card",), ("nvcc",))}
    found = {**lacking, "vulkan": GpuFinding(("Card",))}
    assert decided(found).options == ("-DGGML_VULKAN=ON",)
    assert decided(lacking).lacks == ("nvcc",)
    # Somebody else has compiled a wheel.
    assert decided(lacking, wheels="https://wheels.example").lacks == ()
    vulkan = GpuFinding(("Card",))
    found = {**BARE, "cuda": GpuFinding(("Card",), ("nvcc",)), "vulkan": vulkan}
    assert decided(found, "CUDA", "CPU").reason == "CUDA (Card) is already built in"
    assert decided({**CARD, "vulkan": vulkan}, "Vulkan", "CPU").backend is None
    assert decided(found, wheels="https://wheels.example").options == ("-DGGML_CUDA=ON",)


def test_what_is_built_in_is_left_alone() -> None:
    for called in ["CUDA", "cuda"]:
        plan = decided(CARD, called, "CPU")
        assert (plan.backend, plan.reason) == (None, "CUDA (Card) is already built in")
        assert decided(CARD, called, "CPU", rebuild=True).backend is not None
    both = ("-DGGML_CUDA=ON", "-DGGML_RPC=ON")
    assert decided(CARD, "CPU", rpc=True).options == both
    assert decided(CARD, "CPU", "RPC").options == both
    assert decided(CARD, "CUDA", "CPU", rpc=True).options == both
    assert decided(CARD, "CUDA", "RPC", rpc=True).backend is None
    assert decided(BARE, "CPU", rpc=True).options == ("-DGGML_RPC=ON",)
    assert decided(CARD, "CUDA", "CPU", is_made=True, backend="cpu").to_own
    assert decided(CARD, "CPU", backend="cpu").backend is None
    refuses("--for metal is for another system: choose one of cuda", decided, BARE, backend="metal")
