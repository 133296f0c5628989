"""A model whose head was cut: the same logits for the ids that it has, and to others a model like any other."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from localspec.decoding.cancel import CancelFlag
from localspec.decoding.model import Pass, Role
from localspec.errors import ModelFileError, ModelLoadError, PairMismatch
from localspec.launch.cut_head import cut_head
from localspec.launch.plan import make_plan
from localspec.llama.context import LlamaContext
from localspec.llama.model import LlamaModel
from localspec.llama.quantize import quantise
from localspec.llama.sequences import LlamaSequences
from localspec.models.cut_head import can_cut, read_cut, write_cut
from localspec.models.gguf import read_header
from localspec.models.pairs import Fit, compare_tokenizers
from localspec.models.tokenizer import fingerprint
from localspec.options import LaunchOptions, LoadOptions
from tests.tailor.tiny_llama import write

OPTIONS = LoadOptions(n_ctx=64, threads=1, gpu_layers=0, max_rows=4)
IDS = np.array([0, 3, *range(97, 123), 256])
TOKENS = [100, 200, 5, 101, 256, 66]  # some of them without a row


@pytest.fixture(params=["F32", "Q4_0"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Path]:
    """Return a model, and the same with a cut head."""
    whole = write(tmp_path / "whole.gguf")
    if request.param != "F32":
        quantise(whole, tmp_path / "smaller.gguf", {})
        whole = tmp_path / "smaller.gguf"
    write_cut(whole, tmp_path / "cut.gguf", IDS)
    return whole, tmp_path / "cut.gguf"


def loaded(path: Path) -> LlamaModel:
    return LlamaModel(path, OPTIONS, head=cut_head(path))


def same(cut: np.ndarray, whole: np.ndarray) -> bool:
    others = np.setdiff1d(np.arange(whole.shape[1]), IDS)
    assert cut.shape == whole.shape
    return bool(
        np.allclose(cut[:, IDS], whole[:, IDS], rtol=1e-3, atol=1e-3)
        and np.all(cut[:, others] == -np.inf)
    )


def test_logits_are_those_of_the_whole_model_where_the_head_has_a_row(
    files: tuple[Path, Path],
) -> None:
    whole, cut = (LlamaContext(loaded(each)) for each in files)
    assert cut.n_vocab == whole.n_vocab == 257
    assert same(cut.logits(TOKENS, 3), whole.logits(TOKENS, 3))
    # What was evaluated is kept, and a text that goes another way is cut back, as ever.
    other = [*TOKENS[:3], 7, 8]
    assert cut.common_prefix(other) == 3
    assert same(cut.logits(other, 1), whole.logits(other, 1))


def test_several_sequences_have_rows_of_their_own(files: tuple[Path, Path]) -> None:
    texts = [TOKENS, TOKENS[::-1]]
    whole = LlamaContext(loaded(files[0]))
    rows = [whole.logits(text, 2).copy() for text in texts]
    model = loaded(files[1])
    both = LlamaSequences(model, CancelFlag(), OPTIONS, 2, 4)
    asked = [(slot, Pass(Role.DRAFT_MODEL, text, 2)) for slot, text in enumerate(texts)]
    for found, row in zip(both.together(asked), rows, strict=True):
        assert same(found, row)


def test_its_tokenizer_is_what_it_was(files: tuple[Path, Path]) -> None:
    whole, cut = (read_header(each) for each in files)
    assert compare_tokenizers(whole.tokenizer, cut.tokenizer).verdict is Fit.IDENTICAL
    assert fingerprint(whole.tokenizer) == fingerprint(cut.tokenizer)
    assert can_cut(whole)
    assert not can_cut(cut)
    assert read_cut(files[0]) is None


def test_it_is_no_target(files: tuple[Path, Path]) -> None:
    with pytest.raises(ModelLoadError, match="has no vocabulary"):
        LlamaModel(files[1], OPTIONS)


def test_it_drafts_for_no_target_of_another_vocabulary(
    files: tuple[Path, Path], tmp_path: Path
) -> None:
    other = tmp_path / "other.gguf"
    other.write_bytes(files[0].read_bytes().replace(b"<|endoftext|>", b"<|endoffile|>"))
    asked = LaunchOptions(
        target=str(other), draft_model=str(files[1]), draft="model", load=OPTIONS, fit=False
    )
    with pytest.raises(PairMismatch, match="token 256"):
        make_plan(asked)
    assert make_plan(replace(asked, target=str(files[0]))).cut_head


def test_a_damaged_one_is_told_in_one_line(files: tuple[Path, Path], tmp_path: Path) -> None:
    content = files[1].read_bytes()
    key = content.index(b"localspec.head.ids")
    at = content.index(np.array([0, 3], dtype="<u4").tobytes(), key)
    wrong = np.array([3, 0], dtype="<u4").tobytes()
    (tmp_path / "wrong.gguf").write_bytes(content[:at] + wrong + content[at + 8 :])
    with pytest.raises(ModelFileError, match="tailor it again"):
        read_cut(tmp_path / "wrong.gguf")
