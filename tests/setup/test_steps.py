"""Making a build beside the one in use, trying it, and what is left when that fails."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec
import pytest

from localspec.errors import LocalspecError
from localspec.llama.native import native
from localspec.llama.selection import BUILD_VARIABLE, builds_dir, choose, chosen
from localspec.setup import steps as module
from localspec.setup.plan import SetupPlan
from localspec.setup.steps import Step, carry_out, find_problem, steps
from localspec.setup.trial import BuildTrial
from tests.waiting import PATIENCE_S

CPU = SetupPlan("the CPU", "cpu", ("-DGGML_RPC=OFF",))
CUDA = SetupPlan("CUDA (Card)", "cuda", ("-DGGML_CUDA=ON",), (), ("Card",), {"CUDACXX": "/n"})
OWN = SetupPlan("the CPU", "cpu", to_own=True)
OWN_BUILD = Path(native.__file__).parents[1]
STAGES = ("compiling", "trying", "switching")
# An sdist whose compiler copies the build that is in use, and says with what options.
_BACKEND = """
import os
import pathlib
import zipfile

INFO = "llama_cpp_python-{version}.dist-info"
META = "Metadata-Version: 2.1\\nName: llama-cpp-python\\nVersion: {version}\\n"
WHEEL = "Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"


def prepare_metadata_for_build_wheel(directory, config_settings=None):
    folder = pathlib.Path(directory, INFO)
    folder.mkdir()
    (folder / "METADATA").write_text(META)
    (folder / "WHEEL").write_text(WHEEL)
    return INFO


def build_wheel(directory, config_settings=None, metadata_directory=None):
    assert "FAILS" not in os.environ, "error: no such GPU"
    name = "llama_cpp_python-{version}-py3-none-any.whl"
    own = pathlib.Path(os.environ["OWN_BUILD"])
    files = [each for each in (own / "llama_cpp").rglob("*") if each.is_file()]
    with zipfile.ZipFile(pathlib.Path(directory, name), "w") as wheel:
        for each in files:
            if "server" not in each.parts and each.suffix != ".pyc":
                wheel.write(each, each.relative_to(own))
        wheel.writestr("llama_cpp/options", os.environ["CMAKE_ARGS"])
        wheel.writestr("include/ggml.h", "")
        wheel.writestr(f"{{INFO}}/METADATA", META)
        wheel.writestr(f"{{INFO}}/WHEEL", WHEEL)
        wheel.writestr(f"{{INFO}}/RECORD", "")
    return name
