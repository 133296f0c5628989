"""What of GPUs is found, on made-up trees and with made-up programs."""

from pathlib import Path

import pytest

from localspec.setup import gpus
from localspec.setup.gpus import GpuFinding, find

TOOLS = {"cc": "/bin/cc", "c++": "/bin/c++"}


vulkan_devices = gpus._vulkan_devices


@pytest.fixture(autouse=True)
def no_vulkan(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CC", "CXX", "CUDAARCHS", "VULKAN_SDK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(gpus, "_vulkan_devices", list)


def found(backend: str, root: Path, **programs: str) -> GpuFinding:
    every = find({**TOOLS, **programs}.get, root, "linux")
    return next(each for each in every if each.backend == backend)


def test_on_a_bare_machine_there_is_none(tmp_path: Path) -> None:
    assert [each.gpus for each in find(TOOLS.get, tmp_path, "linux")] == [()] * 4
    assert found("cpu", tmp_path).lacks == ()
    assert [each[:3] for each in find(lambda _name: None, tmp_path, "linux")[-1].lacks] == [
        "cc ",
        "c++",
    ]


def test_a_mac_has_metal(tmp_path: Path) -> None:
    metal, cpu = find(TOOLS.get, tmp_path, "darwin")
    assert (metal.backend, metal.gpus, metal.lacks) == ("metal", ("Metal",), ())
    assert cpu.backend == "cpu"


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


def test_a_compiler_off_the_path_is_named_to_the_build(tmp_path: Path) -> None:
    assert found("cuda", tmp_path).lacks == ("nvcc (the CUDA toolkit)",)
    nvcc = tmp_path / "usr/local/cuda/bin/nvcc"
    nvcc.parent.mkdir(parents=True)
    nvcc.touch()
    cuda = found("cuda", tmp_path)
    assert (cuda.lacks, cuda.variables) == ((), (("CUDACXX", str(nvcc)),))


@pytest.mark.parametrize(
    "file",
    [
        "cuda/lib64/stubs/libcuda.so",
        "cuda/targets/x86_64-linux/lib/stubs/libcuda.so",
        "usr/lib/x86_64-linux-gnu/libcuda.so",
        "usr/lib64/libcuda.so",
    ],
)
def test_without_a_driver_and_its_stub_cuda_is_built_without_what_needs_them(
    tmp_path: Path, file: str
) -> None:
    nvcc = str(tmp_path / "cuda/bin/nvcc")
    card = tmp_path / "proc/driver/nvidia/gpus/0/information"
    card.parent.mkdir(parents=True)
    card.write_text("Model: Card\n")
    assert [each for each, _ in found("cuda", tmp_path, nvcc=nvcc).instead] == [
        "-DGGML_CUDA_NO_VMM=ON"
    ]
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).touch()
    assert found("cuda", tmp_path, nvcc=nvcc).instead == ()


def test_without_a_card_the_architecture_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ((option, note), _) = found("cuda", tmp_path, nvcc="/nvcc").instead
    assert option == "-DCMAKE_CUDA_ARCHITECTURES=75"
    assert "compiled for architecture 75" in note
    monkeypatch.setenv("CUDAARCHS", "80;90")
    assert found("cuda", tmp_path, nvcc="/nvcc").instead[0] == (
        "-DCMAKE_CUDA_ARCHITECTURES=80;90",
        "compiled for CUDAARCHS=80;90",
    )


def test_nodes_of_amds_driver_without_an_id_are_cpus(tmp_path: Path) -> None:
    for number, (gpu_id, name) in enumerate([("0", ""), ("4711", "gfx1100")]):
        node = tmp_path / f"sys/class/kfd/kfd/topology/nodes/{number}"
        node.mkdir(parents=True)
        (node / "gpu_id").write_text(f"{gpu_id}\n")
        (node / "name").write_text(f"{name}\n")
    assert found("rocm", tmp_path).gpus == ("gfx1100",)
    assert found("rocm", tmp_path).lacks == ("hipcc (ROCm's compiler)",)
    assert found("rocm", tmp_path, hipcc="/x/hipcc").lacks == ()


