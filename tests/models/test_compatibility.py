"""Tokenizers of files: read, known by a fingerprint, and compared for whether one may draft for the other."""

from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from localspec.errors import ModelFileError, PairMismatch
from localspec.models.gguf import GgufHeader, parse_header, read_header
from localspec.models.pairs import Compatibility, Fit, compare_tokenizers, require_compatible
from localspec.models.tokenizer import fingerprint, shared_percent
from tests.models.gguf_builder import TOKENS, Content, build, model_file

Change = dict[str, Content | None]
SPECIALS = ["<unk>", "<s>", "</s>"]
ALIEN = [*SPECIALS, "x", "y", "z"]


def header(name: Any = "target.gguf", **changes: Content | None) -> GgufHeader:
    return parse_header(model_file(**changes), name=name)


def compare(**draft: Content | None) -> Compatibility:
    return compare_tokenizers(header().tokenizer, header("draft.gguf", **draft).tokenizer)


def mismatch(**draft: Content | None) -> str:
    assert compare(**draft).verdict is Fit.INCOMPATIBLE
    with pytest.raises(PairMismatch) as caught:
        require_compatible(header(), header("draft.gguf", **draft))
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 300
    return str(caught.value)


def test_equal_tokenizers_are_identical_and_padded_ones_fit() -> None:
    assert compare() == Compatibility(Fit.IDENTICAL, "", None, 100.0, 6)
    assert require_compatible(header(), header("draft.gguf")) == compare()
    scored = header(scores=[0, 1, 2, 3, 4, 5]).tokenizer
    assert compare_tokenizers(scored, scored).verdict is Fit.IDENTICAL
    padded = header(tokens=[*TOKENS, "[PAD6]", "[PAD7]"], token_type=[2, 3, 3, 1, 1, 1, 5, 5])
    for target, draft, sizes in ((padded, header(), "8 and 6"), (header(), padded, "6 and 8")):
        fit = compare_tokenizers(target.tokenizer, draft.tokenizer)
        notes = (f"vocabularies have {sizes} tokens",)
        assert fit == Compatibility(Fit.COMPATIBLE, "", None, 75.0, 6, notes)


def test_the_first_token_with_two_meanings_is_named_with_the_way_out() -> None:
    fit = compare(tokens=[*SPECIALS, "x", "b", "y"])
    assert fit.first_difference is not None
    assert (fit.verdict, fit.first_difference.token) == (Fit.INCOMPATIBLE, 3)
    assert fit.overlap_percent == pytest.approx(100 * 4 / 6)
    line = mismatch(tokens=[*SPECIALS, "b", "a", "ab"])
    assert line.startswith("token 3 is 'a' in target.gguf and 'b' in draft.gguf: ")
    assert "--draft-model" in line
    assert "--draft-model" not in mismatch(tokens=ALIEN), "nothing is in common"
    mismatch(tokens=["\n" * 3000, *TOKENS[1:]])
    assert "tokenizer kinds are 'gpt2' and 'llama'" in mismatch(model="llama")
    assert "4 ('b') is of type 1 and of type 6" in mismatch(token_type=[2, 3, 3, 1, 6, 1])


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"model": "llama"}, None),
        ({"tokens": [*TOKENS[:-1], "ba"]}, None),
        ({"tokens": [*SPECIALS, "a", "ba", "b"]}, None),  # equal when joined
        ({"eos_token_id": 1}, "special tokens"),
        ({"bos_token_id": None}, "special tokens"),
        ({"add_bos_token": False}, "flags"),
        ({"pre": None}, "pre-tokenizers"),
        ({"merges": ["b a"]}, "merges"),
        ({"scores": [0, 1, 2, 3, 4, 5]}, "scores"),
        ({"token_type": [2, 3, 3, 1, 4, 1]}, "types of tokens"),
        ({"token_type": None, "eot_token_id": 2}, "types of tokens and special tokens"),
    ],
)
def test_every_part_of_a_tokenizer_counts(change: Change, what: str | None) -> None:
    # Registries hold fingerprints: a change of this number is a change of their format.
    known = "40bbc847a84151efee83bdff39f0a5b9a1a162970bbfbfab0b6f96364b61aa13"
    assert fingerprint(header().tokenizer) == known != fingerprint(header(**change).tokenizer)
    fit = compare(**change)
    assert fit.verdict is (Fit.COMPATIBLE if what else Fit.INCOMPATIBLE)
    assert what is None or fit.notes == (f"{what} differ: those of the target count",)


def test_numbers_count_whatever_holds_them() -> None:
    one, other = (header(scores=each).tokenizer for each in ([0] * 6, [0, 0, 0, 1, 0, 0]))
    assert compare_tokenizers(one, other).notes == ("scores differ: those of the target count",)
    types, scores = np.array(one.types, "<u4"), np.array(one.scores, "<f8")
    assert fingerprint(one) == fingerprint(replace(one, types=types, scores=scores))


