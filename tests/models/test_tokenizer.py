from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from localspec.errors import ModelFileError
from localspec.models.gguf import parse_header, read_header
from localspec.models.tokenizer import TokenizerHeader, fingerprint
from tests.models.gguf_builder import TOKENS, Content, build, model_file


def tokenizer_of(**changes: Content | None) -> TokenizerHeader:
    return parse_header(model_file(**changes), name="toy.gguf").tokenizer


def test_all_parts_of_a_tokenizer_are_read_and_some_may_be_absent() -> None:
    tokenizer = tokenizer_of(scores=[5, 4, 3, 2, 1, 0], eot_token_id=2, add_eos_token=False)
    assert (tokenizer.model, tokenizer.pre) == ("gpt2", "toy-bpe")
    assert [token.decode() for token in tokenizer.tokens] == TOKENS
    assert tokenizer.types is not None
    assert tokenizer.types.tolist() == [2, 3, 3, 1, 1, 1]
    assert tokenizer.scores is not None
    assert tokenizer.scores.tolist() == [5, 4, 3, 2, 1, 0]
    assert tokenizer.merges is not None
    assert list(tokenizer.merges) == [b"a b"]
    assert tokenizer.special_ids == {"bos": 1, "eos": 2, "eot": 2}
    assert tokenizer.flags == {"add_bos_token": True, "add_eos_token": False}
    assert tokenizer.piece(5) == "ab"
    bare = tokenizer_of(pre=None, token_type=None, merges=None)
    assert (bare.pre, bare.types, bare.scores, bare.merges) == (None,) * 4


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("token_type", [1, 2]),
        ("scores", [1, 2]),
        ("scores", "text"),
        ("merges", [1, 2]),
        ("tokens", [1, 2]),
    ],
)
def test_parts_that_contradict_each_other_are_refused(key: str, value: Content) -> None:
    with pytest.raises(ModelFileError, match=r"toy.gguf"):
        tokenizer_of(**{key: value})
    with pytest.raises(ModelFileError, match=r"toy.gguf has no tokenizer"):
        _ = parse_header(build({}), name="toy.gguf").tokenizer


@pytest.mark.weights
def test_smollm2_is_read_and_where_it_is_cut_off_that_is_seen(
    smollm2_path: Path, tmp_path: Path
) -> None:
    header = read_header(smollm2_path)
    assert (header.architecture, header.context_length) == ("llama", 8192)
    tokenizer = header.tokenizer
    assert (tokenizer.model, tokenizer.pre, tokenizer.n_vocab) == ("gpt2", "smollm", 49152)
    assert (tokenizer.piece(0), tokenizer.special_ids["eos"]) == ("<|endoftext|>", 2)
    with smollm2_path.open("rb") as whole:
        (tmp_path / "cut.gguf").write_bytes(whole.read(4_000_000))
    with pytest.raises(ModelFileError, match="cut off after 4000000 bytes"):
        read_header(tmp_path / "cut.gguf")


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
    # Registries hold fingerprints: a change of this number is a change of their format.
    known = "40bbc847a84151efee83bdff39f0a5b9a1a162970bbfbfab0b6f96364b61aa13"
    assert fingerprint(tokenizer_of()) == known != fingerprint(tokenizer_of(**change))


def test_the_number_type_of_a_file_does_not_count() -> None:
    one = tokenizer_of(scores=[0, 1, 2, 3, 4, 5])
    assert one.scores is not None
    assert one.types is not None
    types, scores = one.types.astype(np.dtype("<u4")), one.scores.astype(np.dtype("<f8"))
    assert fingerprint(one) == fingerprint(replace(one, types=types, scores=scores))
