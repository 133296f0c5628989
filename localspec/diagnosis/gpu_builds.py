"""The exact command that gives this machine a build of llama.cpp for its GPU."""

import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from localspec.diagnosis.fact import Fact
from localspec.llama.build import Build

_CUDA_PLACES = ("/usr/local/cuda/bin/nvcc", "/opt/cuda/bin/nvcc")


@dataclass(frozen=True, slots=True)
class Tools:
    """What of GPUs and their compilers is on this machine.

    Args:
        mac: whether it is a Mac.
        nvcc: path of CUDA's compiler.
        nvcc_in_path: whether a build finds it by itself.
        nvidia: what the driver calls the GPUs; empty without a driver.
    """

    mac: bool
    nvcc: str | None
    nvcc_in_path: bool
    nvidia: str


def find_tools(which: Callable[[str], str | None] = shutil.which) -> Tools:
    """Look for what a GPU build needs."""
    in_path = which("nvcc")
    elsewhere = next((place for place in _CUDA_PLACES if Path(place).is_file()), None)
    smi = which("nvidia-smi")
    return Tools(
        mac=sys.platform == "darwin",
        nvcc=in_path or elsewhere,
        nvcc_in_path=in_path is not None,
        nvidia=_gpus(smi) if smi else "",
    )


def gpu_build(build: Build, tools: Tools) -> Iterator[Fact]:
    """Yield how to get a build for the GPU, or that it is there."""
    backends = {name.lower() for name in build.backends}
    if tools.mac:
        if backends & {"metal", "mtl"}:
            yield Fact("GPU build", "Metal", "is built in")
        else:
            yield Fact("GPU build", "Metal", install("-DGGML_METAL=on", build.version), "note")
        return
    if tools.nvidia:
        yield Fact("GPU build", "NVIDIA", tools.nvidia)
    if "cuda" in backends:
        yield Fact("GPU build", "CUDA", "is built in")
    elif tools.nvcc:
        compiler = "" if tools.nvcc_in_path else f"CUDACXX={shlex.quote(tools.nvcc)} "
        command = compiler + install("-DGGML_CUDA=on", build.version)
        yield Fact("GPU build", "CUDA", command, "note" if tools.nvidia else "ok")
    elif tools.nvidia:
        command = install("-DGGML_CUDA=on", build.version)
        text = f"install the CUDA toolkit, which brings nvcc, and then: {command}"
        yield Fact("GPU build", "CUDA", text, "note")
    else:
        yield Fact("GPU build", "none", "no NVIDIA driver, no nvcc and no Metal: using the CPU")


def install(option: str, version: str) -> str:
    """Return the command that compiles the binding again with one of CMake's options."""
    pip = f"{shlex.quote(sys.executable)} -m pip install"
    how = "--force-reinstall --no-deps --no-cache-dir --no-binary llama-cpp-python"
    return f'CMAKE_ARGS="{option}" {pip} {how} "llama-cpp-python=={version}"'


def _gpus(smi: str) -> str:
    query = "--query-gpu=name,memory.total,driver_version"
    command = [smi, query, "--format=csv,noheader"]
    try:
        shown = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)  # noqa: S603 - a fixed command
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return "; ".join(shown.stdout.strip().splitlines()) if shown.returncode == 0 else ""
