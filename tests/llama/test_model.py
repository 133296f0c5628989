"""LlamaModel and its vocabulary on real weights, and what happens to files that are none."""

from contextlib import closing
from pathlib import Path
from typing import Any

import llama_cpp.llama_cpp as native
import pytest

from lab.synthetic.gguf_layout import read_layout
from lab.synthetic.gguf_writer import NewTensor, copied, encoded, write_gguf
from localspec.decoding.cancel import CancelFlag, Cancelled
from localspec.errors import ModelLoadError
from localspec.llama import model as model_module
from localspec.llama.backend import log_lines
from localspec.llama.model import LlamaModel, ModelThread
from localspec.llama.sequence import LlamaContext
from localspec.models.gguf import read_header
from localspec.options import LoadOptions
from tests.llama.tiny_gguf import byte_tokenizer
from tests.llama.tiny_llama import write
from tests.llama.tiny_models import write_llama
from tests.support.checks import refuses

pytestmark = pytest.mark.weights


def test_a_refused_file_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "odd.gguf"
    path.write_bytes(b"GGUF" + b"\0" * 64)
    with pytest.raises(ModelLoadError, match=r"odd\.gguf") as caught:
        LlamaModel(path, LoadOptions())
    assert "\n" not in str(caught.value)
    log = "error loading model: LLAMA_SPLIT_MODE_TENSOR not implemented for architecture 'mamba'"
    monkeypatch.setattr(model_module, "last_complaint", lambda: log)
    with pytest.raises(ModelLoadError, match=r"cannot split a 'mamba' model"):
        LlamaModel(path, LoadOptions())
    source, path = write(tmp_path / "tiny.gguf"), tmp_path / "mute.gguf"
    layout, n_vocab = read_layout(source), read_header(source).tokenizer.n_vocab
    sizes = {"tokenizer.ggml.model": encoded("no_vocab"), "llama.vocab_size": encoded(n_vocab)}
    values = {**layout.values, **sizes}
    with source.open("rb") as original, path.open("wb") as file:
        tensors = [NewTensor(each.name, each, copied(original, each)) for each in layout.tensors]
        for _ in write_gguf(file, layout.version, values, tensors, layout.alignment):
            pass
    with pytest.raises(ModelLoadError, match="has no tokenizer"):
        LlamaModel(path, LoadOptions())


def test_loading_prints_nothing(smollm2_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    LlamaContext(LlamaModel(smollm2_path, LoadOptions())).model.close()
    printed = capfd.readouterr()
    assert printed.out == printed.err == ""
    assert any("llama_context" in line for line in log_lines())
    cancel, shares = CancelFlag(), list[float]()

    def on_progress(share: float) -> None:
        shares.append(share)
        cancel.set()

    with pytest.raises(Cancelled):
        LlamaModel(smollm2_path, LoadOptions(), cancel, on_progress)
    assert shares[-1] < 1


def test_a_model_that_a_thread_loads_is_reported_here_and_its_log_is_here(
    smollm2_path: Path, tmp_path: Path
) -> None:
    cancel, shares = CancelFlag(), list[float]()

    def load(path: Path) -> ModelThread:
        return ModelThread(lambda report: LlamaModel(path, LoadOptions(), cancel, report))

    with closing(load(smollm2_path).model(shares.append)) as model:
        assert model.n_vocab > 0
    assert shares == sorted(shares)
    assert any("llama_model_loader" in line for line in log_lines())
    odd = tmp_path / "odd.gguf"
    odd.write_bytes(b"GGUF" + b"\0" * 64)
    with pytest.raises(ModelLoadError, match=r"odd\.gguf"):
        load(odd).model(shares.append)
    assert log_lines()
    cancel.set()
    with pytest.raises(Cancelled):
        load(smollm2_path).model(shares.append)


def test_texts_and_special_texts_as_tokens(smollm2: LlamaModel) -> None:
    vocabulary, text = smollm2.vocabulary, "Ünïcödé, 漢字, 🙂 and\n\ttabs\0"
    ids = vocabulary.tokenize(text, add_special=False, parse_special=False)
    assert b"".join(map(vocabulary.piece, ids)).decode() == text
    parsed, plain = (
        vocabulary.tokenize("<|im_end|>", add_special=False, parse_special=each)
        for each in (True, False)
    )
    assert len(parsed) == 1 < len(plain)
    assert vocabulary.piece(parsed[0]) == b""
    assert vocabulary.piece(parsed[0], special=True) == b"<|im_end|>"
    assert "<|im_end|>" in vocabulary.special_texts()
    handle = native.llama_model_get_vocab(smollm2.handle)
    every = {t for t in range(vocabulary.n_vocab) if native.llama_vocab_is_eog(handle, t)}
    assert every == vocabulary.eog
    assert "<|im_start|>" in (smollm2.chat_template or "")
    assert smollm2.tool_template is None


def test_options_out_of_range_are_refused_by_name() -> None:
    refused: list[dict[str, Any]] = [
        {"n_ctx": 1 << 40},
        {"gpu_layers": -1},
        {"threads": 0},
        {"kv_type": "q4_7"},
        {"flash_attention": False, "kv_type": "q4_0"},
        {"load_mode": "fast"},
        {"split": "rows"},
        {"tensor_split": "0,0"},
        {"tensor_split": "nan,1"},
        {"tensor_split": "-1,2"},
    ]
    for options in refused:
        name = next(iter(options)).removeprefix("n_")  # as users write it
        refuses(name, LoadOptions, **options)


def test_the_key_of_the_file_is_the_template_and_not_a_name_that_llama_cpp_guesses(
    tmp_path: Path,
) -> None:
    tokenizer = {**byte_tokenizer(), "tokenizer.ggml.pre": "tekken"}
    template = tokenizer.pop("tokenizer.chat_template")
    path = write_llama(tmp_path / "bare.gguf", layers=40, more=tokenizer)
    with closing(LlamaModel(path, LoadOptions(n_ctx=256))) as model:
        assert native.llama_model_chat_template(model.handle, None) == b"mistral-v7-tekken"
        assert (model.chat_template, model.tool_template) == (None, None)
    named = {"tokenizer.chat_template": template, "tokenizer.chat_template.tool_use": "é" * 5000}
    path = write_llama(tmp_path / "named.gguf", more=tokenizer | named)
    with closing(LlamaModel(path, LoadOptions(n_ctx=256))) as model:
        assert (model.chat_template, model.tool_template) == (template, "é" * 5000)
        assert model.metadata("general.architecture") == "llama"
