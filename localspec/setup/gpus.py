"""GPUs of this machine, and what is there to build llama.cpp for them."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path("/")
_CUDA_COMPILERS = ("usr/local/cuda/bin/nvcc", "opt/cuda/bin/nvcc")
# CMake links a build for CUDA with libcuda.so, the driver's or a stub: in these folders of the system or of a toolkit.
_TOOLKITS = ("usr", "usr/local", "usr/local/cuda", "opt/cuda")
_DRIVERS = ("lib*", "lib*/*", "lib*/*/stubs", "targets/*/lib/stubs")
_ARCHITECTURES = "-DCMAKE_CUDA_ARCHITECTURES"
_NO_GPU = "no NVIDIA GPU is here: compiled for architecture 75, which newer ones run, but slowly, unless CMAKE_ARGS or CUDAARCHS names others"
_NO_DRIVER = "neither the driver nor a stub of it (libcuda.so) is here: compiled without CUDA's virtual memory management"
_INCLUDES = ("usr/local/include", "usr/include")
# The extension VK_EXT_layer_settings, which llama.cpp's backend names, came with headers 1.3.272. Without this check,
# compiling failed after 14 minutes (docs/measurements/vulkan-software-driver.md).
_VULKAN_HEADERS = 272
_HEADER_VERSION = re.compile(r"^#define VK_HEADER_VERSION (\d+)$", re.MULTILINE)
_VULKAN_DEVICE = re.compile(r"deviceType\s*=\s*PHYSICAL_DEVICE_TYPE_(\w+)\s+deviceName\s*=\s*(.+)")
# llama.cpp passes over a device that is not a GPU, unless it is named. Mesa's lavapipe 22.3.6 crashed in passes of
# changing widths, and did not without fused kernels (same page).
_SOFTWARE = (("GGML_VK_VISIBLE_DEVICES", "0"), ("GGML_VK_DISABLE_FUSION", "1"))
_WAIT_S = 10.0

Which = Callable[[str], str | None]


@dataclass(frozen=True, slots=True)
class BackendKind:
    """A backend that llama.cpp can be built for.

    Args:
        name: what `--for` takes.
        title: as people call it.
        option: of CMake.
        called: its names in a build that has it, in small letters.
        core_minutes: of compiling on one core.
        measured: whether that was measured.
    """

    name: str
    title: str
    option: str
    called: frozenset[str]
    core_minutes: int
    measured: bool = False


CPU = "cpu"
RPC_OPTION, RPC = "-DGGML_RPC=ON", "rpc"
# In the order of preference where a machine has several.
BACKENDS = {
    each.name: each
    for each in (
        BackendKind("cuda", "CUDA", "-DGGML_CUDA=ON", frozenset({"cuda"}), 74, measured=True),
        BackendKind("metal", "Metal", "-DGGML_METAL=ON", frozenset({"metal", "mtl"}), 8),
        BackendKind("rocm", "ROCm", "-DGGML_HIP=ON", frozenset({"rocm", "hip"}), 60),
        BackendKind(
            "vulkan", "Vulkan", "-DGGML_VULKAN=ON", frozenset({"vulkan"}), 21, measured=True
        ),
        BackendKind(CPU, "the CPU", "", frozenset({"cpu"}), 6, measured=True),
    )
}


@dataclass(frozen=True, slots=True)
class GpuFinding:
    """GPUs of one backend, and what a build for it lacks.

    Args:
        backend: its name.
        gpus: their names, as the driver has them.
        lacks: what a build needs and is not here, with a word on where it comes from.
        hint: why there may be no GPU.
        variables: of the environment, which a build needs.
        instead: options of CMake that make up for what is optional and not here, each with its effect.
    """

    backend: str
    gpus: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    hint: str = ""
    variables: tuple[tuple[str, str], ...] = ()
    instead: tuple[tuple[str, str], ...] = ()


def find_gpus(
    which: Which = shutil.which, root: Path = _ROOT, platform: str = sys.platform
) -> tuple[GpuFinding, ...]:
    """Return the GPUs of this machine by backend, and what a build for each lacks.

    Args:
        which: finds a program.
        root: where `proc`, `sys` and `usr` are.
        platform: as `sys.platform`.
    """
    compilers = tuple(_missing_compilers(which))
    if platform == "darwin":
        return (GpuFinding("metal", ("Metal",), compilers), GpuFinding(CPU, lacks=compilers))
    return (
        _cuda(which, root, compilers),
        _rocm(which, root, compilers),
        _vulkan(which, root, compilers),
        GpuFinding(CPU, lacks=compilers),
    )


def _missing_compilers(which: Which) -> Iterator[str]:
    for variable, names in (("CC", ("cc", "gcc", "clang")), ("CXX", ("c++", "g++", "clang++"))):
        if variable not in os.environ and not any(which(each) for each in names):
            yield f"{names[0]} (a compiler: docs/troubleshooting.md says where from)"


def _cuda(which: Which, root: Path, compilers: tuple[str, ...]) -> GpuFinding:
    lacks, variables = compilers, tuple[tuple[str, str], ...]()
    nvcc = which("nvcc")
    if nvcc is None:
        elsewhere = [root / each for each in _CUDA_COMPILERS if (root / each).is_file()]
        if elsewhere:
            variables = (("CUDACXX", str(elsewhere[0])),)
        else:
            lacks += ("nvcc (the CUDA toolkit)",)
    gpus = _nvidia_gpus(which, root)
    toolkit = Path(nvcc or root / _CUDA_COMPILERS[0]).resolve().parent.parent
    places = [toolkit, *(root / each for each in _TOOLKITS)]
    driver = any(list(each.glob(f"{inner}/libcuda.so")) for each in places for inner in _DRIVERS)
    instead = []
    if not gpus:  # llama.cpp by itself takes no notice of CUDAARCHS
        named = os.environ.get("CUDAARCHS")
        effect = f"compiled for CUDAARCHS={named}" if named else _NO_GPU
        instead.append((f"{_ARCHITECTURES}={named or 75}", effect))
    if not driver:
        instead.append(("-DGGML_CUDA_NO_VMM=ON", _NO_DRIVER))
    return GpuFinding("cuda", gpus, lacks, variables=variables, instead=tuple(instead))


def _nvidia_gpus(which: Which, root: Path) -> tuple[str, ...]:
    """Return NVIDIA's GPUs by nvidia-smi, or else by the driver's files."""
    query = "--query-gpu=name,memory.total,driver_version"
    printed = _output(which("nvidia-smi"), query, "--format=csv,noheader").strip()
    if printed:
        return tuple(printed.splitlines())
    files = sorted((root / "proc/driver/nvidia/gpus").glob("*/information"))
    models = [re.search(r"^Model:\s*(.*\S)", _text(file), re.MULTILINE) for file in files]
    return tuple(model[1] for model in models if model)


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
    """Look for GPUs by vulkaninfo: a driver that crashes takes only that along."""
    program = which("vulkaninfo")
    devices = _VULKAN_DEVICE.findall(_output(program, "--summary"))
    gpus = tuple(name.strip() for kind, name in devices if kind != "CPU")
    software = ", ".join(name.strip() for _, name in devices) if not gpus else ""
    hint = f"{software} computes on the CPU" if software else ""
    if program is None:
        hint = "Vulkan was not checked: vulkaninfo is not installed"
    glslc = () if which("glslc") else ("glslc (shaderc, or the Vulkan SDK)",)
    lacks = (*compilers, *glslc, *_missing_headers(root))
    return GpuFinding("vulkan", gpus, lacks, hint, _SOFTWARE if software else ())


def _missing_headers(root: Path) -> Iterator[str]:
    """Yield headers that Vulkan lacks; like CMake, look at an SDK that is named first."""
    sdk = os.environ.get("VULKAN_SDK")
    places = [*([Path(sdk, "include")] if sdk else ()), *(root / each for each in _INCLUDES)]
    texts = (_text(each / "vulkan/vulkan_core.h") for each in places)
    version = next(filter(None, map(_HEADER_VERSION.search, texts)), None)
    if version is not None and int(version[1]) < _VULKAN_HEADERS:
        yield (
            f"Vulkan headers of version {_VULKAN_HEADERS} (1.3.{_VULKAN_HEADERS}) or newer"
            f" ({version[1]} is here; take the Vulkan SDK, and set VULKAN_SDK to it)"
        )
    if version is None and not sdk:
        yield "libvulkan-dev (headers)"
    if not sdk and not any((root / each / "spirv").exists() for each in _INCLUDES):
        yield "spirv-headers (headers)"


def _output(program: str | None, *arguments: str) -> str:
    """Return what a program prints; nothing if there is none, or it fails."""
    if program is None:
        return ""
    try:
        done = subprocess.run(  # noqa: S603 - fixed arguments
            [program, *arguments],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_WAIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
