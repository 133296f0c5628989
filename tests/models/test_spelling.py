"""Names as other programs spell them."""

import pytest

from localspec.errors import ModelUnavailable
from localspec.models.entries import ModelEntry
from localspec.models.names import resolve
from localspec.models.registry import like, load_registry, spelt

REGISTRY = load_registry()


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("qwen2.5-coder:1.5b", "qwen2.5-coder-1.5b"),
        ("qwen2.5-coder:1.5b-instruct-q4_K_M", "qwen2.5-coder-1.5b"),
        ("Qwen2.5-Coder-1.5B-Instruct-GGUF", "qwen2.5-coder-1.5b"),
        ("qwen3:4b", "qwen3-4b"),
        ("gemma-3-4b-it", "gemma3-4b"),
        ("SmolLM2-135M", "smollm2-135m"),
    ],
)
def test_a_model_is_known_by_the_names_of_others(text: str, name: str) -> None:
    found = resolve(text, REGISTRY)
    assert isinstance(found, ModelEntry)
    assert found.name == name


def test_a_pair_is_too() -> None:
    assert REGISTRY.pair("qwen2.5-coder:1.5b") is REGISTRY.pairs["qwen2.5-coder-1.5b"]
    assert REGISTRY.pair("demo") is REGISTRY.pairs["smollm2-135m"]


def test_a_family_means_no_model_and_all_of_them_are_offered_the_smallest_first() -> None:
    with pytest.raises(
        ModelUnavailable,
        match=r"qwen3-0.6b, qwen3-1.7b, .*, qwen3-4b, .*, qwen3-30b-a3b-2507, .* or qwen3-32b\?",
    ):
        REGISTRY.require("qwen3")


@pytest.mark.parametrize("text", ["qwen34b", "hi", "", "-", "why is the sky blue", "qwen3-4b:Q2_K"])
def test_what_is_no_spelling_means_nothing(text: str) -> None:
    assert not REGISTRY.knows(text)


def test_a_spelling_of_two_names_means_neither() -> None:
    assert spelt("toy-1b", ["toy:1b", "toy_1b"]) is None
    assert like("toy", ["toy-7b", "toy-500m", "other"]) == ["toy-500m", "toy-7b"]