def test_all_parts_of_a_tokenizer_are_read_and_some_may_be_absent() -> None:
    tokenizer = header(scores=[5, 4, 3, 2, 1, 0], eot_token_id=2, add_eos_token=False).tokenizer
    assert (tokenizer.model, tokenizer.pre) == ("gpt2", "toy-bpe")
    assert [token.decode() for token in tokenizer.tokens] == TOKENS
    assert list(tokenizer.types) == [2, 3, 3, 1, 1, 1]  # type: ignore[arg-type]
    assert list(tokenizer.scores) == [5, 4, 3, 2, 1, 0]  # type: ignore[arg-type]
    assert list(tokenizer.merges) == [b"a b"]  # type: ignore[arg-type]
    assert tokenizer.special_ids == {"bos": 1, "eos": 2, "eot": 2}
    assert tokenizer.flags == {"add_bos_token": True, "add_eos_token": False}
    assert tokenizer.piece(5) == "ab"
    bare = header(pre=None, token_type=None, merges=None).tokenizer
    assert (bare.pre, bare.types, bare.scores, bare.merges) == (None,) * 4


def test_parts_that_contradict_each_other_are_refused() -> None:
    for key in ("token_type", "scores", "merges", "tokens"):
        with pytest.raises(ModelFileError, match=r"target.gguf"):
            _ = header(**{key: [1, 2]}).tokenizer
    with pytest.raises(ModelFileError, match=r"target.gguf"):
        _ = header(scores="text").tokenizer
    with pytest.raises(ModelFileError, match=r"toy.gguf has no tokenizer"):
        _ = parse_header(build({}), name="toy.gguf").tokenizer


def test_tokens_are_shared_where_they_stand_for_the_same_bytes() -> None:
    target = header(tokens=[*SPECIALS, "a", "Ġb", "Ċ"]).tokenizer
    words = header(
        model="llama",
        tokens=[*SPECIALS, "<0x0A>", "▁b", "a", "▁a", "b"],
        token_type=[2, 3, 3, 6, 1, 1, 1, 1],
    ).tokenizer
    assert shared_percent(target, words) == 60, "a line feed, b after a space, and a"
    assert shared_percent(words, target) == 100
    assert shared_percent(target, header(tokens=ALIEN).tokenizer) == 0
    for unknown in ("no_vocab", "bert"):
        assert shared_percent(target, header(model=unknown).tokenizer) == 0
        assert shared_percent(header(model=unknown).tokenizer, target) == 0
    odd = [b"<unk>", b"<s>", b"</s>", b"<0xZZ>", "語".encode(), b"\xff"]
    for kind in (1, 4, 6):  # what is no piece of its alphabet is shared as it stands
        types = [2, 3, 3, kind, kind, kind]
        one, other = (header(tokens=odd, token_type=types).tokenizer for _ in range(2))
        assert shared_percent(one, other) == 100


@pytest.mark.pair
def test_the_real_pair(qwen_target_path: Path, qwen_draft_path: Path, smollm2_path: Path) -> None:
    target, small = read_header(qwen_target_path), read_header(smollm2_path)
    fit = require_compatible(target, read_header(qwen_draft_path))
    assert (fit.verdict, fit.shared_vocab) == (Fit.IDENTICAL, 151936)
    with pytest.raises(PairMismatch, match=r"token 0 is '!' in .* and '<\|endoftext\|>' in "):
        require_compatible(target, small)
    assert shared_percent(target.tokenizer, small.tokenizer) == pytest.approx(79.8, abs=0.1)


# Every other pair has other pieces for nearly all ids. These three were read by hand:
FITTING = {
    # MPT was trained with the tokenizer of GPT-NeoX-20B. Only the file of mpt names its pre-tokenizer.
    ("gpt-neox", "mpt"): ("pre-tokenizers differ: those of the target count",),
    # Phi-3 extends Llama 2's 32,000 tokens by 64 control tokens (arXiv:2404.14219).
    ("llama-spm", "phi-3"): (
        "vocabularies have 32000 and 32064 tokens",
        "types of tokens and scores and special tokens differ: those of the target count",
    ),
    ("qwen2", "qwen35"): ("pre-tokenizers differ: those of the target count",),
}


@pytest.mark.weights
@pytest.mark.slow
def test_three_of_171_pairs_of_tokenizers_fit(vocabularies: dict[str, Path]) -> None:
    tokenizers = {name: read_header(path).tokenizer for name, path in vocabularies.items()}
    fitting, names = {}, sorted(tokenizers)
    for one, other in combinations(names, 2):
        ours, theirs = tokenizers[one], tokenizers[other]
        fit, turned = compare_tokenizers(ours, theirs), compare_tokenizers(theirs, ours)
        for attribute in ("verdict", "overlap_percent", "shared_vocab"):
            assert getattr(turned, attribute) == getattr(fit, attribute)
        if fit.verdict is not Fit.INCOMPATIBLE:
            fitting[one, other] = fit.notes
            continue
        different = fit.first_difference
        assert different is not None
        token, pieces = different.token, [different.target_piece, different.draft_piece]
        assert pieces == [each.piece(token) for each in (ours, theirs)]
        assert pieces[0] != pieces[1]
        assert list(ours.tokens[:token]) == list(theirs.tokens[:token])
        assert fit.overlap_percent < 5
    assert fitting == FITTING
    for each in tokenizers.values():
        assert compare_tokenizers(each, each).verdict is Fit.IDENTICAL
    assert len({*map(fingerprint, tokenizers.values())}) == 19