def test_vulkan_needs_headers_and_a_compiler_of_shaders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    devices = [("llvmpipe", False), ("Iris", True)]
    monkeypatch.setattr(gpus, "_vulkan_devices", lambda: devices)
    vulkan = found("vulkan", tmp_path)
    assert (vulkan.gpus, vulkan.software) == (("Iris",), False)
    assert [each.split()[0] for each in vulkan.lacks] == ["glslc", "libvulkan-dev", "spirv-headers"]
    monkeypatch.setenv("VULKAN_SDK", "/sdk")
    assert found("vulkan", tmp_path, glslc="/x/glslc").lacks == ()


def test_headers_of_vulkan_that_are_too_old_are_told_before_anything_is_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpus, "_vulkan_devices", lambda: [("Iris", True)])
    core = "include/vulkan/vulkan_core.h"
    for folder, version in (("usr", 239), ("old", 271), ("sdk", 272)):
        (tmp_path / folder / core).parent.mkdir(parents=True)
        (tmp_path / folder / core).write_text(
            f"// Vulkan\n#define VK_HEADER_VERSION {version}\n#define VK_HEADER_VERSION_COMPLETE 1\n"
        )
    (tmp_path / "usr/include/spirv").mkdir()

    def lacks() -> list[str]:
        return list(found("vulkan", tmp_path, glslc="/x/glslc").lacks)

    assert ["1.3.272 or newer" in each and "239 is here" in each for each in lacks()] == [True]
    monkeypatch.setenv("VULKAN_SDK", str(tmp_path / "old"))
    assert ["271 is here" in each for each in lacks()] == [True]
    monkeypatch.setenv("VULKAN_SDK", str(tmp_path / "sdk"))
    assert lacks() == []
    monkeypatch.setenv("VULKAN_SDK", str(tmp_path / "empty"))
    (told,) = lacks()
    assert "set VULKAN_SDK" not in told
    assert f"VULKAN_SDK is {tmp_path}/empty, which has no include/vulkan/vulkan_core.h" in told


@pytest.mark.parametrize(
    ("complete", "told"),
    [("VK_MAKE_API_VERSION(0, 1, 3, VK_HEADER_VERSION)", "(1.3.239 is"), ("1", "(number 239 is")],
)
def test_the_version_of_headers_is_told_as_they_say_it(
    complete: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpus, "_vulkan_devices", lambda: [("Iris", True)])
    core = tmp_path / "usr/include/vulkan/vulkan_core.h"
    core.parent.mkdir(parents=True)
    core.write_text(
        f"#define VK_HEADER_VERSION 239\n#define VK_HEADER_VERSION_COMPLETE {complete}\n"
    )
    lacks = found("vulkan", tmp_path, glslc="/x/glslc").lacks
    assert [told in each for each in lacks] == [True, False]


def test_software_that_computes_on_the_cpu_is_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpus, "_vulkan_devices", lambda: [("llvmpipe", False)])
    vulkan = found("vulkan", tmp_path)
    assert (vulkan.gpus, vulkan.software) == (("llvmpipe",), True)
    assert dict(vulkan.variables) == {"GGML_VK_VISIBLE_DEVICES": "0", "GGML_VK_DISABLE_FUSION": "1"}


@pytest.mark.parametrize(
    ("printed", "names"),
    [
        ('\n[["Iris", true]]\nbye from the driver\n', ["Iris"]),
        ("[info] no layers\n[]\n", []),
        ("\xff\n", []),
    ],
)
def test_what_drivers_print_is_no_device(
    printed: str, names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpus, "_output", lambda _: printed)
    assert [name for name, _ in vulkan_devices()] == names
