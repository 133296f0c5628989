"""Predicted memory against llama.cpp's own plan (without weights) and own buffers (with them)."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import llama_cpp.llama_cpp as native
import numpy as np
import pytest

from localspec.decoding.cancel import CancelFlag
from localspec.llama.backend import clear_log, initialise, log_lines
from localspec.llama.buffer_log import together
from localspec.llama.heads import LlamaHeads
from localspec.llama.model import LlamaModel
from localspec.llama.sequence import LlamaContext
from localspec.models.architectures import Heads, heads_of
from localspec.models.gguf import read_header
from localspec.models.shape import heads_shape, model_shape, target_rows_bytes
from localspec.options import KV_TYPES, QUANTISED_KV_TYPES, LoadOptions
from localspec.plan.fit import ModelLoad, load_of_heads
from localspec.plan.memory import predict
from localspec.resources import Usage
from tests.llama import tiny_models
from tests.llama.tiny_gguf import write_model
from tests.models import shapes
from tests.models.gguf_builder import Content
from tests.support.checks import there

pytestmark = pytest.mark.slow

USUAL = LoadOptions(4096, max_rows=1, n_batch=512, flash_attention=True, load_mode="copy")
PROMPT = "The capital of France is"
OPTIONS = [
    USUAL,
    replace(USUAL, n_ctx=32768, max_rows=16),
    replace(USUAL, n_ctx=300, max_rows=4),
    *(replace(USUAL, n_ctx=8192, kv_type=kind) for kind in QUANTISED_KV_TYPES),
    replace(USUAL, n_batch=64, max_rows=16),
    replace(USUAL, flash_attention=False),
]
SIZES = [shapes.LLAMA_1B, shapes.LLAMA_8B, shapes.QWEN3_06B, shapes.LLAMA_14B, shapes.GEMMA3_4B]


def logged(kinds: str, what: str = "buffer size") -> float:
    """Return the bytes that the log of the last load gives for these kinds, in MiB to a hundredth."""
    sizes = re.findall(rf"{kinds} {what} += +([\d.]+) MiB", "\n".join(log_lines()))
    return sum(map(float, sizes)) * 2**20


def logged_usage(weights_bytes: float) -> Usage:
    """Return what the log of the last context says, beside so many bytes of weights."""
    return Usage(round(weights_bytes), round(logged("(?:KV|RS)")), round(logged("compute")))


def planned_model(path: Path, *, mtp: bool = False) -> tuple[native.llama_model_p, int]:
    """Let llama.cpp read a model without its weights; return it, and their size."""
    initialise()
    params = native.llama_model_default_params()
    params.no_alloc = True
    params.load_mode = params.n_gpu_layers = 0
    params.use_extra_bufts, params.load_mtp = False, mtp
    model = native.llama_model_load_from_file(str(path).encode(), params)
    assert model, "\n".join(log_lines())
    return model, native.llama_model_size(model)


def planned_context(model: native.llama_model_p, params: Any, weights: int, cache: str) -> Usage:
    """Let llama.cpp plan a context without allocating what it needs: its log says what a cache would take."""
    clear_log()
    context = native.llama_init_from_model(model, params)
    assert context, "\n".join(log_lines())
    usage = logged_usage(weights)
    native.llama_free(context)
    return replace(usage, kv_bytes=round(logged(cache, "size"))) if cache else usage


def planned_heads(target: Path, file: Path, heads: Heads, options: LoadOptions) -> Usage:
    """Let llama.cpp plan heads that have a file of their own, and their context."""
    (model, _), (own, weights) = planned_model(target), planned_model(file)
    context = native.llama_init_from_model(model, context_params(options, 0))
    params = context_params(options.for_heads(), int(heads.shares_cache))
    params.n_outputs_max = heads.block.size if heads.block else 1
    params.n_rs_seq, params.ctx_other = 0, context
    usage = planned_context(own, params, weights, "" if heads.shares_cache else "llama_kv_cache:")
    native.llama_free(context)
    for each in (own, model):
        native.llama_model_free(each)
    return usage


def planned_usage(path: Path, options: LoadOptions, *, mtp: bool = False) -> list[Usage]:
    """Let llama.cpp plan a model and its context, and the context of its MTP layers."""
    model, weights = planned_model(path, mtp=mtp)
    cache = "llama_(?:kv_cache|memory_recurrent):"
    usages = [planned_context(model, context_params(options, 0), weights, cache)]
    if mtp:
        params = context_params(options.for_heads(), 1)
        usages.append(planned_context(model, params, 0, cache))
    native.llama_model_free(model)
    return usages


def context_params(options: LoadOptions, kind: int) -> Any:
    params = native.llama_context_default_params()
    params.n_ctx, params.n_seq_max = options.n_ctx or 0, 1
    params.n_batch = params.n_ubatch = options.n_batch or 0
    params.n_outputs_max = options.max_rows
    params.type_k = params.type_v = KV_TYPES[options.kv_type]
    params.flash_attn_type = -1 if options.flash_attention else 0
    params.ctx_type = native.LLAMA_CONTEXT_TYPE_MTP if kind else 0
    params.n_rs_seq = 0 if kind else options.snapshots
    return params


@pytest.mark.parametrize("options", [OPTIONS[0], OPTIONS[1], OPTIONS[-1]], ids=str)
@pytest.mark.parametrize("kind", ["dflash", "dflash own", "dspark", "dflash2", "assistant"])
def test_memory_of_blocks_and_assistants(kind: str, options: LoadOptions, tmp_path: Path) -> None:
    target, file = tmp_path / "target.gguf", tmp_path / "heads.gguf"
    if kind == "assistant":
        shapes.sparse_gemma4(target)
        shapes.sparse_gemma4(file, assistant=True)
    else:
        name, _, own = kind.partition(" ")
        shapes.sparse_model(target, shapes.QWEN3_8B)
        shapes.sparse_block(file, shapes.QWEN3_8B, name, own=bool(own))
    headers = read_header(target), read_header(file)
    heads, big = there(heads_of(*headers)), there(model_shape(headers[0]))
    shape = there(heads_shape(headers[0], heads, headers[1]))
    load = load_of_heads(ModelLoad(shape, options), heads)
    predicted = predict(load.shape, load.options)[0]
    real, kept = planned_heads(target, file, heads, options), target_rows_bytes(big, heads)
    total = predicted.total_bytes - predicted.output_bytes - kept
    assert total == pytest.approx(real.total_bytes, rel=0.02)
    assert predicted.weights_bytes - kept == pytest.approx(real.weights_bytes, rel=0.001)
    assert predicted.kv_bytes == pytest.approx(real.kv_bytes, rel=0.001)


def check_within_2_percent(path: Path, options: LoadOptions, real: Usage) -> None:
    usage = predict(there(model_shape(read_header(path))), options)[0]
    # The output buffer grows with the rows that are asked for, and is logged at one row.
    predicted = usage.total_bytes - usage.output_bytes
    assert predicted == pytest.approx(real.total_bytes, rel=0.02)
    assert usage.weights_bytes == pytest.approx(real.weights_bytes, rel=0.001)
    assert usage.kv_bytes == pytest.approx(real.kv_bytes, rel=0.001)
    # The smallest of the three parts, and the only one that is not arithmetic on the header.
    assert usage.compute_bytes == pytest.approx(real.compute_bytes, rel=0.11)


@pytest.mark.parametrize("options", [OPTIONS[0], OPTIONS[1], OPTIONS[5]], ids=str)
@pytest.mark.parametrize("size", [shapes.STEP35, shapes.QWEN35], ids=lambda size: size.arch)
def test_memory_of_mtp_layers_is_predicted(
    size: shapes.Proportions, options: LoadOptions, tmp_path: Path
) -> None:
    header = read_header(shapes.sparse_model(tmp_path / "model.gguf", size))
    heads, target = there(heads_of(header)), there(model_shape(header, mtp=True))
    own = there(heads_shape(header, heads, None))
    predicted = [predict(target, options)[0], predict(own, options.for_heads())[0]]
    kept = target_rows_bytes(target, heads)
    assert predicted[1].weights_bytes == kept, "their weights are the target's"
    real = planned_usage(tmp_path / "model.gguf", options, mtp=True)
    assert predicted[1].kv_bytes == pytest.approx(real[1].kv_bytes, rel=0.001)
    total = sum(each.total_bytes - each.output_bytes for each in predicted) - kept
    assert total == pytest.approx(sum(each.total_bytes for each in real), rel=0.02)


def test_an_adapter_is_predicted_with_its_model(tmp_path: Path) -> None:
    path, adapter = tiny_models.write_llama(tmp_path / "model.gguf"), tmp_path / "adapter.gguf"
    values: dict[str, Content] = {"general.type": "adapter", "adapter.type": "lora"}
    values["adapter.lora.alpha"] = 1.0
    pairs = {
        f"blk.{layer}.{name}.weight.lora_{half}": shape
        for layer in range(4)
        for name in ("attn_q", "ffn_down")
        for half, shape in (("a", (96 if "ffn" in name else 64, 4096)), ("b", (4096, 64)))
    }
    write_model(adapter, "llama", values, pairs)
    headers = read_header(path), read_header(adapter)
    shapes_of = [model_shape(headers[0], *with_it) for with_it in ((), (headers[1],))]
    alone, adapted = (each.weights_bytes for each in shapes_of if each is not None)
    model = LlamaModel(path, LoadOptions(gpu_layers=0), lora=adapter)
    taken = logged("LoRA")
    model.close()
    assert adapted - alone == pytest.approx(taken, rel=0.02)


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size.arch}-{size.layers}-{size.n_embd}")
def test_memory_of_models(size: shapes.Proportions, tmp_path: Path) -> None:
    path = shapes.sparse_model(tmp_path / "model.gguf", size)
    for options in OPTIONS:
        (real,) = planned_usage(path, options)
        check_within_2_percent(path, options, real)


def check_a_load_is_predicted(path: Path, options: LoadOptions) -> bytes:
    """Return the piece that goes on with the prompt."""
    model = LlamaModel(path, options)
    weights = logged("model")  # a context begins the log anew
    context = LlamaContext(model)
    real = logged_usage(weights)
    prompt = model.vocabulary.tokenize(PROMPT, add_special=False, parse_special=False)
    answer = model.vocabulary.piece(int(np.argmax(context.logits(prompt, 1)[-1])))
    model.close()
    check_within_2_percent(path, options, real)
    return answer


@pytest.mark.weights
@pytest.mark.parametrize("kind", KV_TYPES)
def test_smollm2_answers_with_each_cache_in_its_memory(smollm2_path: Path, kind: str) -> None:
    options = LoadOptions(2048, gpu_layers=0, kv_type=kind)
    assert check_a_load_is_predicted(smollm2_path, options) == b" Paris"


@pytest.mark.pair
def test_the_coder_pair_takes_what_was_predicted(qwen_paths: tuple[Path, Path]) -> None:
    for path in qwen_paths:
        check_a_load_is_predicted(path, LoadOptions(gpu_layers=0))


@pytest.mark.weights
def test_eagle3_heads_of_smollm2_take_what_is_said(smollm2_path: Path, tmp_path: Path) -> None:
    layers, options = (2, 15, 27), LoadOptions(4096, gpu_layers=0)
    file = tiny_models.write_eagle3(tmp_path / "heads.gguf", target=smollm2_path, layers=layers)
    headers = read_header(smollm2_path), read_header(file)
    kind, target = there(heads_of(*headers)), there(model_shape(headers[0]))
    own = there(heads_shape(headers[0], kind, headers[1]))
    model, heads_model = LlamaModel(smollm2_path, options), LlamaModel(file, options, is_heads=True)
    targets = LlamaContext(model)
    heads = LlamaHeads(heads_model, [targets], CancelFlag(), options, layers)
    taken = together(
        [model.allocated, heads_model.allocated, targets.native.allocated, heads.native.allocated]
    )
    real = taken["RAM"].total_bytes - taken["RAM"].output_bytes
    predicted = [predict(target, options)[0], predict(own, options.for_heads())[0]]
    total = sum(each.total_bytes - each.output_bytes for each in predicted)
    total -= target_rows_bytes(target, kind)
    assert total == pytest.approx(real, rel=0.02)
    heads_model.close()
    model.close()
