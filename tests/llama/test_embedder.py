"""Texts become vectors: alone or among others, pooled as the file says, long ones cut."""

from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from localspec.decoding.cancel import CancelFlag, Cancelled
from localspec.errors import ContextOverflow, ModelLoadError
from localspec.llama.embedder import Embedder
from localspec.llama.model import LlamaModel
from localspec.llama.spare_cores import CoreUsage, SpareCores
from localspec.options import LoadOptions
from tests.llama import tiny_models
from tests.support.checks import refuses

MEAN, CLS, LAST, RANK = 1, 2, 3, 4
COUNTS = 0.01
"""How much the layers do: so little that a vector tells which letters were pooled."""
TEXTS = ["the cat sat", "a", "", "zebra \N{SNOWMAN} 123", "the cat sat down on the mat " * 12]
Make = Callable[[int | None], Embedder]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    models = list[LlamaModel]()

    def made(pooling: int | None) -> Embedder:
        path = tiny_models.write_llama(tmp_path / f"{pooling}.gguf", COUNTS, pooling=pooling)
        models.append(LlamaModel(path, LoadOptions(gpu_layers=0, repack=False)))
        return Embedder(models[-1])

    yield made
    for each in models:
        each.close()


@pytest.mark.parametrize("pooling", [None, MEAN, CLS, LAST])
def test_a_text_has_the_same_vector_alone_and_among_others(make: Make, pooling: int | None) -> None:
    embedder = make(pooling)
    together = embedder.vectors(TEXTS * 9)
    assert together.shape == (9 * len(TEXTS), embedder.width)
    assert np.allclose(np.linalg.norm(together, axis=1), 1, atol=1e-5)
    for at, text in enumerate(TEXTS):
        alone = embedder.vectors([text])[0]
        assert np.allclose(together[at :: len(TEXTS)] @ alone, 1, atol=1e-3), text
    assert embedder.vectors([]).shape == (0, embedder.width)


def test_a_question_waits_for_no_busy_program(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    looks, waits = list[int](), list[float]()

    def busy() -> CoreUsage:
        looks.append(1)
        return CoreUsage(1.0, 1.0, 0.0, n_cores=2, others=2)

    module = "localspec.llama.native_context"
    monkeypatch.setattr(f"{module}.SpareCores", partial(SpareCores, look=busy, pause=waits.append))
    monkeypatch.setattr(f"{module}.default_threads", lambda: 2)
    make(MEAN).vectors(["one question"])
    assert (looks, waits) == ([1], [])


def test_the_file_says_how_vectors_are_pooled(make: Make) -> None:
    same_end, same_beginning = {}, {}
    for pooling in (None, MEAN, CLS, LAST):
        embedder = make(pooling)
        one, two, three = embedder.vectors(["first word last", "first thing last", "first word"])
        same_end[pooling], same_beginning[pooling] = one @ two, one @ three
    # The first token sees nothing behind it, so all that begins alike is the same.
    assert np.isclose(same_end[CLS], 1, atol=1e-4)
    assert same_end[LAST] > same_beginning[LAST]
    assert np.isclose(same_end[None], same_end[MEAN], atol=1e-6)
    assert same_end[MEAN] < 0.9999
    long = "x" * (embedder.most_tokens + 50)  # is cut, and its end kept
    vectors = embedder.vectors([f"{long}a", f"{long}b", f"{long}{long}a"])
    assert vectors[0] @ vectors[2] > 0.999 > vectors[0] @ vectors[1]
    assert not make(MEAN).ranks


@pytest.mark.parametrize("pooling", [MEAN, LAST])
def test_a_text_may_be_as_long_as_the_model_was_trained_for(make: Make, pooling: int) -> None:
    embedder = make(pooling)
    letters = [7 * at % 200 for at in range(1100)]
    alone = embedder.pooled([letters[:9]])
    for length in (512, 513, 1024):  # the context grows with the second
        (row,) = embedder.pooled([letters[:length]])
        assert np.isfinite(row).all()
    assert np.allclose(embedder.pooled([letters[:9]]), alone, atol=1e-3)
    # All of it counts, also what comes before the last pass.
    other = embedder.pooled([[9] * 500 + letters[500:1024]])
    assert not np.allclose(other, row, atol=1e-6)
    with pytest.raises(ContextOverflow, match="1025 tokens and the model takes 1024"):
        embedder.tokens(letters[:1025])
    assert embedder.tokens(letters[:1025], cut=True) == [*letters[:1023], letters[1024]]
    refuses(r"token 257 .* 0 to 256", embedder.tokens, [257])
    refuses("empty", embedder.tokens, "")


def test_what_memory_does_not_hold_is_refused(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    embedder = make(MEAN)
    monkeypatch.setattr("localspec.llama.embedder.free_ram_bytes", lambda: 1000)
    with pytest.raises(ModelLoadError, match=r"a text of 600 tokens takes .* free"):
        embedder.pooled([[1] * 600])
    monkeypatch.undo()
    context, made = embedder._context, list[int]()

    def fails(tokens: int) -> Any:
        made.append(tokens)
        if tokens > 512:
            raise ModelLoadError("no memory")
        return context(tokens)

    monkeypatch.setattr(embedder, "_context", fails)
    with pytest.raises(ModelLoadError, match="no memory"):
        embedder.pooled([[1] * 600])
    assert made == [1024, 512]
    assert embedder.pooled([[1] * 512]).shape == (1, embedder.width)


def test_a_pass_of_a_long_text_can_be_stopped(tmp_path: Path) -> None:
    path = tiny_models.write_bert(tmp_path / "m.gguf")
    with closing(LlamaModel(path, LoadOptions(gpu_layers=0))) as model:
        flag = CancelFlag()
        embedder = Embedder(model, flag)
        flag.interrupt()
        with pytest.raises(Cancelled):
            embedder.pooled([[1] * 600])
        flag.resume()
        assert np.isfinite(embedder.pooled([[1] * 600])).all()


def test_a_ranker_scores_a_question_and_a_text_together(tmp_path: Path) -> None:
    path = tiny_models.write_bert(tmp_path / "m.gguf", RANK)
    with closing(LlamaModel(path, LoadOptions(gpu_layers=0))) as model:
        embedder = Embedder(model)
        assert (embedder.ranks, embedder.width) == (True, 1)
        tokens = embedder.pair_tokens("tea?", "hot")
        text = model.vocabulary.tokenize("tea?", add_special=False, parse_special=False)
        assert tokens[: len(text) + 2] == [256, *text, 256]
        assert tokens[-1] == 256
        pairs = [embedder.pair_tokens("tea?", each) for each in ("hot", "cold", "", "water " * 9)]
        scores = embedder.pooled(pairs)
        assert scores.shape == (4, 1)
        alone = np.vstack([embedder.pooled([each]) for each in pairs])
        assert np.allclose(scores, alone, atol=0.01)
        assert np.ptp(scores) > 0.01
