"""Layers of a file: which models have such, and switching them off and on."""

from pathlib import Path

import pytest

from localspec.models.gguf import read_header
from localspec.models.gguf_layout import read_layout
from localspec.models.layers import Switchable, plain_layers, separable_layers
from tests.llama.tiny_mamba import write as write_mamba
from tests.models.gguf_builder import Content, Tensor, build
from tests.tailor.tiny_llama import write


def test_layers_are_switched_off_in_place_and_on_again(tmp_path: Path) -> None:
    file = write(tmp_path / "tiny.gguf")
    before = file.read_bytes()
    layers = Switchable(file, read_layout(file))
    layers.leave_out((1,))
    content = file.read_bytes()
    for tensor in read_layout(file).tensors:
        part = content[tensor.start : tensor.start + tensor.size_bytes]
        off = tensor.name in {"blk.1.attn_output.weight", "blk.1.ffn_down.weight"}
        assert (part == bytes(tensor.size_bytes)) == off
    layers.leave_out((0, 1))
    layers.leave_out((0,))
    layers.leave_out(())
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    ("changes", "separable"),
    [
        ({}, True),
        ({"general.architecture": "llama4"}, False),  # asks which number a layer has
        ({"llama.attention.head_count_kv": [2, 1]}, False),  # one number for each
    ],
)
def test_layers_may_be_left_out_where_all_are_alike(
    tmp_path: Path, changes: dict[str, Content], separable: bool
) -> None:
    values: dict[str, Content] = {
        "general.architecture": "llama",
        "llama.block_count": 2,
        "llama4.block_count": 2,
    }
    parts = ("attn_output.weight", "ffn_down.weight")
    tensors = [Tensor(f"blk.{layer}.{part}", (8, 4)) for layer in (0, 1) for part in parts]
    path = tmp_path / "model.gguf"
    path.write_bytes(build({**values, **changes}, tensors, data_bytes=128))
    header = read_header(path)
    assert plain_layers(header) == 2
    assert (separable_layers(header) == 2) is separable


def test_a_recurrent_model_has_no_such_layers(tmp_path: Path) -> None:
    assert plain_layers(read_header(write_mamba(tmp_path / "mamba.gguf"))) is None
