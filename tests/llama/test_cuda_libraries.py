"""Libraries of the `nvidia-*` wheels and of a toolkit, with ones made here instead, of versions that no machine has."""

import os
import subprocess
import sys
from pathlib import Path

_SCRIPT = """
import ctypes, sys
from pathlib import Path
from localspec.llama.cuda_libraries import preload
backend, toolkit, *search = map(str, sys.argv[1:])
print(len(preload(Path(backend), search, [toolkit] if toolkit else None)))
print(ctypes.CDLL(backend).answer())
"""


def library(path: Path, source: str, *needs: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    code = path.with_suffix(".c")
    code.write_text(source)
    command = ["cc", "-shared", "-fPIC", f"-Wl,-soname,{path.name}", "-o", str(path), str(code)]
    subprocess.run([*command, *map(str, needs)], check=True)
    return path


def loaded(
    backend: Path, *search: Path, toolkit: Path | str = "none", **variables: str
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", _SCRIPT, *map(str, (backend, toolkit, *search))]
    environment = {**os.environ, **variables}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def test_what_wheels_bring_is_found_in_the_version_that_the_build_names(tmp_path: Path) -> None:
    site = tmp_path / "site"
    needed = library(site / "nvidia/cuda_runtime/lib/libcudart.so.98", "int f(void) { return 7; }")
    library(site / "nvidia/cu13/lib/libcudart.so.99", "int f(void) { return 8; }")
    source = "int f(void); int answer(void) { return f(); }"
    backend = library(tmp_path / "libggml-cuda.so", source, needed)
    assert "libcudart.so.98" in loaded(backend, tmp_path).stderr
    assert loaded(backend, tmp_path, site).stdout.split() == ["1", "7"]


def test_what_no_wheel_brings_is_found_in_the_toolkit(tmp_path: Path) -> None:
    site, toolkit = tmp_path / "site", tmp_path / "cuda/lib64"
    runtime = library(site / "nvidia/cu13/lib/libcudart.so.99", "int f(void) { return 7; }")
    library(toolkit / "libcudart.so.99", "int f(void) { return 70; }")
    needed = library(toolkit / "libcublas.so.99", "int g(void) { return 1; }")
    source = "int f(void); int g(void); int answer(void) { return f() + g(); }"
    backend = library(tmp_path / "libggml-cuda.so", source, runtime, needed)
    assert "so.99" in loaded(backend, site).stderr
    assert loaded(backend, site, toolkit=toolkit).stdout.split() == ["2", "8"]


def test_what_the_linker_finds_goes_before_the_toolkit_and_behind_wheels(tmp_path: Path) -> None:
    site, toolkit, named = tmp_path / "site", tmp_path / "cuda/lib64", tmp_path / "named"
    needed = library(toolkit / "libcudart.so.99", "int f(void) { return 70; }")
    library(named / "libcudart.so.99", "int f(void) { return 7; }")
    source = "int f(void); int answer(void) { return f(); }"
    backend = library(tmp_path / "libggml-cuda.so", source, needed)
    assert loaded(backend, toolkit=toolkit).stdout.split() == ["1", "70"]
    path = {"LD_LIBRARY_PATH": str(named)}
    assert loaded(backend, toolkit=toolkit, **path).stdout.split() == ["0", "7"]
    library(site / "nvidia/a/lib/libcudart.so.99", "int f(void) { return 700; }")
    assert loaded(backend, site, toolkit=toolkit, **path).stdout.split() == ["1", "700"]


def test_the_toolkit_whose_compiler_is_on_the_path_is_searched(tmp_path: Path) -> None:
    toolkit = tmp_path / "cuda-99.0"
    needed = library(toolkit / "lib64/libcudart.so.99", "int f(void) { return 7; }")
    source = "int f(void); int answer(void) { return f(); }"
    backend = library(tmp_path / "libggml-cuda.so", source, needed)
    nvcc = toolkit / "bin/nvcc"
    nvcc.parent.mkdir()
    nvcc.touch(0o755)
    assert "libcudart.so.99" in loaded(backend, tmp_path, toolkit="").stderr
    path = str(nvcc.parent)
    assert loaded(backend, tmp_path, toolkit="", PATH=path).stdout.split() == ["1", "7"]


def test_a_large_build_is_not_read_whole(tmp_path: Path) -> None:
    needed = library(tmp_path / "site/nvidia/a/lib/libcudart.so.98", "int f(void) { return 7; }")
    source = "int f(void); int answer(void) { return f(); }"
    backend = library(tmp_path / "libggml-cuda.so", source, needed)
    os.truncate(backend, 1 << 40)  # takes no room on the disk, and no memory would hold it
    assert loaded(backend, tmp_path / "site").stdout.split() == ["1", "7"]
