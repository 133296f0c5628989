import numpy as np
import pytest

from localspec.models.gguf import parse_header
from localspec.models.tokenizer import TokenizerHeader, eog_tokens, fingerprint
from tests.models.gguf_builder import TOKENS, Content, model_file


def tokenizer(**changes: Content | None) -> TokenizerHeader:
    return parse_header(model_file(**changes), name="toy.gguf").tokenizer


def test_the_fingerprint_does_not_change_between_versions() -> None:
    # Registries hold fingerprints: a change of this number is a change of their format.
    known = "40bbc847a84151efee83bdff39f0a5b9a1a162970bbfbfab0b6f96364b61aa13"
    assert fingerprint(tokenizer()) == known


@pytest.mark.parametrize(
    "change",
    [
        {"model": "llama"},
        {"pre": None},
        {"pre": "other"},
        {"tokens": [*TOKENS[:-1], "ba"]},
        {"tokens": ["<unk>", "<s>", "</s>", "a", "ba", "b"]},
        {"token_type": [2, 3, 3, 1, 1, 4]},
        {"token_type": None},
        {"merges": None},
        {"merges": ["b a"]},
        {"scores": [0, 0, 0, 0, 0, 0]},
        {"eos_token_id": 1},
        {"bos_token_id": None},
        {"add_bos_token": False},
        {"add_bos_token": None},
    ],
)
def test_every_part_of_a_tokenizer_counts(change: dict[str, Content | None]) -> None:
    assert fingerprint(tokenizer(**change)) != fingerprint(tokenizer())


def test_the_number_type_of_a_file_does_not_count() -> None:
    one = tokenizer(scores=[0, 1, 2, 3, 4, 5])
    assert one.scores is not None
    assert one.types is not None
    other = TokenizerHeader(
        one.model,
        one.pre,
        one.tokens,
        one.types.astype(np.dtype("<u4")),
        one.scores.astype(np.dtype("<f8")),
        one.merges,
        one.special_ids,
        one.flags,
    )
    assert fingerprint(one) == fingerprint(other)


@pytest.mark.parametrize(
    ("tokens", "changes", "eog"),
    [
        (["a", "<|im_end|>", "</s>"], {"eos_token_id": 0}, {0, 1, 2}),
        (["a", "b", "c"], {"eos_token_id": 0, "eot_token_id": 1, "eom_token_id": 2}, {0, 1, 2}),
        (["a", "b", "c"], {"eos_token_id": 7}, set()),
        (["a", "b", "c"], {"eos_token_id": None, "model": "llama"}, {2}),
        (["a", "<|file_sep|>", "<PAD>"], {"eos_token_id": 0}, {0, 1, 2}),
        (["a", "<PAD>", "c"], {"eos_token_id": 0, "fim_pad_token_id": 2}, {0, 2}),
        (["<|end|>", "<|return|>", "<|call|>"], {"eos_token_id": 1}, {1, 2}),
        (["</s>", "<|tool_response>", "<eos>"], {"eos_token_id": 2}, {1, 2}),
    ],
)
def test_the_tokens_that_end_a_reply_are_found(
    tokens: list[str], changes: dict[str, Content | None], eog: set[int]
) -> None:
    base: dict[str, Content | None] = {"tokens": tokens, "token_type": None, "bos_token_id": None}
    assert eog_tokens(tokenizer(**{**base, **changes})) == eog