"""
_PROJECT = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
_COMMAND = """
import sys
sys.prefix = sys.argv.pop(1)
from localspec.__main__ import main
main()
"""


@pytest.fixture(autouse=True)
def prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment of which nothing but the builds is of interest."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "env"))
    monkeypatch.delenv("CMAKE_ARGS", raising=False)
    return tmp_path / "env"


@pytest.fixture
def used(prefix: Path) -> Path:
    """A build that is in use."""
    folder = builds_dir() / "before"
    folder.mkdir(parents=True)
    (folder / "llama_cpp").symlink_to(OWN_BUILD / "llama_cpp")
    choose(folder)
    return folder


def shows(_title: str, _share: float) -> None:
    pass


def test_the_words_of_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiling, trying = steps(CUDA, "1.2.3", tmp_path)
    assert compiling.command[:5] == (sys.executable, "-P", "-m", "pip", "install")
    assert compiling.command[-1] == "llama-cpp-python==1.2.3"
    assert {"--no-binary", str(tmp_path / "site")} <= set(compiling.command)
    only, gpu = shlex.split(compiling.variables["CMAKE_ARGS"])
    assert gpu == "-DGGML_CUDA=ON"
    assert (
        "LLAMA_BUILD_COMMON OFF" in Path(only.removeprefix("-DCMAKE_PROJECT_INCLUDE=")).read_text()
    )
    assert compiling.variables["CUDACXX"] == "/n"
    assert trying.variables[BUILD_VARIABLE] == str(tmp_path / "site")
    monkeypatch.setenv("CMAKE_ARGS", "-DGGML_CUDA=OFF -DLESS=OFF")
    compiling = steps(replace(CUDA, defaults=("-DLESS=ON",)), "1.2.3", tmp_path)[0]
    # Of two values CMake takes the last.
    words = ["-DLESS=ON", "-DGGML_CUDA=OFF", "-DLESS=OFF", "-DGGML_CUDA=ON"]
    assert shlex.split(compiling.variables["CMAKE_ARGS"])[1:] == words
    wheels = SetupPlan("CUDA", "cuda", wheels="https://wheels.example/cuda")
    fetching = steps(wheels, "1.2.3", tmp_path)[0]
    assert {"--only-binary=:all:", "https://wheels.example/cuda"} <= set(fetching.command)


TRIED = BuildTrial(("CUDA", "CPU"), ("CUDA0",), " 9, 10, 11", 1.0)


def test_a_build_that_is_not_what_it_should_be_is_not_used() -> None:
    rpc = replace(CUDA, options=("-DGGML_CUDA=ON", "-DGGML_RPC=ON"))
    rows: list[tuple[SetupPlan, dict[str, Any], str | None]] = [
        (CUDA, {}, None),
        (CUDA, {"answer": None}, None),
        (CUDA, {"backends": ("CPU",)}, "has no CUDA, only CPU"),
        (CUDA, {"devices": ()}, "finds no device where the system has Card"),
        (CUDA, {"answer": "@@@@"}, "gives a wrong answer ('@@@@')"),
        (rpc, {}, "has no RPC"),
        (rpc, {"backends": ("CUDA", "RPC", "CPU")}, None),
    ]
    for plan, change, problem in rows:
        assert find_problem(msgspec.structs.replace(TRIED, **change), plan) == problem


def test_back_to_the_own_build_if_it_works(used: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def tried(_step: Step, log: Path, _progress: object) -> None:
        (work,) = log.parent.glob(".new-*")
        trial = msgspec.json.encode(BuildTrial(("CPU",), (), "nonsense"))
        (work / "trial.json").write_bytes(trial)

    with monkeypatch.context() as patch:
        patch.setattr(module, "_run", tried)
        with pytest.raises(LocalspecError, match=r"gives a wrong answer .* build in use stays;"):
            carry_out(OWN, "1.2.3", shows)
    assert chosen() == used
    trial = carry_out(OWN, "1.2.3", shows)
    assert "CPU" in trial.backends
    assert trial.answer in {None, " 9, 10, 11, 12, "}
    assert chosen() is None
    assert [each.name for each in builds_dir().iterdir()] == ["setup.log"]


LOUD = "print(*range(9999), sep='\\n'); raise SystemExit(3)"
CRASH = "import os; os.kill(os.getpid(), 11)"
COMPILER = "echo '[7/80] cc a.c'; echo error: no headers; exit 3"


@pytest.mark.parametrize(
    ("step", "words", "lines"),
    [
        (Step("trying", (sys.executable, "-c", CRASH)), "ended by SIGSEGV; the build in use", 0),
        (Step("trying", ("sh", "-c", "sleep 60 & sleep 60"), most_s=0.2), "by SIGKILL; the", 0),
        (Step("compiling", ("sh", "-c", COMPILER)), r"\(exit code 3\): error: no headers; the", 2),
        (Step("trying", (sys.executable, "-c", LOUD)), r"the build .* stays; .*log has the", 9999),
    ],
)
def test_a_step_that_fails_has_a_log(tmp_path: Path, step: Step, words: str, lines: int) -> None:
    seen: list[tuple[str, float]] = []
    with pytest.raises(LocalspecError, match=words):
        module._run(step, tmp_path / "log", lambda title, share: seen.append((title, share)))
    assert len((tmp_path / "log").read_text().splitlines()) == lines
    assert seen == [(step.title, 0.0), *[("compiling", 7 / 80)] * (step.title == "compiling")]


def test_one_runs_at_a_time_and_removes_what_killed_ones_left(used: Path, prefix: Path) -> None:
    left = builds_dir() / ".new-killed"
    left.mkdir()
    with module._workplace() as work:
        assert not left.exists()
        with pytest.raises(LocalspecError, match="is running already"), module._workplace():
            pass
        assert work.is_dir()
    assert not work.exists()
    assert chosen() == used
    shutil.rmtree(prefix)
    prefix.touch()
    with pytest.raises(LocalspecError, match="cannot be used"), module._workplace():
        pass


def test_copies_of_a_library_take_its_room_once(tmp_path: Path) -> None:
    library = tmp_path / "llama_cpp" / "lib"
    library.mkdir(parents=True)
    (tmp_path / "include").mkdir()
    for name in ("liba.so", "liba.so.0", "libb.so", "libb.so.1"):
        (library / name).write_text("B" if name == "libb.so.1" else name[3])
    module._slim(tmp_path)
    assert not (tmp_path / "include").exists()
    assert (library / "liba.so").samefile(library / "liba.so.0")
    assert not (library / "libb.so").samefile(library / "libb.so.1")


def test_unused_builds_are_removed(used: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    later = used.with_name("later")
    later.mkdir()
    choose(later)
    monkeypatch.setenv(BUILD_VARIABLE, "own")
    module._remove_unused(builds_dir())
    assert sorted(each.name for each in builds_dir().iterdir()) == ["chosen", "later"]


@pytest.fixture
def sdist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The only source that pip has."""
    version = (OWN_BUILD / "llama_cpp" / "__init__.py").read_text().split('"')[1]
    name, folder = f"llama_cpp_python-{version}", tmp_path / "links"
    folder.mkdir()
    files = {
        "PKG-INFO": f"Metadata-Version: 2.1\nName: llama-cpp-python\nVersion: {version}\n",
        "pyproject.toml": _PROJECT,
        "backend.py": _BACKEND.format(version=version),
    }
    with tarfile.open(folder / f"{name}.tar.gz", "w:gz") as archive:
        for file, text in files.items():
            info = tarfile.TarInfo(f"{name}/{file}")
            info.size = len(text)
            archive.addfile(info, BytesIO(text.encode()))
    for key, value in (("FIND_LINKS", folder), ("NO_INDEX", 1), ("CONFIG_FILE", os.devnull)):
        monkeypatch.setenv(f"PIP_{key}", str(value))
    monkeypatch.setenv("OWN_BUILD", str(OWN_BUILD))
    return version


