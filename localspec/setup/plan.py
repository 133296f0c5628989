"""GPUs of this machine, what is there to build llama.cpp for them, and what setup will do by that."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from localspec.display import counted
from localspec.errors import UsageError

_ROOT = Path("/")
# CMake links a build for CUDA with libcuda.so, the driver's or a stub: in these folders of the system or of a toolkit.
_TOOLKITS = ("usr/local/cuda", "opt/cuda", "usr", "usr/local")
_DRIVERS = ("lib*", "lib*/*", "lib*/*/stubs", "targets/*/lib/stubs")
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
_SOFTWARE = {"GGML_VK_VISIBLE_DEVICES": "0", "GGML_VK_DISABLE_FUSION": "1"}
_WAIT_S = 10.0

Which = Callable[[str], str | None]


@dataclass(frozen=True, slots=True)
class BackendKind:
    """A backend that llama.cpp can be built for.

    Args:
        title: as people call it.
        options: of CMake.
        called: its names in a build that has it, in small letters.
        core_minutes: of compiling on one core.
        measured: whether that was measured.
    """

    title: str
    options: tuple[str, ...]
    called: frozenset[str]
    core_minutes: int
    measured: bool


CPU = "cpu"
RPC_OPTION, RPC = "-DGGML_RPC=ON", "rpc"
# By the names that `--for` takes, in the order of preference where a machine has several.
BACKENDS = {
    "cuda": BackendKind("CUDA", ("-DGGML_CUDA=ON",), frozenset({"cuda"}), 74, True),
    "metal": BackendKind("Metal", ("-DGGML_METAL=ON",), frozenset({"metal", "mtl"}), 8, False),
    "rocm": BackendKind("ROCm", ("-DGGML_HIP=ON",), frozenset({"rocm", "hip"}), 60, False),
    "vulkan": BackendKind("Vulkan", ("-DGGML_VULKAN=ON",), frozenset({"vulkan"}), 21, True),
    CPU: BackendKind("the CPU", (), frozenset({CPU}), 4, True),
}


@dataclass(frozen=True, slots=True)
class GpuFinding:
    """GPUs of one backend, and what a build for it lacks.

    Args:
        gpus: their names, as the driver has them.
        lacks: what a build needs and is not here, with a word on where it comes from.
        hint: why there may be no GPU.
        variables: of the environment, for a build and its trial.
        instead: options of CMake that make up for what is optional and not here, each with its effect.
    """

    gpus: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    hint: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    instead: Mapping[str, str] = field(default_factory=dict)


def find_gpus(
    which: Which = shutil.which, root: Path = _ROOT, platform: str = sys.platform
) -> dict[str, GpuFinding]:
    """Return the GPUs of this machine by backend, and what a build for each lacks.

    Args:
        which: finds a program.
        root: where `proc`, `sys` and `usr` are.
        platform: as `sys.platform`.
    """
    findings = {"metal": GpuFinding(("Metal",))}
    if platform != "darwin":
        finders = {"cuda": _cuda, "rocm": _rocm, "vulkan": _vulkan}
        findings = {backend: find(which, root) for backend, find in finders.items()}
    compilers = tuple(
        f"{names[0]} (a compiler: docs/troubleshooting.md says where from)"
        for variable, *names in (("CC", "cc", "gcc", "clang"), ("CXX", "c++", "g++", "clang++"))
        if variable not in os.environ and not any(map(which, names))
    )
    every = {**findings, CPU: GpuFinding()}
    return {name: replace(each, lacks=(*compilers, *each.lacks)) for name, each in every.items()}


def _cuda(which: Which, root: Path) -> GpuFinding:
    on_path, places = which("nvcc"), [root / each for each in _TOOLKITS]
    compilers = [Path(on_path)] if on_path else [each / "bin/nvcc" for each in places]
    nvcc = next((each for each in compilers if on_path or each.is_file()), None)
    gpus = _nvidia_gpus(which, root)
    instead = {}
    if not gpus:  # llama.cpp by itself takes no notice of CUDAARCHS
        named = os.environ.get("CUDAARCHS")
        effect = f"compiled for CUDAARCHS={named}" if named else _NO_GPU
        instead[f"-DCMAKE_CUDA_ARCHITECTURES={named or 75}"] = effect
    places += [nvcc.resolve().parent.parent] if nvcc else []
    if not any(any(each.glob(f"{inner}/libcuda.so")) for each in places for inner in _DRIVERS):
        instead["-DGGML_CUDA_NO_VMM=ON"] = _NO_DRIVER
    lacks = () if nvcc else ("nvcc (the CUDA toolkit)",)
    variables = {"CUDACXX": str(nvcc)} if nvcc and not on_path else {}
    return GpuFinding(gpus, lacks, variables=variables, instead=instead)


def _nvidia_gpus(which: Which, root: Path) -> tuple[str, ...]:
    """Return NVIDIA's GPUs by nvidia-smi, or else by the driver's files."""
    query = "--query-gpu=name,memory.total,driver_version"
    printed = _output(which("nvidia-smi"), query, "--format=csv,noheader").strip()
    if printed:
        return tuple(printed.splitlines())
    files = sorted((root / "proc/driver/nvidia/gpus").glob("*/information"))
    models = [re.search(r"^Model:\s*(.*\S)", _text(file), re.MULTILINE) for file in files]
    return tuple(model[1] for model in models if model)


def _rocm(which: Which, root: Path) -> GpuFinding:
    """Look for AMD's GPUs among the nodes of its driver, of which those of CPUs have no id."""
    gpus = tuple(
        _text(each / "name").strip() or f"node {each.name}"
        for each in sorted((root / "sys/class/kfd/kfd/topology/nodes").glob("*"))
        if _text(each / "gpu_id").strip() not in {"", "0"}
    )
    hipcc = which("hipcc") or which("/opt/rocm/bin/hipcc")
    return GpuFinding(gpus, () if hipcc else ("hipcc (ROCm's compiler)",))


