"""LoRA adapters: in a context, added to the weights, and what is said of one that does not fit."""

from pathlib import Path

import numpy as np
import pytest

from localspec.errors import ModelFileError, ModelLoadError, PairMismatch, UsageError
from localspec.launch.load import load
from localspec.launch.plan import make_plan
from localspec.llama.context import LlamaContext
from localspec.llama.model import LlamaModel
from localspec.models.gguf import read_header
from localspec.options import LaunchOptions, LoadOptions
from localspec.tailor.adapted import write_adapted
from tests.models.gguf_builder import Content, Tensor, build
from tests.tailor.tiny_llama import N_EMBD, write

OPTIONS = LoadOptions(n_ctx=64, threads=1, gpu_layers=0, max_rows=4)
TOKENS = [100, 200, 5, 101]
RANK = 4


def adapter(path: Path, *names: str, columns: int = N_EMBD, **changes: Content) -> Path:
    """Write an adapter that changes square matrices."""
    values: dict[str, Content] = {
        "general.type": "adapter",
        "general.architecture": "llama",
        "adapter.type": "lora",
        "adapter.lora.alpha": 8.0,
        **{key.replace("__", "."): value for key, value in changes.items()},
    }
    random, tensors, data = np.random.default_rng(5), [], b""
    for name in names or ("blk.0.attn_q.weight", "blk.1.attn_output.weight"):
        for part, shape in ((".lora_a", (columns, RANK)), (".lora_b", (RANK, N_EMBD))):
            numbers = random.normal(0, 0.2, shape[0] * shape[1]).astype(np.float32)
            tensors.append(Tensor(name + part, shape, offset=len(data)))
            data += numbers.tobytes() + bytes(-numbers.nbytes % 32)
    path.write_bytes(build(values, tensors) + data)
    return path


def logits(model: Path, lora: Path | None = None) -> np.ndarray:
    loaded = LlamaModel(model, OPTIONS, lora=lora)
    context = LlamaContext(loaded)  # a row is valid as long as it is
    found = context.logits(TOKENS, 2).copy()
    loaded.close()
    return found


def test_an_adapter_changes_what_a_model_says_and_so_do_its_weights_with_it(tmp_path: Path) -> None:
    model, lora = write(tmp_path / "tiny.gguf"), adapter(tmp_path / "lora.gguf")
    write_adapted(model, lora, tmp_path / "adapted.gguf")
    plain, with_it, of_weights = (
        logits(model),
        logits(model, lora),
        logits(tmp_path / "adapted.gguf"),
    )
    assert np.abs(with_it - plain).max() > 0.1
    # In F16, as far as that goes.
    assert np.abs(of_weights - with_it).max() < 0.02 * np.abs(with_it - plain).max()
    types = {each.name: each.type_name for each in read_header(tmp_path / "adapted.gguf").tensors}
    assert (types["blk.0.attn_q.weight"], types["blk.0.attn_k.weight"]) == ("F16", "F32")


@pytest.mark.parametrize(
    ("names", "columns"),
    [(("blk.7.attn_q.weight",), N_EMBD), ((), 32), (("token_embd.weight",), N_EMBD)],
)
def test_one_that_does_not_fit_is_told_in_one_line(
    tmp_path: Path, names: tuple[str, ...], columns: int
) -> None:
    model = write(tmp_path / "tiny.gguf")
    lora = adapter(tmp_path / "lora.gguf", *names, columns=columns)
    with pytest.raises(ModelLoadError, match="cannot load the adapter"):
        LlamaModel(model, OPTIONS, lora=lora)
    with pytest.raises(ModelFileError, match=r"does not fit|changes more"):
        write_adapted(model, lora, tmp_path / "adapted.gguf")


def request(tmp_path: Path, **changes: object) -> LaunchOptions:
    model = str(write(tmp_path / "tiny.gguf"))
    known = {"target": model, "draft_model": model, "draft": "model:2", "load": OPTIONS}
    return LaunchOptions(**{**known, "fit": False, **changes})  # type: ignore[arg-type]


def test_the_draft_model_has_it_and_the_target_has_not(tmp_path: Path) -> None:
    lora = adapter(tmp_path / "lora.gguf")
    target, draft_model = write(tmp_path / "a.gguf"), write(tmp_path / "b.gguf")
    asked = request(
        tmp_path, target=str(target), draft_model=str(draft_model), draft_lora=str(lora)
    )
    runtime = load(make_plan(asked))
    try:
        assert runtime.drafting.draft_models is not None
        drafts = runtime.drafting.draft_models.views[0]
        assert np.allclose(drafts.logits(TOKENS, 2), logits(draft_model, lora), atol=1e-3)
        assert np.allclose(runtime.target.logits(TOKENS, 2), logits(target), atol=1e-3)
    finally:
        runtime.assistant.close()


def test_what_is_no_adapter_for_the_draft_model_is_refused_before_anything_is_loaded(
    tmp_path: Path,
) -> None:
    with pytest.raises(ModelFileError, match="is no LoRA adapter"):
        make_plan(request(tmp_path, draft_lora=str(write(tmp_path / "model.gguf"))))
    other = adapter(tmp_path / "other.gguf", general__architecture="qwen2")
    with pytest.raises(PairMismatch, match="is an adapter for qwen2"):
        make_plan(request(tmp_path, draft_lora=str(other)))
    with pytest.raises(UsageError, match="no draft model to put an adapter on"):
        make_plan(request(tmp_path, draft_model=None, draft="auto", draft_lora=str(other)))
    # Nothing drafts with it, so it does not matter.
    assert make_plan(request(tmp_path, draft="off", draft_lora=str(other))).draft_lora is None
