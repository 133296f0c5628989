"""What a GGUF recommends for sampling: its keys become options, and what no option can be is left out."""

from pathlib import Path
from struct import pack
from typing import Any

import pytest

from localspec.models.gguf import read_header, read_model
from localspec.models.registry import load_registry
from localspec.models.sampling import BY_FILE, of_header, recommended
from tests.models.gguf_builder import Raw, build

REASONING = {"temp": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0.0}


def gguf(path: Path, **sampling: Any) -> Path:
    values = {f"general.sampling.{key}": value for key, value in sampling.items()}
    path.write_bytes(build({"general.architecture": "qwen3", **values}, []))
    return path


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ({"temp": 0.0, "top_k": 1}, {"temperature": 0.0, "top_k": 1}),
        (REASONING, {"temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0.0}),
        ({"penalty_repeat": 1.05, "penalty_last_n": 128}, {"repeat_penalty": 1.05, "penalty_last_n": 128}),
        ({"temp": 1, "top_k": Raw(5, pack("<i", -1))}, {"temperature": 1.0, "top_k": 0}),
        ({"temp": -1.0, "top_p": 2.0, "min_p": float("nan"), "top_k": "many"}, {}),
        ({"temp": float("inf"), "penalty_repeat": 0.0, "top_k": float("inf")}, {}),
        ({"temp": True, "sequence": "top_k;temp", "mirostat": 2}, {}),
        ({}, {}),
    ],
)  # fmt: skip
def test_keys_become_options(tmp_path: Path, written: dict[str, Any], read: dict[str, Any]) -> None:
    path = gguf(tmp_path / "m.gguf", **written)
    found = of_header(read_header(path))
    assert found == read
    assert {name: type(value) for name, value in found.items()} == {
        name: type(value) for name, value in read.items()
    }
    assert recommended(str(path), load_registry()) == (read, BY_FILE if read else "")


def test_a_registry_goes_before_a_file_and_a_file_that_changed_is_read_again(
    tmp_path: Path,
) -> None:
    registry = load_registry()
    assert recommended("qwen3-4b", registry)[1] == "recommended for qwen3-4b"
    path = gguf(tmp_path / "m.gguf", temp=0.5)
    assert recommended(str(path), registry)[0] == {"temperature": 0.5}
    gguf(path, temp=0.25, top_k=3)
    assert recommended(str(path), registry)[0] == {"temperature": 0.25, "top_k": 3}
    for name in (str(tmp_path / "gone.gguf"), str(tmp_path), "user/repo:Q4_K_M", "no-such-model"):
        assert recommended(name, registry) == ({}, "")
    read = read_model(path).metadata
    assert recommended(str(path), registry)[0]
    assert read_model(path).metadata is read  # once for both
    path.write_bytes(b"general.sampling. and no GGUF")
    assert recommended(str(path), registry) == ({}, "")
