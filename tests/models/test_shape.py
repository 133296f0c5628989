"""What of a header counts for memory: per-layer keys, states, latents, and nonsense."""

import struct
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.models.gguf import parse_header
from localspec.models.memory import (
    ModelShape,
    compute_bytes,
    layer_kv_bytes,
    model_shape,
    predict,
)
from localspec.options import LoadOptions
from tests.models.gguf_builder import Content, Raw, Tensor, build

OPTIONS = LoadOptions(256, max_rows=1, n_batch=512, flash_attention=True, load_mode="copy")
ATTENTION = {"attn_q": 8 * 8 * 4, "attn_k": 8 * 8 * 4}


def header(layers: list[dict[str, int]], *, tied: bool = False, **keys: Content | None) -> bytes:
    """A model of 8 elements; `layers` names the tensors of each, with 8 x 8 elements."""
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
        Tensor(f"blk.{number}.{name}.weight", (8, 8))
        for number, layer in enumerate(layers)
        for name in layer
    ]
    return build({"general.architecture": "toy", **named}, tensors, data_bytes=2048)


def shape(*args: object, **keys: object) -> ModelShape:
    found = model_shape(parse_header(header(*args, **keys), name="toy"))  # type: ignore[arg-type]
    assert found is not None
    return found


def widths(model: ModelShape) -> list[tuple[int, int]]:
    return [(layer.k_width, layer.v_width) for layer in model.layers]


def test_tensors_are_counted_where_they_belong() -> None:
    model = shape([ATTENTION, ATTENTION])
    assert [layer.weights_bytes for layer in model.layers] == [512, 512]
    assert (model.input_bytes, model.output_bytes, model.weights_bytes) == (1024, 1024, 3072)
    assert (model.n_vocab, model.tied) == (32, False)
    tied = shape([ATTENTION], tied=True)
    assert (tied.input_bytes, tied.output_bytes, tied.tied) == (1024, 0, True)


def test_heads_share_the_width_unless_a_length_is_given() -> None:
    assert widths(shape([ATTENTION])) == [(8, 8)]
    assert widths(shape([ATTENTION], attention__head_count_kv=1)) == [(4, 4)]
    given_lengths = {"attention__key_length": 16, "attention__value_length": 6}
    assert widths(shape([ATTENTION], **given_lengths)) == [(32, 12)]


def test_heads_may_differ_by_layer() -> None:
    model = shape([ATTENTION] * 3, attention__head_count_kv=[2, 0, 1])
    assert widths(model) == [(8, 8), (0, 0), (4, 4)]


def test_layers_with_a_window_may_have_lengths_of_their_own() -> None:
    model = shape(
        [ATTENTION] * 2,
        attention__sliding_window=64,
        attention__sliding_window_pattern=[1, 0],
        attention__key_length=16,
        attention__value_length=16,
        attention__key_length_swa=4,
        attention__value_length_swa=4,
    )
    assert widths(model) == [(8, 8), (32, 32)]
    assert model.masks == 2


def test_layers_that_share_a_cache_have_none() -> None:
    model = shape([ATTENTION] * 3, attention__shared_kv_layers=2)
    assert widths(model) == [(8, 8), (0, 0), (0, 0)]


def test_latent_attention_keeps_no_values() -> None:
    model = shape([ATTENTION], attention__key_length_mla=4, attention__key_length=12)
    assert widths(model) == [(24, 0)]


def test_recurrent_layers_keep_a_state_whatever_the_context() -> None:
    model = shape(
        [{"ssm_in": 0, "ssm_out": 0}, ATTENTION],
        ssm__conv_kernel=4,
        ssm__inner_size=16,
        ssm__state_size=8,
        ssm__group_count=1,
    )
    assert widths(model) == [(0, 0), (8, 8)]
    state = 4 * (3 * (16 + 2 * 8) + 16 * 8)
    assert [layer.state_bytes for layer in model.layers] == [state, 0]
    assert layer_kv_bytes(model.layers[0], LoadOptions(256)) == state
    assert layer_kv_bytes(model.layers[0], LoadOptions(9999)) == state


def test_experts_that_are_active_together_make_the_feed_forward_width() -> None:
    assert shape([ATTENTION], expert_used_count=4, expert_feed_forward_length=12).n_ff == 48


