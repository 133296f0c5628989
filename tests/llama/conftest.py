"""SmolLM2, loaded once with the kernels whose narrow passes round alike."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from localspec.llama.model import LlamaModel
from localspec.llama.sequence import LlamaContext
from localspec.options import LoadOptions

OPTIONS = LoadOptions(n_ctx=1024, max_rows=8, n_batch=128).exact()


@pytest.fixture(scope="session")
def smollm2(smollm2_path: Path) -> Iterator[LlamaModel]:
    model = LlamaModel(smollm2_path, OPTIONS)
    yield model
    model.close()


@pytest.fixture
def context(smollm2: LlamaModel) -> Iterator[LlamaContext]:
    context = LlamaContext(smollm2)
    yield context
    context.close()


@pytest.fixture(scope="session")
def tokens(smollm2: LlamaModel) -> list[int]:
    """Ninety ordinary tokens."""
    text = "The quick brown fox jumps over the lazy dog, and nobody asks the dog why. " * 6
    return smollm2.vocabulary.tokenize(text, add_special=False, parse_special=False)[:90]