def _vulkan(which: Which, root: Path) -> GpuFinding:
    """Look for GPUs by vulkaninfo: a driver that crashes takes only that along."""
    program = which("vulkaninfo")
    devices = _VULKAN_DEVICE.findall(_output(program, "--summary"))
    gpus = tuple(name.strip() for kind, name in devices if kind != "CPU")
    hint = "" if program else "Vulkan was not checked: vulkaninfo is not installed"
    software = devices and not gpus
    if software:
        hint = f"{', '.join(name.strip() for _, name in devices)} computes on the CPU"
    glslc = () if which("glslc") else ("glslc (shaderc, or the Vulkan SDK)",)
    lacks = (*glslc, *_missing_headers(root))
    return GpuFinding(gpus, lacks, hint, _SOFTWARE if software else {})


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
        command, quiet = [program, *arguments], subprocess.DEVNULL
        printed = subprocess.check_output(command, stderr=quiet, timeout=_WAIT_S)  # noqa: S603 - fixed arguments
        return printed.decode(errors="replace")
    except (OSError, subprocess.SubprocessError):
        return ""


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


@dataclass(frozen=True, slots=True)
class SetupPlan:
    """What setup will do.

    Args:
        reason: what is here, or why nothing is done, in a sentence.
        backend: to build for; None changes nothing.
        options: of CMake, which nothing overrides.
        defaults: options of CMake that the user's own override.
        gpus: that the new build should find.
        variables: of the environment, for the build and its trial.
        lacks: what has to be installed first.
        to_own: whether to go back to the environment's own build, and make none.
        wheels: address of an index of prebuilt wheels; None compiles.
    """

    reason: str
    backend: str | None = None
    options: tuple[str, ...] = ()
    defaults: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    lacks: tuple[str, ...] = ()
    to_own: bool = False
    wheels: str | None = None

    def minutes(self, cores: int) -> str:
        """Return how long compiling takes on so many cores."""
        kind = BACKENDS[self.backend or CPU]
        text = f"about {counted(max(1, round(kind.core_minutes / cores)), 'minute')} on {counted(cores, 'core')}"
        return text if kind.measured else f"{text} (an estimate, not measured)"


def decide(
    machine: Mapping[str, GpuFinding],
    built_in: Collection[str],
    *,
    is_made: bool,
    backend: str | None = None,
    rpc: bool = False,
    rebuild: bool = False,
    wheels: str | None = None,
) -> SetupPlan:
    """Return what to do.

    Args:
        machine: GPUs that are here, by backend.
        built_in: backends of the build in use.
        is_made: whether the build in use is one that setup made.
        backend: to build for; None takes what suits the machine.
        rpc: whether the build is to use devices of other machines, too.
        rebuild: whether to build what is there already.
        wheels: address of an index of prebuilt wheels; None compiles.

    Raises:
        UsageError: no such backend on this system.
    """
    has = {each.lower() for each in built_in}
    if backend is None:
        with_gpu = [each for each, place in machine.items() if place.gpus]
        used = [each for each in with_gpu if BACKENDS[each].called & has]
        ready = [each for each in with_gpu if wheels or not machine[each].lacks]
        any_build = [CPU] if rpc or rebuild else []
        backend = next(iter((*used, *ready, *with_gpu, *any_build)), None)
    if backend is None:
        hints = "".join(f" ({each.hint})" for each in machine.values() if each.hint)
        return SetupPlan(f"no GPU was found{hints}: the CPU is used, and nothing changes")
    if backend not in machine:
        systems = ", ".join(machine)
        raise UsageError(f"--for {backend} is for another system: choose one of {systems}")
    kind, place = BACKENDS[backend], machine[backend]
    detail = ", ".join(place.gpus) or place.hint
    reason = f"{kind.title} ({detail})" if detail else kind.title
    if backend == CPU and is_made and not (rpc or rebuild):
        reason = "back to the build that localspec was installed with"
        return SetupPlan(reason, backend, to_own=True)
    if kind.called & has and (RPC in has or not rpc) and not rebuild:
        return SetupPlan(f"{reason} is already built in")
    rpc = rpc or (RPC in has and backend != CPU)
    options = (*kind.options, RPC_OPTION) if rpc else kind.options
    lacks = () if wheels else place.lacks
    # What has to be installed first may bring what these make up for.
    instead = {} if wheels or lacks else place.instead
    reason = "; ".join((reason, *instead.values()))
    defaults, variables = tuple(instead), place.variables
    return SetupPlan(
        reason, backend, options, defaults, place.gpus, variables, lacks, wheels=wheels
    )
