"""What of a header counts for memory, and what is given up, in which order, when it is short. Sizes are in MB of 2^20."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from localspec.errors import ModelLoadError
from localspec.models.gguf import parse_header, read_header
from localspec.models.shape import ModelShape, model_shape
from localspec.options import LoadOptions
from localspec.plan.fit import FitPlan, ModelLoad, Place, Places, usable_bytes
from localspec.plan.fit import best_fit as fit_loads
from localspec.plan.memory import compute_bytes, kv_bytes, predict, split_layers
from tests.models import shapes
from tests.models.gguf_builder import Content, Tensor, build

MB = 1 << 20
OPTIONS = LoadOptions(4096, max_rows=4, n_batch=512, flash_attention=True, load_mode="copy")


def shape(folder: Path, size: shapes.Proportions) -> ModelShape:
    path = shapes.sparse_model(folder / "model.gguf", size)
    model = model_shape(replace(read_header(path), name=f"{size.arch}-{size.layers}"))
    assert model is not None
    return model


@pytest.fixture
def big(tmp_path: Path) -> ModelShape:
    return shape(tmp_path, shapes.LLAMA_8B)


@pytest.fixture
def small(tmp_path: Path) -> ModelShape:
    return shape(tmp_path, shapes.LLAMA_1B)


def machine(ram_mb: int, *gpus_mb: int, shares_ram: bool = False) -> Places:
    gpus = (Place(f"GPU{at}", mb * MB, 0, shares_ram) for at, mb in enumerate(gpus_mb))
    return (Place("RAM", ram_mb * MB, 0), *gpus)


TWO = machine(8_000, 24_000, 24_000)


def fit(
    target: ModelShape,
    draft_model: ModelShape | None,
    machine: Places,
    *,
    shrinks: bool = True,
    gpus: tuple[str, ...] | None = None,
    draft_gpus: tuple[str, ...] | None = None,
    **changes: Any,
) -> FitPlan:
    """Plan with the usual options but for changes, on all GPUs that there are unless some are named."""
    options = replace(OPTIONS, **changes)
    every = tuple(gpu.name for gpu in machine[1:])
    small = None
    if draft_model is not None:
        small = ModelLoad(draft_model, options, every if draft_gpus is None else draft_gpus)
    big = ModelLoad(target, options, every if gpus is None else gpus)
    return fit_loads(big, small, machine, shrinks=shrinks)


def need_mb(model: ModelShape, **changes: Any) -> int:
    """What a model takes on the CPU, rounded up."""
    return predict(model, replace(OPTIONS, **changes))[0].total_bytes // MB + 1


def refusal(*args: Any, **changes: Any) -> str:
    with pytest.raises(ModelLoadError) as caught:
        fit(*args, **changes)
    assert str(caught.value).isprintable()
    return str(caught.value)


def test_a_context_that_was_named_is_not_shrunk(big: ModelShape, small: ModelShape) -> None:
    text = refusal(big, None, machine(need_mb(big, n_ctx=2048)), shrinks=False)
    assert "4096: it needs 5." in text
    assert "try --ctx 2048" in text
    assert "even without its draft model" in refusal(big, small, machine(1000))
    # A narrower cache changes the text, so it is advised and never taken.
    long: dict[str, Any] = {"n_ctx": 32768, "max_rows": 1}
    ram = machine(need_mb(big, **long) - 1500)
    assert "--ctx 16384 or --kv-type q8_0" in refusal(big, None, ram, shrinks=False, **long)
    assert fit(big, None, ram, shrinks=False, kv_type="q8_0", **long).kv_type == "q8_0"
    ram = machine(need_mb(big, kv_type="q4_1", **long))
    for kind in ("f16", "q8_0"):
        assert "--kv-type q4_1" in refusal(big, None, ram, shrinks=False, kv_type=kind, **long)
    hopeless = refusal(big, None, machine(1000), shrinks=False, kv_type="q4_0", **long)
    assert "--kv-type" not in hopeless


def test_gpus_that_share_the_ram_add_none(big: ModelShape, small: ModelShape) -> None:
    need = need_mb(big)
    own, shared = (machine(need * 4 // 5, need * 4 // 5, shares_ram=each) for each in (False, True))
    assert fit(big, None, own, shrinks=False).target_layers > 0
    assert "does not fit" in refusal(big, None, shared, shrinks=False)
    roomy = machine(2 * need, 2 * need, shares_ram=True)
    assert fit(big, None, roomy, shrinks=False).target_layers == len(big.layers) + 1
    assert (usable_bytes(own), usable_bytes(shared)) == (2 * own[0].free_bytes, own[0].free_bytes)
    # Where the RAM is less, that is named.
    free = need + need_mb(small, max_rows=1)
    rams = (machine(mb, 2 * free, shares_ram=True) for mb in range(free - 400, free + 400, 10))
    lines = {line for ram in rams for line in fit(big, small, ram).given_up}
    lines = {line for line in lines if "on the GPU" in line or "runs on the CPU" in line}
    assert lines
    assert all("RAM has" in line and "GPU0" not in line for line in lines), lines
    layers = (replace(each, experts_bytes=each.weights_bytes // 2) for each in big.layers)
    experts = replace(big, layers=tuple(layers))
    usual = predict(experts, OPTIONS, (33,))
    on_cpu = predict(experts, replace(OPTIONS, cpu_moe=True), (33,))
    moved = sum(each.experts_bytes for each in experts.layers)
    assert on_cpu[0].weights_bytes - usual[0].weights_bytes == moved
    assert usual[1].weights_bytes - on_cpu[1].weights_bytes == moved
    assert on_cpu[0].compute_bytes - usual[0].compute_bytes == 512 * 3 * 4 * big.n_ff
    caches = predict(experts, replace(OPTIONS, kv_offload=False), (33,))
    assert (caches[0].kv_bytes, caches[1].kv_bytes) == (usual[1].kv_bytes, 0)


def test_shares_count_instead_of_free_memory_and_tensors_are_split_evenly(big: ModelShape) -> None:
    _, first, second = fit(big, None, TWO, tensor_split="3,1").uses
    layer = big.layers[0].weights_bytes
    assert round(first.target.weights_bytes / layer) == 25  # of 33, three quarters
    assert second.target.weights_bytes == 7 * layer + big.output_bytes
    _, first, second = fit(big, None, TWO, split="tensor").uses
    alone = fit(big, None, machine(8_000, 24_000)).uses[1].target
    assert first.target == second.target
    free = [6_000, 2_000, 4_000]  # by default layers are shared out by it, and none is lost
    assert split_layers(12, free) == (6, 2, 4)
    assert all(sum(split_layers(count, free)) == count for count in range(40))
    assert (split_layers(4, [0, 0]), split_layers(5, [])) == ((2, 2), ())
    assert 2 * first.target.weights_bytes == alone.weights_bytes


SMALL_OPTIONS = LoadOptions(256, max_rows=1, n_batch=512, flash_attention=True, load_mode="copy")
ATTENTION = {"attn_q": 8 * 8 * 4, "attn_k": 8 * 8 * 4}


def shape_or_none(
    layers: list[dict[str, int]], *, tied: bool = False, kind: int = 0, **keys: Content | None
) -> ModelShape | None:
    """Return the toy_shape of a model of 8 elements; `layers` names the tensors of each, with 8 x 8 elements."""
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


def toy_shape(layers: int | list[dict[str, int]], **keys: Any) -> ModelShape:
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
    model = toy_shape(layers, **keys)
    assert [(each.k_width, each.v_width) for each in model.layers] == widths
    assert model.masks == 1 + ("attention__sliding_window" in keys)


def test_recurrent_layers_keep_a_state_whatever_the_context() -> None:
    sizes = {"conv_kernel": 4, "inner_size": 16, "state_size": 8, "group_count": 1}
    keys = {f"ssm__{key}": value for key, value in sizes.items()}
    recurrent, attention = toy_shape([{"ssm_in": 0, "ssm_out": 0}, ATTENTION], **keys).layers
    assert (recurrent.k_width, recurrent.v_width) == (0, 0)
    assert (attention.k_width, attention.v_width, attention.state_bytes) == (8, 8, 0)
    state = 4 * (3 * (16 + 2 * 8) + 16 * 8)
    assert recurrent.state_bytes == kv_bytes([recurrent], LoadOptions(256)) == state
    assert kv_bytes([recurrent], LoadOptions(9999)) == state


def test_places_share_a_model_out_without_losing_any() -> None:
    model = toy_shape(4)
    whole = predict(model, SMALL_OPTIONS)[0]
    assert (model.input_bytes, model.output_bytes, model.weights_bytes) == (1024, 1024, 4096)
    assert kv_bytes(model.layers[:1], replace(SMALL_OPTIONS, n_ctx=257)) == 512 * 2 * 16
    assert toy_shape(1, expert_used_count=4, expert_feed_forward_length=12).n_ff == 48
    cpu, first, second = predict(model, SMALL_OPTIONS, (1, 3))
    assert whole.output_bytes == 4 * SMALL_OPTIONS.max_rows * model.n_vocab
    assert cpu.weights_bytes == model.input_bytes + 512
    assert first.weights_bytes == 512
    assert second.weights_bytes == 2 * 512 + model.output_bytes
    assert cpu.kv_bytes + first.kv_bytes + second.kv_bytes == whole.kv_bytes
    assert cpu.compute_bytes == compute_bytes(model, SMALL_OPTIONS)
    assert second.compute_bytes == compute_bytes(model, SMALL_OPTIONS, held=2, on_gpu=True)
    # The last projection goes to a GPU first; one that is tied is copied there.
    cpu, gpu = predict(model, SMALL_OPTIONS, (1,))
    assert cpu.weights_bytes == model.input_bytes + 4 * 512
    assert (gpu.weights_bytes, gpu.kv_bytes) == (model.output_bytes, 0)
    # Repacking beside a mapped file is a second copy of what is repacked.
    (layer,) = toy_shape(1).layers
    packed = replace(toy_shape(1), layers=(replace(layer, matrices={"Q4_0": 100, "F32": 7}),))
    mapped = predict(packed, replace(SMALL_OPTIONS, load_mode="mmap"))[0]
    assert mapped.weights_bytes - predict(packed, SMALL_OPTIONS)[0].weights_bytes == 100
    model = toy_shape(1, tied=True)
    cpu, gpu = predict(model, SMALL_OPTIONS, (2,))
    assert (cpu.weights_bytes, gpu.weights_bytes) == (model.input_bytes, 512 + model.input_bytes)


def test_a_header_that_leaves_out_a_size_or_has_an_unknown_type_gives_no_shape() -> None:
    for missing in ("block_count", "embedding_length"):
        assert shape_or_none([ATTENTION], **{missing: None}) is None  # type: ignore[arg-type]
    assert shape_or_none([ATTENTION], kind=999) is None