@pytest.mark.parametrize(("kind", "of_8"), [("f32", 32), ("f16", 16), ("bf16", 16)])
def test_a_cache_is_cells_times_the_width_of_its_type(kind: str, of_8: int) -> None:
    (layer,) = shape([ATTENTION]).layers
    assert layer_kv_bytes(layer, replace(OPTIONS, kv_type=kind)) == 256 * 2 * of_8
    assert layer_kv_bytes(layer, replace(OPTIONS, kv_type=kind, n_ctx=257)) == 512 * 2 * of_8


def test_places_share_a_model_out_without_losing_any() -> None:
    model = shape([ATTENTION] * 4)
    whole = predict(model, OPTIONS)[0]
    cpu, first, second = predict(model, OPTIONS, (1, 3))
    assert cpu.weights_bytes == model.input_bytes + 512
    assert first.weights_bytes == 512
    assert second.weights_bytes == 2 * 512 + model.output_bytes
    assert cpu.kv_bytes + first.kv_bytes + second.kv_bytes == whole.kv_bytes
    assert cpu.compute_bytes == compute_bytes(model, OPTIONS)
    assert second.compute_bytes == compute_bytes(model, OPTIONS, held=2, on_gpu=True)


def test_the_last_projection_goes_to_a_gpu_first() -> None:
    model = shape([ATTENTION] * 4)
    cpu, gpu = predict(model, OPTIONS, (1,))
    assert cpu.weights_bytes == model.input_bytes + 4 * 512
    assert (gpu.weights_bytes, gpu.kv_bytes) == (model.output_bytes, 0)


def test_a_tied_projection_is_copied_to_the_gpu() -> None:
    model = shape([ATTENTION], tied=True)
    cpu, gpu = predict(model, OPTIONS, (2,))
    assert cpu.weights_bytes == model.input_bytes
    assert gpu.weights_bytes == 512 + model.input_bytes


def test_repacking_beside_a_mapped_file_is_a_second_copy_of_what_is_repacked() -> None:
    model = shape([ATTENTION])
    (layer,) = model.layers
    packed = replace(model, layers=(replace(layer, matrices={"Q4_0": 100, "F32": 7}),))
    mapped = replace(OPTIONS, load_mode="mmap")
    more = predict(packed, mapped)[0].weights_bytes - predict(packed, OPTIONS)[0].weights_bytes
    assert more == 100


@pytest.mark.parametrize("missing", ["block_count", "embedding_length"])
def test_a_header_that_leaves_out_a_size_gives_no_shape(missing: str) -> None:
    raw = header([ATTENTION], **{missing: None})  # type: ignore[arg-type]
    assert model_shape(parse_header(raw, name="toy")) is None


def test_a_tensor_of_an_unknown_type_gives_no_shape() -> None:
    values: dict[str, Content] = {
        "general.architecture": "toy",
        "toy.block_count": 1,
        "toy.embedding_length": 8,
    }
    tensors = [Tensor("token_embd.weight", (8, 32)), Tensor("blk.0.attn_k.weight", (8, 8), 999)]
    raw = build(values, tensors, data_bytes=2048)
    assert model_shape(parse_header(raw, name="toy")) is None


nonsense = st.one_of(
    st.integers(0, 2**32 - 1),
    st.floats(width=32),
    st.text(max_size=4),
    st.booleans(),
    st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=5),
    st.integers(0, 2**64 - 1).map(lambda value: Raw(10, struct.pack("<Q", value))),
)


@given(
    st.dictionaries(
        st.sampled_from(
            [
                "block_count",
                "embedding_length",
                "feed_forward_length",
                "attention.head_count",
                "attention.head_count_kv",
                "attention.key_length",
                "attention.sliding_window_pattern",
                "attention.shared_kv_layers",
                "expert_used_count",
                "ssm.inner_size",
                "shortconv.l_cache",
                "context_length",
            ]
        ),
        nonsense,
    )
)
def test_no_header_makes_it_fail(keys: dict[str, Content]) -> None:
    raw = header([ATTENTION, {"ssm_in": 0}], **keys)  # type: ignore[arg-type]
    found = model_shape(parse_header(raw, name="toy"))
    if found is not None:
        assert predict(found, LoadOptions(4096), (1,))[0].total_bytes >= 0
