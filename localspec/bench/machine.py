"""What this machine is, in one line, and what the figures of a run depend on beside it."""

import os
import platform
from pathlib import Path

from localspec.llama.build import build


def machine() -> str:
    """Return processor, cores and system."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{_processor()}, {cores} cores, {platform.system()} {platform.machine()}"


def native_build() -> dict[str, object]:
    """Return what the loaded llama.cpp says of itself."""
    native = build()
    return {
        "llama-cpp-python": native.version,
        "backends": list(native.backends),
        "features": list(native.features),
    }


def _processor(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