@pytest.mark.slow
def test_a_build_is_used_or_not(used: Path, sdist: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAILS", "1")
    with pytest.raises(LocalspecError, match="compiling the new build failed"):
        carry_out(CPU, sdist, shows)
    assert "error: no such GPU" in (builds_dir() / "setup.log").read_text()
    assert chosen() == used
    monkeypatch.delenv("FAILS")
    with pytest.raises(LocalspecError, match="the new build has no CUDA"):
        carry_out(CUDA, sdist, shows)
    assert chosen() == used
    trial = carry_out(CPU, sdist, shows)
    assert "CPU" in trial.backends
    assert trial.answer in {None, " 9, 10, 11, 12, "}
    now = chosen()
    assert now is not None
    assert (now / "llama_cpp" / "options").read_text().endswith(" -DGGML_RPC=OFF")
    assert not (now / "include").exists()
    names = sorted(each.name for each in builds_dir().iterdir())
    assert names == ["chosen", now.name, "setup.log"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "stage"),
    [
        *((signal.SIGKILL, stage) for stage in STAGES),
        (signal.SIGTERM, "compiling"),
        (signal.SIGINT, "trying"),
    ],
    ids=str,
)
def test_whatever_ends_it_at_any_stage_a_build_that_works_is_in_use(
    used: Path, sdist: str, prefix: Path, number: signal.Signals, stage: str
) -> None:
    command = [sys.executable, "-c", _COMMAND, str(prefix)]
    arguments = ["setup", "--for", "cpu", "--rebuild", "--yes"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    process = subprocess.Popen([*command, *arguments], **quiet)  # type: ignore[call-overload]
    assert process.stderr is not None
    for line in process.stderr:
        if line.strip() == f"localspec: {stage}".encode():
            break
    # Each stage is met at another moment of it.
    time.sleep({"compiling": 0.6, "trying": 0.3, "switching": 0.0}[stage])
    process.send_signal(number)
    process.wait(PATIENCE_S)
    os.set_blocking(process.stderr.fileno(), False)  # what it started may still have it
    stage = "switching" if b"localspec: switching" in (process.stderr.read() or b"") else stage
    process.stderr.close()
    script = "import sys; sys.prefix = sys.argv[1]; from localspec.llama.native import native; "
    script += "print(native.llama_max_devices(), native.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", script, str(prefix)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    now = chosen()
    assert now is not None
    assert str(now) in done.stdout
    assert now == used or stage == "switching"
    if number is not signal.SIGKILL:
        assert not list(builds_dir().glob(".new-*"))
