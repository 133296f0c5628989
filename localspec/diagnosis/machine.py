"""Facts about the machine: Python, memory, CPU, llama.cpp and its devices."""

import platform
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from localspec import __version__
from localspec.diagnosis.fact import Fact
from localspec.llama.build import Build
from localspec.llama.chosen import chosen
from localspec.llama.devices import Device
from localspec.llama.spare_cores import GIVES_WAY, taken_by_others
from localspec.resources import default_threads, free_ram_bytes
from localspec.setup.gpus import GpuFinding
from localspec.setup.plan import SetupRequest, decide
from localspec.storage.files import size_text
from localspec.storage.paths import shown
from localspec.toolbox.command import confinement

_INTERESTING = ("avx", "avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8", "f16c", "fma")
_INTERESTING_ARM = ("asimd", "asimddp", "i8mm", "bf16", "sve", "sve2")


def software(build: Build) -> Iterator[Fact]:
    """Yield versions."""
    yield Fact("software", "localspec", __version__)
    yield Fact("software", "Python", f"{platform.python_version()} ({sys.executable})")
    yield Fact("software", "system", platform.platform())
    yield Fact("software", "llama.cpp", f"llama-cpp-python {build.version}")
    yield Fact("software", "backends", ", ".join(build.backends))
    yield Fact("software", "compiled for", ", ".join(build.features))
    told, holds = confinement()
    yield Fact("software", "run_command", told, "ok" if holds else "note")


def hardware(devices: list[Device]) -> Iterator[Fact]:
    """Yield CPU, memory and devices.

    Args:
        devices: of this build of llama.cpp.
    """
    yield Fact("hardware", "CPU", platform.processor() or platform.machine())
    yield Fact("hardware", "CPU features", ", ".join(cpu_features()) or "unknown")
    yield Fact(
        "hardware",
        "threads",
        f"{default_threads()} (physical cores available to this process)",
    )
    others = taken_by_others()
    if others is not None and others[0] >= GIVES_WAY:
        told = f"using {others[0]:.1f} of {others[1]} cores; expect slower answers"
        yield Fact("hardware", "other programs", told, "note")
    free = free_ram_bytes()
    if free is None:
        yield Fact("hardware", "free RAM", "unknown: localspec cannot plan for memory", "note")
    else:
        yield Fact("hardware", "free RAM", size_text(free))
    for device in devices:
        text = device.description
        if device.is_gpu:
            text += f", {size_text(device.free_bytes)} of {size_text(device.total_bytes)} free"
        yield Fact("hardware", f"device {device.name}", text)


def gpu_build(build: Build, found: Sequence[GpuFinding]) -> Iterator[Fact]:
    """Yield which GPUs are there, which build is used, and what `localspec setup` would do."""
    for each in found:
        if each.gpus:
            software = " (computes on the CPU)" if each.software else ""
            yield Fact("GPU build", each.backend, f"{', '.join(each.gpus)}{software}")
    beside = chosen()
    if beside is not None and beside != build.folder:
        told = f"{shown(beside)} is not used: it does not load, or is of another version; run localspec setup"
        yield Fact("GPU build", "chosen", told, "warning")
    elif beside is not None:
        yield Fact("GPU build", "chosen", shown(beside))
    plan = decide(found, build.backends, SetupRequest(), beside=beside is not None)
    if plan.backend is None:
        yield Fact("GPU build", "setup", plan.reason)
    else:
        first = f"first install {' and '.join(plan.lacks)}; then " if plan.lacks else ""
        advice = f"{plan.reason} is not used: {first}run localspec setup"
        yield Fact("GPU build", "setup", advice, "note")


def cpu_features(cpuinfo: Path = Path("/proc/cpuinfo")) -> list[str]:
    """Return those features of the CPU that llama.cpp's kernels use."""
    try:
        text = cpuinfo.read_text()
    except OSError:
        text = _sysctl()
    line = re.search(r"^(?:flags|Features|hw)\b[^:]*:(.*)$", text, re.MULTILINE)
    flags = set(line[1].lower().split()) if line else set()
    return [name for name in (*_INTERESTING, *_INTERESTING_ARM) if name in flags]


def _sysctl() -> str:
    """Return macOS's features in the form of Linux's."""
    command = ["/usr/sbin/sysctl", "-a"]
    try:
        shown = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)  # noqa: S603 - a fixed command
    except (OSError, subprocess.TimeoutExpired):
        return ""
    arm = re.findall(r"^hw\.optional\.arm\.FEAT_(\w+): 1$", shown.stdout, re.MULTILINE)
    intel = re.findall(r"^machdep\.cpu\.(?:leaf7_)?features: (.*)$", shown.stdout, re.MULTILINE)
    return "hw: " + " ".join([*arm, *intel]).lower().replace("dotprod", "asimddp")
