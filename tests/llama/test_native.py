"""The native library: which build is loaded with which CUDA libraries, no AMX tiles, and what its log tells of memory."""

import ctypes
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from localspec.llama import buffer_log as module
from localspec.llama.amx import _SignalStack, _small_signal_stack, avoid_amx
from localspec.llama.buffer_log import RAM, allocated, together
from localspec.llama.devices import Device
from localspec.llama.native import native
from localspec.llama.selection import BUILD_VARIABLE, builds_dir, choose, chosen
from localspec.resources import Usage

OWN_BUILD = Path(native.__file__).parents[1]
# As in an environment of another prefix.
_LOAD = """
import json, sys
sys.prefix = sys.argv[1]
from localspec.llama.native import native
print(json.dumps([native.__file__, native.llama_max_devices()]))
"""


def run(script: str, arguments: Sequence[object], **variables: str) -> tuple[str, str]:
    """Return what a script prints in a process of its own, on stdout and stderr."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    environment = {**os.environ, **variables}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    return done.stdout, done.stderr


def loaded(prefix: Path, **variables: str) -> Path:
    out, err = run(_LOAD, [prefix], **variables)
    assert out, err
    return Path(json.loads(out)[0]).parents[1]


@pytest.fixture
def other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A second build, not chosen yet, in an environment of its own."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    folder = builds_dir() / "other"
    ignored = shutil.ignore_patterns("server", "__pycache__")
    shutil.copytree(OWN_BUILD / "llama_cpp", folder / "llama_cpp", ignore=ignored)
    return folder


def test_a_build_is_used_once_it_is_chosen_and_until_it_is_not(other: Path, tmp_path: Path) -> None:
    assert loaded(tmp_path) == OWN_BUILD
    choose(other)
    assert loaded(tmp_path) == other
    assert loaded(tmp_path, **{BUILD_VARIABLE: "own"}) == OWN_BUILD
    choose(None)
    assert loaded(tmp_path) == OWN_BUILD
    assert loaded(tmp_path, **{BUILD_VARIABLE: str(other)}) == other


def test_broken_builds(other: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    choose(other)
    library = other / "llama_cpp" / "lib" / Path(native._lib._name).name
    whole = library.read_bytes()
    library.write_bytes(b"no library")
    assert loaded(tmp_path) == OWN_BUILD
    library.write_bytes(whole)
    (other / "llama_cpp" / "__init__.py").write_text('__version__ = "0.0.1"\n')
    assert loaded(tmp_path) == OWN_BUILD
    shutil.rmtree(other)
    assert loaded(tmp_path) == OWN_BUILD

    def refuses(_self: Path, _target: object) -> Path:
        raise OSError("no room")

    monkeypatch.setattr(Path, "replace", refuses)
    with pytest.raises(OSError, match="no room"):
        choose(other.with_name("third"))
    assert chosen() == other.resolve(), "choosing again is one replacement"


_PRELOAD = """
import ctypes, sys
from pathlib import Path
from localspec.llama.cuda_libraries import preload
backend, toolkit, *search = sys.argv[1:]
print(len(preload(Path(backend), search, [toolkit] if toolkit else None)))
print(ctypes.CDLL(backend).answer())
"""
_ONE = "int f(void); int answer(void) { return f(); }"


def library(path: Path, source: str, *needs: Path) -> Path:
    """Make a library of a version that no machine has."""
    path.parent.mkdir(parents=True, exist_ok=True)
    code = path.with_suffix(".c")
    code.write_text(source)
    command = ["cc", "-shared", "-fPIC", f"-Wl,-soname,{path.name}", "-o", str(path), str(code)]
    subprocess.run([*command, *map(str, needs)], check=True)
    return path


def gives(number: int) -> str:
    return f"int f(void) {{ return {number}; }}"


def preloaded(
    backend: Path, *search: Path, toolkit: Path | str = "none", **variables: str
) -> list[str]:
    """Return how many libraries were loaded, and what the backend answers or that it misses one."""
    out, err = run(_PRELOAD, [backend, toolkit, *search], **variables)
    return ["missing"] if "libcudart.so.9" in err else out.split()


def test_wheels_are_loaded_in_the_version_that_a_build_names(tmp_path: Path) -> None:
    site, toolkit = tmp_path / "site", tmp_path / "cuda-99.0"
    needed = library(site / "nvidia/cuda_runtime/lib/libcudart.so.98", gives(7))
    library(site / "nvidia/cu13/lib/libcudart.so.99", gives(8))
    backend = library(tmp_path / "libggml-cuda.so", _ONE, needed)
    os.truncate(backend, 1 << 40)  # takes no room on the disk, and no memory would hold it
    assert preloaded(backend, tmp_path) == ["missing"]
    assert preloaded(backend, tmp_path, site) == ["1", "7"]
    # The toolkit whose compiler is on the path is searched, after the wheels and what the linker finds.
    needed = library(toolkit / "lib64/libcudart.so.99", gives(70))
    backend = library(tmp_path / "other" / "libggml-cuda.so", _ONE, needed)
    nvcc = toolkit / "bin/nvcc"
    nvcc.parent.mkdir()
    nvcc.touch(0o755)
    compiler = {"toolkit": "", "PATH": str(nvcc.parent)}
    assert preloaded(backend, tmp_path, toolkit="") == ["missing"]
    assert preloaded(backend, tmp_path, **compiler) == ["1", "70"]
    library(tmp_path / "named" / "libcudart.so.99", gives(9))
    named = {**compiler, "LD_LIBRARY_PATH": str(tmp_path / "named")}
    assert preloaded(backend, **named) == ["0", "9"]
    assert preloaded(backend, site, **named) == ["1", "8"]


_ARCH_PRCTL, _REQUEST_PERMISSION, _TILES = 158, 0x1023, 18


def signal_stack() -> tuple[int | None, int, int]:
    stack = _SignalStack()
    assert ctypes.CDLL(None).sigaltstack(None, ctypes.byref(stack)) == 0
    return stack.start, stack.flags, stack.size


def test_the_kernel_refuses_tiles_beside_a_small_signal_stack_which_is_restored() -> None:
    before = signal_stack()
    with _small_signal_stack():
        assert signal_stack()[2] == 2048
        # A kernel or processor without tiles refuses always, so this can only fail where it matters.
        if sys.platform == "linux" and platform.machine() == "x86_64":
            refused = ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST_PERMISSION, _TILES)
            assert refused != 0
    assert signal_stack() == before
    names = []

    def without_tiles(name: str, *_: object) -> object:  # such a library is left alone
        names.append(name)
        return lambda: 0

    def of_parts(name: str, *_: object) -> object:
        raise AttributeError(name)

    avoid_amx(without_tiles)
    avoid_amx(of_parts)
    assert names == ["ggml_cpu_has_amx_int8"]


MIB = 1 << 20
LINES = """\
load_tensors:   CPU_Mapped model buffer size =    28.50 MiB
load_tensors:        CUDA0 model buffer size =     4.00 MiB
load_tensors: RPC0[10.0.0.2:50052] model buffer size =     2.00 MiB......
load_tensors: RPC1[10.0.0.2:50052] model buffer size =     1.00 MiB
load_tensors: RPC0[10.0.0.3:50052] model buffer size =     0.50 MiB
llama_context:  CUDA_Host  output buffer size =     0.25 MiB
llama_kv_cache:      CUDA0 KV buffer size =     8.00 MiB
llama_memory_recurrent:        CPU RS buffer size =     3.00 MiB
sched_reserve:  CUDA_Host compute buffer size =     5.00 MiB
sched_reserve: graph: nodes = 936, splits = 2
"""


def test_buffers_are_counted_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    places = {"CUDA0": "card", "RPC0": "10.0.0.2:50052", "RPC1": "10.0.0.2:50052"}
    places["RPC2"] = "10.0.0.3:50052"
    devices = [Device(name, place, 1, 1, "GPU", 0) for name, place in places.items()]
    monkeypatch.setattr(module, "log_lines", LINES.splitlines)
    monkeypatch.setattr(module, "devices", lambda: devices)
    usages = allocated()
    ram = Usage(int(28.5 * MIB), 3 * MIB, 5 * MIB, MIB // 4)
    far = {"RPC0": Usage(2 * MIB), "RPC1": Usage(1 * MIB), "RPC2": Usage(MIB // 2)}
    assert usages == {RAM: ram, "CUDA0": Usage(4 * MIB, 8 * MIB), **far}
    assert together([usages, usages])["CUDA0"].total_bytes == 24 * MIB
