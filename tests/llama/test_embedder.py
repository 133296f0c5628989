"""Texts become vectors: alone or among others, pooled as the file says, long ones cut."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from localspec.errors import ModelLoadError
from localspec.llama.embedder import Embedder
from localspec.llama.model import LlamaModel
from localspec.llama.spare_cores import CoreUsage, SpareCores
from localspec.options import LoadOptions
from tests.llama import tiny_models

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


def test_the_file_says_how_vectors_are_pooled_or_that_it_ranks(make: Make) -> None:
    ends = ["first word last", "first thing last", "first word"]
    same_end, same_beginning = {}, {}
    for pooling in (None, MEAN, CLS, LAST):
        embedder = make(pooling)
        one, two, three = embedder.vectors(ends)
        same_end[pooling], same_beginning[pooling] = one @ two, one @ three
    # The first token sees nothing behind it, so all that begins alike is the same.
    assert np.isclose(same_end[CLS], 1, atol=1e-4)
    assert same_end[LAST] > same_beginning[LAST]
    assert np.isclose(same_end[None], same_end[MEAN], atol=1e-6)
    assert same_end[MEAN] < 0.9999
    long = "x" * (embedder.most_tokens + 50)  # is cut, and its end kept
    vectors = embedder.vectors([f"{long}a", f"{long}b", f"{long}{long}a"])
    assert vectors[0] @ vectors[2] > 0.999 > vectors[0] @ vectors[1]
    with pytest.raises(ModelLoadError, match="ranks texts"):
        make(RANK)


@pytest.mark.weights
def test_vectors_of_a_real_model_tell_what_texts_are_about(smollm2: LlamaModel) -> None:
    texts = ["Green tea is brewed with hot water.", "Pour boiling water over the tea leaves."]
    tea, hot, car = Embedder(smollm2).vectors([*texts, "def add(a, b): return a + b"])
    assert tea @ hot > max(tea @ car, hot @ car)
