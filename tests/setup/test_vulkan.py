"""Vulkan's loader, as far as every machine has it: with and without one the devices are a list."""

import json
import subprocess
import sys

import pytest

from localspec.setup import vulkan


def test_the_program_prints_names_and_whether_they_are_gpus() -> None:
    command = [sys.executable, "-m", "localspec.setup.vulkan"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    for name, is_gpu in json.loads(done.stdout):
        assert isinstance(name, str)
        assert isinstance(is_gpu, bool)


def test_without_a_loader_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vulkan, "_LIBRARIES", ("libnowhere.so",))
    assert vulkan.devices() == []
