"""`localspec setup`: what it says and asks before it does anything."""

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from localspec.cli.system import setup
from localspec.llama.chosen import builds_dir
from localspec.setup.plan import GpuFinding
from tests.cli.command import localspec

NOTHING = {"cuda": GpuFinding(lacks=("nvcc (the CUDA toolkit)",)), "cpu": GpuFinding()}


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment of its own on a machine without a GPU."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr("localspec.cli.system.find_gpus", lambda: NOTHING)
    monkeypatch.delenv("CMAKE_ARGS", raising=False)


def said(*arguments: str) -> tuple[object, str]:
    result = CliRunner().invoke(setup, arguments, standalone_mode=False)
    return result.return_value if result.exception is None else result.exception, result.output


@pytest.mark.usefixtures("bare")
def test_without_a_gpu_it_says_so_and_changes_nothing() -> None:
    assert said() == (0, "no GPU was found: the CPU is used, and nothing changes\n")
    assert not builds_dir().exists()


@pytest.mark.usefixtures("bare")
def test_dry_run_prints_the_commands_and_what_is_missing() -> None:
    code, told = said("--dry-run", "--for", "cuda", "--rpc")
    title, missing, *commands = told.splitlines()
    assert (code, title, missing) == (0, "CUDA", "first install nvcc (the CUDA toolkit)")
    assert len(commands) == 2
    assert "CMAKE_ARGS='-DGGML_CUDA=ON -DGGML_RPC=ON'" in commands[0]
    assert not builds_dir().exists()


@pytest.mark.usefixtures("bare")
def test_what_is_missing_is_told_before_anything_is_made() -> None:
    error, _ = said("--for", "cuda", "--yes")
    assert str(error) == "CUDA: install nvcc (the CUDA toolkit), then run localspec setup again"
    assert not builds_dir().exists()


def test_what_a_build_will_not_have_is_said_before_its_commands(
    bare: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    less = GpuFinding(instead={"-DLESS=ON": "it has less"})
    monkeypatch.setattr("localspec.cli.system.find_gpus", lambda: {"cuda": less})
    _, told = said("--dry-run", "--for", "cuda")
    title, compiling, *_ = told.splitlines()
    assert title == "CUDA; it has less"
    assert "-DLESS=ON" in compiling


def test_nobody_is_asked_where_nobody_can_answer() -> None:
    done = localspec("setup", "--for", "cpu", "--rebuild")
    text = "localspec: stdin is not a terminal: pass --yes to go on\n"
    assert (done.code, done.err) == (2, text)
    assert "the build in use stays until the new one works" in done.out


@pytest.mark.usefixtures("bare")
def test_a_build_that_is_there_is_left_alone() -> None:
    assert said("--for", "cpu") == (0, "the CPU is already built in\n")
