"""Gpus: what of GPUs, their drivers and their compilers is on this machine."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from localspec.setup.said import last_said
from localspec.storage.paths import shown

_ROOT = Path("/")
_CUDA_PLACES = ("usr/local/cuda/bin/nvcc", "opt/cuda/bin/nvcc")
# What CMake links a build for CUDA with, the driver's or a stub: in these folders of the system or of a toolkit.
_TOOLKITS = ("usr", "usr/local", "usr/local/cuda", "opt/cuda")
_DRIVERS = ("lib*", "lib*/*", "lib*/*/stubs", "targets/*/lib/stubs")
_ARCHITECTURES = "-DCMAKE_CUDA_ARCHITECTURES"
_NO_GPU = "no NVIDIA GPU is here: compiled for architecture 75, which newer ones run, but slowly, unless CMAKE_ARGS or CUDAARCHS names others"
_NO_DRIVER = "neither the driver nor a stub of it (libcuda.so) is here: compiled without CUDA's virtual memory management"
_INCLUDES = ("usr/local/include", "usr/include")
# The extension VK_EXT_layer_settings, which llama.cpp's backend names, came with headers 1.3.272.
_VULKAN_HEADERS = 272
# llama.cpp passes over what is no GPU, unless it is named. Mesa's lavapipe 22.3.6 crashed in passes of changing widths,
# and did not without fused kernels (docs/measurements/vulkan-software-driver.md).
_SOFTWARE = (("GGML_VK_VISIBLE_DEVICES", "0"), ("GGML_VK_DISABLE_FUSION", "1"))
_HEADER_VERSION = re.compile(r"^#define VK_HEADER_VERSION (\d+)$", re.MULTILINE)
_API_VERSION = re.compile(
    r"^#define VK_HEADER_VERSION_COMPLETE VK_MAKE_API_VERSION\(\d+, (\d+), (\d+),", re.MULTILINE
)
_WAIT_S = 10.0

Which = Callable[[str], str | None]


@dataclass(frozen=True, slots=True)
class GpuFinding:
    """What of one backend is here.

    Args:
        backend: its name.
        gpus: what the driver calls them; without any, a build would have nothing to compute on.
        lacks: what a build needs and is not here, with a word on where it comes from.
        software: whether what there is computes on the CPU.
        variables: that a build needs.
        instead: options of CMake for what is not here and need not be, each with what comes of it.
    """

    backend: str
    gpus: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    software: bool = False
    variables: tuple[tuple[str, str], ...] = ()
    instead: tuple[tuple[str, str], ...] = ()


def find(
    which: Which = shutil.which, root: Path = _ROOT, platform: str = sys.platform
) -> tuple[GpuFinding, ...]:
    """Look for the GPUs of this machine, and for what a build for each takes.

    Args:
        which: finds a program.
        root: where `proc`, `sys` and `usr` are.
        platform: as `sys.platform`.
    """
    compilers = tuple(_compilers(which))
    if platform == "darwin":
        return (GpuFinding("metal", ("Metal",), compilers), GpuFinding("cpu", lacks=compilers))
    return (
        _cuda(which, root, compilers),
        _rocm(which, root, compilers),
        _vulkan(which, root, compilers),
        GpuFinding("cpu", lacks=compilers),
    )


def _compilers(which: Which) -> Iterator[str]:
    for named, names in (("CC", ("cc", "gcc", "clang")), ("CXX", ("c++", "g++", "clang++"))):
        if named not in os.environ and not any(which(each) for each in names):
            yield f"{names[0]} (a compiler: docs/troubleshooting.md says where from)"


def _cuda(which: Which, root: Path, compilers: tuple[str, ...]) -> GpuFinding:
    lacks, variables = compilers, tuple[tuple[str, str], ...]()
    nvcc = which("nvcc")
    if nvcc is None:
        elsewhere = [root / each for each in _CUDA_PLACES if (root / each).is_file()]
        if elsewhere:
            variables = (("CUDACXX", str(elsewhere[0])),)
        else:
            lacks += ("nvcc (the CUDA toolkit)",)
    gpus, toolkit = (
        _nvidia(which, root),
        Path(nvcc or root / _CUDA_PLACES[0]).resolve().parent.parent,
    )
    places = [toolkit, *(root / each for each in _TOOLKITS)]
    driver = any(list(each.glob(f"{inner}/libcuda.so")) for each in places for inner in _DRIVERS)
    instead = [] if gpus else [_architecture()]
    instead += [] if driver else [("-DGGML_CUDA_NO_VMM=ON", _NO_DRIVER)]
    return GpuFinding("cuda", gpus, lacks, variables=variables, instead=tuple(instead))


def _architecture() -> tuple[str, str]:
    """Return the option that names an architecture, and what comes of it. Of CUDAARCHS, llama.cpp by itself takes no notice."""
    named = os.environ.get("CUDAARCHS")
    if named:
        return f"{_ARCHITECTURES}={named}", f"compiled for CUDAARCHS={named}"
    return f"{_ARCHITECTURES}=75", _NO_GPU


def _nvidia(which: Which, root: Path) -> tuple[str, ...]:
    """Return NVIDIA's GPUs as its own program tells, or else the driver."""
    program = which("nvidia-smi")
    if program is not None:
        query = "--query-gpu=name,memory.total,driver_version"
        told = _output([program, query, "--format=csv,noheader"])
        if told.strip():
            return tuple(told.strip().splitlines())
    found = []
    for file in sorted((root / "proc/driver/nvidia/gpus").glob("*/information")):
        lines = [line.partition(":") for line in _text(file).splitlines()]
        found += [value.strip() for name, _, value in lines if name == "Model"]
    return tuple(found)


