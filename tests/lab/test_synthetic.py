"""Heavier models: what is written, and what is refused."""

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from lab.synthetic.gguf_layout import Placed, read_layout
from lab.synthetic.gguf_writer import write_model, zeros
from lab.synthetic.heavier import heavier
from localspec.errors import ModelFileError, UsageError
from localspec.models.gguf import read_header
from localspec.models.gguf_encoding import GGML_TYPES
from tests.models.gguf_builder import Content, Tensor, build, model_values

PARTS = (
    *("attn_norm.weight", "attn_q.weight", "attn_output.weight", "attn_output.bias"),
    *("ffn_up.weight", "ffn_down.weight"),
)


def toy(
    directory: Path,
    parts: tuple[str, ...] = PARTS,
    alignment: int = 32,
    values: Mapping[str, Content] | None = None,
) -> Path:
    """Write a transformer of two layers whose tensors hold different bytes."""
    names = ["token_embd.weight", *(f"blk.{n}.{part}" for n in range(2) for part in parts)]
    tensors, offset = [], 0
    for name in names:
        shape = (5,) if name.endswith(("norm.weight", "bias")) else (4, 3)
        tensors.append(Tensor(name, shape, 0, offset))
        offset += -(-4 * int(np.prod(shape)) // alignment) * alignment
    own: dict[str, Content] = {"general.name": "Toy", "toy.block_count": 2, **(values or {})}
    if alignment != 32:
        own["general.alignment"] = alignment
    content = {**model_values(), **own}
    made = bytearray(build(content, tensors, data_bytes=offset, alignment=alignment))
    made[-offset:] = np.random.default_rng(1).integers(1, 100, offset, dtype=np.uint8).tobytes()
    path = directory / "toy.gguf"
    path.write_bytes(made)
    return path


def bytes_of(path: Path) -> dict[str, bytes]:
    content = path.read_bytes()
    return {t.name: content[t.start : t.start + t.size_bytes] for t in read_layout(path).tensors}


def unchanged(made: Path, source: Path, *but: str) -> bool:
    """Return whether every value of the header is the source's, byte for byte, but these."""
    one, other = read_layout(made).values, read_layout(source).values
    return list(one) == list(other) and {k for k in one if one[k] != other[k]} == set(but)


@pytest.mark.parametrize("alignment", [32, 64])
def test_added_layers_are_copies_whose_last_matrices_are_zero(
    tmp_path: Path, alignment: int
) -> None:
    source = toy(tmp_path, alignment=alignment)
    before, after = bytes_of(source), bytes_of(heavier(source, 3, tmp_path / "made"))
    assert len(after) == 1 + 6 * len(PARTS)
    for name, content in before.items():
        assert after[name] == content
    for layer in range(2, 6):
        for part in PARTS:
            added, original = after[f"blk.{layer}.{part}"], before[f"blk.{layer % 2}.{part}"]
            if part.startswith(("attn_output", "ffn_down")):
                assert added == bytes(len(original))
            else:
                assert added == original


def test_the_header_says_how_many_layers_there_are_and_what_was_done(tmp_path: Path) -> None:
    of_layers = {"toy.attention.head_count": [4, 8], "toy.rope.sections": [1, 2, 3]}
    source = toy(tmp_path, values=of_layers)
    made = heavier(source, 2, tmp_path)
    header = read_header(made)
    assert header.metadata["toy.block_count"] == 4
    assert header.text("general.name") == "Toy (synthetic 2x)"
    found = {name: np.asarray(header.metadata[name]).tolist() for name in of_layers}
    assert found == {"toy.attention.head_count": [4, 8, 4, 8], "toy.rope.sections": [1, 2, 3]}
    assert unchanged(made, source, "toy.block_count", "general.name", "toy.attention.head_count")


@pytest.mark.parametrize(
    ("parts", "values"),
    [
        (("attn_output.weight",), {}),
        (("ffn_down.weight",), {}),
        ((*PARTS, "ssm_in.weight"), {}),
        ((*PARTS, "per_layer_token_embd"), {}),
        (PARTS, {"toy.block_count": 7}),  # other layers than there are
    ],
)
def test_what_is_no_plain_transformer_and_a_multiple_out_of_range_are_refused(
    tmp_path: Path, parts: tuple[str, ...], values: dict[str, Content]
) -> None:
    with pytest.raises(ModelFileError, match="cannot be made heavier"):
        heavier(toy(tmp_path, parts, values=values), 2, tmp_path / "made")
    for times in (-1, 1, 257):
        with pytest.raises(UsageError, match="from 2 to 256 for a model of 2 layers"):
            heavier(toy(tmp_path), times, tmp_path / "made")
    assert not (tmp_path / "made").exists()


def test_zero_bytes_are_counted_for_every_type() -> None:
    for type_id, kind in GGML_TYPES.items():
        placed = Placed("x", (kind.block_size, 3), type_id, 0, 3 * kind.block_bytes)
        assert sum(map(len, zeros(placed))) == placed.size_bytes
        assert placed.block_bytes == kind.block_bytes


def test_it_is_made_once_and_anew_when_the_source_changes(tmp_path: Path) -> None:
    source = toy(tmp_path)
    made = heavier(source, 2, tmp_path / "made")
    written = made.stat().st_mtime_ns
    assert heavier(source, 2, tmp_path / "made") == made
    assert made.stat().st_mtime_ns == written
    assert heavier(source, 3, tmp_path / "made") != made
    os.utime(source, (1, 1))
    assert heavier(source, 2, tmp_path / "made") != made
    assert "x2" in made.name


def test_what_breaks_off_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setitem(write_model.__globals__, "write_gguf", interrupt)
    with pytest.raises(KeyboardInterrupt):
        heavier(toy(tmp_path), 2, tmp_path / "made")
    assert list((tmp_path / "made").iterdir()) == []
