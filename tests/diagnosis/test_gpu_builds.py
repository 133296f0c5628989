"""The command for a GPU build, by what is on a machine."""

import sys
from pathlib import Path

from localspec.diagnosis.fact import Fact
from localspec.diagnosis.gpu_builds import Tools, find_tools, gpu_build
from localspec.llama.build import Build

CPU = Build("1.2.3", ("CPU",), ())
NOTHING = Tools(mac=False, nvcc=None, nvcc_in_path=False, nvidia="")


def told(build: Build, tools: Tools) -> list[Fact]:
    return list(gpu_build(build, tools))


def test_cuda_is_one_command_that_names_this_python_and_this_version() -> None:
    tools = Tools(mac=False, nvcc="/bin/nvcc", nvcc_in_path=True, nvidia="Card, 8 GB")
    gpus, how = told(CPU, tools)
    assert gpus.value == "Card, 8 GB"
    assert how.state == "note"
    assert how.value == (
        f'CMAKE_ARGS="-DGGML_CUDA=on" {sys.executable} -m pip install --force-reinstall --no-deps '
        '--no-cache-dir --no-binary llama-cpp-python "llama-cpp-python==1.2.3"'
    )


def test_a_compiler_off_the_path_is_named_to_the_build() -> None:
    tools = Tools(mac=False, nvcc="/opt/my cuda/nvcc", nvcc_in_path=False, nvidia="Card")
    assert told(CPU, tools)[1].value.startswith("CUDACXX='/opt/my cuda/nvcc' CMAKE_ARGS=")


def test_a_driver_without_a_compiler_needs_the_toolkit_first() -> None:
    tools = Tools(mac=False, nvcc=None, nvcc_in_path=False, nvidia="Card")
    assert told(CPU, tools)[1].value.startswith("install the CUDA toolkit, which brings nvcc, and")


def test_what_is_built_in_needs_no_command() -> None:
    tools = Tools(mac=False, nvcc="/bin/nvcc", nvcc_in_path=True, nvidia="Card")
    assert told(Build("1", ("CUDA", "CPU"), ()), tools)[1].value == "is built in"
    mac = Tools(mac=True, nvcc=None, nvcc_in_path=False, nvidia="")
    for name in ("Metal", "MTL"):
        assert told(Build("1", (name, "CPU"), ()), mac)[0].value == "is built in"


def test_a_mac_without_metal_gets_its_command() -> None:
    mac = Tools(mac=True, nvcc=None, nvcc_in_path=False, nvidia="")
    (fact,) = told(CPU, mac)
    assert 'CMAKE_ARGS="-DGGML_METAL=on"' in fact.value


def test_without_a_gpu_nothing_is_advised() -> None:
    (fact,) = told(CPU, NOTHING)
    assert (fact.name, fact.state) == ("none", "ok")


def test_the_driver_is_asked_for_its_gpus(tmp_path: Path) -> None:
    smi = tmp_path / "nvidia-smi"
    smi.write_text("#!/bin/sh\nprintf 'Card A, 8 GB, 1.0\\nCard B, 9 GB, 1.0\\n'\n")
    smi.chmod(0o755)
    tools = find_tools({"nvidia-smi": str(smi), "nvcc": "/x/nvcc"}.get)
    assert tools.nvidia == "Card A, 8 GB, 1.0; Card B, 9 GB, 1.0"
    assert (tools.nvcc, tools.nvcc_in_path) == ("/x/nvcc", True)
    smi.write_text("#!/bin/sh\necho no driver; exit 9\n")
    assert find_tools({"nvidia-smi": str(smi)}.get).nvidia == ""