def _rocm(which: Which, root: Path, compilers: tuple[str, ...]) -> GpuFinding:
    """Look for AMD's GPUs among the nodes of its driver, of which those of CPUs have no id."""
    nodes = sorted((root / "sys/class/kfd/kfd/topology/nodes").glob("*"))
    gpus = [
        _text(each / "name").strip() or f"node {each.name}"
        for each in nodes
        if _text(each / "gpu_id").strip() not in {"", "0"}
    ]
    hipcc = which("hipcc") or which("/opt/rocm/bin/hipcc")
    lacks = compilers if hipcc else (*compilers, "hipcc (ROCm's compiler)")
    return GpuFinding("rocm", tuple(gpus), lacks)


def _vulkan(which: Which, root: Path, compilers: tuple[str, ...]) -> GpuFinding:
    devices = _vulkan_devices()
    gpus = tuple(name for name, is_gpu in devices if is_gpu)
    lacks = list(compilers)
    if which("glslc") is None:
        lacks.append("glslc (shaderc, or the Vulkan SDK)")
    lacks += _vulkan_headers(root)
    software = not gpus and bool(devices)
    names = gpus or tuple(name for name, _ in devices)
    return GpuFinding("vulkan", names, tuple(lacks), software, _SOFTWARE if software else ())


def _vulkan_headers(root: Path) -> Iterator[str]:
    """Yield what is missing or too old; like CMake, look at an SDK that is named first."""
    sdk = os.environ.get("VULKAN_SDK")
    places = [*([Path(sdk, "include")] if sdk else ()), *(root / each for each in _INCLUDES)]
    texts = [_text(each / "vulkan/vulkan_core.h") for each in places]
    here = next((each for each in texts if _HEADER_VERSION.search(each)), "")
    version = _HEADER_VERSION.search(here)
    if version is not None and int(version[1]) < _VULKAN_HEADERS:
        whole = _API_VERSION.search(here)
        number = f"{whole[1]}.{whole[2]}.{version[1]}" if whole else f"number {version[1]}"
        advice = "take the Vulkan SDK, and set VULKAN_SDK"
        if sdk and not texts[0]:
            advice = f"VULKAN_SDK is {shown(Path(sdk))}, which has no include/vulkan/vulkan_core.h"
        yield f"Vulkan headers 1.3.{_VULKAN_HEADERS} or newer ({number} is here; {advice})"
    if sdk is not None:
        return
    if version is None:
        yield "libvulkan-dev (headers)"
    if not any((root / each / "spirv").exists() for each in _INCLUDES):
        yield "spirv-headers (headers)"


def _vulkan_devices() -> list[tuple[str, bool]]:
    told = last_said(_output([sys.executable, "-P", "-m", "localspec.setup.vulkan"]), '[["')
    return [(str(name), bool(is_gpu)) for name, is_gpu in told or ()]


def _output(command: list[str]) -> str:
    """Return what a program prints; nothing if it fails."""
    try:
        done = subprocess.run(  # noqa: S603 - a fixed command
            command, capture_output=True, text=True, errors="replace", timeout=_WAIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
