"""What of a header counts for memory: per-layer keys, states, latents, and nonsense."""

from dataclasses import replace
from typing import Any

import pytest

from localspec.models.gguf import parse_header
from localspec.models.memory import ModelShape, compute_bytes, layer_kv_bytes, model_shape, predict
from localspec.options import LoadOptions
from tests.models.gguf_builder import Content, Tensor, build

OPTIONS = LoadOptions(256, max_rows=1, n_batch=512, flash_attention=True, load_mode="copy")
ATTENTION = {"attn_q": 8 * 8 * 4, "attn_k": 8 * 8 * 4}


def shape_or_none(
    layers: list[dict[str, int]], *, tied: bool = False, kind: int = 0, **keys: Content | None
) -> ModelShape | None:
    """Return the shape of a model of 8 elements; `layers` names the tensors of each, with 8 x 8 elements."""
    values: dict[str, Content | None] = {
        "block_count": len(layers),
        "embedding_length": 8,
        "feed_forward_length": 16,
        "attention.head_count": 2,
        **{key.replace("__", "."): value for key, value in keys.items()},
    }
    named = {f"toy.{key}": value for key, value in values.items() if value is not None}
    tensors = [Tensor("token_embd.weight", (8, 32))]
    tensors += [] if tied else [Tensor("output.weight", (8, 32))]
    tensors += [
        Tensor(f"blk.{number}.{name}.weight", (8, 8), kind)
        for number, layer in enumerate(layers)
        for name in layer
    ]
    data = build({"general.architecture": "toy", **named}, tensors, data_bytes=2048)
    return model_shape(parse_header(data, name="toy"))


def shape(layers: int | list[dict[str, int]], **keys: Any) -> ModelShape:
    model = shape_or_none([ATTENTION] * layers if isinstance(layers, int) else layers, **keys)
    assert model is not None
    return model


LENGTHS = {"attention__key_length": 16, "attention__value_length": 16}
WINDOW = {
    "attention__sliding_window": 64,
    "attention__sliding_window_pattern": [1, 0],
    "attention__key_length_swa": 4,
    "attention__value_length_swa": 4,
}


@pytest.mark.parametrize(
    ("layers", "keys", "widths"),
    [
        (1, {"attention__head_count_kv": 1}, [(4, 4)]),
        (1, {"attention__key_length": 16, "attention__value_length": 6}, [(32, 12)]),
        (3, {"attention__head_count_kv": [2, 0, 1]}, [(8, 8), (0, 0), (4, 4)]),
        (3, {"attention__shared_kv_layers": 2}, [(8, 8), (0, 0), (0, 0)]),
        # latent attention keeps no values; a window may have lengths of its own
        (1, {"attention__key_length_mla": 4, "attention__key_length": 12}, [(24, 0)]),
        (2, {**WINDOW, **LENGTHS}, [(8, 8), (32, 32)]),
    ],
    ids=str,
)
def test_heads_by_layer(layers: int, keys: dict[str, Any], widths: list[tuple[int, int]]) -> None:
    model = shape(layers, **keys)
    assert [(each.k_width, each.v_width) for each in model.layers] == widths
    assert model.masks == 1 + ("attention__sliding_window" in keys)


def test_recurrent_layers_keep_a_state_whatever_the_context() -> None:
    sizes = {"conv_kernel": 4, "inner_size": 16, "state_size": 8, "group_count": 1}
    keys = {f"ssm__{key}": value for key, value in sizes.items()}
    recurrent, attention = shape([{"ssm_in": 0, "ssm_out": 0}, ATTENTION], **keys).layers
    assert (recurrent.k_width, recurrent.v_width) == (0, 0)
    assert (attention.k_width, attention.v_width, attention.state_bytes) == (8, 8, 0)
    state = 4 * (3 * (16 + 2 * 8) + 16 * 8)
    assert recurrent.state_bytes == layer_kv_bytes(recurrent, LoadOptions(256)) == state
    assert layer_kv_bytes(recurrent, LoadOptions(9999)) == state


def test_places_share_a_model_out_without_losing_any() -> None:
    model = shape(4)
    whole = predict(model, OPTIONS)[0]
    assert (model.input_bytes, model.output_bytes, model.weights_bytes) == (1024, 1024, 4096)
    assert layer_kv_bytes(model.layers[0], replace(OPTIONS, n_ctx=257)) == 512 * 2 * 16
    assert shape(1, expert_used_count=4, expert_feed_forward_length=12).n_ff == 48
    cpu, first, second = predict(model, OPTIONS, (1, 3))
    assert whole.output_bytes == 4 * OPTIONS.max_rows * model.n_vocab
    assert cpu.weights_bytes == model.input_bytes + 512
    assert first.weights_bytes == 512
    assert second.weights_bytes == 2 * 512 + model.output_bytes
    assert cpu.kv_bytes + first.kv_bytes + second.kv_bytes == whole.kv_bytes
    assert cpu.compute_bytes == compute_bytes(model, OPTIONS)
    assert second.compute_bytes == compute_bytes(model, OPTIONS, held=2, on_gpu=True)
    # The last projection goes to a GPU first; one that is tied is copied there.
    cpu, gpu = predict(model, OPTIONS, (1,))
    assert cpu.weights_bytes == model.input_bytes + 4 * 512
    assert (gpu.weights_bytes, gpu.kv_bytes) == (model.output_bytes, 0)
    # Repacking beside a mapped file is a second copy of what is repacked.
    (layer,) = shape(1).layers
    packed = replace(shape(1), layers=(replace(layer, matrices={"Q4_0": 100, "F32": 7}),))
    mapped = predict(packed, replace(OPTIONS, load_mode="mmap"))[0]
    assert mapped.weights_bytes - predict(packed, OPTIONS)[0].weights_bytes == 100
    model = shape(1, tied=True)
    cpu, gpu = predict(model, OPTIONS, (2,))
    assert (cpu.weights_bytes, gpu.weights_bytes) == (model.input_bytes, 512 + model.input_bytes)


def test_a_header_that_leaves_out_a_size_or_has_an_unknown_type_gives_no_shape() -> None:
    for missing in ("block_count", "embedding_length"):
        assert shape_or_none([ATTENTION], **{missing: None}) is None  # type: ignore[arg-type]
    assert shape_or_none([ATTENTION], kind=999) is None
